"""Who reaches an API server and how: what a kubeconfig says, as one value."""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnusableKubeconfigError(Exception):
    """A kubeconfig asks for something that these tests do not do, such as a login program."""


@dataclass(frozen=True)
class Access:
    """A server and one user of it.

    `authority` is the PEM of its certificate authority (None: the system's), `certificate` a PEM
    with certificate and key. `impersonate` is a user name that an administrator acts as.
    """

    server: str
    authority: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    impersonate: str | None = None

    @classmethod
    def load(cls, path: Path) -> Self:
        """The current context of a kubeconfig.

        Raises `UnusableKubeconfigError`.
        """
        document = yaml.safe_load(path.read_text())
        context = _named(document["contexts"], document["current-context"])["context"]
        cluster = _named(document["clusters"], context["cluster"])["cluster"]
        user = _named(document["users"], context["user"])["user"]
        if cluster.get("insecure-skip-tls-verify") or user.keys() & {"exec", "auth-provider"}:
            raise UnusableKubeconfigError(f"{path}: no certificate authority, or a login program")
        certificate = _data(user, "client-certificate", path)
        key = _data(user, "client-key", path)
        token = user.get("token")
        if token is None and (file := user.get("tokenFile")):
            token = (path.parent / file).read_text().strip()
        return cls(
            server=cluster["server"].rstrip("/"),
            authority=_data(cluster, "certificate-authority", path),
            certificate=None if certificate is None else certificate + (key or ""),
            token=token,
        )

    def write(self, path: Path, *, namespace: str | None = None) -> Path:
        """Write it as a kubeconfig; the path."""
        cluster: dict[str, Any] = {"server": self.server}
        if self.authority is not None:
            cluster["certificate-authority-data"] = _encoded(self.authority)
        user: dict[str, Any] = {}
        if self.certificate is not None:
            user["client-certificate-data"] = _encoded(self.certificate)
            user["client-key-data"] = _encoded(self.certificate)
        if self.token is not None:
            user["token"] = self.token
        if self.impersonate is not None:
            user["as"] = self.impersonate
        context = {"cluster": "test", "user": "test"}
        if namespace is not None:
            context["namespace"] = namespace
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document))
        return path

    def via(self, server: str, authority: str | None) -> Access:
        """The same user by way of another address, such as a proxy's."""
        return replace(self, server=server, authority=authority)

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority)
        if self.certificate is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "user.pem"
                path.touch(mode=0o600)
                path.write_text(self.certificate)
                context.load_cert_chain(path)
        return context

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.impersonate is not None:
            headers["Impersonate-User"] = self.impersonate
        return headers


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _data(holder: dict[str, Any], key: str, path: Path) -> str | None:
    if encoded := holder.get(f"{key}-data"):
        return base64.b64decode(encoded).decode()
    return (path.parent / holder[key]).read_text() if key in holder else None


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
