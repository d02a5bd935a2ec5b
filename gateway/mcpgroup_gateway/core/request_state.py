"""`requestState`: what a modern client carries back when it was asked for input.

A token says which member asked and what that member wants to see again, or which call is still
open. It is signed and bound to the group, the caller and the request, so that a client can neither
invent nor move it; it is not secret. Pure: time is given, in Unix seconds.

Source: MCP 2026-07-28, multi-round-trip requests, "request state"; DESIGN-MCP section 6.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_TOKEN = 1 << 20


class InvalidState(ValueError):
    """A token that we did not make, for another request or caller, or that is too old."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """`pending` is the id of a call that waits for the answer; else the call is asked anew.

    `state` is the member's own, to be given back to it.
    """

    member: str
    state: str | None = None
    pending: str | None = None


class StateSealer:
    """Makes and reads tokens. The first of `keys` signs, all of them verify (rotation)."""

    def __init__(self, group: str, keys: Sequence[bytes]) -> None:
        self._group = group
        self._keys = tuple(keys)

    def seal(self, state: RequestState, *, caller: str, request: str, expires: float) -> str:
        """`request` is `digest_of` what was asked, `caller` names who may come back with it."""
        body = {
            "m": state.member,
            "s": state.state,
            "p": state.pending,
            "d": request,
            "e": math.ceil(expires),
        }
        payload = _encode(json.dumps(body, separators=(",", ":")).encode())
        return f"{payload}.{self._sign(self._keys[0], payload, caller)}"

    def open(self, token: str, *, caller: str, request: str, now: float) -> RequestState:
        """Raises `InvalidState`; its text is for the client."""
        payload, dot, signature = token[:_MAX_TOKEN].rpartition(".")
        if not dot or not signature.isascii():
            raise InvalidState("requestState is not one of this server")
        good = (
            hmac.compare_digest(self._sign(key, payload, caller), signature) for key in self._keys
        )
        if not any(good):
            raise InvalidState("requestState is not one that was given to this caller")
        body = json.loads(_decode(payload))
        if body["d"] != request:
            raise InvalidState("requestState belongs to another request")
        if body["e"] < now:
            raise InvalidState("requestState has expired; start the request anew")
        return RequestState(body["m"], body["s"], body["p"])

    def _sign(self, key: bytes, payload: str, caller: str) -> str:
        text = json.dumps([self._group, caller, payload]).encode()
        return _encode(hmac.digest(key, text, "sha256"))


def digest_of(method: str, name: str, arguments: bytes) -> str:
    """The same for two spellings of the same request."""
    try:
        canonical = json.dumps(json.loads(arguments or b"null"), sort_keys=True)
    except (ValueError, RecursionError):
        canonical = arguments.hex()
    text = json.dumps([method, name, canonical]).encode()
    return _encode(hashlib.sha256(text).digest()[:18])


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
