"""A TCP proxy in front of a gateway that cuts connections."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit


class Cutter:
    """`async with Cutter(gateway.url) as cutter` listens at `cutter.url`.

    `passing` is how many bytes of answers still pass before the connection that carries the next
    one is cut; None lets everything pass.
    """

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.passing: int | None = None
        self.cuts = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}{self._target.path}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Reset every connection, on both sides."""
        self.cuts += 1
        for writer in self._open:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        host, port = self._target.hostname, self._target.port
        ends = {writer}
        try:
            towards = await asyncio.open_connection(host, port)
            ends.add(towards[1])
            self._open |= ends
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, towards[1], answers=False))
                group.create_task(self._pass(towards[0], writer, answers=True))
        except* OSError:
            pass
        finally:
            self._open -= ends
            self._tasks.discard(task)
            for end in ends:
                end.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            if answers and self.passing is not None:
                data, self.passing = data[: self.passing], max(0, self.passing - len(data))
                writer.write(data)
                if not self.passing:
                    self.passing = None
                    with contextlib.suppress(OSError):
                        await writer.drain()
                    self.cuts += 1
                    raise ConnectionResetError
                continue
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
