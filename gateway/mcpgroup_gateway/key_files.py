"""The keys that all replicas of a group share: files in the folder of `--keys` (DESIGN section 11).

    admin-token    what actions on the admin port must present

In a pod the folder is a Secret that the operator made, mounted read-only; anywhere else missing
keys are made. A file is read again at each use, so that a rotated key needs no restart. No key
stands in an error.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

ADMIN_TOKEN: Final = "admin-token"  # noqa: S105 - a file's name

_MAX_BYTES: Final = 4096
#: A shorter one can be guessed, and is too short to be found in logs and hidden there.
_MIN_CHARACTERS: Final = 8
_RANDOM_BYTES: Final = 32


class KeyUnusable(Exception):
    """There is no such key, or it is none; the text is a sentence that names its file."""


class KeyFiles:
    """Reads and makes the keys in one folder, which must exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make_missing(self) -> None:
        """Make the keys that are not there, for their owner only.

        Raises `KeyUnusable` where that is not possible, as in a read-only folder. Replicas that do
        this at the same time end up with one key: whoever reads takes what is there.
        """
        path = self._folder / ADMIN_TOKEN
        if os.path.lexists(path):
            return
        try:
            _write(path, secrets.token_urlsafe(_RANDOM_BYTES))
        except OSError as error:
            problem = (error.strerror or "error").lower()
            raise KeyUnusable(f"{path} is missing and cannot be made: {problem}") from None

    def admin_token(self) -> str:
        """The token of the admin port's actions. Raises `KeyUnusable`."""
        path = self._folder / ADMIN_TOKEN
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyUnusable(f"{path} is missing") from None
        except OSError as error:
            problem = (error.strerror or "error").lower()
            raise KeyUnusable(f"{path} cannot be read: {problem}") from None
        token = content.decode("utf-8", "surrogateescape").strip()
        if len(content) > _MAX_BYTES:
            raise KeyUnusable(f"{path} is longer than {_MAX_BYTES} bytes")
        if len(token) < _MIN_CHARACTERS:
            raise KeyUnusable(f"{path} holds fewer than {_MIN_CHARACTERS} characters")
        return token


def _write(path: Path, text: str) -> None:
    """A whole file or none: nobody reads the first half of a key."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
