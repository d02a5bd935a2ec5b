"""What a client request aims at: its name, who offers it, what is sent, what ends the search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MalformedMessage,
    Raw,
    encode_json,
    encode_object,
    parse_list,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import READ_METHODS, RESOURCE_NOT_FOUND, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.catalogue import Resolution
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.request_state import RequestState
    from mcpgroup_gateway.core.selection import CallFacts
    from mcpgroup_gateway.wire.envelope import Message
    from mcpgroup_gateway.wire.param_headers import ParamHeader

#: A resource that nobody lists is asked of one member after the other past these answers.
NOT_HERE: Final = frozenset({RESOURCE_NOT_FOUND, INVALID_PARAMS})
NOT_KNOWN: Final = frozenset({METHOD_NOT_FOUND})
#: Completion that no member declares (DESIGN-MCP section 2).
NO_COMPLETION: Final = b'{"completion":{"values":[],"total":0,"hasMore":false}}'

#: Experimental tasks (2025-11-25) are bound to their member; until their ids are wrapped they are
#: not offered, and a request for one runs as an ordinary call (DESIGN-MCP section 6).
_TASK: Final = "task"


@dataclass(slots=True)
class Target:
    """`params` is the JSON that members get; `arguments` the tool's, as the client spelled them,
    and `param_headers` those of them that a modern member wants to see in headers, too.

    `moves_on_at` are JSON-RPC error codes after which the next member is asked; `linked` hears the
    URIs of resource links in a result; a `result` is the answer, and no member is asked.
    """

    method: str
    facts: CallFacts
    params: bytes
    progress_token: Raw | None = None
    tool: str | None = None
    arguments: bytes = b""
    param_headers: tuple[ParamHeader, ...] = ()
    always_safe: bool = False
    moves_on_at: frozenset[int] = frozenset()
    linked: Callable[[Endpoint, list[str]], None] | None = None
    result: bytes | None = None
    #: What a modern client came back with, as it was sent, and what its `requestState` says.
    inputs: ReturnedInputs | None = None
    returned: RequestState | None = None

    def is_safe_on(self, member: str) -> bool:
        """Whether the call may run twice, as far as this member promises."""
        return self.always_safe or member in self.facts.safe_on

    def moves_on(self, response: Message) -> bool:
        if not self.moves_on_at or not response.is_error:
            return False
        try:
            code = int(bytes(parse_object(response.error).get("code", b"0")))
        except (MalformedMessage, ValueError):
            return False
        return code in self.moves_on_at

    def answered(self, endpoint: Endpoint, response: Message) -> bool:
        """Look into a tool's result, once: results may be megabytes. True for `isError: true`.

        Links to resources are remembered, so that reading them asks the member that gave them.
        """
        if self.tool is None or response.is_error:
            return False
        try:
            members = parse_object(response.result)
        except MalformedMessage:
            return False
        content = members.get("content")
        if self.linked is not None and content is not None:
            uris = _links(content)
            if uris:
                self.linked(endpoint, uris)
        return "isError" in members and bytes(members["isError"]) == b"true"


def _links(content: Raw) -> list[str]:
    uris: list[str] = []
    if b"resource_link" not in bytes(content):
        return uris
    try:
        for item in parse_list(content):
            members = parse_object(item)
            uri = parse_string(members.get("uri"))
            if uri and parse_string(members.get("type")) == "resource_link":
                uris.append(uri)
    except MalformedMessage:
        return uris
    return uris


@dataclass(frozen=True, slots=True)
class ReturnedInputs:
    """`responses` by the key of what was asked; `state` is the client's `requestState`."""

    responses: dict[str, Raw]
    state: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """The params of a request, split. `inputs` are taken out of `members`."""

    members: dict[str, Raw]
    progress_token: Raw | None
    inputs: ReturnedInputs | None = None

    @classmethod
    def read(cls, raw: Raw, *, may_return: bool = False) -> Parameters:
        """`may_return`: of a client that may have come back with what it was asked for.

        Raises `MalformedMessage` for params or `_meta` that are not objects."""
        members = parse_object(raw)
        token = None
        if "_meta" in members:
            token = parse_object(members["_meta"]).get("progressToken")
            if token is not None and not _is_token(bytes(token)):
                raise MalformedMessage(INVALID_PARAMS, '"progressToken" is a string or an integer')
        inputs = None
        state = parse_string(members.get("requestState")) if may_return else None
        if state is not None:
            del members["requestState"]
            inputs = ReturnedInputs(parse_object(members.pop("inputResponses", Raw(b"{}"))), state)
        return cls(members, token, inputs)

    def string(self, name: str) -> str:
        value = parse_string(self.members.get(name))
        if value is None:
            raise MalformedMessage(INVALID_PARAMS, f'"{name}" must be a string')
        return value

    def spliced(self, name: str | None = None) -> bytes:
        """The params again, with another name when one is given."""
        members = self.members
        if name is not None:
            members = {**members, "name": Raw(encode_json(name))}
        if _TASK in members:
            members = {key: value for key, value in members.items() if key != _TASK}
        return encode_object(members)

    def with_reference(self, name: str) -> Parameters:
        """The same with a bare prompt name in `ref` (completion)."""
        reference = parse_object(self.members["ref"])
        reference["name"] = Raw(encode_json(name))
        members = {**self.members, "ref": Raw(encode_object(reference))}
        return replace(self, members=members)


def _is_token(raw: bytes) -> bool:
    return raw[:1] == b'"' or raw.lstrip(b"-").isdigit()


def target_of_name(
    kind: Kind, resolution: Resolution, parameters: Parameters, facts: CallFacts
) -> Target:
    """A tool call or a prompt."""
    written = parameters.string("name")
    return Target(
        method="tools/call" if kind is Kind.TOOL else "prompts/get",
        facts=facts,
        params=parameters.spliced(resolution.name if resolution.name != written else None),
        progress_token=parameters.progress_token,
        tool=resolution.name if kind is Kind.TOOL else None,
        arguments=bytes(parameters.members.get("arguments", b"")),
        param_headers=resolution.param_headers,
        always_safe=kind is not Kind.TOOL,
        inputs=parameters.inputs,
    )


def target_of_method(method: str, parameters: Parameters, facts: CallFacts) -> Target:
    """Any other request: completion, resources, methods that the gateway does not know."""
    return Target(
        method=method,
        facts=facts,
        params=parameters.spliced(),
        progress_token=parameters.progress_token,
        always_safe=method in READ_METHODS,
        inputs=parameters.inputs,
    )
