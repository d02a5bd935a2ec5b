"""What holds for every test with processes."""

from __future__ import annotations

from tests.integration.conftest import no_process_left

__all__ = ["no_process_left"]
