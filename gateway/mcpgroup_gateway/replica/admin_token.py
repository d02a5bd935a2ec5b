"""What actions on the admin port must present."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.key_files import KeyFiles, KeyUnusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_log = logging.getLogger(__name__)

_RANDOM_BYTES: Final = 24


class AdminToken:
    """The key of the folder of `--keys`, or one that is made for this process alone.

    An `admin.view.TokenSource`. `conceal` hears every token, so that no log shows it. `printed` is
    the token where a person must be told it, and None where it is in a file.
    """

    def __init__(self, folder: Path | None, conceal: Callable[[str], None]) -> None:
        self.printed = secrets.token_urlsafe(_RANDOM_BYTES) if folder is None else None
        self._keys = KeyFiles(folder) if folder is not None else None
        self._conceal = conceal
        self._fault = ""

    def prepare(self) -> None:
        """Make what is missing; log what cannot be made."""
        try:
            if self._keys is not None:
                self._keys.make_missing()
            self()
        except KeyUnusable as fault:
            self._tell(str(fault))

    def __call__(self) -> str:
        if self._keys is None:
            assert self.printed is not None  # noqa: S101 - of the two one is there
            token = self.printed
        else:
            try:
                token = self._keys.admin_token()
            except KeyUnusable as fault:
                self._tell(str(fault))
                raise
        self._fault = ""
        self._conceal(token)
        return token

    def _tell(self, fault: str) -> None:
        """Once for each thing that is wrong: anybody may ask for actions, as often as he likes."""
        if fault != self._fault:
            self._fault = fault
            _log.warning("actions on the admin port are refused: %s", fault)
