"""The command line as a user meets it: real processes, their output and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp, faulty
from tests.harness.processes import ROOT, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

COMMAND = [sys.executable, "-m", "mcpgroup_gateway"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'gateway'}"}


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


async def mcpgroup(*arguments: str, stdin: bytes = b"") -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=ROOT,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    assert "Traceback" not in err.decode(), err.decode()
    return Outcome(process.returncode, out.decode(), err.decode())


async def on_a_terminal(*arguments: str) -> str:
    """What a command shows on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    env = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "100"}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=ROOT
    )
    os.close(theirs)
    shown = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the terminal's other end is gone
                return
            if not data:
                return
            shown.extend(data)

    try:
        await asyncio.wait_for(asyncio.to_thread(read), 60)
        await process.wait()
    finally:
        os.close(ours)
    return shown.decode("utf-8", "replace")


def manifest(folder: Path, *members: dict[str, Any], **spec: Any) -> str:
    path = folder / "group.yaml"
    group = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": "test"},
        "spec": {"members": list(members), **spec},
    }
    path.write_text(json.dumps(group, indent=1))
    return str(path)


# -- version, help, wrong use


async def test_version_is_told_fast_and_without_an_http_stack() -> None:
    outcome = await mcpgroup("version")
    assert outcome.code == 0
    assert re.fullmatch(r"mcpgroup \d+\.\d+\.\d+\S*\n", outcome.out)
    assert (await mcpgroup("version", "--json")).json["version"] in outcome.out

    script = "import sys, mcpgroup_gateway.command.app; print(*sys.modules)"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    loaded, _ = await process.communicate()
    assert not {"aiohttp", "mcp", "yaml", "pydantic"} & set(loaded.decode().split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("validate",),
        ("run", "x.yaml", "--port", "70000"),
        ("run", "examples/time.yaml", "--secrets", "/no/such/folder"),
        ("run", "examples/time.yaml", "--keys", "/no/such/folder"),
        ("call", "http://127.0.0.1:1/mcp"),
        ("call", "http://127.0.0.1:1/mcp", "tool", "--arg", "x"),
        ("call", "http://127.0.0.1:1/mcp", "tool", "--args-json", "["),
        ("call", "http://127.0.0.1:1/mcp", "tool", "--args-json", "[]"),
        ("call", "http://127.0.0.1:1/mcp", "tool", "--secrets", "."),
        ("call", "http://127.0.0.1:1/mcp", "ping", "--member", "a"),
        ("call", "examples/time.yaml", "get_current_time", "--member", "z"),
        ("explain", "http://127.0.0.1:9090"),
        ("explain", "http://127.0.0.1:9090", "--tool", "a", "--prompt", "b"),
        ("explain", "http://127.0.0.1:8080/mcp", "--tool", "a"),
        ("explain", "127.0.0.1:9090", "--tool", "a"),
    ],
    ids=" ".join,
)
async def test_wrong_use_ends_with_2_and_says_what_is_wrong(arguments: tuple[str, ...]) -> None:
    outcome = await mcpgroup(*arguments)

    assert outcome.code == 2
    assert outcome.out == ""
    assert "Error: " in outcome.err


# -- validate


async def test_a_valid_manifest_ends_with_0() -> None:
    outcome = await mcpgroup("validate", "examples/time.yaml")

    assert outcome == Outcome(0, "examples/time.yaml: group time is valid, 3 members\n", "")


async def test_each_fault_is_one_line_with_file_line_field_and_what_is_allowed(
    tmp_path: Path,
) -> None:
    path = manifest(tmp_path, {"name": "A", "stdio": {"command": []}}, minHealthy=0)

    outcome = await mcpgroup("validate", path)

    assert outcome.code == 1
    assert len(outcome.lines) == 3
    for line, field in zip(
        outcome.lines,
        ("spec.members[0].name", "spec.members[0].stdio.command", "spec.minHealthy"),
        strict=True,
    ):
        assert re.fullmatch(rf"{re.escape(path)}:\d+: {re.escape(field)}: must be .+", line)


