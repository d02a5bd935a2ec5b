"""Requests to the API server, as plain dicts, with typed errors and a deadline each.

Writes pass a gate first: with two operators, only the one whose lease is certain for longer than
the write can take may write (a lease alone fences nothing); and once more when they leave.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlencode

import aiohttp

from mcpgroup_operator import errors
from mcpgroup_operator.fencing import FencedBody
from mcpgroup_operator.kinds import Kind, kind_of
from mcpgroup_operator.names import FIELD_MANAGER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

WRITE_SECONDS: Final = 4.0
READ_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 3.0

_PAGE: Final = 500
_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"

Manifest = dict[str, Any]


class Page(NamedTuple):
    """A part of a list; `version` is that of the whole, at which all parts are read."""

    items: list[Manifest]
    version: int


class WriteGate(Protocol):
    """Whether a write that takes at most so many seconds may start now."""

    def allows(self, seconds: float) -> bool: ...


class RequestObserver(Protocol):
    """Told of every request, for metrics. `code` is "error" when there was no answer."""

    def requested(self, verb: str, resource: str, code: str, seconds: float) -> None: ...


class Client:
    """One per process. `server` is the URL of the API server; `session` authenticates."""

    def __init__(
        self,
        server: str,
        session: aiohttp.ClientSession,
        gate: WriteGate,
        observer: RequestObserver,
        *,
        clock: Any,
    ) -> None:
        self._server = server.rstrip("/")
        self._session = session
        self._gate = gate
        self._observer = observer
        self._clock = clock

    # --- reads

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """Raises `NotFoundError` when there is none."""
        return await self._read("get", kind, kind.path(namespace, name), READ_SECONDS)

    async def find(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """The object, or None when there is none."""
        try:
            return await self.get(kind, namespace, name)
        except errors.NotFoundError:
            return None

    async def pages(
        self, kind: Kind, namespace: str | None, label_selector: str = ""
    ) -> AsyncIterator[Page]:
        """All objects of a kind in a namespace, or everywhere, page by page.

        Raises `GoneError` when the server forgot the version between two pages.
        """
        query = {"limit": str(_PAGE)}
        if label_selector:
            query["labelSelector"] = label_selector
        while True:
            path = f"{kind.path(namespace)}?{urlencode(query)}"
            page = await self._read("list", kind, path, LIST_SECONDS)
            metadata = page.get("metadata") or {}
            version = str(metadata.get("resourceVersion", ""))
            yield Page(page.get("items") or [], int(version) if version.isdigit() else 0)
            rest = metadata.get("continue")
            if not rest:
                return
            query["continue"] = rest

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows the kind at all."""
        path = kind.path(None).rpartition("/")[0]
        try:
            found = await self._read("get", kind, path, READ_SECONDS)
        except errors.NotFoundError:
            return False
        return any(entry.get("name") == kind.plural for entry in found.get("resources") or [])

    async def raw_get(self, path: str, seconds: float, limit: int) -> bytes:
        """The body at any path, at most `limit` bytes of it; for the proxy to pods."""
        return await self._request("get", "proxy", "GET", path, None, seconds, limit)

    # --- writes

    async def apply(self, manifest: Manifest, *, force: bool, subresource: str = "") -> Manifest:
        """Server-side apply; the answer is the object as it is now. With `metadata.uid` in the
        manifest it never creates one. Raises `ConflictError` when a field is somebody else's and
        `force` is not set."""
        kind, namespace, name = _place(manifest)
        query = {"fieldManager": FIELD_MANAGER, "force": str(force).lower()}
        query["fieldValidation"] = "Strict"
        path = f"{kind.path(namespace, name, subresource)}?{urlencode(query)}"
        return await self._write("patch", kind, "PATCH", path, manifest, _APPLY, subresource)

    async def create(self, manifest: Manifest) -> Manifest:
        """Raises `ConflictError` when there is one of that name already."""
        kind, namespace, _ = _place(manifest)
        path = f"{kind.path(namespace)}?fieldManager={FIELD_MANAGER}"
        return await self._write("create", kind, "POST", path, manifest, "application/json")

    async def replace(self, manifest: Manifest) -> Manifest:
        """Raises `ConflictError` when the object is no longer at the manifest's version."""
        kind, namespace, name = _place(manifest)
        path = f"{kind.path(namespace, name)}?fieldManager={FIELD_MANAGER}"
        return await self._write("update", kind, "PUT", path, manifest, "application/json")

    async def json_patch(
        self, kind: Kind, namespace: str, name: str, operations: list[Manifest]
    ) -> Manifest:
        """Raises `InvalidError` when one of its tests does not hold."""
        path = f"{kind.path(namespace, name)}?fieldManager={FIELD_MANAGER}"
        return await self._write("patch", kind, "PATCH", path, operations, _JSON_PATCH)

    async def merge_patch(
        self, kind: Kind, namespace: str, name: str, patch: Manifest, subresource: str = ""
    ) -> Manifest:
        """With `metadata.uid` in the patch only that very object is changed (`ConflictError`)."""
        path = f"{kind.path(namespace, name, subresource)}?fieldManager={FIELD_MANAGER}"
        return await self._write("patch", kind, "PATCH", path, patch, _MERGE_PATCH, subresource)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Deletes that very object; one that is gone already is fine."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        path = kind.path(namespace, name)
        try:
            await self._write("delete", kind, "DELETE", path, options, "application/json")
        except errors.NotFoundError:
            return

    # --- the way there

    async def _read(self, verb: str, kind: Kind, path: str, seconds: float) -> Manifest:
        body = await self._request(verb, kind.resource, "GET", path, None, seconds)
        return _object(f"{verb} {kind.resource}", body)

    async def _write(
        self,
        verb: str,
        kind: Kind,
        method: str,
        path: str,
        body: Manifest | list[Manifest],
        content_type: str,
        subresource: str = "",
    ) -> Manifest:
        if not self._gate.allows(WRITE_SECONDS):
            raise errors.NotLeadingError
        resource = f"{kind.resource}/{subresource}" if subresource else kind.resource
        fenced = FencedBody(json.dumps(body).encode(), content_type, lambda: self._gate.allows(0.0))
        answer = await self._request(verb, resource, method, path, fenced, WRITE_SECONDS)
        return _object(f"{verb} {resource}", answer)

    async def _request(
        self,
        verb: str,
        resource: str,
        method: str,
        path: str,
        body: FencedBody | None,
        seconds: float,
        limit: int = -1,
    ) -> bytes:
        what = f"{verb} {resource}"
        headers = {"Accept": "application/json"}
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        started = self._clock()
        code = "error"
        try:
            async with self._session.request(
                method, self._server + path, data=body, headers=headers, timeout=timeout
            ) as response:
                code = str(response.status)
                content = await _content(response, limit)
                if response.status >= 400:
                    raise _refusal(what, response.status, content, response.headers)
                return content
        except TimeoutError as error:
            raise errors.UnreachableError(what, 0, f"no answer within {seconds:g} s") from error
        except aiohttp.ClientError as error:
            if body is not None and body.held_back:
                raise errors.NotLeadingError from error
            raise errors.UnreachableError(what, 0, _reason(error)) from error
        finally:
            self._observer.requested(verb, resource, code, self._clock() - started)


