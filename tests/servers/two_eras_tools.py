"""The tools of `two_eras.py`; each is a method, its arguments are those of the call."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.servers.two_eras import Asked, Server

TOOLS = (
    "progress",
    "log",
    "sleep",
    "ask",
    "take_back",
    "change",
    "touch",
    "die",
    "seen",
    "count",
)
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_FORM = {"message": "well?", "requestedSchema": {"type": "object", "properties": {}}}


class Tools:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._ids = count(1)
        self._counted: dict[str, int] = {}

    async def call(self, asked: Asked, name: str, arguments: dict[str, Any]) -> None:
        method = getattr(self, name, None) if name in TOOLS else None
        if method is not None:
            await method(asked, **arguments)
        elif name == f"askers_{self._server.name}" and "elicitation" not in asked.capabilities:
            asked.error(-32602)
        elif name in (
            "table",
            f"askers_{self._server.name}",
            *self._server.tools,
            *asked.session.tools,
        ):
            asked.result(content=[])
        else:
            asked.error(-32602)

    def _text(self, asked: Asked, value: Any) -> None:
        asked.result(content=[{"type": "text", "text": json.dumps(value)}])

    async def progress(
        self,
        asked: Asked,
        steps: int = 3,
        invented: bool = False,
        late: bool = False,
        pause: float = 0,
    ) -> None:
        """Report progress, also to tokens that nobody gave, and after the answer."""
        token = asked.meta.get("progressToken")
        for number in range(1, steps + 1):
            if token is not None:
                report = {"progress": number, "total": steps, "message": f"step {number}"}
                asked.notify("notifications/progress", progressToken=token, **report)
            if invented:
                for other in ("invented", 1, 987654321, None):
                    asked.notify("notifications/progress", progressToken=other, progress=number)
            await asyncio.sleep(pause)
        self._text(asked, "done")
        if late and token is not None:
            asked.notify("notifications/progress", progressToken=token, progress=steps + 1)

    async def log(self, asked: Asked, word: str = "", untied: bool = False) -> None:
        """Log at each level, whatever was asked for."""
        send = asked.session.push if untied else asked.send
        for level in LEVELS:
            params = {"level": level, "logger": "test", "data": f"{word}{level}"}
            send(method="notifications/message", params=params)
        await asyncio.sleep(0)
        self._text(asked, "logged")

    async def sleep(
        self, asked: Asked, word: str = "", say: bool = False, chatter: bool = False
    ) -> None:
        """Never answer; begin with progress, or go on saying things after a cancellation."""
        token = asked.meta.get("progressToken")
        if say:
            asked.notify("notifications/progress", progressToken=token, progress=1)
        try:
            await asyncio.Event().wait()
        finally:
            if chatter:
                asked.notify("notifications/progress", progressToken=token, progress=2)
                asked.notify("notifications/message", level="alert", data=f"{word} still here")
                self._text(asked, "too late")

    async def ask(
        self,
        asked: Asked,
        method: str = "elicitation/create",
        params: dict[str, Any] | None = None,
        untied: bool = False,
        times: int = 1,
    ) -> None:
        """Ask the client, all at once, and give what was answered."""
        params = _FORM if params is None else params
        if asked.modern:
            responses = asked.params.get("inputResponses")
            if responses is None:
                request = {"method": method, "params": params}
                requests = {f"q{number}": request for number in range(times)}
                state = f"state of {self._server.name}"
                members = {"inputRequests": requests, "requestState": state}
                asked.result(resultType="input_required", **members)
            else:
                given = asked.params.get("requestState")
                self._text(asked, {"answers": [*responses.values()], "state": given})
            return
        answers = [self._question(asked, method, params, untied) for _ in range(times)]
        self._text(asked, {"answers": await asyncio.gather(*answers)})

    async def take_back(self, asked: Asked, untied: bool = False) -> None:
        """Ask the client and do not want the answer any more."""
        question = asyncio.create_task(
            self._question(asked, "elicitation/create", _FORM, untied, "taken-1")
        )
        await asyncio.sleep(0.2)
        question.cancel()
        send = asked.session.push if untied else asked.send
        params = {"requestId": "taken-1", "reason": "too late"}
        send(method="notifications/cancelled", params=params)
        await asyncio.sleep(0.2)
        self._text(asked, "taken back")

    async def _question(
        self,
        asked: Asked,
        method: str,
        params: dict[str, Any],
        untied: bool,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        question = request_id or f"question-{next(self._ids)}"
        answered = self._server.questions[question] = asyncio.get_running_loop().create_future()
        (asked.session.push if untied else asked.send)(id=question, method=method, params=params)
        message = await answered
        given: dict[str, Any] = message.get("result") or {"error": message.get("error")}
        return given

    async def change(self, asked: Asked, kind: str = "tools", alone: bool = False) -> None:
        """Change a list for everybody or for this session alone; only that of tools differs."""
        server, session = self._server, asked.session
        if kind != "tools":
            server.changed(kind)
        elif alone:
            session.tools.append(f"{server.name}_own_{len(session.tools)}")
            server.changed(kind, session)
        else:
            server.add_tool()
        self._text(asked, "changed")

    async def touch(self, asked: Asked, uri: str) -> None:
        """Say that a resource was updated."""
        self._server.touch(uri)
        self._text(asked, "touched")

    async def die(self, asked: Asked) -> None:
        os._exit(3)

    async def seen(self, asked: Asked) -> None:
        """How this request came: its headers, its `_meta`, and whose session it is in."""
        about = {"session": asked.session.id, "pid": os.getpid()}
        capabilities = asked.session.capabilities
        meta = asked.meta
        self._text(
            asked, {**about, "headers": asked.headers, "meta": meta, "capabilities": capabilities}
        )

    async def count(self, asked: Asked) -> None:
        """How often it was called in this session."""
        session = asked.session.id
        self._counted[session] = self._counted.get(session, 0) + 1
        self._text(asked, {"count": self._counted[session], "session": session, "pid": os.getpid()})
