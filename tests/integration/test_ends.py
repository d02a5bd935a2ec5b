"""SIGTERM while members wait for clients: a clear end for everybody, in time, and no orphan."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.harness.asking import asking
from tests.harness.eras import TwoEras
from tests.harness.gateway import Gateway
from tests.harness.inside import modern
from tests.harness.messages import ACCEPT, messages_of, request

if TYPE_CHECKING:
    from pathlib import Path

ASKABLE: dict[str, Any] = {"elicitation": {}}
DRAIN_SECONDS = 3
QUESTION: dict[str, Any] = {"name": "ask", "arguments": {"question": "well?"}}
PRIVATE = "hunter2-hunter2-hunter2"


async def _send(gateway: Gateway, message: Any, **headers: str) -> dict[str, Any]:
    """The last message of the answer."""
    fields = {"Accept": ACCEPT, **headers}
    async with gateway.http.post(gateway.url, json=message, headers=fields) as answer:
        messages: list[dict[str, Any]] = [each async for each in messages_of(answer)]
        return messages[-1]


async def _session(gateway: Gateway) -> dict[str, str]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": ASKABLE,
        "clientInfo": {"name": "t", "version": "1"},
    }
    message = request("initialize", 1, **params)
    async with gateway.http.post(gateway.url, json=message, headers={"Accept": ACCEPT}) as answer:
        return {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}


async def test_sigterm_ends_questions_parked_calls_and_listens_in_time(tmp_path: Path) -> None:
    drain = {"timeoutSeconds": DRAIN_SECONDS}
    async with (
        TwoEras(tmp_path, ["lown", "mown"], drain=drain) as group,
        group.client("legacy", ASKABLE) as session,
        group.client("modern", ASKABLE) as client,
    ):
        asked = [session.call(member, "ask") for member in group.kinds]
        for call in asked:
            await call.first("elicitation/create")
        parked = (await client.call("lown", "ask").answer())["result"]
        assert parked["resultType"] == "input_required"
        listening = await client.listen(toolsListChanged=True)
        start = time.monotonic()
        assert await group.gateway.terminate() == 0
        assert time.monotonic() - start < DRAIN_SECONDS + 2
        for call in asked:
            error = (await call.answer())["error"]
            assert (error["code"], error["data"]["reason"]) == (-31003, "draining"), error
        assert (await listening.answer())["result"]["resultType"] == "complete"
        assert not [pid for member in group.kinds for pid in group.pids(member)]
        log = group.gateway.log
        assert "never retrieved" not in log
        assert "was destroyed" not in log
        assert '"level":"error"' not in log.lower()


async def test_what_is_asked_and_answered_is_told_to_nobody_else() -> None:
    members = [asking("a", era="Legacy"), asking("b", era="Modern")]
    async with Gateway(members=members, flags=("--log-level", "Debug")) as gateway:
        await gateway.all_ready()
        question: dict[str, Any] = {"name": "ask", "arguments": {"question": PRIVATE}}
        states = []
        for number in range(4):
            message, headers = modern("tools/call", number, ASKABLE, **question)
            result = (await _send(gateway, message, **headers))["result"]
            states.append(result["requestState"])
            content = {"action": "accept", "content": {"answer": f"{PRIVATE}-answer"}}
            more = {
                **question,
                "requestState": result["requestState"],
                "inputResponses": dict.fromkeys(result["inputRequests"], content),
            }
            message, headers = modern("tools/call", number, ASKABLE, **more)
            assert PRIVATE in str((await _send(gateway, message, **headers))["result"])
            await _send(gateway, message, **headers)  # once more: refused, or asked anew
            forged = {**more, "requestState": f"{PRIVATE}.{result['requestState']}"}
            message, headers = modern("tools/call", number, ASKABLE, **forged)
            await _send(gateway, message, **headers)
        session = await _session(gateway)
        reply = {"jsonrpc": "2.0", "id": PRIVATE, "result": {"x": PRIVATE}}
        async with gateway.http.post(
            gateway.url, json=reply, headers={"Accept": ACCEPT, **session}
        ):
            pass
        told = [gateway.log, str(await gateway.status())]
        async with gateway.http.get(f"{gateway.admin_url}/metrics") as answer:
            told.append(await answer.text())
        for text in told:
            assert PRIVATE not in text
            assert not [state for state in states if state[:40] in text]