async def test_warnings_are_told_and_end_with_0(tmp_path: Path) -> None:
    path = manifest(tmp_path, {"name": "a", "weight": 2, "stdio": {"command": ["x"]}})

    outcome = await mcpgroup("validate", path)
    assert outcome.code == 0
    assert "spec.members[0].weight: warning: has no effect" in outcome.lines[0]

    told = (await mcpgroup("validate", path, "--json")).json
    assert told["valid"] is True
    assert [warning["field"] for warning in told["warnings"]] == ["spec.members[0].weight"]


async def test_a_manifest_for_kubernetes_is_valid_and_served_where_the_options_count(
    tmp_path: Path,
) -> None:
    file = f"/tmp/{tmp_path.name}.jsonl"  # noqa: S108
    spec: dict[str, Any] = {
        "replicas": 3,
        "service": {"type": "NodePort", "port": 8080},
        "gateway": {"logLevel": "Debug", "requestLog": {"file": file}},
        "networkPolicy": {"enabled": True, "egress": True},
        "monitoring": {"podMonitor": True},
    }
    outcome = await mcpgroup("validate", manifest(tmp_path, faulty("a"), **spec))
    assert (outcome.code, outcome.err) == (0, "")
    async with Gateway(members=[faulty("a")], **spec) as gateway:
        await gateway.all_ready()
        assert (await gateway.call("whoami")).text == "a"
        for option in ("--log-level", "--request-log"):
            assert f"is for pods: where you start it, {option} counts" in gateway.log
        status = await gateway.reload(replicas=5)
        assert status["config"]["rejected"] is None
        await gateway.running.printed('"to":"applied"')
        assert '"kind":"routing"' not in gateway.log  # which level Debug would show
    assert not await asyncio.to_thread(os.path.exists, file)


async def test_standard_input_and_json_go_together() -> None:
    outcome = await mcpgroup("validate", "-", "--json", stdin=b"kind: Secret\n")

    assert outcome.code == 1
    assert outcome.json["valid"] is False
    assert {
        "file": "<stdin>",
        "line": 1,
        "field": "kind",
        "text": "must be McpServerGroup",
    } in outcome.json["faults"]


@pytest.mark.parametrize("command", ["validate", "health", "discover"])
async def test_a_file_that_is_not_there_is_told(command: str) -> None:
    outcome = await mcpgroup(command, "no-such.yaml")

    assert outcome.code == 1
    assert "no-such.yaml: cannot be read: no such file or directory" in outcome.out + outcome.err


async def test_run_refuses_an_invalid_manifest() -> None:
    outcome = await mcpgroup("run", "-", "--port", "0", "--admin-port", "0", stdin=b"kind: x")

    assert outcome.code == 1
    assert "kind: must be McpServerGroup" in outcome.err


# -- health and discover


async def test_health_shows_who_is_up_and_why_others_are_not(tmp_path: Path) -> None:
    missing = {"secretKeyRef": {"name": "search", "key": "token"}}
    path = manifest(
        tmp_path,
        faulty("a"),
        {"name": "b", "stdio": {"command": ["no-such-program-at-all"]}},
        {"name": "c", "http": {"url": "http://127.0.0.1:1/mcp"}},
        faulty("d", env=[{"name": "TOKEN", "valueFrom": missing}]),
        faulty("e", "--silent"),
        health={"startupTimeoutSeconds": 2},
    )

    outcome = await mcpgroup("health", path)

    assert outcome.code == 1
    assert outcome.lines[0].split() == ["MEMBER", "STATUS", "LATENCY", "ERROR"]
    rows = {line.split()[0]: line for line in outcome.lines[1:]}
    assert re.fullmatch(r"a +Up +\d+\.\d ms", rows["a"])
    assert "no-such-program-at-all" in rows["b"]
    assert re.match(r"c +Down +-", rows["c"])
    assert "secret search, key token is unusable (no folder of secrets, --secrets DIR" in rows["d"]
    assert re.match(r"e +Down +-", rows["e"])


