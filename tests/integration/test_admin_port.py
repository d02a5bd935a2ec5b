"""The admin port over a real socket, in front of a replica that is made up."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from mcpgroup_gateway.admin.app import build_admin
from mcpgroup_gateway.admin.view import ActionRefused, MemberNotFound
from mcpgroup_gateway.key_files import KeyUnusable
from mcpgroup_gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from multidict import CIMultiDictProxy

    from mcpgroup_gateway.admin.view import TokenSource
    from mcpgroup_gateway.wire.protocol import Kind

TOKEN = "the-admin-token"  # noqa: S105
AS_ADMIN = {"Authorization": f"Bearer {TOKEN}"}


class Replica:
    def __init__(self) -> None:
        self.ready = True
        self.started = True
        self.done: list[tuple[str, ...]] = []
        self.fault: Exception | None = None

    def status(self) -> dict[str, object]:
        if self.fault is not None:
            raise self.fault
        return {"kind": "GatewayStatus", "group": "g", "note": "half a pair: \ud83d"}

    def explain(self, kind: Kind, name: str, tenant: str | None) -> dict[str, object]:
        return {"kind": kind.value, "name": name, "tenant": tenant, "steps": []}

    def is_ready(self) -> bool:
        return self.ready

    def is_started(self) -> bool:
        return self.started

    def rebalance(self) -> None:
        self.done.append(("rebalance",))

    async def drain(self, member: str) -> None:
        self._act("drain", member)

    async def resume(self, member: str) -> None:
        self._act("resume", member)

    async def start(self, member: str) -> None:
        self._act("start", member)

    async def stop(self, member: str) -> None:
        raise ActionRefused("the replica is draining")

    def _act(self, action: str, member: str) -> None:
        if member != "a":
            raise MemberNotFound(member)
        self.done.append((action, member))


class Client:
    """Asks the port; an answer is its status, headers and body."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self.address = address

    async def ask(
        self, method: str, path: str, **options: Any
    ) -> tuple[int, CIMultiDictProxy[str], bytes]:
        async with self._session.request(method, self.address + path, **options) as answer:
            return answer.status, answer.headers, await answer.read()

    async def json(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        status, headers, body = await self.ask(method, path, **options)
        assert headers["Content-Type"] == "application/json"
        return status, json.loads(body)


@asynccontextmanager
async def served(
    replica: Replica, *, token: TokenSource = lambda: TOKEN, **options: Any
) -> AsyncIterator[Client]:
    metrics = Metrics("g")
    metrics.set_members(["a"])
    runner = web.AppRunner(build_admin(replica, metrics, token=token, **options), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession() as session:
            yield Client(session, f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()


async def test_probes_answer_200_or_503() -> None:
    replica = Replica()
    async with served(replica) as client:
        for path in ("/livez", "/readyz", "/startupz"):
            assert (await client.json("GET", path))[0] == 200
            assert (await client.ask("HEAD", path))[0] == 200
        replica.ready = replica.started = False
        assert await client.json("GET", "/readyz") == (503, {"ready": False})
        assert await client.json("GET", "/startupz") == (503, {"started": False})
        assert await client.json("GET", "/livez") == (200, {"live": True})


async def test_metrics_come_in_the_format_that_was_asked_for() -> None:
    async with served(Replica()) as client:
        status, headers, body = await client.ask("GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain")
        names = {family.name for family in text_string_to_metric_families(body.decode())}
        assert "mcpgroup_requests" in names
        accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        _, headers, body = await client.ask("GET", "/metrics", headers=accept)
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")


async def test_status_is_json_whatever_a_member_wrote() -> None:
    async with served(Replica()) as client:
        status, body = await client.json("GET", "/status")
        assert status == 200
        assert body["note"] == "half a pair: \ud83d"


async def test_explain_takes_one_name_and_a_tenant() -> None:
    async with served(Replica()) as client:
        asked = {"tool": "read/it&more", "tenant": "acme"}
        status, body = await client.json("GET", "/explain", params=asked)
        assert (status, body["kind"], body["name"], body["tenant"]) == (
            200,
            "tools",
            "read/it&more",
            "acme",
        )
        status, body = await client.json("GET", "/explain", params={"resource": "file:///x"})
        assert (body["kind"], body["tenant"]) == ("resources", None)
        for wrong in ({}, {"tool": ""}, {"tool": "a", "prompt": "b"}):
            status, body = await client.json("GET", "/explain", params=wrong)
            assert (status, body["error"]) == (400, "bad_query")


async def test_the_page_may_run_its_own_code_only() -> None:
    async with served(Replica()) as client:
        status, headers, body = await client.ask("GET", "/")
        assert status == 200
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert b"<title>mcpgroup</title>" in body
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]


async def test_actions_reach_the_replica_with_either_form_of_the_token() -> None:
    replica = Replica()
    async with served(replica) as client:
        status, body = await client.json("POST", "/rebalance", headers=AS_ADMIN)
        assert (status, body) == (200, {"done": "rebalance"})
        own = {"X-Mcpgroup-Admin-Token": TOKEN}
        for action in ("drain", "resume", "start"):
            status, body = await client.json("POST", f"/members/a/{action}", headers=own)
            assert (status, body) == (200, {"done": action, "member": "a"})
    assert replica.done == [("rebalance",), ("drain", "a"), ("resume", "a"), ("start", "a")]


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"X-Mcpgroup-Admin-Token": ""}],
)
async def test_without_the_token_nothing_happens(headers: dict[str, str]) -> None:
    replica = Replica()
    async with served(replica) as client:
        for path in ("/rebalance", "/members/a/stop", "/members/unheard-of/drain"):
            status, answered, body = await client.ask("POST", path, headers=headers)
            assert status == 401
            assert answered["WWW-Authenticate"].startswith("Bearer")
            assert json.loads(body)["error"] == "unauthorized"
            assert TOKEN.encode() not in body
    assert not replica.done


