"""What can be asked of the real servers: every tool and prompt, with arguments right and wrong.

A table for each server; `folder` is where it works. Answers are the same each time, but for what a
transcript leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Tool:
    """Call a tool; so many messages and steps of progress come with it.

    With `only`, a pattern, nothing is compared but what it finds in the result.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    logs: int = 0
    progress: int = 0
    only: str = ""


@dataclass(frozen=True)
class Prompt:
    name: str
    arguments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Read:
    uri: str


@dataclass(frozen=True)
class Complete:
    """Complete `argument` of a prompt or a template; `others` are the arguments known already."""

    of: Literal["prompt", "resource"]
    name: str
    argument: str
    value: str
    others: dict[str, str] | None = None


Step = Tool | Prompt | Read | Complete


# -- time, fetch


def time_steps(folder: Path) -> list[Step]:
    zones = {"source_timezone": "Europe/Zurich", "target_timezone": "Asia/Kathmandu"}
    return [
        Tool("get_current_time", {"timezone": "UTC"}),
        Tool("get_current_time", {"timezone": "No/Where"}),
        Tool("get_current_time"),
        Tool("convert_time", {**zones, "time": "12:00"}),
        Tool("convert_time", {**zones, "time": "25:99"}),
        Tool("convert_time", {**zones, "time": 12}),
    ]


def fetch_steps(folder: Path) -> list[Step]:
    return [
        Tool("fetch", {"url": "http://127.0.0.1:9/"}),
        Tool("fetch", {"url": "no address"}),
        Tool("fetch"),
        Prompt("fetch", {"url": "http://127.0.0.1:9/"}),
        Prompt("fetch"),
    ]


# -- git


def git_steps(folder: Path) -> list[Step]:
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


def everything_steps(folder: Path) -> list[Step]:
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
OF_EVERYTHING_ASKING = (
    Tool("get-roots-list"),
    Tool("trigger-elicitation-request"),
    Tool("trigger-sampling-request", {"prompt": "well?", "maxTokens": 5}),
    Tool("trigger-sampling-request"),
    Tool("trigger-url-elicitation", _PAGE),
    Tool("trigger-url-elicitation", {"url": "no address"}),
)


# -- filesystem


def file_steps(folder: Path) -> list[Step]:
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


def memory_steps(folder: Path) -> list[Step]:
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


def thoughts(folder: Path) -> list[Step]:
    thought = {"thought": "hm", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
    return [
        Tool("sequentialthinking", thought),
        Tool("sequentialthinking", {**thought, "thoughtNumber": 0}),
        Tool("sequentialthinking"),
    ]


# -- the asking server


def asking_server_steps(folder: Path) -> list[Step]:
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
OF_ASKING_SERVER = (
    Tool("ask_live", {"question": "live?"}),
    Tool("ask_then_log", logs=3, progress=3),
)
