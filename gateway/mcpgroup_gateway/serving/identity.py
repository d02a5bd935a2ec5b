"""Whether an endpoint that runs is what a configuration asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """What an endpoint was made of.

    `source` is `connectors.source_identity`, `secrets` the fingerprint of the values of its
    Secrets, None while one of them cannot be read.
    """

    source: str
    secrets: str | None

    def matches(self, wanted: Identity) -> bool:
        """Whether the endpoint can stay. A Secret that is missing is no reason to replace one that
        was given its value, nor one that waits for it."""
        same = None in (self.secrets, wanted.secrets) or self.secrets == wanted.secrets
        return self.source == wanted.source and same

    def updated(self, wanted: Identity) -> Identity:
        """Of an endpoint that stays."""
        return wanted if wanted.secrets is not None else Identity(wanted.source, self.secrets)