async def test_errors_are_json_that_says_what_is_wrong() -> None:
    replica = Replica()
    async with served(replica) as client:
        status, body = await client.json("POST", "/members/b/drain", headers=AS_ADMIN)
        assert (status, body["error"]) == (404, "member_not_found")
        assert "'b'" in body["message"]
        status, body = await client.json("POST", "/members/a/stop", headers=AS_ADMIN)
        assert (status, body) == (
            409,
            {"error": "conflict", "message": "the replica is draining"},
        )
        status, body = await client.json("POST", "/members/a/explode", headers=AS_ADMIN)
        assert (status, body["error"]) == (404, "not_found")
        for path in ("/nothing", "/status/", "/members"):
            status, body = await client.json("GET", path)
            assert (status, body["error"]) == (404, "not_found")
        status, headers, raw = await client.ask("GET", "/rebalance")
        assert (status, headers["Allow"]) == (405, "POST")
        assert json.loads(raw)["error"] == "method_not_allowed"
        replica.fault = RuntimeError("password=hunter22")
        status, body = await client.json("GET", "/status")
        assert (status, body["error"]) == (500, "internal")
        assert "hunter22" not in json.dumps(body)


async def test_no_other_origin_can_read_or_embed_an_answer() -> None:
    async with served(Replica()) as client:
        origin = {"Origin": "https://evil.example"}
        for path in ("/", "/status", "/metrics", "/livez", "/explain?tool=x", "/nothing"):
            _, headers, _ = await client.ask("GET", path, headers=origin)
            assert not [name for name in headers if name.lower().startswith("access-control")]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
        preflight = {**origin, "Access-Control-Request-Method": "POST"}
        status, headers, _ = await client.ask("OPTIONS", "/rebalance", headers=preflight)
        assert status == 405
        assert "Access-Control-Allow-Origin" not in headers


async def test_a_loopback_listener_answers_only_to_its_own_names() -> None:
    # DNS rebinding: a page's own name made to point at 127.0.0.1
    async with served(Replica(), loopback_only=True) as client:
        assert (await client.json("GET", "/status"))[0] == 200
        assert (await client.json("GET", "/status", headers={"Host": "localhost:9090"}))[0] == 200
        rebound = {"Host": "evil.example"}
        status, body = await client.json("GET", "/status", headers=rebound)
        assert (status, body["error"]) == (403, "host_not_allowed")
        assert "group" not in body


async def test_a_listener_for_the_cluster_answers_to_any_name() -> None:
    async with served(Replica()) as client:
        assert (await client.json("GET", "/livez", headers={"Host": "10.1.2.3:9090"}))[0] == 200


async def test_bodies_and_odd_requests_harm_nobody() -> None:
    replica = Replica()
    async with served(replica) as client:
        big = b"x" * 100_000
        status, _, _ = await client.ask("POST", "/rebalance", data=big, headers=AS_ADMIN)
        assert status in (200, 413)
        host, port = client.address.removeprefix("http://").split(":")
        for raw in (b"\x00\xff\r\n\r\n", b"GET /%zz%00 HTTP/1.1\r\nHost: a\r\n\r\n", b"x" * 50_000):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(raw)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 5)
            assert b" 500 " not in answer[:20]
            writer.close()
            await writer.wait_closed()
        assert (await client.json("GET", "/livez"))[0] == 200


async def test_a_token_counts_as_soon_as_it_is_another_one() -> None:
    tokens = [TOKEN]
    replica = Replica()
    async with served(replica, token=lambda: tokens[-1]) as client:
        assert (await client.json("POST", "/rebalance", headers=AS_ADMIN))[0] == 200
        tokens.append("the-next-token")
        assert (await client.json("POST", "/rebalance", headers=AS_ADMIN))[0] == 401
        fresh = {"Authorization": "Bearer the-next-token"}
        assert (await client.json("POST", "/rebalance", headers=fresh))[0] == 200


async def test_without_a_key_everything_can_be_read_and_nothing_done() -> None:
    def none() -> str:
        raise KeyUnusable("keys/admin-token is missing")

    replica = Replica()
    async with served(replica, token=none) as client:
        assert (await client.json("GET", "/status"))[0] == 200
        for headers in ({}, AS_ADMIN, {"X-Mcpgroup-Admin-Token": ""}):
            status, body = await client.json("POST", "/rebalance", headers=headers)
            assert (status, body["error"]) == (503, "no_admin_token")
            assert "keys/admin-token is missing" in body["message"]
    assert not replica.done
