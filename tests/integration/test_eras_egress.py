"""What members are told: of the client, of the hop, and nothing that is not theirs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.harness.eras import ERAS, KINDS, TwoEras
from tests.harness.messages import META, MODERN

if TYPE_CHECKING:
    from pathlib import Path

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKS: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}}
SECRETS = {
    "Authorization": "Bearer secret",
    "Cookie": "secret=1",
    "Proxy-Authorization": "Basic secret",
    "Mcp-Session-Id": "",
    "Last-Event-ID": "secret",
    "X-Other": "secret",
    "Mcp-Param-Secret": "secret",
}
CALLERS: list[tuple[str, dict[str, Any]]] = [
    ("plain", {}),
    ("modern", {}),
    ("modern", {"sampling": {}}),
]
FORWARDED = {"X-Request-Id": "r-1", "X-Team": "blue"}


async def test_headers_are_those_of_this_hop_and_those_that_are_allowed(tmp_path: Path) -> None:
    http = {"forwardHeaders": ["X-Request-Id", "X-Team"]}
    sent = {name: value for name, value in SECRETS.items() if value} | FORWARDED
    sent |= {"traceparent": TRACE, "tracestate": "a=1"}

    async def check(client: Any, member: str) -> None:
        kind = KINDS[member]
        seen = await client.text(member, "seen", headers=sent)
        headers = seen["headers"]
        if not kind.http:
            assert headers == {}
            return
        assert "secret" not in str(headers), headers
        for name, value in FORWARDED.items():
            assert headers[name.lower()] == value
        assert (headers["traceparent"], headers["tracestate"]) == (TRACE, "a=1")
        if kind.modern:
            assert headers["mcp-protocol-version"] == MODERN
            assert headers["mcp-method"] == "tools/call"
            assert headers["mcp-name"] == "seen", "the name that the member knows"
            assert "mcp-session-id" not in headers
        else:
            assert headers["mcp-protocol-version"] == "2025-11-25"
            assert headers["mcp-session-id"] != client.headers.get("Mcp-Session-Id")
            assert not {"mcp-method", "mcp-name"} & set(headers)

    async with TwoEras(tmp_path, http=http) as group:
        await group.in_each_pair(check)


async def test_nothing_is_forwarded_that_is_not_allowed(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        seen = await client.text(member, "seen", headers=FORWARDED)
        assert not {name.lower() for name in FORWARDED} & set(seen["headers"])

    async with TwoEras(tmp_path, ["lhttp", "mhttp"]) as group:
        await group.in_each_pair(check)


async def test_what_a_resource_or_prompt_is_called_is_in_the_headers(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, ["mhttp"]) as group:
        for era in ERAS:
            async with group.client(era) as client:
                await client.ask("resources/read", {"uri": "res://mhttp/a"})
                await client.ask("prompts/get", {"name": "prompt_mhttp"})
                for method, name in (
                    ("resources/read", "res://mhttp/a"),
                    ("prompts/get", "prompt_mhttp"),
                ):
                    headers = group.noted("mhttp", method=method)[-1]["headers"]
                    assert (headers["mcp-method"], headers["mcp-name"]) == (method, name)


async def test_members_of_one_client_are_told_who_it_is_and_others_are_not(
    tmp_path: Path,
) -> None:
    async with TwoEras(tmp_path) as group:
        for era in ERAS:
            async with group.client(era, ASKS, name=f"the-{era}-client") as client:
                for member, kind in KINDS.items():
                    seen = await client.text(member, "seen")
                    if kind.modern:
                        told = seen["meta"][f"{META}clientCapabilities"]
                        name = seen["meta"][f"{META}clientInfo"]["name"]
                        assert seen["meta"][f"{META}protocolVersion"] == MODERN
                    else:
                        told = seen["capabilities"]
                        opened = group.noted(member, method="initialize")
                        name = opened[-1]["message"]["params"]["clientInfo"]["name"]
                        assert not [key for key in seen["meta"] if key.startswith(META)]
                    assert told == ({} if kind.shared else ASKS), (era, member)
                    expected = "mcpgroup" if kind.shared else f"the-{era}-client"
                    assert name == expected, (era, member)


async def test_the_gateways_own_requests_declare_nothing(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group, group.client("legacy", ASKS):
        for member, kind in KINDS.items():
            for entry in group.noted(member):
                params = entry["message"].get("params", {})
                if entry["message"].get("method") == "initialize":
                    assert params["capabilities"] == {}, member
                if kind.modern and "_meta" in params:
                    assert params["_meta"][f"{META}clientCapabilities"] == {}, member


async def test_the_trace_and_what_clients_put_into_meta_go_on(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        meta = {"traceparent": TRACE, "tracestate": "a=1", "x.test/own": {"n": [1, None]}}
        seen = await client.text(member, "seen", meta=meta)
        assert {key: seen["meta"][key] for key in meta} == meta
        mine = {key for key in seen["meta"] if not key.startswith(META)} - {"progressToken"}
        assert mine == set(meta)

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check)


async def test_members_of_a_session_hear_of_changed_roots(tmp_path: Path) -> None:
    changed = "notifications/roots/list_changed"
    async with (
        TwoEras(tmp_path) as group,
        group.client("legacy", {"roots": {"listChanged": True}}) as client,
        group.client("legacy") as other,
    ):
        for each in (client, other):
            for member in KINDS:
                await each.text(member, "count")
        await client.notify(changed)
        for member in ("lown", "lhttp"):
            told = await group.until_noted(member, method=changed)
            session = group.noted(member, method="tools/call")[0]
            assert [(e["session"], e["pid"]) for e in told] == [
                (session["session"], session["pid"])
            ]
        for member in ("lall", "mown", "mall", "mhttp"):
            assert not group.noted(member, method=changed), member


async def test_what_a_member_asked_of_one_tenant_no_other_can_answer(tmp_path: Path) -> None:
    members = ["lown", "mhttp"]
    async with (
        TwoEras(tmp_path, members, tenant={"header": "X-Tenant"}) as group,
        group.client("modern", ASKS) as client,
    ):
        for member in members:
            headers = {"X-Tenant": "a"}
            asked = (await client.call(member, "ask", headers=headers).answer())["result"]
            responses = {key: {"action": "accept"} for key in asked["inputRequests"]}
            more = {"inputResponses": responses, "requestState": asked["requestState"]}
            for other in ({"X-Tenant": "b"}, {}):
                answer = await client.call(member, "ask", more=more, headers=other).answer()
                assert answer["error"]["code"] == -32602, answer
            answer = await client.call(member, "ask", more=more, headers=headers).answer()
            assert answer["result"]["resultType"] == "complete", answer


async def test_a_session_of_one_tenant_serves_no_other(tmp_path: Path) -> None:
    members = ["lown", "lhttp", "mown"]
    async with TwoEras(tmp_path, members, tenant={"header": "X-Tenant"}) as group:
        for member in members:
            keys: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
            for era, capabilities in CALLERS:
                for tenant in ("a", "b", ""):
                    headers = {"X-Tenant": tenant} if tenant else {}
                    seen = await _counted(group, era, member, headers, capabilities, times=3)
                    name = (tenant, "asks" if capabilities else "plain")
                    keys.setdefault(name, set()).update((s["session"], s["pid"]) for s in seen)
            for name, where in keys.items():
                for other, elsewhere in keys.items():
                    if name != other:
                        assert not where & elsewhere, (member, name, other)
            for tenant in ("a", "b", ""):
                # Callers that declare nothing share one, whatever their era is.
                assert len(keys[(tenant, "plain")]) == 1, (member, keys)


async def test_calls_that_may_be_asked_have_a_session_each_while_they_run(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, ["lown", "lhttp"]) as group:
        for member in ("lown", "lhttp"):
            async with group.client("modern", ASKS) as one, group.client("modern", ASKS) as two:
                calls = [
                    each.call(member, "ask", {"params": {"message": word}})
                    for each, word in ((one, "one"), (two, "two"))
                ]
                answers = [await call.answer() for call in calls]
                asked = [
                    next(iter(each["result"]["inputRequests"].values()))["params"]["message"]
                    for each in answers
                ]
                assert asked == ["one", "two"]
                sessions = {
                    (entry["session"], entry["pid"])
                    for entry in group.noted(member, method="tools/call")
                }
                assert len(sessions) == 2, member


async def _counted(
    group: TwoEras,
    era: str,
    member: str,
    headers: dict[str, str],
    capabilities: dict[str, Any],
    *,
    times: int,
) -> list[Any]:
    """Calls one after the other and at once, of a modern client or one without a session."""
    async with group.client("modern", capabilities) as client:
        if era == "plain":
            client._own = lambda method, params, log_level: (params, {})
        first = await client.text(member, "count", headers=headers)
        rest = [client.text(member, "count", headers=headers) for _ in range(times)]
        return [first, *await asyncio.gather(*rest)]
