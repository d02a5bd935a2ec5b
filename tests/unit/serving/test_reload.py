"""When a change of the manifest is acted upon, and what is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mcpgroup_gateway import manifest
from mcpgroup_gateway.serving import reload as module
from mcpgroup_gateway.serving.reload import Reload
from mcpgroup_gateway.serving.status import ConfigState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest

OLD = b"name: g"


class Stage:
    """A file in memory, a rollout that records, and what was told."""

    def __init__(self) -> None:
        self.content = OLD
        self.contents: list[bytes] = []  # what the next looks see, before `content`
        self.applied: list[bytes] = []
        self.under_way: list[bytes] = []
        self.ignored: tuple[str, ...] = ()
        self.told: list[str] = []
        self.fault: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.group = SimpleNamespace(metadata=SimpleNamespace(name="g"), content=OLD)
        self.config = ConfigState(digest_of(OLD), None, 0.0)
        records = SimpleNamespace(
            metrics=SimpleNamespace(config_reloaded=self.told.append),
            events=SimpleNamespace(config=lambda *, to, **_: self.told.append(f"event {to}")),
        )
        self.rotated: dict[str, str] = {}
        self.reload = Reload("file", self, self, self.config, records)  # type: ignore[arg-type]

    async def look(self) -> dict[str, str]:
        """Of the Secrets."""
        return self.rotated

    async def apply(self, group: Any, stuck: Callable[[str], None]) -> None:
        self.under_way.append(group.content)
        if not self.gate.is_set():
            stuck("refused")
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        self.applied.append(group.content)

    async def renew(self, names: list[str], stuck: Callable[[str], None]) -> None:
        group = SimpleNamespace(content=f"{names} {sorted(self.rotated.values())}".encode())
        await self.apply(group, stuck)
        self.rotated = {}


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextlib.asynccontextmanager
async def staged(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    stage = Stage()

    def content(path: str) -> str:
        return digest_of(stage.contents.pop(0) if stage.contents else stage.content)

    def read(path: str, *, rendered: bool) -> Any:
        if stage.content == b"bad":
            raise manifest.ManifestError("file", [manifest.Fault(1, "", "is bad")])
        metadata = SimpleNamespace(name=stage.content.split()[1].decode(), generation=None)
        group = SimpleNamespace(metadata=metadata, content=stage.content)
        return SimpleNamespace(
            group=group, digest=digest_of(stage.content), ignored=stage.ignored, for_pods=()
        )

    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "_SETTLE_SECONDS", 0.001)
    monkeypatch.setattr(module, "_content", content)
    monkeypatch.setattr(manifest, "read", read)
    stage.reload.start()
    try:
        yield stage
    finally:
        await stage.reload.close()


async def reached(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.002)


async def test_content_that_is_still_being_written_is_not_acted_upon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        stage.contents = [b"", OLD[:3], b"name: g 2", b"name: g 2 3"]
        stage.content = b"name: g 2 3 4"
        await reached(lambda: bool(stage.applied))
    assert stage.applied == [b"name: g 2 3 4"]
    assert stage.told == ["applied", "event applied"]
    assert stage.config.digest == digest_of(b"name: g 2 3 4")


async def test_a_fault_of_ours_is_told_and_the_next_change_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(monkeypatch) as stage:
        stage.fault = RuntimeError("a bug")
        stage.content = b"name: g 2"
        await reached(lambda: stage.config.rejected is not None)
        assert "internal error" in str(stage.config.rejected)
        assert "a bug" in caplog.text
        assert stage.config.digest == digest_of(OLD)
        stage.fault = None
        stage.content = b"name: g 3"
        await reached(lambda: stage.config.rejected is None)
    assert stage.applied == [b"name: g 3"]
    assert stage.told == ["failed", "event failed", "applied", "event applied"]


async def test_a_fault_while_looking_does_not_end_the_watching(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(monkeypatch) as stage:
        read, faults = manifest.read, [RuntimeError("cannot parse")]

        def broken(path: str, *, rendered: bool) -> Any:
            if faults:
                raise faults.pop()
            return read(path, rendered=rendered)

        monkeypatch.setattr(manifest, "read", broken)
        stage.content = b"name: g 2"
        await reached(lambda: not faults)
        stage.content = b"name: g 3"
        await reached(lambda: bool(stage.applied))
    assert "cannot parse" in caplog.text


async def test_what_is_under_way_outlives_an_invalid_file_and_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        stage.gate.clear()
        stage.content = b"name: g 2"
        await reached(lambda: "refused" in str(stage.config.rejected))
        stage.content = b"bad"
        await reached(lambda: "is bad" in str(stage.config.rejected))
        stage.content = b"name: other"
        await reached(lambda: "metadata.name" in str(stage.config.rejected))
        stage.content = b"name: g 2"  # as it was: nothing begins anew
        await reached(lambda: "refused" in str(stage.config.rejected))
        stage.content = b"bad"
        await reached(lambda: "is bad" in str(stage.config.rejected))
        stage.gate.set()
        await reached(lambda: bool(stage.applied))
        await reached(lambda: stage.config.digest == digest_of(b"name: g 2"))
        assert "is bad" in str(stage.config.rejected)  # of the file that is there now
        stage.content = b"name: g 2"
        await reached(lambda: stage.config.rejected is None)
    assert stage.told.count("failed") == 1


async def test_a_change_gives_up_the_one_before_and_closing_gives_up_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        stage.gate.clear()
        for content in (b"name: g 2", b"name: g 3", OLD):
            stage.content = content
            await reached(lambda content=content: stage.under_way[-1:] == [content])  # type: ignore[misc]
    assert stage.applied == []
    assert stage.config.digest == digest_of(OLD)


async def test_unknown_fields_are_told_once_and_again_when_they_are_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(monkeypatch) as stage:
        for content, ignored in (
            (b"name: g 2", ("spec.new",)),
            (b"name: g 3", ("spec.new",)),
            (b"name: g 4", ("spec.new", "spec.members[0].newer")),
            (b"name: g 5", ()),
            (b"name: g 6", ("spec.new",)),
        ):
            stage.ignored, stage.content = ignored, content
            await reached(lambda content=content: stage.applied[-1:] == [content])  # type: ignore[misc]
            assert stage.config.ignored == ignored
    assert stage.told.count("event ignored") == 3
    assert [record.args for record in caplog.records] == [
        ("spec.new",),
        ("spec.new, spec.members[0].newer",),
        ("spec.new",),
    ]


async def test_members_are_replaced_once_when_their_secrets_have_other_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        before = (stage.config.digest, stage.config.loaded_at)
        stage.rotated = {"a": "2"}
        await reached(lambda: bool(stage.applied))
        await reached(lambda: stage.told == ["event applied"])
        assert (stage.config.digest, stage.config.loaded_at) == before
    assert stage.under_way == [b"['a'] ['2']"]


async def test_a_value_with_which_nothing_starts_is_given_up_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        stage.gate.clear()
        stage.rotated = {"a": "bad"}
        await reached(lambda: stage.told == ["event failed"])
        assert stage.config.rejected is None  # there is nothing wrong with the file
        stage.rotated = {"a": "good"}
        await reached(lambda: len(stage.under_way) == 2)
        stage.gate.set()
        await reached(lambda: stage.told[-1] == "event applied")
    assert stage.applied == [b"['a'] ['good']"]


async def test_a_change_of_the_file_goes_before_new_values_of_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        stage.gate.clear()
        stage.rotated = {"a": "2"}
        await reached(lambda: stage.under_way == [b"['a'] ['2']"])
        stage.content = b"name: g 2"
        await reached(lambda: stage.under_way[1:] == [b"name: g 2"])
        stage.rotated = {"a": "3"}
        await asyncio.sleep(0.05)  # nothing is to happen: five looks
        assert len(stage.under_way) == 2
        stage.gate.set()
        await reached(lambda: stage.applied == [b"name: g 2", b"['a'] ['3']"])


async def test_new_values_that_cannot_be_applied_are_tried_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(monkeypatch) as stage:
        stage.fault = RuntimeError("a bug")
        stage.rotated = {"a": "2"}
        await reached(lambda: "event failed" in stage.told)
        await asyncio.sleep(0.05)  # nothing is to happen: five looks
        assert stage.told == ["event failed"]
    assert "a bug" in caplog.text
