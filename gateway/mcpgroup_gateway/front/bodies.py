"""Reading a request's body within its limits: size, time, completeness."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web


class BodyTooLarge(Exception):
    """More bytes than allowed, announced or received."""


class BodyTooSlow(Exception):
    """The deadline passed before the body's end."""


class BodyBroken(Exception):
    """The body cannot be read: it was cut short, badly chunked or badly compressed."""


async def read_body(request: web.BaseRequest, limit: int, seconds: float) -> bytes:
    """The whole body, at most `limit` bytes after its content encoding, within `seconds`.

    Raises `BodyTooLarge`, `BodyTooSlow` or `BodyBroken`; in each case the rest is left unread.
    """
    payload = request.content
    if not payload.is_eof():
        return await _read_slowly(request, limit, seconds)
    # The common case: the body came with the head, and no timer is needed.
    fault = payload.exception()
    if fault is not None:
        raise BodyBroken from fault
    body = payload.read_nowait()
    if len(body) > limit:
        raise BodyTooLarge
    return body


async def _read_slowly(request: web.BaseRequest, limit: int, seconds: float) -> bytes:
    payload = request.content
    announced = request.headers.get("Content-Length", "")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise BodyTooLarge
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # aiohttp takes written bytes for the start of an answer.
        request.writer.output_size = 0

    def expire() -> None:
        if not payload.is_eof():  # it is when we were stalled and the rest came meanwhile
            # aiohttp, too, stops waiting for the rest of a body that timed out.
            payload.set_exception(TimeoutError())

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    chunks: list[bytes] = []
    size = 0
    try:
        while True:
            chunk = await payload.readany()
            if not chunk:
                return b"".join(chunks)
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge
            chunks.append(chunk)
    except BodyTooLarge:
        raise
    except TimeoutError as fault:
        raise BodyTooSlow from fault
    except Exception as fault:  # aiohttp raises many kinds for encodings and lost connections
        raise BodyBroken from fault
    finally:
        timer.cancel()
