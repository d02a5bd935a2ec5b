from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from mcpgroup_gateway.telemetry.eventlog import EventLog
from mcpgroup_gateway.telemetry.lines import line_of, rfc3339
from mcpgroup_gateway.telemetry.logs import LineHandler
from mcpgroup_gateway.telemetry.redaction import REDACTED, Redactor
from mcpgroup_gateway.telemetry.requestlog import RequestLog, session_hash

if TYPE_CHECKING:
    from mcpgroup_gateway.telemetry.logs import LogFormat

NOW = 1_796_040_000.1234


class Lines:
    """Collects lines in place of a `LineWriter`."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []

    def write(self, line: bytes) -> bool:
        self.raw.append(line)
        return True

    @property
    def text(self) -> str:
        return b"".join(self.raw).decode()

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw]


def event_log(lines: Lines, **options: Any) -> EventLog:
    return EventLog("g", "i1", lines, Redactor(), now=lambda: NOW, **options)  # type: ignore[arg-type]


def request_log(lines: Lines, **options: Any) -> RequestLog:
    return RequestLog("g", "i1", lines, Redactor(), now=lambda: NOW, **options)  # type: ignore[arg-type]


def log_record(message: str, *arguments: object, **extra: Any) -> logging.LogRecord:
    return logging.LogRecord(
        "mcpgroup.x", logging.WARNING, "x.py", 1, message, arguments, extra.get("exc_info")
    )


def handler(lines: Lines, log_format: LogFormat = "json") -> LineHandler:
    return LineHandler(lines, Redactor(), log_format)  # type: ignore[arg-type]


def test_times_are_utc_with_milliseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1.9996) == "1970-01-01T00:00:01.999Z"
    assert rfc3339(1.0) == "1970-01-01T00:00:01.000Z"


def test_every_event_is_one_line_of_one_schema() -> None:
    lines = Lines()
    log = event_log(lines, routing=True)
    log.routing(tool="t", member="a", candidates=2, score=None, attempt=1)
    log.failover(tool="t", member="a", error="reset", candidates=1)
    log.circuit(old="Closed", new="Open", consecutive_failures=10)
    log.circuit(member="a", old="Open", new="HalfOpen", consecutive_failures=5)
    log.rotation(member="a", to="out", reason="connection refused", evidence="hard")
    log.recovery(member="a", old="Failed", new="Starting")
    log.session(to="lost", reason="idle")
    log.config(to="rejected", reason="line 3")
    kinds = [event["kind"] for event in lines.json]
    assert kinds == [
        *("routing", "failover", "circuit", "circuit", "rotation", "recovery"),
        *("session", "config"),
    ]
    for raw, event in zip(lines.raw, lines.json, strict=True):
        assert list(event)[:4] == ["time", "kind", "group", "instance"]
        assert raw.count(b"\n") == 1
        assert None not in event.values()


def test_the_last_hundred_events_are_kept_without_routing() -> None:
    log = event_log(Lines(), routing=True)
    for n in range(150):
        log.rotation(member=f"m{n}", to="out", reason="x")
        log.routing(tool="t", member="a", candidates=2, score=0.5, attempt=1)
    recent = log.recent()
    assert len(recent) == 100
    assert recent[0]["member"] == "m50"
    assert recent[-1] == {
        "time": rfc3339(NOW),
        "kind": "rotation",
        "member": "m149",
        "to": "out",
        "reason": "x",
    }


def test_an_endpoint_is_named_only_when_it_is_not_the_members_own_name() -> None:
    log = event_log(Lines())
    log.rotation(member="a", endpoint="a", to="out", reason="x")
    log.rotation(member="a", endpoint="10.0.0.1:80", to="out", reason="x")
    assert [event.get("endpoint") for event in log.recent()] == [None, "10.0.0.1:80"]


def test_routing_events_cost_nothing_unless_they_are_asked_for() -> None:
    lines = Lines()
    log = event_log(lines)
    assert not log.wants_routing
    log.routing(tool="t", member="a", candidates=2, score=0.5, attempt=1)
    assert not lines.raw


def test_an_event_hides_secrets_in_the_line_and_in_status() -> None:
    lines = Lines()
    log = event_log(lines)
    log.rotation(member="a", to="out", reason="GET https://u:p4ssw0rd@h/ failed")
    assert "p4ssw0rd" not in lines.text
    assert "p4ssw0rd" not in json.dumps(log.recent())


def test_an_events_text_is_bounded() -> None:
    log = event_log(Lines())
    log.rotation(member="a", to="out", reason="x" * 100_000)
    assert len(str(log.recent()[0]["reason"])) == 500


def test_a_console_event_cannot_steer_the_terminal() -> None:
    lines = Lines()
    event_log(lines, console=True).rotation(member="a", to="out", reason="\x1b[2J\nfake line")
    assert lines.text == f"{rfc3339(NOW)[11:19]} rotation a out: \\x1b[2J\\x0afake line\n"


def test_half_a_surrogate_pair_is_escaped() -> None:
    assert json.loads(line_of({"a": "\ud83d"})) == {"a": "\ud83d"}


def test_a_request_is_one_line() -> None:
    lines = Lines()
    request_log(lines).record(
        method="tools/call",
        name="read\nfile",
        outcome="ok",
        seconds=0.00421234,
        attempts=1,
        member="a",
        tenant="acme",
        session_id="secret-session",
    )
    assert lines.json == [
        {
            "time": rfc3339(NOW),
            "kind": "request",
            "group": "g",
            "instance": "i1",
            "method": "tools/call",
            "outcome": "ok",
            "seconds": 0.004212,
            "attempts": 1,
            "name": "read\nfile",
            "member": "a",
            "tenant": "acme",
            "session": session_hash("secret-session"),
        }
    ]
    assert lines.raw[0].count(b"\n") == 1
    assert "secret-session" not in lines.text


def test_the_sample_holds_the_share_that_was_asked_for() -> None:
    lines = Lines()
    draws = iter([0.0, 0.24, 0.25, 0.9])
    log = request_log(lines, sample_ratio=0.25, draw=lambda: next(draws))
    for _ in range(4):
        log.record(method="ping", outcome="ok", seconds=0.1)
    assert len(lines.raw) == 2
    nothing = request_log(lines, sample_ratio=0.0, draw=lambda: 0.0)
    nothing.record(method="ping", outcome="ok", seconds=0.1)
    assert len(lines.raw) == 2


def test_arguments_are_written_only_on_demand_and_without_secrets() -> None:
    arguments = b'{"path": "/x", "nested": {"apiKey": "c4nary"}, "url": "http://u:c4nary@h"}'
    lines = Lines()
    request_log(lines).record(method="m", outcome="ok", seconds=0, arguments=arguments)
    assert "arguments" not in lines.json[0]
    request_log(lines, arguments=True).record(
        method="m", outcome="ok", seconds=0, arguments=arguments
    )
    assert lines.json[1]["arguments"] == {
        "path": "/x",
        "nested": {"apiKey": REDACTED},
        "url": f"http://{REDACTED}@h",
    }


@pytest.mark.parametrize("arguments", [b"\xff", b"[" * 5000, b'"' + b"x" * 100_000 + b'"', b""])
def test_arguments_that_cannot_be_read_are_described(arguments: bytes) -> None:
    lines = Lines()
    log = request_log(lines, arguments=True)
    log.record(method="m" * 1000, outcome="ok", seconds=0, arguments=arguments)
    assert "bytes" in lines.json[0]["arguments"]
    assert len(lines.raw[0]) < 600


def test_a_log_record_is_redacted_with_its_arguments_and_its_trace() -> None:
    lines = Lines()
    try:
        raise ValueError("Authorization: Bearer c4nary")
    except ValueError as error:
        handler(lines).emit(
            log_record(
                "cannot reach %s",
                "https://u:c4nary@h/",
                exc_info=(type(error), error, error.__traceback__),
            )
        )
    (line,) = lines.json
    assert "c4nary" not in lines.text
    assert line["kind"] == "log"
    assert line["level"] == "Warning"
    assert line["logger"] == "mcpgroup.x"
    assert line["message"] == f"cannot reach https://{REDACTED}@h/"
    assert "ValueError" in line["error"]


def test_console_lines_are_for_people() -> None:
    lines = Lines()
    handler(lines, "console").emit(log_record("member %s\x07 is up", "a"))
    assert lines.text.endswith(" warning member a\\x07 is up\n")
    assert lines.raw[0].count(b"\n") == 1


def test_a_console_line_of_a_member_names_it() -> None:
    lines = Lines()
    record = log_record("listening")
    record.name = "mcpgroup.member.search-1"
    handler(lines, "console").emit(record)
    assert lines.text.endswith(" warning search-1 listening\n")
