"""Values that the manifest takes from Secrets: files `<directory>/<name>/<key>`, as in a pod.

They are read again at each use, so that a rotated Secret needs no restart. Kubernetes keeps every
byte of a Secret; editors and `echo` end a file with a new line that nobody means, so exactly one
at the end is left out. Nothing in a value is expanded, and no value stands in an error.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from mcpgroup_api.patterns import DNS_SUBDOMAIN, ONE_LINE, REFERENCE_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from mcpgroup_api import EnvVariable, Header, McpServerGroup, Member, SecretKeyRef

MAX_BYTES: Final = 64 * 1024

_NAME: Final = re.compile(DNS_SUBDOMAIN)
_KEY: Final = re.compile(REFERENCE_KEY)
_ONE_LINE: Final = re.compile(ONE_LINE)


class SecretError(Exception):
    """A value cannot be used. `name` and `key` say which; the text is a sentence with both."""

    def __init__(self, reference: SecretKeyRef, problem: str) -> None:
        # No colon after the key: what follows "token:" in a log is taken for a token, and hidden.
        super().__init__(f"secret {reference.name}, key {reference.key} is unusable ({problem})")
        self.name = reference.name
        self.key = reference.key


class SecretFiles:
    """Reads under one directory; None when the program was given none."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def read(self, reference: SecretKeyRef) -> bytes:
        """The content as it is, at most 64 KiB. Raises `SecretError`."""
        if self._directory is None:
            raise SecretError(reference, "no folder of secrets, --secrets DIR, is given")
        # Models that were not validated must not lead out of the directory either.
        if not (_NAME.fullmatch(reference.name) and _KEY.fullmatch(reference.key)):
            raise SecretError(reference, "no Secret has such a name and key")
        path = self._directory / reference.name / reference.key
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise SecretError(reference, "there is no such file") from None
        except OSError as error:
            problem = (error.strerror or "error").lower()
            raise SecretError(reference, f"its file cannot be read, {problem}") from None
        if len(content) > MAX_BYTES:
            raise SecretError(reference, f"it is longer than {MAX_BYTES} bytes")
        return content

    def env(self, variable: EnvVariable) -> str:
        """The value of a variable, written in the manifest or taken from its Secret."""
        if variable.value_from is None:
            return variable.value or ""
        reference = variable.value_from.secret_key_ref
        value = self._text(reference)
        if "\0" in value:
            raise SecretError(reference, "it holds a zero byte, which no variable can")
        return value

    def header(self, header: Header) -> str:
        """The value of a header, written in the manifest or taken from its Secret."""
        if header.value_from is None:
            return header.value or ""
        reference = header.value_from.secret_key_ref
        value = self._text(reference)
        if not _ONE_LINE.fullmatch(value):
            raise SecretError(reference, "it holds control characters, which no header can")
        return value

    def missing(self, group: McpServerGroup) -> list[str]:
        """`name/key` of everything the group refers to that cannot be read, in its order."""
        found: dict[str, None] = {}
        for member in group.spec.members:
            for reference in references(member):
                try:
                    self.read(reference)
                except SecretError:
                    found[f"{reference.name}/{reference.key}"] = None
        return list(found)

    def fingerprint(self, member: Member) -> str | None:
        """Equal for equal values of all that the member refers to; None while one is missing."""
        state = hashlib.sha256()
        for reference in references(member):
            try:
                value = self.read(reference)
            except SecretError:
                return None
            state.update(b"%d:" % len(value) + value)
        return state.hexdigest()

    def _text(self, reference: SecretKeyRef) -> str:
        try:
            text = self.read(reference).decode()
        except UnicodeDecodeError:
            raise SecretError(reference, "it is no text in UTF-8") from None
        return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def members_with(group: McpServerGroup, secrets: Collection[str]) -> set[str]:
    """The members that refer to one of these, given as `name/key`."""
    return {
        member.name
        for member in group.spec.members
        if any(f"{reference.name}/{reference.key}" in secrets for reference in references(member))
    }


def references(member: Member) -> Iterator[SecretKeyRef]:
    """Every Secret that a member refers to, in the order of the manifest."""
    entries: tuple[Header, ...] | tuple[EnvVariable, ...] = ()
    if member.http is not None:
        entries = member.http.headers
        if member.http.tls.ca_secret_ref is not None:
            yield member.http.tls.ca_secret_ref
    elif member.stdio is not None:
        entries = member.stdio.env
    for entry in entries:
        if entry.value_from is not None:
            yield entry.value_from.secret_key_ref
