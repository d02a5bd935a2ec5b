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


class ApiError(Exception):
    """`status` is 0 when there was no answer. The text is bounded and has no body of an object."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {message}"[:1000])
        self.what = what
        self.status = status
        self.message = message[:800]


class UnreachableError(ApiError):
    """No answer in time."""


class BusyError(ApiError):
    """The server asks to come back later."""

    retry_after: float | None = None


class ConflictError(ApiError):
    """The object is not as it was thought to be."""


class NamespaceEndingError(ApiError):
    """Nothing can be made in a namespace that is being deleted."""


class NotFoundError(ApiError):
    """No such object, or no such kind."""


class GoneError(ApiError):
    """The version that was asked for is no longer known."""


class ForbiddenError(ApiError):
    """The service account lacks a verb."""


class InvalidError(ApiError):
    """The API server refuses the object as it is; the message says which field."""


class ServerError(ApiError):
    """The API server failed."""


class NotLeadingError(Exception):
    """Another operator may lead by the time this write would arrive."""
