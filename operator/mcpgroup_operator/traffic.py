"""What passes between kopf and the API server, so that no failure reaches kopf that it dies of.

kopf loses a watch for good, without telling anybody, when the server puts an error into its stream
or refuses it for longer than a few retries last. So its session has this middleware: a failed
request looks to kopf like a connection that broke, which it makes anew; an error in a stream looks
like a version that is too old, after which it lists anew; and a request waits until it is time to
try again. kopf needs no object of its lists, only the version to go on from: it is shown none.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import aiohttp

from mcpgroup_operator.kinds import WATCHED
from mcpgroup_operator.watches import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from random import Random

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from mcpgroup_operator.watches import WatchListener, WatchMonitor, WatchState

_LOG: Final = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.2
MAX_PAUSE_SECONDS: Final = 5.0
MAX_RETRY_AFTER_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 30.0
"""Until the head of an answer, and until the end of a list."""
SOUND_SECONDS: Final = 5.0
"""A stream that lasted so long was a good one, though nothing happened."""

_MAX_DOUBLINGS: Final = 8
_MAX_TOLD: Final = 300
_PATH: Final = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)$"
)
_KINDS: Final = {(kind.group, kind.version, kind.plural): kind for kind in WATCHED}
_ERROR_MARK: Final = b'"ERROR"'
_MARK_WITHIN: Final = 32
_TOO_OLD: Final = (
    json.dumps(
        {
            "type": "ERROR",
            "object": {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410},
        }
    ).encode()
    + b"\n"
)


@dataclass(slots=True)
class _Pace:
    """How it goes with one watch."""

    failures: int = 0
    not_before: float = 0.0


class Traffic:
    """Middleware of one session; `inactivity_seconds` is after how much silence kopf gives a stream
    up. The path of the API server's URL comes before those of kinds (`prefix`)."""

    def __init__(
        self,
        monitor: WatchMonitor,
        listener: WatchListener,
        random: Random,
        *,
        inactivity_seconds: float,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monitor = monitor
        self.listener = listener
        self.inactivity_seconds = inactivity_seconds
        self.clock = clock
        self._random = random
        self._prefix = prefix.rstrip("/")
        self._paces: dict[Watch, _Pace] = {}

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Raises `aiohttp.ClientPayloadError`, whatever went wrong."""
        watch = self._watch(request.url.raw_path)
        if watch is None:
            return await handler(request)
        begun = self.monitor.begin(watch)
        opened = False
        try:
            wait = self._pace(watch).not_before - self.clock()
            if wait > 0:
                await asyncio.sleep(wait)
            self.monitor.sent(watch)
            if request.url.query.get("watch") == "true":
                response = await self._open(watch, request, handler, begun)
                opened = True
            else:
                response = await self._list(watch, request, handler)
        finally:
            if not opened:
                self.monitor.end(begun)
        return response

    async def _list(
        self, watch: Watch, request: ClientRequest, handler: ClientHandlerType
    ) -> ClientResponse:
        response, reason = await self._ask(watch, request, handler, ANSWER_SECONDS, read=True)
        if reason:
            self.failed(watch, reason, _retry_after(response))
            raise aiohttp.ClientPayloadError("refused")
        self.listener.listed(watch)
        return response

    async def _open(
        self, watch: Watch, request: ClientRequest, handler: ClientHandlerType, begun: WatchState
    ) -> ClientResponse:
        # Before kopf loses patience and gives up without a word.
        seconds = min(ANSWER_SECONDS, 0.9 * self.inactivity_seconds)
        response, reason = await self._ask(watch, request, handler, seconds, read=False)
        if reason:
            self.failed(watch, reason, _retry_after(response))
            if response.status == 429:
                raise aiohttp.ClientPayloadError("refused")
            # The version it asks from may be the reason: it is to list anew.
            response.status = 200
        # aiohttp has no hook for the pieces of a stream; kopf reads by `iter_chunked` alone.
        response.content = _Stream(  # type: ignore[assignment]
            response.content, self, watch, begun, refused=bool(reason)
        )
        return response

    async def _ask(
        self,
        watch: Watch,
        request: ClientRequest,
        handler: ClientHandlerType,
        seconds: float,
        *,
        read: bool,
    ) -> tuple[ClientResponse, str]:
        """The answer, and why it is a refusal (empty: it is none)."""
        try:
            async with asyncio.timeout(seconds):
                response = await handler(request)
                if response.status >= 400:
                    self.monitor.refuse(watch)
                    return response, await _refusal(response)
                if read:
                    _show_nothing(response, await response.read())
        except TimeoutError:
            self.failed(watch, f"no answer within {seconds:g} s")
            raise aiohttp.ClientPayloadError("no answer") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.failed(watch, str(error) or type(error).__name__)
            raise aiohttp.ClientPayloadError("no answer") from error
        self.monitor.hear(watch)
        return response, ""

    # --- how it goes

    def failed(self, watch: Watch, reason: str, at_least: float = 0.0) -> None:
        """A request failed: the next one waits."""
        self.listener.failed(watch)
        pace = self._pace(watch)
        pace.failures += 1
        doublings = min(pace.failures - 1, _MAX_DOUBLINGS)
        longest = min(FIRST_PAUSE_SECONDS * 2.0**doublings, MAX_PAUSE_SECONDS)
        pause = max(at_least, longest * (0.5 + self._random.random() / 2))
        pace.not_before = self.clock() + pause
        if pace.failures == 1:
            _LOG.warning("%s: %s; tried until it works", watch, reason[:_MAX_TOLD])

    def broken(self, watch: Watch, reason: str) -> None:
        """A stream did not end as it should."""
        self.listener.restarted(watch)
        self.failed(watch, reason)

    def silent(self, watch: Watch, seconds: float) -> None:
        """kopf gave a stream up. An API server that has seen no object of a kind sends no bookmarks
        either: what fails, if anything does, is the next request."""
        self.listener.restarted(watch)
        _LOG.debug("%s: silent for %.0f s; opened anew", watch, seconds)

    def sound(self, watch: Watch) -> None:
        """A stream works."""
        pace = self._pace(watch)
        if pace.failures:
            _LOG.info("%s: it works again", watch)
            pace.failures = 0

    def _pace(self, watch: Watch) -> _Pace:
        return self._paces.setdefault(watch, _Pace())

    def _watch(self, path: str) -> Watch | None:
        matched = _PATH.match(path.removeprefix(self._prefix))
        if matched is None:
            return None
        kind = _KINDS.get((matched["group"] or "", matched["version"], matched["plural"]))
        namespace = unquote(matched["namespace"]) if matched["namespace"] else None
        watch = Watch(kind, namespace) if kind is not None else None
        return watch if watch in self.monitor else None


class _Stream:
    """The content of an answer to a watch, listened to on its way to kopf."""

    def __init__(
        self, content: Any, traffic: Traffic, watch: Watch, begun: WatchState, *, refused: bool
    ) -> None:
        self._content = content
        self._refused = refused
        self._traffic = traffic
        self._watch = watch
        self._begun = begun

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """What kopf reads by: the lines of the stream."""
        traffic, watch = self._traffic, self._watch
        if self._refused:
            traffic.monitor.end(self._begun)
            yield _TOO_OLD
            return
        opened = heard = traffic.clock()
        brought = False
        try:
            async for line in _lines(self._content, size):
                heard = traffic.clock()
                traffic.monitor.hear(watch)
                error = _error(line)
                if error is not None:
                    traffic.broken(watch, f"an error in the stream: {error}")
                    yield _TOO_OLD
                    return
                brought = True
                traffic.sound(watch)
                yield line
            if brought or traffic.clock() - opened >= SOUND_SECONDS:
                traffic.sound(watch)
            else:
                traffic.failed(watch, "the stream ended at once")
        except (aiohttp.ClientError, OSError) as error:
            traffic.broken(watch, f"the stream broke off: {error!r}")
            raise
        except asyncio.CancelledError:
            silent = traffic.clock() - heard
            if silent >= 0.9 * traffic.inactivity_seconds:
                traffic.silent(watch, silent)
            raise
        finally:
            traffic.monitor.end(self._begun)


async def _lines(content: Any, size: int) -> AsyncIterator[bytes]:
    """Whole lines, however the pieces fall; what is left at a break is no line."""
    rest = b""
    async for piece in content.iter_chunked(size):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in filter(None, lines):
            yield line + b"\n"


def _error(line: bytes) -> str | None:
    """What an ERROR event says; None for other events. A line that is no event is an error."""
    if _ERROR_MARK not in line[:_MARK_WITHIN] and line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
        if event["type"] != "ERROR":
            return None
        return _told(event["object"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return "it is not readable"


async def _refusal(response: ClientResponse) -> str:
    try:
        text = _told(json.loads(await response.read()))
    except (ValueError, TypeError, AttributeError):
        text = ""
    return text or f"answered {response.status}"


def _told(status: dict[str, Any]) -> str:
    return f"{status.get('code')} {status.get('reason', '')}: {status.get('message', '')}"


def _retry_after(response: ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), MAX_RETRY_AFTER_SECONDS) if text.isdigit() else 0.0


def _show_nothing(response: ClientResponse, body: bytes) -> None:
    """Leaves of a list its version. Raises `ValueError` when it is none."""
    found = json.loads(body)
    version = found.get("metadata", {}).get("resourceVersion") if isinstance(found, dict) else None
    if not version:
        raise ValueError("the answer is no list")
    shown = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}}
    response._body = json.dumps({**shown, "items": []}).encode()  # noqa: SLF001
