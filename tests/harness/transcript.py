"""What a client sees of a server, written down so that two servers can be compared.

    direct = await transcript(url, "legacy", steps, Participant())
    through = await transcript(gateway.url, "auto", steps, Participant())
    assert differences(direct, through) == []

Left out is what has to differ: who the server is, the fields that only one era has, the order of
lists, the time of day, and identifiers drawn at random.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp
import mcp_types as types
from tests.harness.processes import until
from tests.harness.steps import Complete, Prompt, Read, Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcp.client import Transport
    from mcp.client.context import ClientRequestContext
    from pydantic import BaseModel
    from tests.harness.steps import Step

    Target = str | mcp.StdioServerParameters | Transport

_SERVER = "io.modelcontextprotocol/serverInfo"
#: How often a server was asked before.
_COUNTS = ("thoughtHistoryLength",)
_COMPARED = {"completions", "logging", "prompts", "resources", "tools"}
_OF_ONE_ERA = ("resultType", "ttlMs", "cacheScope")
_MASKS = (
    (r"\b\d{1,2}:\d\d:\d\d [AP]M\b", "<time>"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
    (r"\b\w{3} \w{3} \d\d \d{4} \d\d:\d\d:\d\d GMT[^\"\\]*", "<time>"),
    (r"(?<=thoughtHistoryLength\": )\d+", "<n>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>"),
)


@dataclass
class Participant:
    """A person and a model behind a client: both answer at once, always the same."""

    roots: Sequence[str] = ()
    asked: list[Any] = field(default_factory=list)

    async def elicit(self, context: ClientRequestContext, params: Any) -> types.ElicitResult:
        self.asked.append(_dumped(params))
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        properties = params.requested_schema["properties"]
        content = {name: _answer(schema) for name, schema in properties.items()}
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, context: ClientRequestContext, params: Any) -> Any:
        self.asked.append(_dumped(params))
        text = types.TextContent(type="text", text=f"said {params.messages[0].content.text}")
        return types.CreateMessageResult(role="assistant", content=text, model="m")

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        # Servers ask for roots when they like: that is not a part of a call.
        roots = [types.Root(uri=uri, name=uri.rpartition("/")[2]) for uri in self.roots]
        return types.ListRootsResult(roots=roots)

    @property
    def callbacks(self) -> dict[str, Any]:
        """For the official client, which declares what it has callbacks for."""
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.list_roots,
        }


def _answer(schema: dict[str, Any]) -> Any:
    """What a person fills in: the default, or something that the schema allows."""
    if "default" in schema:
        return schema["default"]
    by_format = {"email": "ann@example.com", "uri": "https://example.com", "date": "2000-01-01"}
    by_type = {"boolean": True, "integer": 7, "number": 7.5}
    return by_type.get(schema["type"]) or by_format.get(schema.get("format", ""), "Änn 😀")


async def transcript(
    target: Target, mode: str, steps: Sequence[Step], participant: Participant | None = None
) -> dict[str, Any]:
    """Connect, list everything, take the steps, read every listed resource: what came of each."""
    observer = _Observer(participant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mcp.MCPDeprecationWarning)
        async with mcp.Client(
            target,
            mode=mode,
            logging_callback=observer.log,
            log_level="debug",
            cache=None,
            **(participant.callbacks if participant is not None else {}),
        ) as client:
            return await observer.observe(client, steps)


def differences(
    expected: dict[str, Any], seen: dict[str, Any], or_else: dict[str, Any] | None = None
) -> list[str]:
    """Where two transcripts differ, a line for each place.

    A step that came out as in `or_else` is no difference: of a server that speaks both eras, which
    it was spoken to in may be seen.
    """
    names = [*expected, *(name for name in seen if name not in expected)]
    return [
        line
        for name in names
        if or_else is None or name not in seen or seen[name] != or_else.get(name)
        for line in _places(expected.get(name), seen.get(name), f"{name} ")
    ]


class _Observer:
    def __init__(self, participant: Participant | None) -> None:
        self._participant = participant
        self._logged: list[Any] = []
        self._seen: dict[str, Any] = {}

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._logged.append(_plain(params))

    async def observe(self, client: mcp.Client, steps: Sequence[Step]) -> dict[str, Any]:
        legacy = client.protocol_version not in types.version.MODERN_PROTOCOL_VERSIONS
        if legacy and client.server_capabilities.logging is not None:
            await client.set_logging_level("debug")
        await self._read_what_it_says(client, legacy=legacy)
        await self._list("tools", client.list_tools)
        await self._list("prompts", client.list_prompts)
        resources = await self._list("resources", client.list_resources)
        await self._list("resource_templates", client.list_resource_templates)
        for step in [*steps, *(Read(entry["uri"]) for entry in resources)]:
            await self._take(client, step)
        return self._seen

    async def _read_what_it_says(self, client: mcp.Client, *, legacy: bool) -> None:
        if legacy:
            declared, instructions = client.server_capabilities, client.instructions
        else:
            # Afresh: with a version given, the client itself does not ask.
            raw = await client.session.send_discover(client.protocol_version)
            said = types.DiscoverResult.model_validate(raw)
            declared, instructions = said.capabilities, said.instructions
        names = declared.model_dump(exclude_none=True)
        self._seen["capabilities"] = sorted(_COMPARED & names.keys())
        self._seen["instructions"] = instructions

    async def _list(self, kind: str, ask: Callable[..., Awaitable[Any]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            try:
                page = await ask(cursor=cursor)
            except mcp.MCPError as error:
                # A list that a server does not have and an empty one are the same to a gateway.
                if error.code == types.METHOD_NOT_FOUND:
                    break
                raise
            found += [_plain(entry) for entry in getattr(page, kind)]
            cursor = page.next_cursor
            if cursor is None:
                break
        for entry in found:
            name = entry.get("uriTemplate") or entry.get("uri") or entry["name"]
            self._seen[f"{kind}: {name}"] = entry
        return found

    async def _take(self, client: mcp.Client, step: Step) -> None:
        steps: list[tuple[float, float | None, str | None]] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))

        self._logged.clear()
        if self._participant is not None:
            self._participant.asked.clear()
        outcome: dict[str, Any] = {}
        try:
            result = await self._answer(client, step, on_progress)
            outcome["result"] = _plain(result)
        except mcp.MCPError as error:
            outcome["error"] = {"code": error.code, "message": _masked(error.message)}
        if isinstance(step, Tool):
            # The client runs callbacks beside the call: they may come after its answer.
            await until(
                lambda: len(self._logged) >= step.logs and len(steps) >= step.progress,
                what=f"what {step} says besides its answer did not come",
            )
            outcome["progress"] = steps
            if step.only:
                outcome["result"] = re.findall(step.only, str(outcome.get("result")))
            if step.logs:
                outcome["logged"] = list(self._logged)
        if self._participant is not None:
            outcome["asked"] = list(self._participant.asked)
        self._seen[str(step)] = outcome

    async def _answer(self, client: mcp.Client, step: Step, on_progress: Any) -> BaseModel:
        match step:
            case Tool(name, arguments):
                return await client.call_tool(name, arguments, progress_callback=on_progress)
            case Prompt(name, texts):
                return await client.get_prompt(name, texts)
            case Read(uri):
                return await client.read_resource(uri)
            case Complete(of, name, argument, value, others):
                reference = (
                    types.PromptReference(type="ref/prompt", name=name)
                    if of == "prompt"
                    else types.ResourceTemplateReference(type="ref/resource", uri=name)
                )
                asked = {"name": argument, "value": value}
                return await client.complete(reference, asked, others)


def _dumped(model: BaseModel) -> Any:
    dumped = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    dumped.pop("_meta", None)
    dumped.pop("task", None)
    return _masked_in(dumped)


def _plain(model: BaseModel) -> Any:
    return comparable(model.model_dump(mode="json", by_alias=True, exclude_none=True))


def comparable(result: dict[str, Any]) -> Any:
    """A result or an entry of a list without what has to differ."""
    kept = {name: value for name, value in result.items() if name not in _OF_ONE_ERA}
    meta = {name: value for name, value in kept.pop("_meta", {}).items() if name != _SERVER}
    return _masked_in({**kept, "_meta": meta} if meta else kept)


def _masked_in(value: Any) -> Any:
    if isinstance(value, str):
        return _masked(value)
    if isinstance(value, list):
        return [_masked_in(each) for each in value]
    if isinstance(value, dict):
        return {
            name: _masked(_decoded(each))
            if name == "blob" and isinstance(each, str)
            else _masked_in(each)
            for name, each in value.items()
            if name not in _COUNTS
        }
    return value


def _decoded(blob: str) -> str:
    """The text of a blob that is text, else the blob."""
    with contextlib.suppress(UnicodeDecodeError):
        return base64.b64decode(blob).decode()
    return blob


def _masked(text: str) -> str:
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


def _places(expected: Any, seen: Any, at: str = "") -> list[str]:
    """Where two values differ, a line for each place."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        names = [*expected, *(name for name in seen if name not in expected)]
        pairs = [(f"{at}.{name}", expected.get(name), seen.get(name)) for name in names]
    elif isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        pairs = [(f"{at}[{i}]", *each) for i, each in enumerate(zip(expected, seen, strict=True))]
    else:
        return [f"{at}: {_short(expected)} became {_short(seen)}"] if expected != seen else []
    return [line for where, one, other in pairs for line in _places(one, other, where)]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 400 else f"{text[:300]} … ({len(text)} characters)"
