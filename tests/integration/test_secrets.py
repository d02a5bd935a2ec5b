"""Members get their secrets; logs, status, metrics, events and errors never show them."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import faulty, stdio
from tests.servers.raw_http import Member, Peer, RawServer, Request, response

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "hR7-plum~stairs+q9/Zx"
TOKEN = "tK4.violet_harbour-83hd"  # noqa: S105 - planted, and looked for
ENV = 'eN2 walnut"ocean\\27fj'
SECRETS = {"header": HEADER, "token": f"Bearer {TOKEN}", "env": ENV}


def forms(value: str) -> set[str]:
    """What must not be seen of a value: as it is, in JSON, and in base64 at each offset."""
    raw = value.encode()
    encoded = {
        base64.b64encode(b"x" * offset + raw).decode()[4:-4].rstrip("=") for offset in range(3)
    }
    return {form.lower() for form in (value, json.dumps(value)[1:-1], raw.hex(), *encoded)}


HIDDEN = {form: name for name, value in (("header", HEADER), ("token", TOKEN), ("env", ENV))
          for form in forms(value)}  # fmt: skip


def leaks(text: str) -> list[str]:
    text = text.lower()
    return [f"{name} as {form} in …{text[max(0, text.index(form) - 200):text.index(form) + 60]}"
            for form, name in HIDDEN.items() if form in text]  # fmt: skip


def plant(folder: Path) -> tuple[str, str]:
    (folder / "planted").mkdir(parents=True)
    for key, value in SECRETS.items():
        (folder / "planted" / key).write_text(value + "\n")
    return "--secrets", str(folder)


def entry(name: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "planted", "key": key}}}


#: Says its secret wherever a process can.
TALKATIVE = r"""
import base64, json, os, sys
secret = os.environ["TOKEN"]
def tell(file):
    print("my token is", secret, file=file)
    print(secret, base64.b64encode(secret.encode()).decode(), file=file)
    print(base64.b64encode(b"user:" + secret.encode()).decode(), secret.encode().hex(), file=file)
    print(json.dumps({"env": dict(os.environ)}), file=file, flush=True)
tell(sys.stderr)
tell(sys.stdout)
for line in sys.stdin:
    m = json.loads(line)
    i, method = m.get("id"), m["method"]
    name = m.get("params", {}).get("name")
    if i is None:
        continue
    r = {}
    if method == "initialize":
        r = {"protocolVersion": VERSION, "capabilities": {"tools": {}},
             "serverInfo": {"name": secret, "version": secret}}
    if method == "tools/list":
        names = ("exit", "bad", "cut", "slow")
        r = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}
    if name == "exit":
        tell(sys.stderr)
        sys.exit("bye " + secret)
    if name == "bad":
        print(json.dumps({"jsonrpc": secret, "id": i, secret: secret}), flush=True)
        continue
    if name == "slow":
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": i, "result": r}), flush=True)
"""


def talkative(name: str, version: str) -> dict[str, Any]:
    code = TALKATIVE.replace("VERSION", version)
    command = [sys.executable, "-S", "-c", code]
    return stdio(name, command, env=[entry("TOKEN", "env")], callTimeoutSeconds=1)


class Echoing(Member):
    """An HTTP member that repeats its credentials in every place of an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.on("tools/list", self.tools).on("tools/call", self.call)
        self.heard: set[str] = set()

    async def __call__(self, request: Request, peer: Peer) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.told = f"{headers['x-key']} {headers['authorization']}"
        self.heard.add(self.told)
        await super().__call__(request, peer)

    async def tools(self, request: Request, peer: Peer) -> None:
        tools = [
            {"name": name, "inputSchema": {"type": "object"}}
            for name in ("error", "html", "status", "refused", "redirect", "garbage", "stream")
        ]
        answer = {"jsonrpc": "2.0", "id": request.id, "result": {"tools": tools}}
        await peer.send(response(json.dumps(answer).encode()))

    async def call(self, request: Request, peer: Peer) -> None:
        told = self.told
        fields = (("X-Echo", told), ("WWW-Authenticate", f"Bearer realm={told}"))
        body = json.dumps({"you sent": told}).encode()
        match request.message["params"]["name"]:
            case "error":
                error = {"code": -32000, "message": f"bad key {told}", "data": told}
                answer = {"jsonrpc": "2.0", "id": request.id, "error": error}
                await peer.send(response(json.dumps(answer).encode(), headers=fields))
            case "html":
                await peer.send(response(body, content_type=told.split(" ")[0]))
            case "status":
                await peer.send(response(body, status=500, headers=fields))
            case "refused":
                await peer.send(response(body, status=401, headers=fields))
            case "redirect":
                location = (("Location", f"http://127.0.0.2:1/{told.replace(' ', '')}"),)
                await peer.send(response(body, status=307, headers=location))
            case "garbage":
                await peer.send(told.encode() + b"\r\n\r\n")
                peer.close()
            case "stream":
                data = b"data: " + told.encode() + b"\n\n"
                await peer.send(response(data, content_type="text/event-stream"))


