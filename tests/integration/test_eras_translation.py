"""What changes in an answer between the eras, and that nothing else does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.harness.eras import KINDS, TwoEras

from mcpgroup_gateway.wire.envelope import parse_message, parse_object

if TYPE_CHECKING:
    from pathlib import Path

#: JSON that a parser of numbers or a sorter of keys would spoil.
ODD = (
    '{ "zeta":[ ] , "content" : [{"type":"text","text":"\\u00e9\\/"}],'
    '"big":123456789012345678901234567890.50e+3,"tiny":-0.0,"_meta":{"x/y":{"b":1,"a":2}},'
    '"unknown":{"nested":[1.10,null,true]},"isError":false }'
)
ODD_ERROR = '{ "code" : -31999 ,"message":"no \\u00e9","data":{"n":1.10,"big":1e400}, "more":[] }'
ASKS: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}


def requests(member: str) -> list[tuple[str, dict[str, Any]]]:
    """A request of each method that goes to a member."""
    uri = f"res://{member}/a"
    return [
        ("tools/call", {"name": f"{member}__count", "arguments": {}}),
        ("prompts/get", {"name": f"prompt_{member}"}),
        ("resources/read", {"uri": uri}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": f"prompt_{member}"},
                "argument": {"name": "x", "value": ""},
            },
        ),
    ]


async def result(client: Any, method: str, params: dict[str, Any], text: str) -> bytes:
    """The bytes of the result when the member answers with `text`."""
    stream = client.start(method, {**params, "_meta": {"test/result": text}})
    answer = await stream.answer()
    assert "result" in answer, answer
    return bytes(parse_message(await stream.raw_answer()).result)


async def error(client: Any, method: str, params: dict[str, Any], text: str) -> tuple[int, bytes]:
    """The status and the bytes of the error when the member answers with `text`."""
    stream = client.start(method, {**params, "_meta": {"test/error": text}})
    answer = await stream.answer()
    assert "error" in answer, answer
    return stream.status, bytes(parse_message(await stream.raw_answer()).error)


async def test_answers_within_an_era_and_from_modern_members_are_not_touched(
    tmp_path: Path,
) -> None:
    async def check(client: Any, member: str) -> None:
        modern = client.era == "modern"
        for method, params in requests(member):
            if modern and not KINDS[member].modern:
                continue
            assert await result(client, method, params, ODD) == ODD.encode()
            kept = f'{{"resultType":"complete","ttlMs":1e3,"cacheScope":"odd",{ODD[1:]}'
            assert await result(client, method, params, kept) == kept.encode()

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check)


async def test_errors_are_not_touched(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        for method, params in requests(member):
            assert await error(client, method, params, ODD_ERROR) == (200, ODD_ERROR.encode())
        status = 400 if client.era == "modern" else 200
        bad = '{"code":-32602,"message":"bad", "data":7}'
        method, params = requests(member)[0]
        assert await error(client, method, params, bad) == (status, bad.encode())

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check)


async def test_modern_clients_are_told_what_legacy_members_do_not_say(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        if KINDS[member].modern:
            return
        for method, params in requests(member):
            members = parse_object(await result(client, method, params, ODD))
            added = {"resultType": b'"complete"'}
            if method == "resources/read":
                added |= {"ttlMs": b"0", "cacheScope": b'"private"'}
            for name, value in added.items():
                assert bytes(members.pop(name)) == value, method
            assert {key: bytes(value) for key, value in members.items()} == {
                key: bytes(value) for key, value in parse_object(ODD.encode()).items()
            }

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check, eras=["modern"])


async def test_lists_are_complete_for_modern_clients_and_plain_for_legacy_ones(
    tmp_path: Path,
) -> None:
    async with TwoEras(tmp_path) as group:
        for method, key in (
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ):
            async with group.client("legacy") as legacy, group.client("modern") as modern:
                plain = (await legacy.ask(method, {}))["result"]
                assert set(plain) == {key}
                whole = (await modern.ask(method, {}))["result"]
                assert whole["resultType"] == "complete"
                # The lowest of all; a member of the other era allows nothing to be kept.
                assert (whole["ttlMs"], whole["cacheScope"]) == (0, "private")
                assert "io.modelcontextprotocol/serverInfo" in whole["_meta"]
                assert len(whole[key]) == len(plain[key])


async def test_a_resource_that_is_missing_has_the_code_of_the_clients_era(
    tmp_path: Path,
) -> None:
    async def check(client: Any, member: str) -> None:
        uri = f"res://{member}/b"  # listed, and not to be read
        answer = await client.ask("resources/read", {"uri": uri})
        modern = client.era == "modern" or KINDS[member].modern
        assert answer["error"]["code"] == (-32602 if modern else -32002), answer
        assert answer["error"]["data"] == {"uri": uri}

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check)


async def test_structure_that_is_no_object_is_for_modern_clients_only(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        kept = client.era == "modern" or not KINDS[member].modern
        params = {"name": f"{member}__count", "arguments": {}}
        for value in ("[1,2]", "7", '"x"', "null", "false"):
            text = f'{{"resultType":"complete","content":[],"structuredContent":{value},"z":1.0}}'
            found = parse_object(await result(client, "tools/call", params, text))
            expected = parse_object(text.encode())
            if not kept:
                del expected["structuredContent"]
            assert {key: bytes(raw) for key, raw in found.items()} == {
                key: bytes(raw) for key, raw in expected.items()
            }
        text = '{"resultType":"complete","content":[], "structuredContent": {"a" : 1.0} }'
        found = parse_object(await result(client, "tools/call", params, text))
        assert bytes(found["structuredContent"]) == b'{"a" : 1.0}'

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check)


async def test_an_output_schema_of_no_object_is_for_modern_clients_only(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, ["mall", "mhttp"]) as group:
        for era in ("legacy", "modern"):
            async with group.client(era) as client:
                answer = await client.ask("tools/list", {})
                table = next(t for t in answer["result"]["tools"] if t["name"] == "table")
                assert ("outputSchema" in table) == (era == "modern")


async def test_an_elicitation_at_a_url_comes_as_a_question_and_goes_back(tmp_path: Path) -> None:
    wanted = {"mode": "url", "message": "log in", "url": "https://x.test/1", "elicitationId": "e"}
    fault = {"code": -32042, "message": "log in first", "data": {"elicitations": [wanted]}}

    async def check(client: Any, member: str) -> None:
        if KINDS[member].modern:
            return
        params = {"name": f"{member}__count", "arguments": {}}
        meta = {"test/error": json.dumps(fault)}
        answer = await client.ask("tools/call", {**params, "_meta": meta})
        if client.era == "legacy":
            assert answer["error"] == fault
            return
        asked = answer["result"]
        assert asked["resultType"] == "input_required"
        [(key, request)] = asked["inputRequests"].items()
        assert request == {"method": "elicitation/create", "params": wanted}
        back = {"inputResponses": {key: {"action": "accept"}}}
        before = len(group.noted(member, method="tools/call"))
        again = await client.ask(
            "tools/call", {**params, **back, "requestState": asked["requestState"]}
        )
        assert again["result"]["resultType"] == "complete", again
        last = group.noted(member, method="tools/call")[before]["message"]["params"]
        assert not {"inputResponses", "requestState"} & set(last), "a legacy member knows neither"

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check, ASKS)


async def test_an_elicitation_at_a_url_is_refused_for_clients_that_cannot(tmp_path: Path) -> None:
    wanted = {"mode": "url", "message": "log in", "url": "https://x.test/1", "elicitationId": "e"}
    fault = {"code": -32042, "message": "log in first", "data": {"elicitations": [wanted]}}
    async with TwoEras(tmp_path, ["lall"]) as group, group.client("modern") as client:
        params = {"name": "lall__count", "_meta": {"test/error": json.dumps(fault)}}
        stream = client.start("tools/call", params)
        answer = await stream.answer()
        assert (stream.status, answer["error"]["code"]) == (400, -32021), answer
        assert answer["error"]["data"]["requiredCapabilities"] == {"elicitation": {"url": {}}}


async def test_only_the_state_of_what_a_modern_member_asks_is_ours(tmp_path: Path) -> None:
    asked = (
        '{ "resultType":"input_required","extra":1.10,"inputRequests":{"k":{"method":'
        '"elicitation/create","params":{"message":"\\u00e9","big":1e400}}},"requestState":"s"}'
    )
    async with TwoEras(tmp_path, ["mall", "mhttp"]) as group:
        for member in ("mall", "mhttp"):
            async with group.client("modern", ASKS) as client:
                params = {"name": f"{member}__count", "arguments": {}}
                found = parse_object(await result(client, "tools/call", params, asked))
                state = json.loads(bytes(found["requestState"]))
                assert state != "s"
                expected = parse_object(asked.encode())
                for key in ("resultType", "extra", "inputRequests"):
                    assert bytes(found[key]) == bytes(expected[key])
                back = {"inputResponses": {"k": {"action": "decline", "n": 1}}}
                await client.ask("tools/call", {**params, **back, "requestState": state})
                last = group.noted(member, method="tools/call")[-1]["message"]["params"]
                assert last["requestState"] == "s"
                assert last["inputResponses"] == back["inputResponses"]
