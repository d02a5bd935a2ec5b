"""Tools whose names and behaviour the conformance suite expects of a server under test.

Those that ask the client are in `fixture_questions.py`.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import mcp_types as types

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conformance.fixture_calls import Call

    Content = list[types.ContentBlock]
    Handler = Callable[[Call], Awaitable[Content]]

#: A picture of one pixel and a sound of no samples.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

TOOLS: dict[str, tuple[types.Tool, Handler]] = {}


class ToolFailed(Exception):
    """The result of the tool is an error with this text."""


def tool(
    name: str, description: str, schema: dict[str, Any] | None = None
) -> Callable[[Handler], Handler]:
    """Register the handler of a tool; without a schema it takes no arguments."""

    def register(handler: Handler) -> Handler:
        input_schema = schema or {"type": "object", "properties": {}}
        entry = types.Tool(name=name, description=description, input_schema=input_schema)
        TOOLS[name] = entry, handler
        return handler

    return register


def arguments(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def text(value: str) -> Content:
    return [types.TextContent(type="text", text=value)]


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, body: str, mime_type: str = "text/plain") -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=mime_type, text=body)
    return types.EmbeddedResource(type="resource", resource=resource)


# -- contents


@tool("test_simple_text", "A line of text")
async def simple_text(call: Call) -> Content:
    return text("This is a simple text response for testing.")


@tool("test_image_content", "A picture")
async def image_content(call: Call) -> Content:
    return [image()]


@tool("test_audio_content", "A sound")
async def audio_content(call: Call) -> Content:
    return [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")]


@tool("test_embedded_resource", "A resource inside the result")
async def embedded_resource(call: Call) -> Content:
    return [embedded("test://embedded-resource", "This is an embedded resource content.")]


@tool("test_multiple_content_types", "Text, a picture and a resource")
async def multiple_content_types(call: Call) -> Content:
    resource = embedded(
        "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
    )
    return [*text("Multiple content types test:"), image(), resource]


@tool("test_error_handling", "Always fails")
async def error_handling(call: Call) -> Content:
    raise ToolFailed("This tool intentionally returns an error for testing")


# -- while it runs


@tool("test_tool_with_logging", "Logs three times")
async def with_logging(call: Call) -> Content:
    for pause, line in (
        (0, "Tool execution started"),
        (0.05, "Tool processing data"),
        (0.05, "Tool execution completed"),
    ):
        await asyncio.sleep(pause)
        await call.log("info", line)
    return text("Logged three times.")


@tool("test_logging_tool", "Logs once at each of three levels")
async def logging_levels(call: Call) -> Content:
    for level in ("debug", "info", "error"):
        await call.log(level, f"a line at {level}")
    return text("Logged at three levels.")


@tool("test_tool_with_progress", "Reports progress three times")
async def with_progress(call: Call) -> Content:
    for pause, done in ((0, 0), (0.05, 50), (0.05, 100)):
        await asyncio.sleep(pause)
        await call.progress(done, 100)
    return text("Done.")


@tool("test_reconnection", "Logs, closes the stream of the call and answers on the next one")
async def reconnection(call: Call) -> Content:
    # A message before the answer: who relays it has to answer with a stream of its own.
    await call.log("info", "The stream is about to be closed")
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
        # Well after those who resume are back: an answer that comes between the SDK's replay and
        # its registration of the new stream is stored and sent to nobody (mcp 2.3.0).
        await asyncio.sleep(1.0)
    return text("Answered after the stream was closed.")


@tool("test_trigger_tool_change", "Replaces a tool of the list by another one")
async def trigger_tool_change(call: Call) -> Content:
    await call.announce("tools")
    return text("The list of tools changed.")


@tool("test_trigger_prompt_change", "Replaces a prompt of the list by another one")
async def trigger_prompt_change(call: Call) -> Content:
    await call.announce("prompts")
    return text("The list of prompts changed.")


# -- schemas and headers


@tool(
    "json_schema_2020_12_tool",
    "Its schema uses what JSON Schema 2020-12 offers",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema(call: Call) -> Content:
    return text(json.dumps(dict(call.arguments)))


@tool(
    "test_x_mcp_header",
    "Wants an argument in a header too",
    arguments(
        region={"type": "string", "x-mcp-header": "Region"},
        count={"type": "integer", "x-mcp-header": "Count"},
        note={"type": "string"},
    ),
)
async def with_header(call: Call) -> Content:
    return text(f"region={call.arguments.get('region')}")
