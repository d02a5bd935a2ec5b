"""The cluster that tests use, whoever owns it: addresses, users, kubectl, audit log."""

from __future__ import annotations

import asyncio
import os
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.controlplane.access import Access
from tests.controlplane.api import Api
from tests.controlplane.audit import AuditLog
from tests.harness.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


_KUBECTL_SECONDS = 60
_TOKEN_SECONDS = 3600 * 6


@dataclass(frozen=True)
class Done:
    """What kubectl said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Cluster:
    """`access` is an administrator's. `folder` is this test process's, for kubeconfigs.

    `audit` and `authority` are None for a cluster that is not ours (`KUBECONFIG`).
    """

    access: Access
    kubectl_program: Path
    folder: Path
    audit: AuditLog | None = None
    authority: Authority | None = None

    @classmethod
    def of_plane(cls, plane: Path, kubectl: Path, folder: Path) -> Self:
        """One of our own: `plane` is the folder of a `ControlPlane`."""
        return cls(
            access=Access.load(plane / "kubeconfig"),
            kubectl_program=kubectl,
            folder=folder,
            audit=AuditLog(plane / "audit.log"),
            authority=Authority((plane / "authority.pem").read_bytes()),
        )

    def api(self, namespace: str | None = None, access: Access | None = None) -> Api:
        """A client, as administrator if nobody else is named."""
        return Api(access or self.access, namespace)

    def kubeconfig(self, access: Access | None = None, namespace: str | None = None) -> Path:
        """A new kubeconfig file, the administrator's if nobody else is named."""
        path = self.folder / f"{uuid.uuid4().hex}.kubeconfig"
        return (access or self.access).write(path, namespace=namespace)

    def user(self, name: str) -> Access:
        """A person without any right but those that bindings to this name give."""
        if self.authority is None:
            return replace(self.access, impersonate=name)
        return replace(self.access, certificate=self.authority.user(name).decode())

    async def service_account(
        self, name: str, namespace: str, *, seconds: int = _TOKEN_SECONDS
    ) -> Access:
        """A service account by a token of its own. It must be there already."""
        token = await self.token(name, namespace, seconds=seconds)
        return replace(self.access, certificate=None, token=token, impersonate=None)

    async def token(self, name: str, namespace: str, *, seconds: int = _TOKEN_SECONDS) -> str:
        """A token from the TokenRequest API."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        async with self.api() as api:
            answer = await api.request("POST", path, body=body)
        return str(answer["status"]["token"])

    def audit_log(self) -> AuditLog:
        """The audit log; a test that asks for it is skipped where there is none."""
        if self.audit is None:
            pytest.skip("the cluster of KUBECONFIG is not ours: its audit log cannot be read")
        return self.audit

    async def assert_no_nodes(self) -> None:
        """For tests with stand-ins for pods: skipped where real nodes would run the pods."""
        async with self.api() as api:
            if await api.list("nodes"):
                pytest.skip("the cluster of KUBECONFIG has nodes, which run pods themselves")

    async def kubectl(
        self,
        *arguments: str,
        namespace: str | None = None,
        access: Access | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Done:
        """Run kubectl as administrator or as `access`; with `check` it must succeed."""
        config = self.kubeconfig(access, namespace)
        process = await asyncio.create_subprocess_exec(
            str(self.kubectl_program),
            f"--kubeconfig={config}",
            f"--cache-dir={self.folder / 'discovery'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        try:
            async with asyncio.timeout(_KUBECTL_SECONDS):
                out, err = await process.communicate((stdin or "").encode())
        finally:
            config.unlink()
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        done = Done(process.returncode, out.decode(), err.decode())
        if check:
            assert done.code == 0, f"kubectl {' '.join(arguments)}: {done.err}"
        return done

    async def namespace_as_owner(self, namespace: str) -> dict[str, Any]:
        """An owner reference: what has it goes with the namespace."""
        async with self.api() as api:
            found = await api.get("namespaces", namespace)
        uid = found["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid}

    async def grant(
        self, account: str, namespace: str, rules: Sequence[Mapping[str, Any]], *, wide: bool = True
    ) -> str:
        """Make a service account that may do what `rules` (as in a ClusterRole) say, and no more:
        everywhere, or with `wide=False` in its namespace. Its name as the audit log gives it."""
        scope, binding = ("clusterroles", "clusterrolebindings")
        kind, name, where = "ClusterRole", f"{namespace}-{account}", None
        if not wide:
            scope, binding, kind, name, where = "roles", "rolebindings", "Role", account, namespace
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        async with self.api(namespace) as api:
            if await api.find("serviceaccounts", account) is None:
                await api.create("serviceaccounts", {"metadata": {"name": account}})
            metadata: dict[str, Any] = {"name": name}
            if wide:
                metadata["ownerReferences"] = [await self.namespace_as_owner(namespace)]
            await api.create(scope, {"metadata": metadata, "rules": list(rules)}, where)
            bound = {"metadata": metadata, "roleRef": role, "subjects": [subject]}
            await api.create(binding, bound, where)
        return f"system:serviceaccount:{namespace}:{account}"
