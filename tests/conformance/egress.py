"""A client for the suite that is a gateway: the official client, a gateway, the suite's server.

python tests/conformance/egress.py --era legacy URL

The suite appends the address and names the scenario in the environment. `--era` is the one in
which the official client speaks to the gateway; what the gateway speaks to the server is its own
affair, and what the suite looks at.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

import mcp_types as types  # noqa: E402 - found through the line above
from mcp_types.version import MODERN_PROTOCOL_VERSIONS  # noqa: E402
from pydantic import ValidationError  # noqa: E402
from tests.conformance.suite import CLIENT_SECONDS  # noqa: E402
from tests.harness.gateway import Gateway  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import mcp

#: Less than the suite's patience: it kills a shell, which would leave the gateway behind.
_SECONDS = 0.8 * CLIENT_SECONDS


async def connect(client: mcp.Client) -> None:
    """To be connected is all."""


async def list_tools(client: mcp.Client) -> None:
    assert (await client.list_tools()).tools


async def call_every_tool(client: mcp.Client) -> None:
    """Those of the list, each with arguments that its schema takes."""
    tools = (await client.list_tools()).tools
    assert tools
    for tool in tools:
        result = await client.call_tool(tool.name, _arguments(tool.input_schema))
        assert not result.is_error, result


async def use_everything(client: mcp.Client) -> None:
    await call_every_tool(client)
    for resource in (await client.list_resources()).resources:
        await client.read_resource(resource.uri)
    for prompt in (await client.list_prompts()).prompts:
        await client.get_prompt(prompt.name)


async def call_as_told(client: mcp.Client) -> None:
    """The calls that the suite asks for."""
    context = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    await client.list_tools()
    for call in context["toolCalls"]:
        result = await client.call_tool(call["name"], call["arguments"])
        assert not result.is_error, result


async def answer_in_rounds(client: mcp.Client) -> None:
    """Tools that ask, and one that does not while another one waits for its answer."""
    await client.list_tools()
    answers = await asyncio.gather(
        *(
            client.call_tool(name, {})
            for name in ("test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated")
        )
    )
    assert not any(answer.is_error for answer in answers)
    # A modern member's result is passed on as it is, and the official client wants the type.
    with contextlib.suppress(ValidationError):
        await client.call_tool("test_mrtr_no_result_type", {})


_DRIVERS: dict[str, Callable[[mcp.Client], Awaitable[None]]] = {
    "initialize": connect,
    "tools_call": call_every_tool,
    "elicitation-sep1034-client-defaults": call_every_tool,
    "sse-retry": call_every_tool,
    "request-metadata": connect,
    "sep-2322-client-request-state": answer_in_rounds,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_every_tool,
    "json-schema-ref-no-deref": list_tools,
}


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema requires, with values of the right types."""
    values = {"string": "x", "number": 1.5, "integer": 1, "boolean": True}
    values |= {"array": [], "object": {}, "null": None}
    properties = schema.get("properties", {})
    return {name: values[properties[name]["type"]] for name in schema.get("required", [])}


async def accept_defaults(
    context: Any, params: types.ElicitRequestParams
) -> types.ElicitResult | types.ErrorData:
    """A user who leaves the form as it is; one without a default is ticked."""
    assert isinstance(params, types.ElicitRequestFormParams)
    properties = params.requested_schema["properties"]
    content = {name: each.get("default", True) for name, each in properties.items()}
    return types.ElicitResult(action="accept", content=content)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=["legacy", "modern"], required=True)
    parser.add_argument("url")
    options = parser.parse_args()
    drive = _DRIVERS[os.environ["MCP_CONFORMANCE_SCENARIO"]]
    member = {"name": "suite", "http": {"url": options.url}}
    async with asyncio.timeout(_SECONDS), Gateway(members=[member]) as gateway:
        await gateway.wait_state("suite")
        mode = "legacy" if options.era == "legacy" else "auto"
        async with gateway.client(mode=mode, elicitation_callback=accept_defaults) as client:
            modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
            assert modern == (options.era == "modern")
            await drive(client)


if __name__ == "__main__":
    asyncio.run(main())
