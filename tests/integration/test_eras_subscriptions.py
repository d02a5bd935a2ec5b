"""Clients follow resources and lists in the way of their era, members in that of theirs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.era_clients import SUBSCRIPTION
from tests.harness.eras import KINDS, TwoEras
from tests.harness.processes import until

if TYPE_CHECKING:
    from pathlib import Path

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
#: Longer than anything on its way takes.
SETTLED_SECONDS = 0.7


def uri_of(member: str, name: str = "a") -> str:
    return f"res://{member}/{name}"


async def test_an_update_reaches_those_who_follow_it_and_nobody_else(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group:

        async def check(first: Any, member: str) -> None:
            async with (
                group.client("legacy", listening=True) as second,
                group.client("legacy", listening=True) as stranger,
                group.client("modern") as modern,
            ):
                uri = uri_of(member)
                assert (await first.ask("resources/subscribe", {"uri": uri}))["result"] == {}
                assert (await second.ask("resources/subscribe", {"uri": uri}))["result"] == {}
                other = {"uri": uri_of(member, "b")}
                assert (await stranger.ask("resources/subscribe", other))["result"] == {}
                here = await modern.listen(request_id="here", resourceSubscriptions=[uri])
                there = await modern.listen(
                    request_id=2, resourceSubscriptions=[other["uri"]], toolsListChanged=True
                )
                group.touch(member)
                told = await here.first(UPDATED)
                assert told["params"] == {"uri": uri, "_meta": {SUBSCRIPTION: "here"}}
                for session in (first, second):
                    told = await session.heard.first(UPDATED)
                    assert told["params"] == {"uri": uri}, member
                await asyncio.sleep(SETTLED_SECONDS)
                for stream in (first.heard, second.heard, here):
                    assert len(stream.of(UPDATED)) == 1, (member, stream.messages)
                assert not stranger.heard.of(UPDATED)
                assert not there.of(UPDATED)
                # One does not want it any more; the others still do.
                assert (await first.ask("resources/unsubscribe", {"uri": uri}))["result"] == {}
                group.touch(member)
                await second.heard.first(UPDATED, 2)
                await here.first(UPDATED, 2)
                await here.leave()
                group.touch(member)
                await second.heard.first(UPDATED, 3)
                await asyncio.sleep(SETTLED_SECONDS)
                assert len(first.heard.of(UPDATED)) == 1

        await group.in_each_pair(check, eras=["legacy"], listening=True)


async def test_a_member_is_followed_only_as_long_as_somebody_does(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group:
        for member in KINDS:
            uri = uri_of(member)
            async with group.client("modern") as one, group.client("modern") as two:
                streams = [await each.listen(resourceSubscriptions=[uri]) for each in (one, two)]
                await followed(group, member, [uri])
                await streams[0].leave()
                await asyncio.sleep(SETTLED_SECONDS)
                await followed(group, member, [uri])
                await streams[1].leave()
                await followed(group, member, [])


async def followed(group: TwoEras, member: str, uris: list[str]) -> None:
    """Wait until a member was asked for exactly these, in the way of its era."""

    def asked() -> list[str]:
        found: set[str] = set()
        for entry in group.noted(member):
            method, params = entry["message"].get("method"), entry["message"].get("params", {})
            if method == "subscriptions/listen":
                found = set(params["notifications"].get("resourceSubscriptions", []))
            elif method == "resources/subscribe":
                found.add(params["uri"])
            elif method == "resources/unsubscribe":
                found.discard(params["uri"])
        return sorted(found)

    await until(lambda: asked() == uris, what=f"{member} was not asked for {uris}")


async def test_what_is_honoured_comes_first_and_names_only_that(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group, group.client("modern") as client:
        stream = await client.listen(
            request_id="mine",
            toolsListChanged=True,
            promptsListChanged=False,
            resourceSubscriptions=[uri_of("lall"), "other://nowhere", uri_of("mhttp")],
            unknownThings=True,
        )
        assert stream.messages[0]["params"] == {
            "notifications": {
                "toolsListChanged": True,
                "resourceSubscriptions": [uri_of("lall"), uri_of("mhttp")],
            },
            "_meta": {SUBSCRIPTION: "mine"},
        }


async def test_a_member_that_does_not_answer_holds_nobody_up_for_long(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, ["lall", "mhttp"]) as group, group.client("modern") as client:
        uris = [uri_of("lall"), uri_of("lall", "b"), uri_of("mhttp")]
        [pid] = group.pids("lall")
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            stream = client.start(
                "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
            )
            told = await stream.first(ACKNOWLEDGED, timeout=30)
            assert time.monotonic() - began < 18
            honoured = told["params"]["notifications"]["resourceSubscriptions"]
            assert honoured == [uri_of("mhttp")]
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_the_end_of_the_gateway_ends_listening_with_a_result(tmp_path: Path) -> None:
    async with (
        TwoEras(tmp_path, ["lall", "mhttp"]) as group,
        group.client("modern") as client,
        group.client("legacy", listening=True) as session,
    ):
        streams = [await client.listen(request_id=tag, toolsListChanged=True) for tag in ("x", 3)]
        assert await group.gateway.terminate() == 0
        for stream, tag in zip(streams, ("x", 3), strict=True):
            answer = await stream.answer()
            assert answer["id"] == tag
            assert answer["result"]["resultType"] == "complete"
            assert answer["result"]["_meta"][SUBSCRIPTION] == tag
            await stream.finished()
        await session.heard.finished()


@pytest.mark.parametrize("member", KINDS)
async def test_a_member_that_comes_back_is_followed_again_and_that_is_told_once(
    tmp_path: Path, member: str
) -> None:
    uri = uri_of(member)
    async with (
        TwoEras(tmp_path, [member, "mall" if member != "mall" else "lall"]) as group,
        group.client("legacy", listening=True) as session,
        group.client("modern") as modern,
    ):
        await session.ask("resources/subscribe", {"uri": uri})
        stream = await modern.listen(resourceSubscriptions=[uri])
        await group.restart(member)
        await session.heard.first(UPDATED, timeout=30)
        await stream.first(UPDATED, timeout=30)
        await asyncio.sleep(SETTLED_SECONDS)
        for heard in (session.heard, stream):
            assert len(heard.of(UPDATED)) == 1, heard.messages
            assert not heard.ended
        group.touch(member)
        told = await stream.first(UPDATED, 2)
        assert told["params"]["uri"] == uri
        await session.heard.first(UPDATED, 2)


@pytest.mark.parametrize("member", ["lown", "lall", "mall"])
async def test_nothing_that_is_followed_is_idle(tmp_path: Path, member: str) -> None:
    uri = uri_of(member)
    async with (
        TwoEras(tmp_path, [member], sessions={"idleSeconds": 1}, stdio={"idleSeconds": 1}) as group,
        group.client("legacy", listening=True) as session,
        group.client("modern") as modern,
    ):
        await session.ask("resources/subscribe", {"uri": uri})
        stream = await modern.listen(resourceSubscriptions=[uri])
        pids = group.pids(member)
        await asyncio.sleep(5)
        assert group.pids(member) == pids
        group.touch(member)
        for heard in (session.heard, stream):
            await heard.first(UPDATED)
            assert len(heard.of(UPDATED)) == 1
        # Nobody follows it any more: it may go.
        await session.ask("resources/unsubscribe", {"uri": uri})
        await stream.leave()
        await until(lambda: not group.pids(member), 15)
