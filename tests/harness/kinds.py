"""The real servers, each kind as a member of a group and without one, and what can be asked of it.

async with kind.opened(folder) as (member, target):
    …  # `member` for a manifest, `target` for the official client
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp
from mcp.client.sse import sse_client
from tests.harness.asking import AskingHttp, asking
from tests.harness.members import (
    EverythingHttp,
    EverythingSse,
    everything,
    filesystem,
    git_server,
    memory,
    sequential_thinking,
    stdio,
    time_server,
)
from tests.harness.transcript import Complete, Prompt, Read, Tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.harness.members import HttpMember
    from tests.harness.transcript import Step, Target

_ENV = {
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05 +0000",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05 +0000",
    "GIT_AUTHOR_NAME": "Tester",
    "GIT_AUTHOR_EMAIL": "tester@example.com",
    "GIT_COMMITTER_NAME": "Tester",
    "GIT_COMMITTER_EMAIL": "tester@example.com",
}


def _nothing(folder: Path) -> None:
    """The server keeps nothing that has to be as it was."""


@dataclass(frozen=True)
class Kind:
    """A kind of server.

    `spec` gives a member over stdio for a folder; `server` one that listens. `steps` is what can
    be asked, `asking_steps` what can be asked by a client that declares every capability besides.
    `prepare` puts the folder into the state that the steps begin with. `modern` says that it
    speaks the modern era too.
    """

    name: str
    steps: Callable[[Path], Sequence[Step]]
    spec: Callable[[Path], dict[str, Any]] | None = None
    server: Callable[[], HttpMember] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Path], None] = _nothing
    asking_steps: Sequence[Step] = ()
    modern: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def asks(self) -> bool:
        """Whether it offers more to clients with capabilities."""
        return self.fields.get("isolation") == "PerSession"

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes of the official client that it can be spoken to in."""
        return ("legacy", "auto", "2026-07-28") if self.modern else ("legacy",)

    @contextlib.asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[tuple[dict[str, Any], Straight]]:
        """A member, and the same without a gateway."""
        if self.spec is not None:
            member = {**self.spec(folder), **self.fields}
            yield member, Straight(member["stdio"]["command"], member["stdio"]["env"])
            return
        assert self.server is not None
        async with self.server() as behind, self.server() as alone:
            old = isinstance(alone, EverythingSse)
            yield behind.spec(**self.fields), Straight([alone.url], [], "sse" if old else "http")


@dataclass(frozen=True)
class Straight:
    """A server without a gateway: its command, or its address alone."""

    words: list[str]
    env: list[dict[str, str]]
    transport: str = "stdio"

    @property
    def target(self) -> Target:
        """For one connection of the official client."""
        match self.transport:
            case "stdio":
                program, *arguments = self.words
                env = {each["name"]: each["value"] for each in self.env}
                return mcp.StdioServerParameters(
                    command=program, args=arguments, env={**os.environ, **env}
                )
            case "sse":
                return sse_client(self.words[0])
        return self.words[0]

    @property
    def inspected(self) -> list[str]:
        """For the command line of the inspector."""
        if self.transport != "stdio":
            return [*self.words, "--transport", self.transport]
        env = [("-e", f"{each['name']}={each['value']}") for each in self.env]
        return [*(word for option in env for word in option), *self.words]


# -- time, fetch


def _time_steps(folder: Path) -> list[Step]:
    zones = {"source_timezone": "Europe/Zurich", "target_timezone": "Asia/Kathmandu"}
    return [
        Tool("get_current_time", {"timezone": "UTC"}),
        Tool("get_current_time", {"timezone": "No/Where"}),
        Tool("get_current_time"),
        Tool("convert_time", {**zones, "time": "12:00"}),
        Tool("convert_time", {**zones, "time": "25:99"}),
        Tool("convert_time", {**zones, "time": 12}),
    ]


def _fetch_steps(folder: Path) -> list[Step]:
    return [
        Tool("fetch", {"url": "http://127.0.0.1:9/"}),
        Tool("fetch", {"url": "no address"}),
        Tool("fetch"),
        Prompt("fetch", {"url": "http://127.0.0.1:9/"}),
        Prompt("fetch"),
    ]


# -- git


def _prepare_git(folder: Path) -> None:
    _empty(folder)
    (folder / "README").write_text("hello\n")
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        command = ["git", "-C", str(folder), *arguments]
        subprocess.run(command, check=True, env={**os.environ, **_ENV})  # noqa: S603
    (folder / "README").write_text("hello\nwörld 😀\n")
    (folder / "new").write_text("new\n")


