"""A gateway in a pod: volumes that a kubelet swaps, any user, no home, what an operator reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness.gateway import Gateway, member_of
from tests.harness.members import faulty
from tests.harness.pod import Pod, can_confine
from tests.harness.processes import until

from mcpgroup_api import config_hash

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "made-by-the-operator-4711"  # noqa: S105
POD_ADDRESS = {"Host": "10.244.3.7:9090"}


def server(name: str, *flags: str, **fields: Any) -> dict[str, Any]:
    return faulty(name, *flags, **fields)


def changes(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in status["events"] if event["kind"] == "config"]


async def rejected(pod: Pod, said: str) -> dict[str, Any]:
    return await pod.wait_for(lambda s: said in (s["config"]["rejected"] or ""))


async def act(pod: Pod, token: str) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}", **POD_ADDRESS}
    async with pod.http.post(f"{pod.admin_url}/rebalance", headers=headers) as answer:
        return answer.status, await answer.json()


async def test_any_user_without_a_home_serves_and_says_who_it_is() -> None:
    async with Pod(members=[server("a")], keys={"admin-token": TOKEN}, generation=7) as pod:
        status = await pod.all_ready()
        assert (await pod.call("whoami")).text == "a"
        assert "HOME" not in psutil.Process(pod.pid).environ()
        assert (status["pod"], status["namespace"]) == ("test-7c9f-x2", "tools")
        config = status["config"]
        assert config.pop("loadedAt").endswith("Z")
        assert config == {
            "hash": config_hash(pod.path.read_bytes()),
            "generation": 7,
            "rejected": None,
            "ignored": [],
            "missingSecrets": [],
        }
        hashes = (await pod.metrics())["mcpgroup_config_info"]
        assert hashes == {frozenset({("group", "test"), ("hash", config["hash"])}): 1}
        assert await pod.metric("mcpgroup_config_generation") == 7
        first = status["instance"]
        await pod.restart()
        status = await pod.all_ready()
        assert status["config"]["hash"] == config["hash"]
        assert status["instance"] != first
        assert list(pod.temporary.iterdir()) == []


async def test_the_admin_port_is_read_by_address_and_acts_by_the_mounted_token() -> None:
    async with Pod(members=[server("a")], keys={"admin-token": TOKEN + "\n"}) as pod:
        await pod.all_ready()
        for path in ("/livez", "/readyz", "/startupz", "/metrics", "/status"):
            async with pod.http.get(pod.admin_url + path, headers=POD_ADDRESS) as answer:
                assert answer.status == 200, path
        assert (await act(pod, TOKEN))[0] == 200
        assert (await act(pod, "wrong"))[0] == 401
        pod.keys.swap({"admin-token": "rotated-by-the-operator"})
        assert (await act(pod, "rotated-by-the-operator"))[0] == 200
        assert (await act(pod, TOKEN))[0] == 401
        assert TOKEN not in pod.log
        assert "rotated-by-the-operator" not in pod.log


async def test_without_a_key_in_a_read_only_volume_it_serves_says_so_and_refuses_actions() -> None:
    if not can_confine():
        pytest.skip("the volume would not be read-only")
    async with Pod(members=[server("a")]) as pod:
        await pod.all_ready()
        await pod.running.printed("actions on the admin port are refused: .*admin-token is missing")
        for token in ("", TOKEN):
            status, body = await act(pod, token)
            assert (status, body["error"]) == (503, "no_admin_token")
        pod.keys.swap({"admin-token": TOKEN})
        assert (await act(pod, TOKEN))[0] == 200


async def test_an_own_folder_of_keys_is_filled_and_the_token_is_not_printed(
    tmp_path: Path,
) -> None:
    async with Gateway(members=[server("a")], flags=("--keys", str(tmp_path))) as gateway:
        token = (tmp_path / "admin-token").read_text().strip()
        for given, expected in ((token, 200), ("x" * 40, 401)):
            headers = {"Authorization": f"Bearer {given}"}
            url = f"{gateway.admin_url}/rebalance"
            async with gateway.http.post(url, headers=headers) as answer:
                assert answer.status == expected
        assert "admin token" not in gateway.log
        assert token not in gateway.log


async def test_a_swapped_volume_is_taken_within_seconds_and_an_invalid_one_refused() -> None:
    async with Pod(members=[server("a")]) as pod:
        first = await pod.all_ready()
        pid = member_of(first, "a")["pid"]
        pod.generation = 2
        good = pod.rendered({**pod.spec, "description": "second"})
        began = time.monotonic()
        pod.write(text=good)
        await pod.wait_for(lambda s: s["config"]["hash"] == config_hash(good.encode()))
        assert time.monotonic() - began < 3  # 0.65 s on a machine without other work
        assert await pod.metric("mcpgroup_config_generation") == 2
        for bad, said in (
            (good.replace('"spec"', '"sepc"'), "spec"),
            (good.replace('"second"', '"sec\\u0000ond"'), "spec.description"),
            ("", "empty"),
        ):
            pod.write(text=bad)
            status = await rejected(pod, said)
            assert status["config"]["hash"] == config_hash(good.encode())
            assert status["config"]["generation"] == 2
        assert await pod.metric("mcpgroup_config_last_reload_successful") == 0
        pod.write(text=good)
        status = await pod.wait_for(lambda s: s["config"]["rejected"] is None)
        assert await pod.metric("mcpgroup_config_last_reload_successful") == 1
        assert member_of(status, "a")["pid"] == pid


async def test_fields_of_a_newer_operator_are_ignored_named_and_told_once() -> None:
    async with Pod(members=[server("a")]) as pod:
        await pod.all_ready()
        newer = {
            "members": [server("a", newer={"b": [1, None]})],
            "later": {"x": "1"},
            "gone": None,
        }
        text = pod.rendered(newer, moreOver=True)
        expected = ["moreOver", "spec.gone", "spec.later", "spec.members[0].newer"]
        pod.write(text=text)
        status = await pod.wait_for(lambda s: s["config"]["hash"] == config_hash(text.encode()))
        assert sorted(status["config"]["ignored"]) == expected
        assert status["config"]["rejected"] is None
        again = pod.rendered({**newer, "description": "again"}, moreOver=True)
        pod.write(text=again)
        status = await pod.wait_for(lambda s: s["config"]["hash"] == config_hash(again.encode()))
        assert sorted(status["config"]["ignored"]) == expected
        events = changes(status)
        assert [event["to"] for event in events] == ["applied", "ignored", "applied"]
        assert "spec.members[0].newer" in events[1]["reason"]
        assert pod.log.count("does not know are ignored: ") == 1
        await pod.restart()
        status = await pod.all_ready()
        assert sorted(status["config"]["ignored"]) == expected
        assert [event["to"] for event in status["events"] if event["kind"] == "config"] == [
            "ignored"
        ]
        assert (await pod.call("whoami")).text == "a"
        pod.write(pod.spec)
        await pod.wait_for(lambda s: s["config"]["ignored"] == [])


async def test_what_people_write_stays_strict() -> None:
    async with Gateway(members=[server("a")]) as gateway:
        await gateway.all_ready()
        status = await gateway.reload(later=1)
        assert "spec.later: unknown field" in status["config"]["rejected"]
        assert status["config"]["ignored"] == []


async def test_a_missing_secret_is_named_and_heals_when_its_volume_comes() -> None:
    reference = {"secretKeyRef": {"name": "search", "key": "token"}}
    waiting = {**server("a"), "stdio": {**server("a")["stdio"]}}
    waiting["stdio"]["env"] = [{"name": "TOKEN", "valueFrom": reference}]
    slow = {"initialBackoffSeconds": 60}  # nothing but the Secret may bring it back
    async with Pod(members=[waiting, server("b")], secrets={"search": {}}, recovery=slow) as pod:
        status = await pod.wait_for(lambda s: member_of(s, "a")["state"] == "Failed")
        assert status["config"]["missingSecrets"] == ["search/token"]
        assert "search" in member_of(status, "a")["lastError"]
        pod.secrets["search"].swap({"token": "chestnut-avenue-99"})
        await pod.wait_state("a", "Ready", 10)
        await pod.wait_for(lambda s: s["config"]["missingSecrets"] == [])
        pod.secrets["search"].swap({"other": "chestnut-avenue-99"})
        await pod.wait_for(lambda s: s["config"]["missingSecrets"] == ["search/token"])
        assert (await pod.member("a"))["state"] == "Ready"  # it was given its value
        assert "chestnut" not in pod.log


async def test_a_missing_file_ends_the_start_with_its_name() -> None:
    pod = Pod(members=[server("a")])
    try:
        async with pod.begun() as running:
            assert await running.exited() == 1
            assert f"{pod.path}: cannot be read: no such file or directory" in running.log
            assert "Traceback" not in running.log
    finally:
        pod.remove()


def tool(name: str, title: str = "") -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "title": title}}


async def test_replicas_with_one_catalogue_have_one_hash_and_one_tool_less_is_seen(
    tmp_path: Path,
) -> None:
    async def hash_of(name: str, text: str) -> str:
        file = tmp_path / name
        file.write_text(text)
        async with Gateway(members=[server("a", "--tools-file", str(file))]) as gateway:
            status = await gateway.all_ready()
            return str(member_of(status, "a")["catalogueHash"])

    tools = [tool("x"), tool("y")]
    first, same, less = await asyncio.gather(
        hash_of("all", json.dumps(tools)),
        hash_of("turned", json.dumps(tools[::-1], sort_keys=True, indent=1)),
        hash_of("less", json.dumps(tools[:1])),
    )
    assert first == same
    assert first != less


async def test_two_definitions_of_one_name_are_seen_on_the_member_that_is_shadowed(
    tmp_path: Path,
) -> None:
    members = []
    for name in ("a", "b"):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps([tool("search", title=name)]))
        members.append(server(name, "--tools-file", str(file)))
    async with Gateway(members=members) as gateway:
        status = await gateway.all_ready()
        assert member_of(status, "a")["shadowed"] == []
        assert member_of(status, "b")["shadowed"] == ["search"]
        (offered,) = (
            step
            for step in (await gateway.explain(tool="search"))["steps"]
            if step["step"] == "capability"
        )
        assert offered["dropped"] == {"b": "has another definition than the one that is served"}


async def test_as_process_1_it_ends_on_sigterm_with_its_members() -> None:
    async with Pod(members=[server("a")]) as pod:
        await pod.all_ready()
        call = asyncio.create_task(pod.call("sleep_unsafe", {"seconds": 1}))
        await pod.wait_for(lambda s: member_of(s, "a")["inFlight"] == 1)
        ended = asyncio.create_task(pod.terminate())
        await pod.wait_for(lambda s: s["draining"])
        for path, expected in (("/readyz", 503), ("/livez", 200), ("/startupz", 200)):
            async with pod.http.get(pod.admin_url + path, headers=POD_ADDRESS) as answer:
                assert answer.status == expected, path
        assert (await call).text == "a slept 1 s"
        assert await ended == 0


async def test_as_process_1_it_ends_on_a_sigterm_that_comes_before_it_serves() -> None:
    pod = Pod(members=[server("a")])
    os.mkfifo(pod.path)  # it is held up where it reads its file

    def is_read() -> bool:
        with contextlib.suppress(OSError):
            opened.append(os.open(pod.path, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    opened: list[int] = []
    try:
        async with pod.begun() as running:
            await until(is_read)
            os.kill(pod.pid, signal.SIGTERM)
            assert await running.exited(10) == 128 + signal.SIGTERM
    finally:
        for descriptor in opened:
            os.close(descriptor)
        pod.remove()
