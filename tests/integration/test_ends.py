"""SIGTERM while members wait for clients: a clear end for everybody, in time, and no orphan."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from tests.harness.asking import asking
from tests.harness.gateway import ACCEPT, Gateway
from tests.harness.inside import messages_of, modern, request

ASKABLE: dict[str, Any] = {"elicitation": {}}
DRAIN_SECONDS = 3
QUESTION: dict[str, Any] = {"name": "ask", "arguments": {"question": "well?"}}
PRIVATE = "hunter2-hunter2-hunter2"


async def _send(
    gateway: Gateway, message: Any, first: asyncio.Event, **headers: str
) -> list[dict[str, Any]]:
    """All messages of the answer; `first` is set at the first one."""
    fields = {"Accept": ACCEPT, **headers}
    messages = []
    async with gateway.http.post(gateway.url, json=message, headers=fields) as answer:
        async for each in messages_of(answer):
            messages.append(each)
            first.set()
    return messages


async def _session(gateway: Gateway) -> dict[str, str]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": ASKABLE,
        "clientInfo": {"name": "t", "version": "1"},
    }
    message = request("initialize", 1, **params)
    async with gateway.http.post(gateway.url, json=message, headers={"Accept": ACCEPT}) as answer:
        return {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}


async def test_sigterm_ends_questions_parked_calls_and_listens_in_time() -> None:
    members = [asking("a", era="Legacy"), asking("b", era="Modern")]
    async with Gateway(members=members, drain={"timeoutSeconds": DRAIN_SECONDS}) as gateway:
        await gateway.all_ready()
        session = await _session(gateway)
        began = [asyncio.Event() for _ in range(4)]
        asked = [
            asyncio.create_task(
                _send(gateway, request("tools/call", number, **QUESTION), began[number], **session)
            )
            for number in range(2)
        ]
        parked, headers = modern("tools/call", 3, ASKABLE, **QUESTION)
        state = (await _send(gateway, parked, began[2], **headers))[-1]
        assert state["result"]["resultType"] == "input_required"
        listen, headers = modern(
            "subscriptions/listen", 4, notifications={"toolsListChanged": True}
        )
        listening = asyncio.create_task(_send(gateway, listen, began[3], **headers))
        async with asyncio.timeout(10):
            for event in began:
                await event.wait()
        start = time.monotonic()
        assert await gateway.terminate() == 0
        assert time.monotonic() - start < DRAIN_SECONDS + 2
        for messages in await asyncio.gather(*asked):
            assert messages[-1]["error"]["code"] == -31003, messages
            assert messages[-1]["error"]["data"]["reason"] == "draining"
        assert (await listening)[-1]["result"]["resultType"] == "complete"
        assert "never retrieved" not in gateway.log
        assert "was destroyed" not in gateway.log
        assert '"level":"error"' not in gateway.log.lower()


async def test_what_is_asked_and_answered_is_told_to_nobody_else() -> None:
    members = [asking("a", era="Legacy"), asking("b", era="Modern")]
    async with Gateway(members=members, flags=("--log-level", "Debug")) as gateway:
        await gateway.all_ready()
        question: dict[str, Any] = {"name": "ask", "arguments": {"question": PRIVATE}}
        seen = asyncio.Event()
        states = []
        for number in range(4):
            message, headers = modern("tools/call", number, ASKABLE, **question)
            result = (await _send(gateway, message, seen, **headers))[-1]["result"]
            states.append(result["requestState"])
            content = {"action": "accept", "content": {"answer": f"{PRIVATE}-answer"}}
            more = {
                **question,
                "requestState": result["requestState"],
                "inputResponses": dict.fromkeys(result["inputRequests"], content),
            }
            message, headers = modern("tools/call", number, ASKABLE, **more)
            assert PRIVATE in str((await _send(gateway, message, seen, **headers))[-1]["result"])
            await _send(gateway, message, seen, **headers)  # once more: refused, or asked anew
            forged = {**more, "requestState": f"{PRIVATE}.{result['requestState']}"}
            message, headers = modern("tools/call", number, ASKABLE, **forged)
            await _send(gateway, message, seen, **headers)
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
            assert not [state for state in states if re.escape(state[:40]) in text]
