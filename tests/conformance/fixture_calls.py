"""What a handler of the fixture is given: one request of a client, of either era."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]
    Answer = types.ElicitResult | types.CreateMessageResult | types.ListRootsResult

_RESULTS: dict[str, type[Answer]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}
_CAPABILITIES = {
    "elicitation/create": types.ClientCapabilities(elicitation=types.ElicitationCapability()),
    "sampling/createMessage": types.ClientCapabilities(sampling=types.SamplingCapability()),
    "roots/list": types.ClientCapabilities(roots=types.RootsCapability()),
}


class InputNeeded(Exception):
    """The answer to this request is `result`: the client has to say something first."""

    def __init__(self, requests: Mapping[str, types.InputRequest], state: str | None) -> None:
        super().__init__(", ".join(requests))
        self.result = types.InputRequiredResult(input_requests=dict(requests), request_state=state)


@dataclass
class Call:
    """One `tools/call` or `prompts/get`.

    `announce` tells all clients of the server that a list (`"tools"`, `"prompts"`) changed.
    """

    context: Context
    params: types.InputResponseRequestParams
    arguments: Mapping[str, Any]
    announce: Callable[[str], Awaitable[None]]

    @property
    def modern(self) -> bool:
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def state(self) -> str | None:
        """What `ask` was given in the round before; None in the first one and for old clients."""
        return self.params.request_state

    def can(self, method: str) -> bool:
        """Whether the client declared that it answers this request."""
        return self.context.session.check_client_capability(_CAPABILITIES[method])

    def require(self, method: str) -> None:
        """An error response when the client did not declare that it answers this request."""
        if self.can(method):
            return
        needed = _CAPABILITIES[method].model_dump(by_alias=True, mode="json", exclude_none=True)
        code = types.MISSING_REQUIRED_CLIENT_CAPABILITY if self.modern else types.INVALID_REQUEST
        raise MCPError(code, f"the client does not do {method}", {"requiredCapabilities": needed})

    async def ask(
        self, requests: Mapping[str, types.InputRequest], state: str | None = None
    ) -> Mapping[str, Answer]:
        """Ask the client; its answers by the keys of `requests`.

        A modern client is asked by ending this request with `InputNeeded`, unless it brought all
        answers along; an old one is sent the requests, on the stream of its own request.
        """
        for request in requests.values():
            self.require(request.method)
        if not self.modern:
            return {key: await self._send(request) for key, request in requests.items()}
        brought = self.params.input_responses or {}
        answers: dict[str, Answer] = {}
        for key, request in requests.items():
            answer = brought.get(key)
            if not isinstance(answer, _RESULTS[request.method]):
                raise InputNeeded(requests, state)
            answers[key] = answer
        return answers

    async def _send(self, request: types.InputRequest) -> Any:
        return await self.context.session.send_request(
            request,
            _RESULTS[request.method],
            metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
        )

    async def log(self, level: types.LoggingLevel, text: str) -> None:
        await self.context.session.send_log_message(
            level, text, logger="fixture", related_request_id=self.context.request_id
        )

    async def progress(self, done: float, total: float) -> None:
        await self.context.session.report_progress(done, total)


def form(message: str, properties: dict[str, Any], *required: str) -> types.ElicitRequest:
    """Ask the user to fill in a form."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def sample(prompt: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    """Ask the model of the client."""
    text = types.TextContent(type="text", text=prompt)
    params = types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=text)], max_tokens=max_tokens
    )
    return types.CreateMessageRequest(params=params)


def roots() -> types.ListRootsRequest:
    """Ask for the client's directories."""
    return types.ListRootsRequest()