async def test_health_ends_with_0_when_every_member_is_up(tmp_path: Path) -> None:
    async with FaultyHttp("b") as member:
        path = manifest(tmp_path, faulty("a"), member.spec())
        outcome = await mcpgroup("health", path, "--json")

    assert outcome.code == 0
    assert [(m["name"], m["status"], m["error"]) for m in outcome.json["members"]] == [
        ("a", "Up", None),
        ("b", "Up", None),
    ]
    assert all(0 < m["latencySeconds"] < 5 for m in outcome.json["members"])


async def test_discover_lists_what_clients_of_the_group_would_see(tmp_path: Path) -> None:
    path = manifest(
        tmp_path,
        faulty("a"),
        faulty("b"),
        faulty("c", "--schema-variant", "2"),
        tools={"deny": ["crash*"]},
    )

    outcome = await mcpgroup("discover", path)
    assert outcome.code == 0, outcome.err
    assert outcome.lines[0].split() == ["KIND", "NAME", "MEMBERS"]
    rows = [re.split(r"  +", line) for line in outcome.lines[1:]]
    assert ["tool", "echo", "a, b, c"] in rows
    assert ["tool", "only_b", "b"] in rows
    assert ["tool", "variant", "a, b (defined differently by c)"] in rows
    assert ["prompt", "greet", "a, b, c"] in rows
    assert ["resource", "test://c/own", "c"] in rows
    assert ["template", "test://items/{id}", "a, b, c"] in rows
    assert not [row for row in rows if row[1].startswith("crash")]

    entries = (await mcpgroup("discover", path, "--json")).json["entries"]
    variant = next(entry for entry in entries if entry["name"] == "variant")
    assert variant == {
        "kind": "tool",
        "name": "variant",
        "members": ["a", "b"],
        "shadowed": ["c"],
    }


async def test_discover_shows_the_rest_when_a_member_is_down(tmp_path: Path) -> None:
    path = manifest(tmp_path, faulty("a"), {"name": "b", "http": {"url": "http://127.0.0.1:1/"}})

    outcome = await mcpgroup("discover", path)

    assert outcome.code == 1
    assert any(line.split()[1] == "echo" for line in outcome.lines)
    assert outcome.err.startswith("member b: ")


async def test_sigterm_leaves_no_process_of_a_member_behind(tmp_path: Path) -> None:
    """`no_process_left` looks for them."""
    started = tmp_path / "started"
    script = f"import pathlib, sys; pathlib.Path({str(started)!r}).touch(); sys.stdin.read()"
    path = manifest(tmp_path, {"name": "a", "stdio": {"command": [sys.executable, "-c", script]}})
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "health", path, env=ENVIRONMENT, cwd=ROOT
    )

    await until(started.exists)
    process.send_signal(signal.SIGTERM)

    assert await asyncio.wait_for(process.wait(), 15) == 128 + signal.SIGTERM