def _git_steps(folder: Path) -> list[Step]:
    def git(name: str, **arguments: Any) -> Tool:
        return Tool(f"git_{name}", {"repo_path": str(folder), **arguments})

    return [
        git("status"),
        git("diff_unstaged"),
        git("commit", message="nothing is staged"),
        git("add", files=["README", "new"]),
        git("diff_staged", context_lines=0),
        git("reset"),
        git("add", files=["README"]),
        git("commit", message="second"),
        git("log", max_count=5),
        git("show", revision="HEAD"),
        git("show", revision="nothing"),
        git("create_branch", branch_name="other"),
        git("create_branch", branch_name="other"),
        git("checkout", branch_name="other"),
        git("branch", branch_type="all"),
        git("branch", branch_type="unknown"),
        git("diff", target="HEAD~1"),
        git("diff", target="--output=/tmp/x"),
        Tool("git_status", {"repo_path": "/no/such"}),
        Tool("git_add", {"repo_path": str(folder), "files": []}),
        Tool("git_log"),
    ]


# -- everything

_TEXT = "demo://resource/dynamic/text/{resourceId}"
_BLOB = "demo://resource/dynamic/blob/{resourceId}"


def _everything_steps(folder: Path) -> list[Step]:
    return [
        Tool("echo", {"message": "café 😀 \u0000 \\/"}),
        Tool("echo"),
        Tool("get-sum", {"a": 1e2, "b": -0.5}),
        Tool("get-sum", {"a": "no number"}),
        Tool("get-tiny-image"),
        Tool("get-env", only=r'"PATH": ".*?"'),
        *(
            Tool("get-structured-content", {"location": location})
            for location in ("New York", "Chicago", "Los Angeles", "Nowhere")
        ),
        Tool("get-annotated-message", {"messageType": "error", "includeImage": True}),
        Tool("get-annotated-message", {"messageType": "debug"}),
        Tool("get-resource-links", {"count": 3}),
        Tool("get-resource-links", {"count": 11}),
        Tool("get-resource-reference", {"resourceType": "Text", "resourceId": 2}),
        Tool("get-resource-reference", {"resourceType": "Blob", "resourceId": 3}),
        Tool("get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
        Tool("trigger-long-running-operation", {"duration": 0.2, "steps": 4}, progress=4),
        Tool("gzip-file-as-resource", {"name": "a", "data": _DATA, "outputType": "resource"}),
        Tool("gzip-file-as-resource", {"name": "b", "data": _DATA}),
        Tool("gzip-file-as-resource", {"name": "c", "data": "ftp://example.com"}),
        Read("demo://resource/session/b"),
        Tool("toggle-simulated-logging"),
        Tool("toggle-simulated-logging"),
        Tool("toggle-subscriber-updates"),
        Tool("toggle-subscriber-updates"),
        Prompt("simple-prompt"),
        Prompt("args-prompt", {"city": "Zürich", "state": "\u0000"}),
        Prompt("args-prompt"),
        Prompt("completable-prompt", {"department": "Sales", "name": "Eve"}),
        Prompt("resource-prompt", {"resourceType": "Text", "resourceId": "2"}),
        Prompt("resource-prompt", {"resourceType": "Blob", "resourceId": "3"}),
        Prompt("resource-prompt", {"resourceType": "Nothing", "resourceId": "3"}),
        Read(_TEXT.format(resourceId=7)),
        Read(_BLOB.format(resourceId=8)),
        Read(_TEXT.format(resourceId="x")),
        Read("demo://resource/nothing"),
        Complete("prompt", "completable-prompt", "department", "S"),
        Complete("prompt", "completable-prompt", "name", "", {"department": "Sales"}),
        Complete("prompt", "completable-prompt", "name", ""),
        Complete("prompt", "resource-prompt", "resourceType", "T"),
        Complete("prompt", "resource-prompt", "resourceId", "4"),
        Complete("resource", _TEXT, "resourceId", "7"),
        Complete("resource", _BLOB, "resourceId", "x"),
    ]


_DATA = "data:text/plain;base64,aGVsbG8K"
_PAGE = {"url": "https://example.com/", "elicitationId": "e1"}
_EVERYTHING_ASKING = (
    Tool("get-roots-list"),
    Tool("trigger-elicitation-request"),
    Tool("trigger-sampling-request", {"prompt": "well?", "maxTokens": 5}),
    Tool("trigger-sampling-request"),
    Tool("trigger-url-elicitation", _PAGE),
    Tool("trigger-url-elicitation", {"url": "no address"}),
)


# -- filesystem


def _prepare_files(folder: Path) -> None:
    _empty(folder)
    (folder / "naïve 😀.txt").write_text("one\ntwo\nthree\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")


def _file_steps(folder: Path) -> list[Step]:
    text, image = str(folder / "naïve 😀.txt"), str(folder / "inner" / "dot.png")
    new, moved = str(folder / "new.txt"), str(folder / "made" / "moved.txt")
    edit = {"path": text, "edits": [{"oldText": "two", "newText": "zwei"}]}
    return [
        Tool("list_allowed_directories"),
        Tool("list_directory", {"path": str(folder)}),
        Tool("list_directory_with_sizes", {"path": str(folder), "sortBy": "size"}),
        Tool("directory_tree", {"path": str(folder)}),
        Tool("search_files", {"path": str(folder), "pattern": "**/*.png"}),
        Tool("read_file", {"path": text}),
        Tool("read_text_file", {"path": text, "head": 1}),
        Tool("read_text_file", {"path": text, "head": 1, "tail": 1}),
        Tool("read_text_file", {"path": "/etc/passwd"}),
        Tool("read_media_file", {"path": image}),
        Tool("read_multiple_files", {"paths": [text, "/etc/passwd"]}),
        Tool("write_file", {"path": new, "content": "new\n"}),
        Tool("edit_file", {**edit, "dryRun": True}),
        Tool("edit_file", edit),
        Tool("edit_file", edit),
        Tool("create_directory", {"path": str(folder / "made")}),
        Tool("move_file", {"source": new, "destination": moved}),
        Tool("move_file", {"source": new, "destination": moved}),
        Tool("get_file_info", {"path": moved}),
        Tool("get_file_info"),
    ]


# -- memory, sequential thinking


def _memory_steps(folder: Path) -> list[Step]:
    ann = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
    bob = {"name": "Bob", "entityType": "person", "observations": []}
    knows = {"from": "Ann", "to": "Bob", "relationType": "knows"}
    return [
        Tool("create_entities", {"entities": [ann, bob]}),
        Tool("create_relations", {"relations": [knows]}),
        Tool("add_observations", {"observations": [{"entityName": "Bob", "contents": ["Zürich"]}]}),
        Tool("add_observations", {"observations": [{"entityName": "Eve", "contents": ["x"]}]}),
        Tool("read_graph"),
        Tool("search_nodes", {"query": "tea"}),
        Tool("open_nodes", {"names": ["Bob"]}),
        Tool("delete_relations", {"relations": [knows]}),
        Tool(
            "delete_observations",
            {"deletions": [{"entityName": "Ann", "observations": ["likes tea"]}]},
        ),
        Tool("delete_entities", {"entityNames": ["Ann"]}),
        Tool("read_graph"),
        Tool("open_nodes"),
    ]


def _thoughts(folder: Path) -> list[Step]:
    thought = {"thought": "hm", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
    return [
        Tool("sequentialthinking", thought),
        Tool("sequentialthinking", {**thought, "thoughtNumber": 0}),
        Tool("sequentialthinking"),
    ]


# -- the asking server


def _asking_steps(folder: Path) -> list[Step]:
    return [
        Tool("quick"),
        Tool("log", logs=3, progress=3),
        Tool("ask", {"question": "well?"}),
        Tool("ask"),
        Tool("ask_twice"),
        Tool("sample", {"text": "it"}),
        Tool("roots"),
    ]


#: What a member is told that asks live where the client cannot be asked is the gateway's word.
_ASKING_ASKED = (
    Tool("ask_live", {"question": "live?"}),
    Tool("ask_then_log", logs=3, progress=3),
)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


_PER_SESSION = {"isolation": "PerSession"}

KINDS = (
    Kind("time", _time_steps, spec=lambda _: time_server(), modern=True),
    Kind(
        "fetch",
        _fetch_steps,
        spec=lambda _: stdio("fetch", [sys.executable, "-m", "mcp_server_fetch"]),
        modern=True,
    ),
    Kind(
        "git",
        _git_steps,
        spec=lambda folder: git_server(
            folder, env=[{"name": name, "value": value} for name, value in _ENV.items()]
        ),
        prepare=_prepare_git,
        modern=True,
    ),
    Kind(
        "everything",
        _everything_steps,
        spec=lambda _: everything(),
        fields=_PER_SESSION,
        asking_steps=_EVERYTHING_ASKING,
    ),
    Kind(
        "everything-http",
        _everything_steps,
        server=EverythingHttp,
        fields=_PER_SESSION,
        asking_steps=_EVERYTHING_ASKING,
    ),
    Kind(
        "everything-sse",
        _everything_steps,
        server=EverythingSse,
        fields={**_PER_SESSION, "transport": "Sse"},
        asking_steps=_EVERYTHING_ASKING,
    ),
    Kind("filesystem", _file_steps, spec=filesystem, prepare=_prepare_files, fields=_PER_SESSION),
    Kind("memory", _memory_steps, spec=lambda folder: memory(folder / "graph"), prepare=_empty),
    Kind("thinking", _thoughts, spec=lambda _: sequential_thinking()),
    Kind(
        "asking",
        _asking_steps,
        spec=lambda _: asking(),
        fields=_PER_SESSION,
        asking_steps=_ASKING_ASKED,
        modern=True,
    ),
    Kind(
        "asking-http",
        _asking_steps,
        server=AskingHttp,
        fields=_PER_SESSION,
        asking_steps=_ASKING_ASKED,
        modern=True,
    ),
)
