"""What can go wrong between the operator and the API server.

ApiError                     anything that the API server, or the way to it, refused
  UnreachableError           no answer: connection refused or cut, deadline passed
  BusyError                  429 or 503, with `retry_after` seconds when the server said so
  ConflictError              409: changed meanwhile, or a field belongs to somebody else
  NamespaceEndingError       the namespace is being deleted: nothing can be made there
  NotFoundError              404
  GoneError                  410: the version that was asked for is too old
  ForbiddenError             403: the message names the verb that is missing
  InvalidError               400 or 422: the object is refused as it is
  ServerError                other 5xx
NotLeadingError              a write was held back: the lease is not certain enough
"""

from __future__ import annotations

from typing import ClassVar


class ApiError(Exception):
    """`status` is 0 when there was no answer. The text is bounded and has no body of an object."""

    reason: ClassVar[str] = "refused"
    """For metrics."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {message}"[:1000])
        self.what = what
        self.status = status
        self.message = message[:800]


class UnreachableError(ApiError):
    """No answer in time."""

    reason = "unreachable"


class BusyError(ApiError):
    """The server asks to come back later."""

    reason = "busy"
    retry_after: float | None = None


class ConflictError(ApiError):
    """The object is not as it was thought to be."""

    reason = "conflict"


class NamespaceEndingError(ApiError):
    """Nothing can be made in a namespace that is being deleted."""

    reason = "namespace_ending"


class NotFoundError(ApiError):
    """No such object, or no such kind."""

    reason = "not_found"


class GoneError(ApiError):
    """The version that was asked for is no longer known."""

    reason = "gone"


class ForbiddenError(ApiError):
    """The service account lacks a verb."""

    reason = "forbidden"


class InvalidError(ApiError):
    """The API server refuses the object as it is; the message says which field."""

    reason = "invalid"


class ServerError(ApiError):
    """The API server failed."""

    reason = "server_error"


class NotLeadingError(Exception):
    """Another operator may lead by the time this write would arrive."""
