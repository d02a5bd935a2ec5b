"""What `mcpgroup run` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`request_log` is a path, `-` for stderr, or None. `ignore_unknown_keys`: the manifest was
    rendered by an operator, which may be newer than this gateway."""

    manifest_path: str
    host: str = "127.0.0.1"
    port: int = 8080
    admin_host: str = "127.0.0.1"
    admin_port: int = 9090
    secrets_dir: Path | None = None
    keys_dir: Path | None = None
    ignore_unknown_keys: bool = False
    log_format: Literal["json", "console"] = "json"
    log_level: str = "Info"
    request_log: str | None = None
    request_log_sample: float = 1.0
    request_log_max_mb: int = 100
    request_log_arguments: bool = False