# -- call


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server to call, without a gateway between."""
    async with FaultyHttp("a") as member:
        yield member.url


async def test_a_call_prints_the_text_of_the_result(url: str) -> None:
    assert await mcpgroup("call", url, "whoami") == Outcome(0, "a\n", "")


async def test_arguments_are_json_when_they_can_be_and_text_otherwise(url: str) -> None:
    outcome = await mcpgroup(
        *("call", url, "echo", "--json", "--args-json", '{"a": 1, "deep": {"x": null}}'),
        *("--arg", "a=9007199254740993", "--arg", "b=true", "--arg", 'c=["x"]', "--arg", "n=null"),
        *("--arg", "d=Asia/Tokyo", "--arg", "e=1.50", "--arg", "f=NaN", "--arg", "g=x=y"),
    )

    assert outcome.json["structuredContent"] == {
        "a": 9007199254740993,
        "deep": {"x": None},
        "b": True,
        "c": ["x"],
        "n": None,
        "d": "Asia/Tokyo",
        "e": 1.5,
        "f": "NaN",
        "g": "x=y",
    }


async def test_a_method_is_called_by_its_name(url: str) -> None:
    listed = await mcpgroup("call", url, "tools/list")
    assert "whoami" in [tool["name"] for tool in listed.json["tools"]]
    assert (await mcpgroup("call", url, "ping")).json == {}

    prompt = ("prompts/get", "--arg", "name=greet", "--arg", 'arguments={"who": "x"}')
    assert (await mcpgroup("call", url, *prompt)).json["messages"]
    resource = ("resources/read", "--arg", "uri=test://shared/readme")
    assert (await mcpgroup("call", url, *resource)).json["contents"]


async def test_fields_that_no_model_knows_are_printed(url: str) -> None:
    listed = await mcpgroup("call", url, "tools/list")

    tools = {tool["name"]: tool for tool in listed.json["tools"]}
    assert tools["structured"]["x-unknown"] == {"big": 9007199254740993}


async def test_an_error_of_the_tool_ends_with_1_and_its_text(url: str) -> None:
    assert await mcpgroup("call", url, "fail", "--arg", "text=no luck") == Outcome(
        1, "no luck\n", ""
    )


async def test_an_error_of_the_protocol_ends_with_1_and_its_code(url: str) -> None:
    arguments = ("call", url, "rpc_error", "--arg", "code=-32077", "--arg", 'data={"x": 1}')

    assert await mcpgroup(*arguments) == Outcome(1, "", 'error -32077: as you wish\n{"x": 1}\n')
    told = await mcpgroup(*arguments, "--json")
    assert told.code == 1
    assert told.json == {"error": {"code": -32077, "message": "as you wish", "data": {"x": 1}}}


async def test_nobody_at_the_url_ends_with_1() -> None:
    outcome = await mcpgroup("call", "http://127.0.0.1:1/mcp", "ping")

    assert outcome.code == 1
    assert outcome.err.startswith("http://127.0.0.1:1/mcp: ")
    assert len(outcome.err.splitlines()) == 1


async def test_the_tenant_goes_into_its_header(url: str) -> None:
    headers = ("call", url, "headers", "--tenant", "t1", "--json")

    assert '"t1"' in (await mcpgroup(*headers)).out
    named = await mcpgroup(*headers, "--tenant-header", "X-Customer")
    assert re.search(r'"x-customer": "t1"', named.out, re.IGNORECASE)


async def test_escape_sequences_of_a_tool_do_not_reach_a_terminal(url: str) -> None:
    shown = await on_a_terminal("call", url, "fail", "--arg", "text=\x1b]0;owned\x07done")

    assert "\\x1b]0;owned\\x07done" in shown
    assert "\x1b]0;" not in shown


# -- call through a group, and through a running gateway


async def test_a_manifest_is_served_for_one_call(tmp_path: Path) -> None:
    path = manifest(tmp_path, faulty("a"), faulty("b"), names={"separator": "_._"})

    assert (await mcpgroup("call", path, "whoami")).out in ("a\n", "b\n")
    assert (await mcpgroup("call", path, "whoami", "--member", "b")).out == "b\n"


async def test_a_group_that_is_called_gets_its_secrets_and_tenants(tmp_path: Path) -> None:
    (tmp_path / "secrets" / "search").mkdir(parents=True)
    (tmp_path / "secrets" / "search" / "token").write_text("hunter2hunter2\n")
    source = {"secretKeyRef": {"name": "search", "key": "token"}}
    path = manifest(
        tmp_path,
        faulty("a"),
        faulty("b", env=[{"name": "TOKEN", "valueFrom": source}]),
        tenant={"header": "X-Customer"},
        canary={"member": "b", "pinnedTenants": {"t1": "b"}},
    )
    with_secrets = ("--secrets", str(tmp_path / "secrets"), "--tenant", "t1")

    outcome = await mcpgroup("call", path, "env", "--arg", "name=TOKEN", *with_secrets)

    assert "hunter2hunter2" in outcome.out, outcome.err


async def test_a_running_gateway_is_called_and_explained() -> None:
    async with Gateway(members=[faulty("a"), faulty("b")]) as gateway:
        await gateway.all_ready()
        assert (await mcpgroup("call", gateway.url, "whoami")).out in ("a\n", "b\n")
        pinned = await mcpgroup("call", gateway.url, "whoami", "--member", "b")
        assert pinned.out == "b\n"

        explained = await mcpgroup("explain", gateway.admin_url, "--tool", "whoami")
        assert explained.code == 0
        assert explained.lines[0].split() == ["STEP", "LEFT", "DROPPED"]
        assert explained.lines[1].split() == ["rotation", "a,", "b"]
        assert re.fullmatch(r"chosen: [ab] \(strategy\)", explained.lines[-1])

        unknown = await mcpgroup("explain", gateway.admin_url, "--tool", "nope")
        assert unknown.code == 1


# -- explain, against an admin port that says what it is told to

FUNNEL: dict[str, Any] = {
    "kind": "tools",
    "name": "read",
    "tenant": "t 1",
    "steps": [
        {"step": "rotation", "left": ["a"], "dropped": {"b": "is out of rotation\x1b[2J"}},
        {"step": "breaker", "left": [], "dropped": {"a": "has an open breaker"}},
    ],
    "choice": None,
    "refusal": {"reason": "breaker", "retryAfterSeconds": 1.5},
}


@pytest.fixture
async def admin() -> AsyncIterator[tuple[str, list[web.Request]]]:
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        if request.query.get("tool") == "broken":
            return web.Response(text="<html>")
        if request.query.get("tool") == "refused":
            return web.json_response({"error": "bad_request", "message": "not so"}, status=400)
        return web.json_response(FUNNEL)

    app = web.Application()
    app.router.add_get("/explain", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    await runner.cleanup()


async def test_a_funnel_is_plain_columns_in_a_pipe(
    admin: tuple[str, list[web.Request]],
) -> None:
    address, asked = admin

    outcome = await mcpgroup("explain", address + "/", "--tool", "read", "--tenant", "t 1")

    assert outcome.code == 1
    assert outcome.lines == [
        "STEP      LEFT  DROPPED",
        "rotation  a     b is out of rotation\\x1b[2J",
        "breaker   none  a has an open breaker",
        "refused: breaker, try again in 1.5 s",
    ]
    assert dict(asked[0].query) == {"tool": "read", "tenant": "t 1"}
    assert (await mcpgroup("explain", address, "--prompt", "p", "--json")).json == FUNNEL


async def test_a_funnel_is_a_table_on_a_terminal(admin: tuple[str, list[web.Request]]) -> None:
    shown = await on_a_terminal("explain", admin[0], "--resource", "file:///x")

    assert "─" in shown
    assert "a has an open breaker" in shown
    assert "\x1b[2J" not in shown


async def test_an_answer_that_is_no_funnel_is_told(
    admin: tuple[str, list[web.Request]],
) -> None:
    broken = await mcpgroup("explain", admin[0], "--tool", "broken")
    assert broken.code == 1
    assert "not that of a gateway's admin port" in broken.err

    refused = await mcpgroup("explain", admin[0], "--tool", "refused")
    assert refused.code == 1
    assert refused.err.endswith(": not so\n")

    nobody = await mcpgroup("explain", "http://127.0.0.1:1", "--tool", "x")
    assert nobody.code == 1
    assert nobody.err.startswith("http://127.0.0.1:1/explain")
