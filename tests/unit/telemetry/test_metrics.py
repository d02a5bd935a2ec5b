from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families

from mcpgroup_gateway.core.breaker import BreakerState
from mcpgroup_gateway.core.counts import GroupState
from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.telemetry import words
from mcpgroup_gateway.telemetry.exposition import expose
from mcpgroup_gateway.telemetry.metrics import MAX_TOOLS, Metrics, watch_loop_lag
from mcpgroup_gateway.telemetry.snapshot import ConfigSnapshot, EndpointSnapshot, GroupSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def endpoint(member: str, **changes: object) -> EndpointSnapshot:
    values: dict[str, object] = {
        "member": member,
        "in_rotation": True,
        "selectable": True,
        "state": State.READY,
        "breaker": BreakerState.CLOSED,
        "consecutive_failures": 0,
        "in_flight": 0,
        "queued": 0,
    }
    return EndpointSnapshot(**(values | changes))  # type: ignore[arg-type]


def snapshot(endpoints: Iterable[EndpointSnapshot] = (), **changes: object) -> GroupSnapshot:
    values: dict[str, object] = {
        "state": GroupState.HEALTHY,
        "available": True,
        "circuit_open": False,
        "members": 2,
        "members_in_rotation": 2,
        "members_healthy": 1,
        "members_selectable": 2,
        "min_healthy": 1,
        "endpoints": list(endpoints),
        "requests_in_flight": 3,
        "requests_in_flight_limit": 1024,
        "sessions": 4,
        "sessions_limit": 10000,
        "streams_open": 1,
        "draining": False,
    }
    return GroupSnapshot(**(values | changes))  # type: ignore[arg-type]


def full_metrics() -> Metrics:
    metrics = Metrics("g")
    metrics.set_members(["a", "b"])
    metrics.set_tools(["read", "write"])
    metrics.loop_lagged(0.001)
    metrics.bind(
        lambda: snapshot(
            [endpoint("a", last_success=1.0), endpoint("b")],
            config=ConfigSnapshot("sha256:1", 3, last_reload_successful=True, last_success=1.0),
            canary_split_ratio=0.1,
            upstream_connections={"active": 1, "idle": 2},
        )
    )
    return metrics


