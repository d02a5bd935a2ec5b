"""Real MCP servers through a gateway: what they list and answer is what a direct client gets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings
from typing import TYPE_CHECKING, Any

import mcp
import mcp_types
import pytest
from tests.harness import direct
from tests.harness.gateway import Gateway
from tests.harness.members import (
    EverythingHttp,
    everything,
    faulty,
    filesystem,
    git_server,
    time_server,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.direct import Direct

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
#: Experimental tasks are bound to their member; tools that demand them are not offered.
AS_TASKS = {"simulate-research-query"}

EVERYTHING = [
    ("tools/call", '{"name":"echo","arguments":{"message":"caf\\u00e9 \\ud83d\\ude00 \\/ é"}}'),
    ("tools/call", '{"name":"get-sum","arguments":{"a":1e2,"b":-0.5}}'),
    ("tools/call", '{"name":"get-sum","arguments":{"a":"no number"}}'),
    ("tools/call", '{"name":"get-tiny-image"}'),
    ("tools/call", '{"name":"get-structured-content","arguments":{"location":"Chicago"}}'),
    (
        "tools/call",
        '{"name":"get-annotated-message","arguments":{"messageType":"error","includeImage":true}}',
    ),
    ("tools/call", '{"name":"get-resource-links","arguments":{"count":3}}'),
    ("prompts/get", '{"name":"simple-prompt"}'),
    ("prompts/get", '{"name":"args-prompt","arguments":{"city":"Zürich","state":"\\u0000"}}'),
    ("prompts/get", '{"name":"args-prompt"}'),
    ("resources/read", '{"uri":"demo://resource/static/document/features.md"}'),
    ("resources/read", '{"uri":"demo://resource/nothing"}'),
    (
        "completion/complete",
        '{"ref":{"type":"ref/prompt","name":"completable-prompt"},'
        '"argument":{"name":"department","value":"E"}}',
    ),
    (
        "completion/complete",
        '{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},'
        '"argument":{"name":"resourceId","value":"7"}}',
    ),
]


def requests(server: str, folder: Path) -> list[tuple[str, str]]:
    """Requests whose answers are the same each time."""
    if server.startswith("everything"):
        return EVERYTHING
    if server == "time":
        zones = '"source_timezone":"UTC","target_timezone":"UTC"'
        return [
            ("tools/call", f'{{"name":"convert_time","arguments":{{{zones},"time":"12:00"}}}}'),
            ("tools/call", f'{{"name":"convert_time","arguments":{{{zones},"time":"25:99"}}}}'),
            ("tools/call", '{"name":"get_current_time","arguments":{"timezone":"No/Where"}}'),
        ]
    where = json.dumps(str(folder))
    if server == "git":
        names = ("git_log", "git_status", "git_diff_unstaged", "git_branch")
        extra = {"git_branch": ',"branch_type":"local"'}
        return [
            (
                "tools/call",
                f'{{"name":"{n}","arguments":{{"repo_path":{where}{extra.get(n, "")}}}}}',
            )
            for n in names
        ] + [("tools/call", '{"name":"git_log","arguments":{"repo_path":"/no/such"}}')]
    file = json.dumps(str(folder / "naïve 😀.txt"))
    return [
        ("tools/call", f'{{"name":"list_directory","arguments":{{"path":{where}}}}}'),
        ("tools/call", f'{{"name":"read_text_file","arguments":{{"path":{file},"head":1}}}}'),
        ("tools/call", f'{{"name":"get_file_info","arguments":{{"path":{file}}}}}'),
        ("tools/call", '{"name":"read_text_file","arguments":{"path":"/etc/passwd"}}'),
        ("tools/call", '{"name":"list_allowed_directories"}'),
    ]


def stdio_member(server: str, folder: Path) -> dict[str, Any]:
    match server:
        case "time":
            return time_server(era="Legacy")  # as the direct connection
        case "git":
            return git_server(folder, era="Legacy")
        case "filesystem":
            return filesystem(folder)
    return everything()


@contextlib.asynccontextmanager
async def both(server: str, folder: Path) -> AsyncIterator[tuple[Gateway, Direct]]:
    """A gateway in front of a server, and another connection to the same kind of server."""
    async with contextlib.AsyncExitStack() as stack:
        if server == "everything-http":
            http = await stack.enter_async_context(EverythingHttp())
            member = http.spec()
            straight = await stack.enter_async_context(direct.over_http(http.url))
        else:
            if server == "filesystem":
                (folder / "naïve 😀.txt").write_text("one\ntwo\n")
            member = stdio_member(server, folder)
            command = member["stdio"]["command"]
            straight = await stack.enter_async_context(direct.over_stdio(command))
        gateway = await stack.enter_async_context(Gateway(members=[member]))
        await gateway.all_ready()
        yield gateway, straight


@pytest.mark.parametrize("server", ["time", "git", "everything", "everything-http", "filesystem"])
async def test_lists_and_answers_of_a_real_server_pass_byte_for_byte(
    server: str, tmp_path: Path
) -> None:
    async with both(server, tmp_path) as (gateway, straight):
        session = await gateway.open_session()

        async def through(method: str, params: str) -> bytes:
            reply = await gateway.request(method, params, session=session)
            return direct.payload(reply.messages[-1])

        compared = 0
        for method, key in LISTS.items():
            ours = await direct.entries(through, method, key)
            if LISTS[method].startswith("resource") and "resources" not in straight.capabilities:
                assert not ours
                continue
            if key in ("tools", "prompts") and key not in straight.capabilities:
                assert not ours
                continue
            theirs = await direct.entries(straight.answer, method, key)
            for name in AS_TASKS:
                theirs.pop(name, None)
            assert ours == theirs
            compared += len(ours)
        assert compared >= 2
        for method, params in requests(server, tmp_path):
            assert await through(method, params) == await straight.answer(method, params), params


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_official_client_can_do_everything_through_the_gateway(transport: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if transport == "http":
            member = (await stack.enter_async_context(EverythingHttp())).spec()
        else:
            member = everything()
        members = [member, time_server(), faulty("f")]
        gateway = await stack.enter_async_context(Gateway(members=members))
        await gateway.all_ready()
        logged: list[Any] = []
        arrived = asyncio.Event()

        async def logging(message: Any) -> None:
            logged.append(message)
            arrived.set()

        client = await stack.enter_async_context(
            gateway.client(mode="legacy", logging_callback=logging)
        )
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"get-sum", "convert_time", "only_f"} <= tools
        steps: list[tuple[float, float | None]] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total))

        result = await client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.5, "steps": 4},
            progress_callback=on_progress,
        )
        assert "Duration: 0.5 seconds, Steps: 4" in str(result.content)
        assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
        prompt = await client.get_prompt("args-prompt", {"city": "Bern"})
        assert "Bern" in str(prompt.messages)
        templates = (await client.list_resource_templates()).resource_templates
        template = "demo://resource/dynamic/text/{resourceId}"
        assert template in {each.uri_template for each in templates}
        read = await client.read_resource("demo://resource/dynamic/text/7")
        assert "Resource 7" in str(read.contents)
        links = await client.call_tool("get-resource-links", {"count": 2})
        uris = [each.uri for each in links.content if each.type == "resource_link"]
        assert len(uris) == 2
        for uri in uris:
            assert (await client.read_resource(uri)).contents[0].uri == uri
        for reference in (
            mcp_types.PromptReference(type="ref/prompt", name="completable-prompt"),
            mcp_types.PromptReference(type="ref/prompt", name="greet"),
        ):
            argument = {"name": "department", "value": "E" if reference.name[0] == "c" else "al"}
            completed = (await client.complete(reference, argument)).completion.values
            assert completed in (["Engineering"], ["alice", "albert"])
        failed = await client.call_tool("get-sum", {"a": "x"})
        assert failed.is_error
        with pytest.raises(mcp.MCPError) as unknown:
            await client.call_tool("no-such-tool", {})
        assert unknown.value.code == -32602
        with pytest.raises(mcp.MCPError) as nowhere:
            await client.read_resource("demo://resource/nothing")
        assert nowhere.value.code in (-32002, -32602)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await client.set_logging_level("warning")
            await client.call_tool("log", {"level": "info", "text": "too quiet"})
            await client.call_tool("log", {"level": "error", "text": "loud"})
            await asyncio.wait_for(arrived.wait(), 5)
            await client.subscribe_resource(uris[0])
            await client.unsubscribe_resource(uris[0])
        assert [message.data["text"] for message in logged] == ["loud"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.call_tool("trigger-long-running-operation", {"duration": 60})
        sums = [client.call_tool("get-sum", {"a": n, "b": 1}) for n in range(20)]
        for n, answer in enumerate(await asyncio.gather(*sums)):
            assert f"is {n + 1}" in str(answer.content)
        status = await gateway.wait_for(lambda s: not any(m["inFlight"] for m in s["members"]))
        assert all(m["inRotation"] and m["consecutiveFailures"] == 0 for m in status["members"])
