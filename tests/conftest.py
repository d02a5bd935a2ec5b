"""Fixtures for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.harness.members import CallLog, Control

if TYPE_CHECKING:
    from pathlib import Path

# A deadline a example says more about the machine's other work than about the code.
# Where CI is set, the profile that is current has no random examples: CI looks for faults, too.
settings.register_profile("mcpgroup", settings.get_profile("default"), deadline=None)
settings.load_profile("mcpgroup")


@pytest.fixture
def call_log(tmp_path: Path) -> CallLog:
    """Shared by the faulty servers that get its `flags`."""
    return CallLog(tmp_path / "calls.jsonl")


@pytest.fixture
def control(tmp_path: Path) -> Control:
    """Shared by the faulty servers that get its `flags`."""
    return Control(tmp_path / "control.json")