def series(metrics: Metrics) -> Series:
    """What a scrape would read."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


def parsed(text: str) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    key = f"mcpgroup_{name}", frozenset({"group": metrics.group, **labels}.items())
    return series(metrics)[key]


def test_every_series_names_its_group_and_no_label_collides_with_those_of_a_scrape() -> None:
    # C75: Prometheus would rename them, or let them replace its own
    forbidden = {"namespace", "pod", "service", "instance", "job", "container"}
    found = 0
    for name, labels in series(full_metrics()):
        names = {label for label, _ in labels}
        assert not names & forbidden, name
        if name.startswith("mcpgroup_"):
            found += 1
            assert ("group", "g") in labels, name
        else:
            assert name.startswith("process_"), name
    assert found > 200


def test_counters_exist_at_zero_from_the_start() -> None:
    metrics = full_metrics()
    for outcome in words.OUTCOMES:
        assert value(metrics, "requests_total", method="tools/call", outcome=outcome) == 0
        assert value(metrics, "tool_calls_total", tool="read", outcome=outcome) == 0
    for member in ("a", "b"):
        assert value(metrics, "evictions_total", member=member, reason="hard") == 0
        assert value(metrics, "rejoins_total", member=member) == 0
        assert value(metrics, "attempt_duration_seconds_count", member=member) == 0
    assert value(metrics, "retries_exhausted_total") == 0
    assert value(metrics, "circuit_transitions_total", to="open") == 0


def test_what_happens_is_counted_once() -> None:
    metrics = full_metrics()
    metrics.selected("a", "strategy")
    metrics.attempt_finished("a", "member_failed", 0.2)
    metrics.failover("lost")
    metrics.selected("b", "failover")
    metrics.attempt_finished("b", "ok", 0.1)
    metrics.tool_call_finished("read", "ok")
    metrics.request_finished("tools/call", "ok", 0.3)
    metrics.refused("draining")
    metrics.retries_exhausted()
    metrics.evicted("a", "hard")
    metrics.rejoined("a")
    metrics.circuit_changed("open")
    metrics.probed("a", "timeout")
    metrics.started("a", "ok")
    metrics.exited("a", "signal")
    metrics.session_lost("idle")
    metrics.config_reloaded("rejected")
    metrics.overhead(0.0002)
    assert value(metrics, "requests_total", method="tools/call", outcome="ok") == 1
    assert value(metrics, "attempts_total", member="a", outcome="member_failed") == 1
    assert value(metrics, "attempts_total", member="b", outcome="ok") == 1
    assert value(metrics, "tool_calls_total", tool="read", outcome="ok") == 1
    assert value(metrics, "selections_total", member="b", reason="failover") == 1
    assert value(metrics, "refusals_total", reason="draining") == 1
    assert value(metrics, "failovers_total", reason="lost") == 1
    assert value(metrics, "retries_exhausted_total") == 1
    assert value(metrics, "evictions_total", member="a", reason="hard") == 1
    assert value(metrics, "rejoins_total", member="a") == 1
    assert value(metrics, "circuit_transitions_total", to="open") == 1
    assert value(metrics, "probes_total", member="a", result="timeout") == 1
    assert value(metrics, "member_starts_total", member="a", result="ok") == 1
    assert value(metrics, "member_exits_total", member="a", reason="signal") == 1
    assert value(metrics, "sessions_lost_total", reason="idle") == 1
    assert value(metrics, "config_reloads_total", result="rejected") == 1
    assert value(metrics, "gateway_overhead_seconds_sum") == pytest.approx(0.0002)
    assert value(metrics, "gateway_overhead_seconds_bucket", le="0.00025") == 1
    assert value(metrics, "gateway_overhead_seconds_bucket", le="0.0001") == 0


def test_a_duration_on_a_bound_falls_into_that_bucket_and_all_above() -> None:
    metrics = full_metrics()
    metrics.request_finished("ping", "ok", 0.005)
    metrics.request_finished("ping", "ok", 700.0)
    buckets = {
        dict(labels)["le"]: count
        for (name, labels), count in series(metrics).items()
        if name == "mcpgroup_request_duration_seconds_bucket" and ("method", "ping") in labels
    }
    assert buckets["0.005"] == buckets["600.0"] == 1
    assert buckets["+Inf"] == 2
    assert value(metrics, "request_duration_seconds_count", method="ping") == 2


@given(
    st.lists(
        st.tuples(
            st.text(max_size=300) | st.sampled_from(["tools/call", "a", "read", "_other"]),
            st.text(max_size=300) | st.sampled_from(["ok", "lost"]),
            st.floats(min_value=0, max_value=1e9),
        ),
        max_size=20,
    )
)
def test_no_client_input_creates_a_series(
    inputs: list[tuple[str, str, float]],
) -> None:
    metrics = full_metrics()
    before = set(series(metrics))
    for text, other, seconds in inputs:
        metrics.request_finished(text, "ok", seconds)
        metrics.tool_call_finished(text, "invalid")
        metrics.attempt_finished(text, "ok", seconds)
        metrics.selected(other, "strategy")
        metrics.probed(text, "ok")
    assert set(series(metrics)) == before
    count = sum(
        number for (name, _), number in series(metrics).items() if name == "mcpgroup_requests_total"
    )
    assert count == len(inputs)


def test_a_reason_that_is_not_known_shares_one_series() -> None:
    metrics = full_metrics()
    before = len(series(metrics))
    for n in range(1000):
        metrics.exited("a", f"reason {n}")
    assert len(series(metrics)) == before + 1
    assert value(metrics, "member_exits_total", member="a", reason="_other") == 1000


def test_the_series_of_a_removed_member_vanish_and_others_keep_their_counts() -> None:
    metrics = full_metrics()
    metrics.selected("a", "strategy")
    metrics.selected("b", "strategy")
    metrics.attempt_finished("b", "ok", 0.1)
    metrics.remove_member("a")
    metrics.bind(lambda: snapshot([endpoint("b")]))
    metrics.attempt_finished("a", "ok", 0.1)  # a late end of a call on it
    metrics.exited("a", "stopped")
    assert not [labels for _, labels in series(metrics) if ("member", "a") in labels]
    assert value(metrics, "selections_total", member="b", reason="strategy") == 1
    assert value(metrics, "attempt_duration_seconds_count", member="b") == 1


def test_adding_and_removing_a_hundred_members_leaves_nothing_behind() -> None:
    metrics = full_metrics()
    before = set(series(metrics))
    for n in range(100):
        metrics.set_members(["a", "b", f"m{n}"])
        metrics.selected(f"m{n}", "strategy")
        metrics.exited(f"m{n}", "unheard of")
    metrics.set_members(["a", "b"])
    assert set(series(metrics)) == before


def test_the_first_200_tools_are_named_and_the_rest_share_one_series() -> None:
    metrics = Metrics("g")
    metrics.set_tools(f"tool{n}" for n in range(300))
    metrics.tool_call_finished("tool199", "ok")
    metrics.tool_call_finished("tool200", "ok")
    metrics.tool_call_finished("tool299", "ok")
    assert value(metrics, "tool_calls_total", tool="tool199", outcome="ok") == 1
    assert value(metrics, "tool_calls_total", tool="_other", outcome="ok") == 2
    named = {dict(labels).get("tool") for _, labels in series(metrics)} - {None, "_other"}
    assert len(named) == MAX_TOOLS


def test_a_new_tool_before_the_others_resets_none_of_them() -> None:
    metrics = Metrics("g")
    metrics.set_tools(f"tool{n}" for n in range(200))
    metrics.tool_call_finished("tool199", "ok")
    metrics.set_tools(["aaa", *(f"tool{n}" for n in range(200))])
    assert value(metrics, "tool_calls_total", tool="tool199", outcome="ok") == 1
    metrics.set_tools(["aaa"])
    tools = {dict(labels).get("tool") for _, labels in series(metrics)}
    assert tools == {None, "aaa", "_other"}


def test_the_exposition_parses_whatever_a_member_calls_its_tools() -> None:
    metrics = Metrics("g")
    names = ['a"b', "line\nbreak", "back\\slash", "\ud800", "x" * 10_000, "ü✓", "", "\x00"]
    metrics.set_tools(names)
    for name in names:
        metrics.tool_call_finished(name, "ok")
    exposed = parsed(generate_latest(metrics.registry).decode())
    tools = {dict(labels).get("tool") for _, labels in exposed}
    assert tools == {None, "_other", 'a"b', "line\nbreak", "back\\slash", "ü✓", "\x00"}
    assert value(metrics, "tool_calls_total", tool="_other", outcome="ok") == 3


def test_a_members_gauges_are_the_share_and_the_sum_of_its_endpoints() -> None:
    metrics = Metrics("g")
    metrics.bind(
        lambda: snapshot(
            [
                endpoint("a", in_flight=2, queued=1, last_success=5.0),
                endpoint("a", in_rotation=False, selectable=False, state=State.FAILED, in_flight=1),
                endpoint("b", breaker=BreakerState.HALF_OPEN, consecutive_failures=4),
            ]
        )
    )
    assert value(metrics, "member_in_rotation", member="a") == 0.5
    assert value(metrics, "member_selectable", member="a") == 0.5
    assert value(metrics, "member_state", member="a", state="Failed") == 0.5
    assert value(metrics, "member_state", member="b", state="Failed") == 0
    assert value(metrics, "member_breaker_state", member="b", state="HalfOpen") == 1
    assert value(metrics, "member_consecutive_failures", member="b") == 4
    assert value(metrics, "member_in_flight_requests", member="a") == 3
    assert value(metrics, "member_queued_requests", member="a") == 1
    assert value(metrics, "member_last_success_timestamp_seconds", member="a") == 5.0
    assert ("mcpgroup_member_last_success_timestamp_seconds", "b") not in {
        (name, dict(labels).get("member")) for name, labels in series(metrics)
    }


def test_a_gauge_exists_only_while_it_has_a_meaning() -> None:
    metrics = Metrics("g")
    metrics.bind(snapshot)
    names = {name for name, _ in series(metrics)}
    assert "mcpgroup_group_available" in names
    for absent in ("canary_split_ratio", "config_info", "config_generation", "event_loop_lag"):
        assert not [name for name in names if name.startswith(f"mcpgroup_{absent}")]


def test_the_group_state_is_one_of_four_series() -> None:
    metrics = Metrics("g")
    metrics.bind(lambda: snapshot(state=GroupState.PARTIAL))
    states = {s: value(metrics, "group_state", state=s) for s in ("Healthy", "Partial", "Degraded")}
    assert states == {"Healthy": 0, "Partial": 1, "Degraded": 0}


async def test_both_text_formats_are_served_and_parse() -> None:
    metrics = full_metrics()
    body, content_type = await expose(metrics.registry, "application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert body.count(b"# EOF") == 1
    assert list(parse_open_metrics(body.decode()))  # type: ignore[no-untyped-call]
    body, content_type = await expose(metrics.registry, "*/*")
    assert content_type.startswith("text/plain")
    assert parsed(body.decode()) == set(series(metrics))


async def test_a_large_scrape_lets_other_tasks_run() -> None:
    metrics = Metrics("g")
    metrics.set_members(f"m{n}" for n in range(64))
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(work())
    await expose(metrics.registry, "")
    task.cancel()
    assert turns > 15


async def test_the_lag_of_a_blocked_loop_is_seen_by_a_later_scrape() -> None:
    metrics = Metrics("g")
    task = asyncio.create_task(watch_loop_lag(metrics, interval=0.01))
    await asyncio.sleep(0.005)
    time.sleep(0.05)  # noqa: ASYNC251  # the fault under test
    for _ in range(3):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert value(metrics, "event_loop_lag_seconds") > 0.03


def test_two_groups_in_one_process_share_nothing() -> None:
    one, two = Metrics("one"), Metrics("two")
    one.refused("poison")
    assert value(two, "refusals_total", reason="poison") == 0
