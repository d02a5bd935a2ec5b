"""Members ask clients: elicitation, sampling and roots, whatever the eras on both sides are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.asking import AskingHttp, Person, asking, text_of
from tests.harness.gateway import Gateway
from tests.harness.inside import modern
from tests.harness.messages import ACCEPT, messages_of, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLIENTS = ("legacy", "2026-07-28")


@asynccontextmanager
async def group(transport: str, **fields: Any) -> AsyncIterator[Gateway]:
    async with contextlib.AsyncExitStack() as stack:
        if transport == "http":
            member = (await stack.enter_async_context(AskingHttp())).spec(**fields)
        else:
            member = asking(**fields)
        gateway = await stack.enter_async_context(Gateway(members=[member]))
        await gateway.all_ready()
        yield gateway


@pytest.mark.parametrize("mode", CLIENTS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ["Legacy", "Modern"])
async def test_what_a_member_asks_reaches_the_client_and_its_answer_comes_back(
    era: str, transport: str, mode: str
) -> None:
    person = Person()
    async with group(transport, era=era) as gateway, person.client(gateway.url, mode) as client:
        assert await text_of(client, "ask", question="well?") == "WELL?"
        assert await text_of(client, "ask_twice") == "FIRST SECOND"
        assert await text_of(client, "sample", text="it") == "said it"
        assert await text_of(client, "roots") == "file:///home"
        person.action = "decline"
        assert await text_of(client, "ask", question="no?") == "decline"
        assert person.questions == ["well?", "first", "second", "no?"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_with_a_session_can_be_asked_in_all_the_ways_of_a_member_of_both_eras(
    transport: str,
) -> None:
    person = Person()
    async with group(transport) as gateway:
        assert (await gateway.member("asking"))["era"] == "Modern"
        async with person.client(gateway.url, "legacy") as client:
            assert await text_of(client, "ask_live", question="live?") == "LIVE?"
            assert await text_of(client, "ask", question="well?") == "WELL?"
        # As directly: without a session the member has no such way.
        async with person.client(gateway.url, "2026-07-28") as client:
            with pytest.raises(Exception, match="no back-channel"):
                await text_of(client, "ask_live", question="live?")
            assert await text_of(client, "ask", question="well?") == "WELL?"


@pytest.mark.parametrize("mode", CLIENTS)
async def test_nobody_answers_and_the_call_goes_on_after_input_seconds(mode: str) -> None:
    person = Person(delay=60)
    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            Gateway(members=[asking(era="Legacy")], limits={"inputSeconds": 1})
        )
        client = await stack.enter_async_context(person.client(gateway.url, mode))
        if mode == "legacy":
            assert await text_of(client, "ask", question="anybody?") == "cancel"
            return
        # A client without a session is not waited for: what it comes back for has ended.
        state = await _asked(gateway, "ask", {"question": "anybody?"})
        await gateway.wait_for(lambda s: not s["members"][0]["inFlight"], 5)
        reply = await _come_back(gateway, "ask", {"question": "anybody?"}, state)
        # Its time is over, or the call is: both say so.
        assert reply["error"]["code"] in (-32602, -31003), reply


async def test_a_client_that_ends_its_session_ends_the_question_at_once() -> None:
    async with group("stdio", era="Legacy") as gateway:
        session = await _session(gateway, {"elicitation": {}})
        message = request("tools/call", 7, name="ask", arguments={"question": "there?"})
        headers = {"Accept": ACCEPT, "Mcp-Session-Id": session}
        async with gateway.http.post(gateway.url, json=message, headers=headers) as call:
            messages = messages_of(call)
            assert (await anext(messages))["method"] == "elicitation/create"
            began = time.monotonic()
            assert await gateway.close_session(session) == 204
            assert not [each async for each in messages if "result" in each]
        await gateway.wait_for(lambda s: not s["members"][0]["inFlight"])
        assert time.monotonic() - began < 2


async def test_a_client_that_comes_back_with_another_request_is_refused() -> None:
    async with group("stdio", era="Legacy") as gateway:
        state = await _asked(gateway, "ask", {"question": "one"})
        assert (await gateway.status())["inputRequired"] == 1
        other = await _come_back(gateway, "ask", {"question": "two"}, state)
        assert other["error"]["code"] == -32602
        assert "another request" in other["error"]["message"]
        forged = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
        assert (await _come_back(gateway, "ask", {"question": "one"}, forged))["error"]["code"] == (
            -32602
        )
        # The true one still holds; used, it does not hold a second time.
        first = await _come_back(gateway, "ask", {"question": "one"}, state)
        assert first["result"]["content"][0]["text"] == "yes"
        again = await _come_back(gateway, "ask", {"question": "one"}, state)
        assert again["error"]["code"] == -31003, again
        assert (await gateway.status())["inputRequired"] == 0


async def test_a_member_that_dies_while_it_is_waited_for_ends_the_call_at_once() -> None:
    person = Person(delay=30)
    async with AskingHttp() as server:
        gateway = Gateway(members=[server.spec(era="Legacy")])
        async with gateway, person.client(gateway.url, "legacy") as client:
            call = asyncio.create_task(client.call_tool("ask", {"question": "alive?"}))
            await person.asked.wait()
            began = time.monotonic()
            await server.stop()
            with pytest.raises(Exception, match="lost during the call"):
                await call
            assert time.monotonic() - began < 2


async def test_a_member_that_clients_share_is_told_of_no_capability() -> None:
    person = Person()
    shared = group("stdio", isolation="Shared")
    async with shared as gateway, person.client(gateway.url, "legacy") as client:
        with pytest.raises(Exception, match="did not declare the form elicitation"):
            await text_of(client, "ask", question="anybody?")
    assert person.questions == []


async def _session(gateway: Gateway, capabilities: dict[str, Any]) -> str:
    reply = await gateway.request(
        "initialize",
        {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        },
    )
    return reply.headers["Mcp-Session-Id"]


async def _modern(gateway: Gateway, tool: str, params: dict[str, Any]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    message, headers = modern("tools/call", 1, capabilities, name=tool, **params)
    reply = await gateway.post(json.dumps(message).encode(), headers=headers)
    return reply.message


async def _asked(gateway: Gateway, tool: str, arguments: dict[str, Any]) -> str:
    """Call as a modern client; the requestState of the answer, which asks for input."""
    answer = await _modern(gateway, tool, {"arguments": arguments})
    assert answer["result"]["resultType"] == "input_required", answer
    assert list(answer["result"]["inputRequests"]) == ["input-1"], json.dumps(answer)
    return str(answer["result"]["requestState"])


async def _come_back(
    gateway: Gateway, tool: str, arguments: dict[str, Any], state: str
) -> dict[str, Any]:
    answer = {"action": "accept", "content": {"answer": "yes"}}
    params = {
        "arguments": arguments,
        "inputResponses": {"input-1": answer},
        "requestState": state,
    }
    return await _modern(gateway, tool, params)
