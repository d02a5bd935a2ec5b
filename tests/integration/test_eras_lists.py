"""Who is told of changed lists, and what each client sees, whatever the eras on both sides are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.era_clients import SUBSCRIPTION, Heard
from tests.harness.eras import KINDS, TwoEras

if TYPE_CHECKING:
    from pathlib import Path

CHANGED = "notifications/tools/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
ASKS: dict[str, Any] = {"elicitation": {}}
#: Longer than a change waits for others of its kind, and than reading takes.
SETTLED_SECONDS = 2.5


@pytest.mark.parametrize("member", KINDS)
async def test_a_change_is_told_once_in_the_way_of_the_era(tmp_path: Path, member: str) -> None:
    async with (
        TwoEras(tmp_path, [member]) as group,
        group.client("legacy", listening=True) as session,
        group.client("legacy", ASKS, listening=True) as asker,
        group.client("modern") as modern,
        group.client("modern", ASKS) as modern_asker,
    ):
        for client in (session, asker, modern, modern_asker):
            await client.text(member, "count")  # a session of its own, where members keep them
            assert f"{member}_0" not in await client.tools()
        streams: list[Heard] = [session.heard, asker.heard]
        tags = {}
        for client, tag in ((modern, "tools!"), (modern_asker, 17)):
            stream = await client.listen(request_id=tag, toolsListChanged=True)
            streams.append(stream)
            tags[id(stream)] = tag
        deaf = await modern.listen(promptsListChanged=True)
        group.add_tool(member)
        for stream in streams:
            told = await stream.first(CHANGED)
            if id(stream) in tags:
                assert told["params"]["_meta"][SUBSCRIPTION] == tags[id(stream)]
        for client in (session, asker, modern, modern_asker):
            assert f"{member}_0" in await client.tools()
            assert "result" in await client.ask("tools/call", {"name": f"{member}_0"})
        await asyncio.sleep(SETTLED_SECONDS)
        for stream in streams:
            assert len(stream.of(CHANGED)) == 1, stream.messages
            assert not stream.of(PROMPTS_CHANGED)
        assert len(deaf.messages) == 1, "only the acknowledgement"


async def test_a_list_that_looks_the_same_is_no_change(tmp_path: Path) -> None:
    members = ["lall", "lhttp", "mall", "mhttp"]
    async with (
        TwoEras(tmp_path, members) as group,
        group.client("legacy", listening=True) as session,
        group.client("modern") as modern,
    ):
        stream = await modern.listen(promptsListChanged=True, resourcesListChanged=True)
        for member in members:
            for client in (session, modern):
                for kind in ("prompts", "resources"):
                    await client.text(member, "change", {"kind": kind})
        await asyncio.sleep(SETTLED_SECONDS)
        assert len(stream.messages) == 1
        assert not [each for each in session.heard.messages if "list_changed" in each["method"]]


async def test_a_change_in_one_session_is_seen_by_that_session_alone(tmp_path: Path) -> None:
    members = ["lown", "lhttp"]
    async with (
        TwoEras(tmp_path, members) as group,
        # Its upstream session is listened to, since it may be asked.
        group.client("legacy", ASKS, listening=True) as session,
        group.client("legacy", listening=True) as other,
        group.client("modern") as modern,
    ):
        stream = await modern.listen(toolsListChanged=True)
        for client in (session, other, modern):
            for member in members:
                await client.text(member, "count")
        for number, member in enumerate(members, 1):
            await session.text(member, "change", {"alone": True})
            await session.heard.first(CHANGED, number)
            own = f"{member}_own_0"
            assert own in await session.tools()
            assert "result" in await session.ask("tools/call", {"name": own})
            for client in (other, modern):
                assert own not in await client.tools()
                answer = await client.ask("tools/call", {"name": own})
                assert answer["error"]["code"] == -32602, answer
        await asyncio.sleep(SETTLED_SECONDS)
        assert len(session.heard.of(CHANGED)) == len(members)
        assert not other.heard.of(CHANGED)
        assert len(stream.messages) == 1
        # What all see later is seen by this session too, with its own.
        group.add_tool("lhttp")
        await session.heard.first(CHANGED, 3)
        await other.heard.first(CHANGED)
        await asyncio.sleep(SETTLED_SECONDS)
        assert {"lhttp_0", "lhttp_own_0", "lown_own_0"} <= await session.tools()
        seen = await other.tools()
        assert "lhttp_0" in seen
        assert not {"lhttp_own_0", "lown_own_0"} & seen


async def test_a_tool_for_clients_that_can_be_asked_is_theirs_alone(tmp_path: Path) -> None:
    own = [member for member, kind in KINDS.items() if not kind.shared]
    async with TwoEras(tmp_path) as group:

        async def with_askers(client: Any) -> set[str]:
            """The members whose tool for askers is both listed and callable."""
            listed = {name for name in await client.tools() if name.startswith("askers_")}
            called = set()
            for member in KINDS:
                answer = await client.ask("tools/call", {"name": f"askers_{member}"})
                if "result" in answer:
                    called.add(f"askers_{member}")
                else:
                    assert answer["error"]["code"] == -32602
            assert listed == called
            return {name.removeprefix("askers_") for name in listed}

        async with (
            group.client("legacy") as plain,
            group.client("legacy", ASKS) as asker,
            group.client("legacy", {"sampling": {}}) as sampler,
            group.client("modern") as modern,
            group.client("modern", ASKS) as modern_asker,
        ):
            for _ in range(2):
                assert await with_askers(plain) == set()
                assert await with_askers(asker) == set(own)
                assert await with_askers(modern_asker) == set(own)
                assert await with_askers(modern) == set()
                assert await with_askers(sampler) == set()


async def test_what_a_session_saw_alone_ends_with_its_process(tmp_path: Path) -> None:
    async with (
        TwoEras(tmp_path, ["lown"]) as group,
        group.client("legacy", listening=True) as session,
    ):
        await session.text("lown", "change", {"alone": True})
        await session.heard.first(CHANGED)
        assert "lown_own_0" in await session.tools()
        assert "error" in await session.call("lown", "die").answer()
        assert (await session.text("lown", "count"))["count"] == 1
        await session.heard.first(CHANGED, 2)
        assert "lown_own_0" not in await session.tools()