async def _content(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if limit < 0:
        return await response.read()
    content = b""
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > limit:
            return content[:limit]
    return content


def _object(what: str, body: bytes) -> Manifest:
    """Raises `ServerError` for what no API server says, but something on the way to it may."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise errors.ServerError(what, 200, "the answer is no object")
    return found


def _place(manifest: Manifest) -> tuple[Kind, str, str]:
    metadata = manifest["metadata"]
    return kind_of(manifest), metadata["namespace"], metadata["name"]


def _reason(error: aiohttp.ClientError) -> str:
    return str(error) or type(error).__name__


_ERRORS: Final[dict[int, type[errors.ApiError]]] = {
    400: errors.InvalidError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    410: errors.GoneError,
    422: errors.InvalidError,
    429: errors.BusyError,
    503: errors.BusyError,
}


def _refusal(what: str, status: int, content: bytes, headers: Mapping[str, str]) -> errors.ApiError:
    message, causes = _told(content)
    if status == 403 and "NamespaceTerminating" in causes:
        return errors.NamespaceEndingError(what, status, message)
    unknown = errors.ServerError if status >= 500 else errors.ApiError
    refusal = _ERRORS.get(status, unknown)(what, status, message or f"answered {status}")
    if isinstance(refusal, errors.BusyError):
        refusal.retry_after = _seconds(headers.get("Retry-After"))
    return refusal


def _told(content: bytes) -> tuple[str, set[str]]:
    """Message and reasons of a `Status`; other bodies (of proxies) are not repeated."""
    try:
        status = json.loads(content)
    except ValueError:
        return "", set()
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return "", set()
    details = status.get("details") or {}
    causes = {str(cause.get("reason")) for cause in details.get("causes") or []}
    return str(status.get("message") or ""), causes


def _seconds(text: str | None) -> float | None:
    """`Retry-After` in seconds; a date, which API servers do not send, is left alone."""
    return float(text) if text is not None and text.isdigit() else None
