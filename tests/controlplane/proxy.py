"""An API server behind a proxy that makes it fail: `async with FaultyApi(access) as faulty:`.

Clients with a token come through it; a client's certificate ends at a proxy. An API server proxies
to no pod on loopback: with `pods` this one does it instead, for the stand-ins of a node.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from tests.controlplane.api import CLOSE_SECONDS
from tests.controlplane.faults import (
    OF_STREAMS,
    Action,
    Answer,
    Asked,
    Cut,
    Delay,
    ErrorEvent,
    Fault,
    Hang,
    Silence,
)
from tests.harness.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.controlplane.access import Access
    from tests.controlplane.nodes import Node

_OF_ONE_HOP: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_POD: Final = re.compile(
    r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?:http:)?(?P<name>[^/:]+):(?P<port>\d+)"
    r"/proxy(?P<path>/.*)"
)
_CUT: Final = 599  # nobody sees it
_MOST_BYTES: Final = 64 * 1024 * 1024
_QUEUED_LINES: Final = 10_000


@dataclass(frozen=True)
class Answered:
    """A request and its HTTP status; 0 when there was no answer."""

    asked: Asked
    code: int


class _Watch:
    """An open watch: lines of the server, and faults, in the order of their arrival."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.items: asyncio.Queue[bytes | Action | None] = asyncio.Queue(_QUEUED_LINES)

    async def read(self, answer: aiohttp.ClientResponse) -> None:
        try:
            while line := await answer.content.readline():
                await self.items.put(line)
        finally:
            await self.items.put(None)


class FaultyApi:
    """`answered` has every request once it ended; `inject` adds a fault, the first that fits acts
    alone."""

    def __init__(self, access: Access, *, tls: bool = True, pods: Node | None = None) -> None:
        self._access = replace(access, certificate=None, token=None, impersonate=None)
        self._authority = Authority() if tls else None
        self._pods = pods
        self._faults: list[Fault] = []
        self._watches: set[_Watch] = set()
        self._opened = asyncio.Condition()
        self.answered: list[Answered] = []
        self.server = ""

    def via(self, access: Access) -> Access:
        """The same user, by way of this proxy."""
        assert access.certificate is None, "a certificate does not pass a proxy, a token does"
        pem = None if self._authority is None else self._authority.pem.decode()
        return access.via(self.server, pem)

    async def inject(
        self,
        action: Action,
        *,
        verb: str = "",
        resource: str = "",
        subresource: str | None = None,
        namespace: str = "",
        name: str = "",
        times: int | None = None,
    ) -> Fault:
        """See `Fault`. One of streams acts on the open watches that fit first, at once."""
        fault = Fault(action, verb, resource, subresource, namespace, name, times)
        self._faults.append(fault)
        if isinstance(action, OF_STREAMS):
            for watch in list(self._watches):
                if fault.fits(watch.asked):
                    await watch.items.put(action)
                    await fault.hit()
        return fault

    async def cut_watches(self, resource: str = "") -> int:
        """End the connections of open watches; how many there were."""
        cut = [w for w in self._watches if resource in ("", w.asked.resource)]
        for watch in cut:
            await watch.items.put(Cut())
        return len(cut)

    def count(self, verb: str = "", resource: str = "", code: int | None = None) -> int:
        """Requests that ended so far and fit; `open_watches` are not among them."""
        return sum(
            verb in ("", a.asked.verb)
            and resource in ("", a.asked.resource)
            and code in (None, a.code)
            for a in self.answered
        )

    def open_watches(self, resource: str = "") -> int:
        return sum(resource in ("", watch.asked.resource) for watch in self._watches)

    async def watched(self, resource: str = "", *, within: float = 20) -> None:
        """Wait until there is an open watch that fits."""
        async with asyncio.timeout(within), self._opened:
            await self._opened.wait_for(lambda: self.open_watches(resource) > 0)

    # -- serving

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._access.tls(), limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=2**24,
        )
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        tls = None if self._authority is None else self._authority.server_context("127.0.0.1")
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme = "http" if tls is None else "https"
        self.server = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._http.close()
        await asyncio.sleep(CLOSE_SECONDS)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        asked = Asked.of(request.method, request.path, request.query)
        fault = next((f for f in self._faults if f.fits(asked) and _acts_on(f, asked)), None)
        action = None if fault is None else fault.action
        if fault is not None:
            await fault.hit()
        code = 0
        try:
            if asked.verb == "watch" and not isinstance(action, Answer | Cut | Hang):
                response = await self._stream(request, asked, action)
            else:
                response = await self._pass(request, action)
            code = 0 if response.status == _CUT else response.status
        finally:
            self.answered.append(Answered(asked, code))
        return response

    async def _pass(self, request: web.Request, action: Action | None) -> web.StreamResponse:
        match action:
            case Answer():
                await request.read()
                return web.Response(
                    status=action.code, headers=action.headers, body=json.dumps(action.status)
                )
            case Hang():
                await asyncio.Event().wait()
            case Cut(reached=False):
                return _cut(request)
            case _:
                pass
        async with self._ask_someone(request) as answer:
            body = await answer.read()
        if isinstance(action, Cut):
            return _cut(request)
        if isinstance(action, Delay):
            await asyncio.sleep(action.seconds)
        return web.Response(status=answer.status, headers=_passed_on(answer.headers), body=body)

    async def _stream(
        self, request: web.Request, asked: Asked, action: Action | None
    ) -> web.StreamResponse:
        watch = _Watch(asked)
        if isinstance(action, Delay):
            await asyncio.sleep(action.seconds)
        elif action is not None:
            watch.items.put_nowait(action)
        async with self._ask(request) as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
            await response.prepare(request)
            reader = asyncio.create_task(watch.read(answer))
            self._watches.add(watch)
            async with self._opened:
                self._opened.notify_all()
            try:
                await _write(watch, request, response)
            finally:
                self._watches.discard(watch)
                reader.cancel()
                await asyncio.wait({reader})
        return response

    def _ask_someone(self, request: web.Request) -> aiohttp.client._RequestContextManager:
        found = _POD.fullmatch(request.path)
        if found is None or self._pods is None:
            return self._ask(request)
        for pod in self._pods.pods():
            if (pod.namespace, pod.name) == (found["namespace"], found["name"]):
                url = f"http://{pod.address}:{found['port']}{found['path']}"
                headers = _passed_on(request.headers)
                headers.pop("Authorization", None)  # as the API server
                return self._http.request(request.method, url, headers=headers)
        return self._ask(request)

    def _ask(self, request: web.Request) -> aiohttp.client._RequestContextManager:
        return self._http.request(
            request.method,
            self._access.server + request.raw_path,
            headers=_passed_on(request.headers),
            data=request.content if request.body_exists else None,
            allow_redirects=False,
        )


async def _write(watch: _Watch, request: web.Request, response: web.StreamResponse) -> None:
    while (item := await watch.items.get()) is not None:
        match item:
            case bytes():
                await response.write(item)
            case Silence():
                await asyncio.Event().wait()  # until the client goes
            case ErrorEvent():
                await response.write(item.line)
                return
            case _:
                _cut(request)
                return


def _acts_on(fault: Fault, asked: Asked) -> bool:
    return asked.verb == "watch" or not isinstance(fault.action, OF_STREAMS)


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=_CUT)


def _passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    kept = [(k, v) for k, v in headers.items() if k.lower() not in _OF_ONE_HOP]
    return CIMultiDict(kept)
