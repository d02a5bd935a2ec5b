"""Streamable HTTP of `two_eras.py`, both eras at one URL."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.two_eras import Asked, Server, Session

Head = tuple[str, dict[str, str]]


async def serve_http(server: Server, port: int, new_session: Callable[[str], Session]) -> None:
    connections = Connections(server, new_session)
    listener = await asyncio.start_server(connections.accept, "127.0.0.1", port, limit=1 << 26)
    actual = listener.sockets[0].getsockname()[1]
    print(f"listening on http://127.0.0.1:{actual}/mcp", flush=True)
    async with listener:
        await listener.serve_forever()


class Connections:
    def __init__(self, server: Server, new_session: Callable[[str], Session]) -> None:
        self._server = server
        self._new_session = new_session

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving: set[asyncio.Task[None]] = set()
        try:
            while True:
                head = await self._head(reader)
                body = await reader.readexactly(int(head[1].get("content-length", "0")))
                task = asyncio.ensure_future(self._serve(head, body, writer))
                serving.add(task)
                task.add_done_callback(serving.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for task in serving:
                task.cancel()
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> Head:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = text[:-4].split("\r\n")
        fields = (line.partition(":") for line in lines)
        return start.split(" ")[0], {name.lower(): value.strip() for name, _, value in fields}

    async def _serve(self, head: Head, body: bytes, writer: asyncio.StreamWriter) -> None:
        method, headers = head
        server = self._server
        session = server.sessions.get(headers.get("mcp-session-id", ""))
        message = json.loads(body) if body else {}
        if headers.get("mcp-protocol-version", "") >= "2026":
            session = self._new_session("none")
        elif message.get("method") == "initialize":
            session = self._new_session(secrets.token_hex(8))
            server.sessions[session.id] = session
        if method == "DELETE" and session is not None:
            server.note("got", session=session.id, message={"method": "DELETE"}, headers=headers)
            server.sessions.pop(session.id, None)
            _reply(writer, 200)
        elif session is None:
            _reply(writer, 404)
        elif method == "GET" and session.id == "none":
            _reply(writer, 405)
        elif method == "GET":
            writer.write(_STREAM)
            while True:
                _event(writer, await session.pushed.get())
        else:
            await self._post(session, message, headers, writer)

    async def _post(
        self,
        session: Session,
        message: dict[str, Any],
        headers: dict[str, str],
        writer: asyncio.StreamWriter,
    ) -> None:
        asked = self._server.take(session, message, headers)
        if asked is None:
            _reply(writer, 202)
            return
        try:
            await self._answer(asked, writer)
        except asyncio.CancelledError:  # the connection has gone
            self._server.note("gone", id=asked.id, params=asked.params)
            if asked.modern and asked.task is not None:
                asked.task.cancel()
            raise

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        first = await asked.sent.get()
        if first is None:  # cancelled: there is no answer
            writer.close()
        elif not _is_request_or_notification(first):
            extra = f"Mcp-Session-Id: {asked.session.id}\r\n"
            _reply(writer, _status(first), first, "" if asked.modern else extra)
        else:
            writer.write(_STREAM)
            text: str | None = first
            while text is not None:
                _event(writer, text)
                text = await asked.sent.get()
            writer.write(b"0\r\n\r\n")


_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _is_request_or_notification(text: str) -> bool:
    return '"method"' in text[:80]


def _status(text: str) -> int:
    code = json.loads(text).get("error", {}).get("code")
    return {-32601: 404, -32602: 400}.get(code, 200)


def _reply(writer: asyncio.StreamWriter, status: int, body: str = "", extra: str = "") -> None:
    data = body.encode()
    kind = "Content-Type: application/json\r\n" if data else ""
    head = f"HTTP/1.1 {status} Status\r\n{kind}{extra}Content-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


def _event(writer: asyncio.StreamWriter, text: str) -> None:
    data = f"event: message\ndata: {text}\n\n".encode()
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
