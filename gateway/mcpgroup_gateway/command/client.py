"""One request to a gateway, with the official client: what any MCP client would see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation, Request
from pydantic import RootModel, ValidationError

from mcpgroup_gateway import __version__
from mcpgroup_gateway.command.options import no
from mcpgroup_gateway.command.served import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mcpgroup_api import McpServerGroup

# The gateway has the deadlines of a call, and sends a sign of life while it waits for a member.
_TIMEOUT: Final = httpx2.Timeout(10, read=300)


@dataclass(frozen=True, slots=True)
class Answer:
    """`error` is a JSON-RPC error object, None when there is a result."""

    method: str
    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None


class _AnyRequest(Request[dict[str, Any], str]):
    """A request of any method: its params go out as they are."""

    method: str
    params: dict[str, Any]


class _AnyResult(RootModel[dict[str, Any]]):
    """A result as it came."""


async def call_url(
    url: str,
    method: str,
    params: dict[str, Any],
    headers: dict[str, str],
    *,
    told: Callable[[str], None],
) -> Answer:
    """Open a session, send one request, close the session.

    The result is given as it came, fields that no model knows included. Ends the command when
    nothing answers at `url`. `told` hears progress.
    """

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        told(f"{method}: {message} ({amount})" if message else f"{method}: {amount}")

    answer: Answer | None = None
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT) as http,
            streamable_http_client(url, http_client=http, max_sse_event_size=None) as streams,
            mcp.ClientSession(
                *streams[:2], client_info=Implementation(name="mcpgroup", version=__version__)
            ) as session,
        ):
            await session.initialize()
            try:
                result = await session.send_request(
                    _AnyRequest(method=method, params=params),
                    _AnyResult,
                    progress_callback=on_progress,
                )
                answer = Answer(method, result.root)
            except mcp.MCPError as error:
                described = error.error.model_dump(mode="json", exclude_none=True)
                answer = Answer(method, error=described)
    except Exception as error:  # noqa: BLE001 - whatever the client raises, the answer is no
        if answer is None:
            no(f"{url}: {'; '.join(dict.fromkeys(_reasons(error)))}")
    if answer is None:
        no(f"{url}: no answer")
    return answer


async def call_group(
    group: McpServerGroup,
    secrets: Path | None,
    method: str,
    params: dict[str, Any],
    headers: dict[str, str],
    *,
    told: Callable[[str], None],
) -> Answer:
    """Serve the group for this one request."""
    told("starting the group")
    async with served(group, secrets) as url:
        told(f"{method}: waiting for the answer")
        answer = await call_url(url, method, params, headers, told=told)
        told("ending the group")
        return answer


def _reasons(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _reasons(inner)
    elif isinstance(error, ValidationError):
        yield "the answer is not what MCP says it must be"
    else:
        yield str(error) or type(error).__name__