@pytest.mark.parametrize("log_format", ["json", "console"])
async def test_planted_secrets_are_seen_by_members_and_nobody_else(
    tmp_path: Path, log_format: str
) -> None:
    request_log = tmp_path / "requests"
    flags = (
        *plant(tmp_path / "secrets"),
        "--log-level", "Debug", "--log-format", log_format,
        "--request-log", str(request_log), "--request-log-arguments",
    )  # fmt: skip
    echoing = Echoing()
    headers = [entry("X-Key", "header"), entry("Authorization", "token")]
    wrong = faulty("w", env=[entry("TOKEN", "env")])
    async with RawServer(echoing) as server:
        members = [
            {"name": "echoing", "http": {"url": server.url, "headers": headers}},
            talkative("talkative", '"2025-11-25"'),
            talkative("unstartable", "secret"),
            wrong,
        ]
        async with Gateway(members=members, flags=flags) as gateway:
            for name in ("echoing", "talkative", "w"):
                await gateway.wait_state(name)
            await gateway.wait_for(
                lambda s: all(m["tools"] for m in s["members"] if m["name"] != "unstartable")
            )
            seen: list[str] = []
            assert (await gateway.call("w__env")).result["structuredContent"]["TOKEN"] == ENV

            async def look() -> None:
                for path in ("status", "metrics", "explain?tool=echo", "explain?tool=html", ""):
                    async with gateway.http.get(f"{gateway.admin_url}/{path}") as answer:
                        seen.append(f"{path}: {await answer.text()}")

            session = await gateway.open_session()
            for name in ("html", "status", "refused", "redirect", "garbage", "stream", "bad",
                         "slow", "exit", "no_such"):  # fmt: skip
                reply = await gateway.call(name, {"note": ENV, "k": TOKEN}, session=session)
                assert "error" in reply.message, (name, reply)
                seen.append(f"{name}: {reply.headers} {reply.body!r} {reply.body.decode()}")
                await look()
            # What a member itself says to its caller is the member's: it passes unchanged.
            error = (await gateway.call("error", session=session)).error
            assert error["data"] == f"{HEADER} Bearer {TOKEN}"
            await gateway.wait_for(
                lambda s: any(m["lastError"] for m in s["members"] if m["name"] == "unstartable")
            )
            await look()
            assert await gateway.terminate() == 0
            seen += [gateway.log, request_log.read_text()]
            assert "stderr: my token is" in gateway.log
    assert echoing.heard == {f"{HEADER} Bearer {TOKEN}"}
    found = [leak for text in seen for leak in leaks(text)]
    assert not found, "\n".join(found)


async def test_commands_show_no_planted_secret(tmp_path: Path) -> None:
    members = [talkative("talkative", '"2025-11-25"'), talkative("unstartable", "secret")]
    manifest = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": "test"},
        "spec": {"members": members},
    }
    path = tmp_path / "group.yaml"
    path.write_text(json.dumps(manifest))
    secrets = plant(tmp_path / "secrets")

    async def printed(*arguments: str) -> str:
        command = [sys.executable, "-m", "mcpgroup_gateway", *arguments]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        return (await process.communicate())[0].decode()

    outputs = await asyncio.gather(
        printed("validate", str(path)),
        printed("health", str(path), *secrets),
        printed("health", str(path), *secrets, "--json"),
        printed("discover", str(path), *secrets),
        printed("discover", str(path), *secrets, "--json"),
        printed("call", str(path), "bad", *secrets),
    )
    assert "talkative" in outputs[1]
    found = [leak for text in outputs for leak in leaks(text)]
    assert not found, "\n".join(found)
