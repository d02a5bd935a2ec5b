"""Members over stdio, with real processes: the project's own faulty server and real ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness import members
from tests.harness.processes import alive, until

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.stdio import StdioConnector
from mcpgroup_gateway.members.upstream import MemberFailure, Opening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.members import CallLog

    from mcpgroup_gateway.members.stdio_exchange import StdioExchange
    from mcpgroup_gateway.members.stdio_session import StdioUpstream
    from mcpgroup_gateway.wire.envelope import Message

CANCELLED = MemberFailure(Failure.CANCELLED, "the caller gave up", sent=True)


class Opened:
    """An open member and what it told us outside of exchanges."""

    def __init__(self) -> None:
        self.notifications: list[Message] = []
        self.losses: list[MemberFailure] = []
        self.pending_at_loss = -1
        self.upstream: StdioUpstream

    def call(self, tool: str, arguments: str = "{}", token: int | None = None) -> StdioExchange:
        meta = f',"_meta":{{"progressToken":{token}}}' if token is not None else ""
        params = f'{{"name":"{tool}","arguments":{arguments}{meta}}}'
        return self.upstream.request("tools/call", params.encode(), progress_token=token)

    async def result(self, tool: str, arguments: str = "{}") -> bytes:
        return bytes((await last(self.call(tool, arguments))).result)

    async def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(await self.result("whoami"))["structuredContent"]
        return facts

    def lost(self, failure: MemberFailure) -> None:
        self.losses.append(failure)
        self.pending_at_loss = self.upstream.in_flight


@contextlib.asynccontextmanager
async def opened(
    command: list[str], *, deadline: float = 20, **options: Any
) -> AsyncIterator[Opened]:
    connector = StdioConnector("m", command, **options)
    member = Opened()
    opening = Opening(
        on_notification=member.notifications.append, on_lost=member.lost, control=True
    )
    member.upstream = await connector.open(opening, deadline)
    try:
        yield member
    finally:
        await member.upstream.close()
        await connector.close()


def faulty(*flags: str) -> list[str]:
    return members.faulty_command("stdio", "m", *flags)


def script(text: str) -> list[str]:
    """A server in a few lines, after the handshake."""
    head = (
        "import json, os, sys, time\n"
        "def answer(line, result):\n"
        "    i = json.loads(line)['id']\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': i, 'result': result}), flush=True)\n"
        "answer(sys.stdin.readline(), {})\n"  # to `server/discover`: it is not modern
        "answer(sys.stdin.readline(), {'protocolVersion': '2025-11-25', 'capabilities': {},"
        " 'serverInfo': {'name': 's', 'version': '1'}})\n"
        "sys.stdin.readline()\n"
    )
    return [sys.executable, "-S", "-c", head + text]


async def everything(exchange: StdioExchange) -> list[Message]:
    """All messages of an exchange, the response last."""
    messages = []
    try:
        async with asyncio.timeout(20):
            while True:
                messages.append(await exchange.next())
                if messages[-1].is_response:
                    return messages
    finally:
        exchange.close()


async def last(exchange: StdioExchange) -> Message:
    return (await everything(exchange))[-1]


async def failure_of(exchange: StdioExchange) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        await last(exchange)
    return caught.value


async def start_failure(
    command: list[str], *, deadline: float = 10, **options: Any
) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        async with opened(command, deadline=deadline, **options):
            pass
    return caught.value


async def first_refusal(upstream: StdioUpstream) -> MemberFailure:
    for _ in range(100_000):
        try:
            await upstream.notify("notifications/x", b"{}")
        except MemberFailure as refusal:
            return refusal
    raise AssertionError("every notification was taken")


# -- messages


async def test_arguments_and_results_pass_byte_by_byte() -> None:
    arguments = '{"a": 9007199254740993, "b":[1.0 ,1e2,-0.0],"x-unknown": "\\u00e9é"}'
    async with opened(faulty()) as member:
        result = await member.result("echo", arguments)
        assert result.endswith(f'"structuredContent":{arguments}}}'.encode())
        structured = await member.result("structured")
        assert b'"huge":123456789012345678901234567890,"one":1.0,"hundred":1e2' in structured


async def test_the_handshake_is_kept_raw() -> None:
    async with opened(faulty()) as member:
        handshake = member.upstream.handshake
        assert handshake.protocol_version == "2025-11-25"
        assert b'"experimental":{"x/y":{"n":1.0}}' in handshake.capabilities
        assert handshake.server_info == b'{"name":"m","version":"1.0"}'
        assert handshake.instructions == "This is m."
        assert member.upstream.pid == (await member.facts())["pid"]


async def test_concurrent_requests_get_their_own_answers() -> None:
    async with opened(faulty()) as member:
        exchanges = [member.call("echo", f'{{"n":{n}}}') for n in range(50)]
        assert member.upstream.in_flight == 50
        answers = await asyncio.gather(*(last(exchange) for exchange in exchanges))
        assert [json.loads(bytes(a.result))["structuredContent"]["n"] for a in answers] == list(
            range(50)
        )
        assert member.upstream.in_flight == 0


async def test_an_error_of_the_member_is_an_answer() -> None:
    async with opened(faulty()) as member:
        answer = await last(member.call("rpc_error", '{"code":-32099,"data":[1.0]}'))
        assert bytes(answer.error) == b'{"code":-32099,"message":"as you wish","data":[1.0]}'


async def test_progress_goes_to_the_exchange_with_its_token_and_to_no_other() -> None:
    async with opened(faulty()) as member:
        first = member.call("progress", '{"steps":3,"delay":0.02}', token=1)
        second = member.call(
            "progress", '{"steps":5,"delay":0.02,"late":true,"unknown":true}', token=2
        )
        one, two = await asyncio.gather(everything(first), everything(second))
        assert [json.loads(bytes(m.params))["progressToken"] for m in one[:-1]] == [1] * 3
        assert [json.loads(bytes(m.params))["progressToken"] for m in two[:-1]] == [2] * 5
        assert b'"total":3.0,"unknown":1e2' in bytes(one[0].params)
        await member.facts()
        assert member.notifications == []


async def test_a_log_message_goes_to_the_only_call_in_flight_else_to_the_session() -> None:
    async with opened(faulty()) as member:
        alone = await everything(member.call("log", '{"count":2}'))
        assert [m.method for m in alone] == ["notifications/message"] * 2 + [None]
        slow = member.call("sleep", '{"seconds":20}')
        among_others = await everything(member.call("log", '{"count":2}'))
        slow.close()
        assert [m.method for m in among_others] == [None]
        assert [m.method for m in member.notifications] == ["notifications/message"] * 2


async def test_a_list_change_goes_to_the_session() -> None:
    async with opened(faulty()) as member:
        await member.result("change_tools")
        assert [m.method for m in member.notifications] == ["notifications/tools/list_changed"]


@pytest.mark.parametrize(
    ("method", "expected"), [("ping", '"result":{}'), ("sampling/createMessage", '"code":-32601')]
)
async def test_a_request_of_the_member_is_answered_at_once(method: str, expected: str) -> None:
    async with opened(faulty()) as member:
        result = json.loads(await member.result("ask", f'{{"method":"{method}"}}'))
        assert expected in result["content"][0]["text"].replace(": ", ":")


async def test_unread_progress_is_dropped_oldest_first_and_the_answer_kept() -> None:
    async with opened(faulty()) as member:
        exchange = member.call("progress", '{"steps":2000}', token=7)
        await until(lambda: member.upstream.in_flight == 0)
        messages = await everything(exchange)
        assert len(messages) <= 257
        assert json.loads(bytes(messages[-2].params))["progress"] == 2000


async def test_an_answer_of_15_mebibytes_passes() -> None:
    async with opened(faulty()) as member:
        size = 15 * 1024 * 1024
        assert len(await member.result("big", f'{{"bytes":{size}}}')) > size


async def test_a_request_of_4_mebibytes_passes() -> None:
    async with opened(faulty()) as member:
        arguments = '{"a":"%s"}' % ("x" * 4 * 1024 * 1024)
        assert len(await member.result("echo", arguments)) > 2 * len(arguments)


# -- bad output


async def test_output_that_is_no_message_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(faulty("--stdout-noise")) as member:
        for number in range(20):
            result = await member.result("echo", f'{{"n":{number}}}')
            assert f'"n":{number}'.encode() in result
    noise = [
        record.getMessage() for record in caplog.records if "not a message" in record.getMessage()
    ]
    assert "not a message: Welcome to the server!" in noise
    assert "not a message: INFO ready" in noise


async def test_a_line_over_the_limit_fails_its_request_and_no_other() -> None:
    async with opened(faulty(), max_line_bytes=100_000) as member:
        slow = member.call("sleep", '{"seconds":0.5}')
        too_large = await failure_of(member.call("big", '{"bytes":200000}'))
        assert (too_large.failure, too_large.sent) == (Failure.TOO_LARGE, True)
        assert b"slept" in bytes((await last(slow)).result)
        assert len(await member.result("big", '{"bytes":90000}')) > 90000


async def test_the_id_of_a_long_line_is_read_at_its_end_too() -> None:
    text = (
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if m['method'] == 'big':\n"
        "        line = {'result': 'x' * 99999, 'jsonrpc': '2.0', 'id': m['id']}\n"
        "        print(json.dumps(line), flush=True)\n"
        "    if m['method'] == 'small':\n"
        "        answer(line, {})\n"
    )
    async with opened(script(text), max_line_bytes=10_000) as member:
        other = member.upstream.request("never", b"{}")
        too_large = await failure_of(member.upstream.request("big", b"{}"))
        assert too_large.failure is Failure.TOO_LARGE
        assert (await last(member.upstream.request("small", b"{}"))).is_response
        other.close()


async def test_an_endless_line_fails_the_only_request_and_costs_no_memory() -> None:
    text = "sys.stdin.readline()\nwhile True: sys.stdout.write('x' * 65536)\n"
    async with opened(script(text), eof_seconds=0.1) as member:
        before = psutil.Process().memory_info().rss
        too_large = await failure_of(member.upstream.request("endless", b"{}"))
        assert too_large.failure is Failure.TOO_LARGE
        await asyncio.sleep(0.3)  # it goes on writing
        assert psutil.Process().memory_info().rss - before < 64 * 1024 * 1024
        assert not member.upstream.lost


async def test_a_malformed_answer_fails_its_request_at_once() -> None:
    async with opened(faulty("--fail-calls")) as member:
        failure = await failure_of(member.call("echo"))
        assert failure.failure is Failure.MALFORMED
        assert (await last(member.upstream.request("ping", b""))).is_response


@pytest.mark.parametrize(
    "bad",
    [
        r'{"jsonrpc":"2.0","id":%d,"result":{"x":"\xff"}}',
        r'{"result":{"x":"\xff"},"jsonrpc":"2.0","id":%d}',
        r'{"jsonrpc":"2.0","id":%d,"result":{"x":NaN}}',
    ],
)
async def test_a_whole_answer_that_is_no_json_fails_its_request_at_once(bad: str) -> None:
    text = (
        f"i = json.loads(sys.stdin.readline())['id']\nos.write(1, b'{bad}\\n' % i)\ntime.sleep(9)"
    )
    async with opened(script(text), eof_seconds=0.1) as member:
        failure = await failure_of(member.upstream.request("bad", b"{}"))
        assert failure.failure is Failure.MALFORMED
        assert "answered badly" in failure.reason


async def test_a_bad_request_of_the_member_with_the_same_id_spoils_no_answer() -> None:
    text = (
        "line = sys.stdin.readline()\n"
        "i = json.loads(line)['id']\n"
        'os.write(1, b\'{"jsonrpc":"2.0","id":%d,"method":"\\xff"}\\n\' % i)\n'
        'os.write(1, b\'{"method":"\\xff","jsonrpc":"2.0","id":%d}\\n\' % i)\n'
        'os.write(1, b\'{"jsonrpc":"2.0","id":%d,"result":{"x":\\n\' % i)\n'
        "answer(line, {})\n"
    )
    async with opened(script(text)) as member:
        assert (await last(member.upstream.request("fine", b"{}"))).is_response


async def test_line_breaks_between_tokens_do_not_end_a_line() -> None:
    async with opened(faulty()) as member:
        assert b'"n":1' in await member.result("echo", '{"x":\n\n{"n":1}\r\n\r}')
        assert (await last(member.upstream.request("ping", b"\n{\n}\n"))).is_response


async def test_a_flood_of_stderr_starves_nobody_and_is_logged_in_part(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with opened(faulty("--stderr-flood")) as member:
        spent = time.process_time()
        for _ in range(20):
            await member.facts()
        await asyncio.sleep(0.5)
        assert time.process_time() - spent < 1.0
    logged = [record for record in caplog.records if "stderr" in record.getMessage()]
    assert 10 < len(logged) < 1000


# -- what is written


async def test_a_member_that_reads_nothing_blocks_nobody_and_unsent_requests_stay_unsent() -> None:
    text = "time.sleep(60)\n"
    async with opened(script(text), eof_seconds=0.1, term_seconds=0.1) as member:
        block = b'{"a":"%b"}' % (b"x" * 300_000)
        first = member.upstream.request("m/one", block)
        second = member.upstream.request("m/two", block)
        assert (first.sent, second.sent) == (True, False)
        for exchange in (first, second):
            exchange.abort(CANCELLED)
            assert (await failure_of(exchange)) is CANCELLED
        refusal = await first_refusal(member.upstream)
        assert (refusal.failure, refusal.sent) == (Failure.BUSY, False)


async def test_a_cancellation_reaches_the_member_at_once(call_log: CallLog) -> None:
    async with opened(faulty(*call_log.flags)) as member:
        exchange = member.call("sleep", '{"seconds":30}')
        await call_log.until(1)
        began = time.monotonic()
        exchange.abort(CANCELLED)
        assert (await failure_of(exchange)) is CANCELLED
        told = await call_log.until(1, event="cancelled")
        assert told[0]["at"] - began < 0.1
        assert member.upstream.in_flight == 0


async def test_an_abandoned_exchange_is_cancelled_too(call_log: CallLog) -> None:
    async with opened(faulty(*call_log.flags)) as member:
        exchange = member.call("sleep", '{"seconds":30}')
        await call_log.until(1)
        exchange.close()
        await call_log.until(1, event="cancelled")


async def test_an_answered_exchange_is_not_cancelled(call_log: CallLog) -> None:
    async with opened(faulty(*call_log.flags)) as member:
        exchange = member.call("echo")
        await everything(exchange)
        exchange.abort(CANCELLED)
        exchange.close()
        await member.facts()
        assert call_log.entries("told") == []


# -- how it ends


@pytest.mark.parametrize(
    ("how", "reason"),
    [("kill", "m was ended by SIGKILL"), ("crash", "m exited with code 3")],
)
async def test_an_exit_is_told_once_and_before_its_calls_fail(how: str, reason: str) -> None:
    async with opened(faulty()) as member:
        exchanges = [member.call("sleep", '{"seconds":30}') for _ in range(5)]
        await member.facts()
        began = time.monotonic()
        if how == "kill":
            os.kill(member.upstream.pid or 0, signal.SIGKILL)
        else:
            exchanges.append(member.call("crash"))
        failures = [await failure_of(exchange) for exchange in exchanges]
        assert time.monotonic() - began < 0.5
        assert {(f.failure, f.sent, f.reason) for f in failures} == {(Failure.EXIT, True, reason)}
        assert [loss.reason for loss in member.losses] == [reason]
        assert member.pending_at_loss == len(exchanges)
        assert member.upstream.lost
        after = await failure_of(member.call("echo"))
        assert (after.failure, after.sent) == (Failure.EXIT, False)


async def test_the_answer_that_a_process_wrote_just_before_its_exit_counts() -> None:
    text = "answer(sys.stdin.readline(), {'last': 'x' * 60000})\nos._exit(0)\n"
    async with opened(script(text)) as member:
        answer = await last(member.upstream.request("m", b"{}"))
        assert len(bytes(answer.result)) > 60000
        await until(lambda: member.upstream.lost)


async def test_a_process_that_closes_its_output_but_lives_is_lost() -> None:
    text = "sys.stdin.readline()\nos.close(1)\ntime.sleep(60)\n"
    async with opened(script(text)) as member:
        failure = await failure_of(member.upstream.request("m", b"{}"))
        assert failure.failure is Failure.EXIT
        assert failure.reason == "m closed its standard output"
        pid = member.upstream.pid or 0
        await until(lambda: not alive([pid]))


async def test_grandchildren_die_with_the_group_when_the_leader_crashes() -> None:
    async with opened(faulty("--grandchild")) as member:
        grandchild = (await member.facts())["grandchild"]
        assert alive([grandchild])
        await failure_of(member.call("crash"))
        await until(lambda: not alive([grandchild]))


async def test_close_ends_a_polite_member_at_the_end_of_its_input() -> None:
    async with opened(faulty("--grandchild")) as member:
        facts = await member.facts()
        began = time.monotonic()
        await member.upstream.close()
        assert time.monotonic() - began < 1.5
        await until(lambda: not alive([facts["pid"], facts["grandchild"]]))
        assert member.losses == []


async def test_close_ends_a_member_that_ignores_everything() -> None:
    command = faulty("--ignore-eof", "--ignore-sigterm", "--grandchild")
    async with opened(command, eof_seconds=0.2, term_seconds=0.2) as member:
        facts = await member.facts()
        pending = member.call("sleep", '{"seconds":30}')
        began = time.monotonic()
        await asyncio.gather(*(member.upstream.close() for _ in range(3)))
        assert 0.4 < time.monotonic() - began < 2
        await until(lambda: not alive([facts["pid"], facts["grandchild"]]))
        assert (await failure_of(pending)).failure is Failure.EVICTED


async def test_close_ends_a_stopped_process() -> None:
    async with opened(faulty(), eof_seconds=0.1, term_seconds=0.1) as member:
        pid = member.upstream.pid or 0
        os.kill(pid, signal.SIGSTOP)
        await member.upstream.close()
        assert not alive([pid])


async def test_a_close_whose_caller_is_cancelled_goes_on() -> None:
    command = faulty("--ignore-eof", "--ignore-sigterm")
    async with opened(command, eof_seconds=0.1, term_seconds=0.1) as member:
        pid = member.upstream.pid or 0
        closing = asyncio.create_task(member.upstream.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: not alive([pid]))


async def test_the_connector_ends_what_was_left_open() -> None:
    connector = StdioConnector("m", faulty())
    pids = []
    for _ in range(3):
        opening = Opening(on_notification=lambda _: None, on_lost=lambda _: None, control=False)
        upstream = await connector.open(opening, 20)
        pids.append(upstream.pid or 0)
    assert len(alive(pids)) == 3
    await connector.close()
    assert alive(pids) == []


async def test_no_descriptor_and_no_child_is_left_after_many_starts() -> None:
    async def once() -> None:
        async with opened(faulty()) as member:
            await member.facts()

    await once()
    before = psutil.Process().num_fds()
    for _ in range(10):
        await once()
    await start_failure(["no-such-command"])
    await start_failure([sys.executable, "-S", "-c", "pass"])
    assert psutil.Process().num_fds() == before
    assert all(p.status() != psutil.STATUS_ZOMBIE for p in psutil.Process().children())


# -- how it starts


@pytest.mark.parametrize(
    ("command", "failure", "reason"),
    [
        (
            ["no-such-command-anywhere"],
            Failure.COMMAND_NOT_FOUND,
            "the command 'no-such-command-anywhere' was not found on PATH",
        ),
        (
            ["/no/such/file"],
            Failure.COMMAND_NOT_FOUND,
            "the command '/no/such/file' does not exist",
        ),
        (
            [sys.executable, "-S", "-c", "raise SystemExit(7)"],
            Failure.START_FAILED,
            "m exited with code 7 before it was ready",
        ),
        (
            faulty("--protocol-version", "1999-01-01"),
            Failure.START_FAILED,
            "the member wants protocol version '1999-01-01'; known are "
            "2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        ),
    ],
)
async def test_a_start_that_fails_says_why(
    command: list[str], failure: Failure, reason: str
) -> None:
    fault = await start_failure(command)
    assert (fault.failure, fault.reason, fault.sent) == (failure, reason, False)


async def test_a_command_that_is_not_executable_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server"
    file.write_text("#!/bin/sh\n")
    fault = await start_failure([str(file)])
    assert fault.failure is Failure.COMMAND_NOT_FOUND
    assert fault.reason == f"the command {str(file)!r} may not be executed"


async def test_a_working_directory_that_is_missing_is_named() -> None:
    fault = await start_failure(faulty(), working_dir="/no/such/folder")
    assert fault.failure is Failure.START_FAILED
    assert "/no/such/folder" in fault.reason


async def test_a_start_that_takes_too_long_is_ended_with_its_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"sleep 60 & echo $! $$ > {pids}; sleep 60"
    began = time.monotonic()
    fault = await start_failure(["/bin/sh", "-c", text], deadline=0.5)
    assert time.monotonic() - began < 2
    assert (fault.failure, fault.late) == (Failure.START_FAILED, False)
    assert "within 0.5 s" in fault.reason
    await until(lambda: not alive([int(pid) for pid in pids.read_text().split()]))


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    starting = asyncio.create_task(
        start_failure(["/bin/sh", "-c", f"echo $$ > {pids}; exec sleep 60"])
    )
    await until(lambda: pids.exists() and pids.read_text() != "")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not alive([int(pids.read_text())])


async def test_the_environment_is_the_safe_list_and_what_is_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "s3cret")
    monkeypatch.setenv("USER", "someone")
    for declared in ({}, {"OWN": "value", "TERM": "dumb"}):
        async with opened(faulty(), env=declared) as member:
            seen = json.loads(await member.result("env"))["structuredContent"]
        seen.pop("LC_CTYPE", None)  # Python sets it itself in a C locale
        safe = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
        inherited = {name: os.environ[name] for name in safe if name in os.environ}
        assert seen == {**inherited, **declared}


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
async def test_memory_over_the_limit_is_refused_to_the_process() -> None:
    async with opened(faulty(), memory_limit_mib=64) as member:
        failure_or_answer = await last(member.call("whoami"))
        assert failure_or_answer.is_response
        slow = member.call("big", '{"bytes":200000000}')  # the server's thread dies of it
        await member.facts()
        assert slow.sent
        rss = psutil.Process(member.upstream.pid).memory_info().rss
        assert rss < 128 * 1024 * 1024
        slow.close()


# -- real servers


async def test_mcp_server_time_answers() -> None:
    async with opened([sys.executable, "-m", "mcp_server_time"]) as member:
        result = json.loads(await member.result("get_current_time", '{"timezone":"UTC"}'))
        assert "UTC" in result["content"][0]["text"]


async def test_the_reference_server_sends_progress() -> None:
    command = [members.npm_command("mcp-server-everything"), "stdio"]
    async with opened(command, memory_limit_mib=512) as member:
        messages = await everything(
            member.call("trigger-long-running-operation", '{"duration":1,"steps":4}', token=11)
        )
        assert [json.loads(bytes(m.params))["progress"] for m in messages[:-1]] == [1, 2, 3, 4]
