"""The prompts and resources whose names and contents the conformance suite expects."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.exceptions import MCPError
from tests.conformance.fixture_calls import form
from tests.conformance.fixture_tools import PNG, embedded, image, text

if TYPE_CHECKING:
    from tests.conformance.fixture_calls import Call


def prompt(name: str, description: str, *arguments: str) -> types.Prompt:
    entries = [types.PromptArgument(name=each, required=True) for each in arguments]
    return types.Prompt(name=name, description=description, arguments=entries)


PROMPTS = (
    prompt("test_simple_prompt", "One message"),
    prompt("test_prompt_with_arguments", "Repeats its arguments", "arg1", "arg2"),
    prompt("test_prompt_with_embedded_resource", "Holds a resource", "resourceUri"),
    prompt("test_prompt_with_image", "Holds a picture"),
    prompt("test_input_required_result_prompt", "Asks the user first"),
)


async def prompt_contents(name: str, call: Call) -> list[types.ContentBlock]:
    """What the messages of a prompt hold. Raises `MCPError` for a name that is none."""
    given = call.arguments
    match name:
        case "test_simple_prompt":
            return text("This is a simple prompt for testing.")
        case "test_prompt_with_arguments":
            one, two = given.get("arg1", ""), given.get("arg2", "")
            return text(f"Prompt with arguments: arg1='{one}', arg2='{two}'")
        case "test_prompt_with_embedded_resource":
            uri = given.get("resourceUri", "test://example-resource")
            resource = embedded(uri, "Embedded resource content for testing.")
            return [resource, *text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            return [image(), *text("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            question = form(
                "What context should the prompt use?",
                {"context": {"type": "string"}},
                "context",
            )
            answer = (await call.ask({"user_context": question}))["user_context"]
            assert isinstance(answer, types.ElicitResult)
            return text(f"Use this context: {(answer.content or {}).get('context')}")
    raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")


RESOURCES = [
    types.Resource(uri=uri, name=name, description=f"{name}.", mime_type=mime_type)
    for uri, name, mime_type in (
        ("test://static-text", "Static text", "text/plain"),
        ("test://static-binary", "Static picture", "image/png"),
        ("test://watched-resource", "Watched text", "text/plain"),
    )
]
TEMPLATE = types.ResourceTemplate(
    uri_template="test://template/{id}/data",
    name="Data by id",
    description="What belongs to an id.",
    mime_type="application/json",
)
_URI_OF_TEMPLATE = re.compile(r"test://template/([^/]+)/data")


def resource_contents(uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    """Raises `MCPError` for a URI that is none."""
    if uri == "test://static-text":
        return _text(uri, "This is the content of the static text resource.")
    if uri == "test://watched-resource":
        return _text(uri, "Watched resource content")
    if uri == "test://static-binary":
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    if found := _URI_OF_TEMPLATE.fullmatch(uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        return _text(uri, json.dumps(data), "application/json")
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


def _text(uri: str, body: str, mime_type: str = "text/plain") -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, mime_type=mime_type, text=body)
