"""Runs what a command awaits, and ends it cleanly on Ctrl-C and SIGTERM: processes that it started
are stopped before it ends."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")


def run_to_end(work: Coroutine[Any, Any, _T]) -> _T:
    async def guarded() -> _T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - inside a coroutine there is one
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise typer.Exit(128 + signal.SIGTERM) from None
