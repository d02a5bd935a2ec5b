"""Log lines on standard error: JSON for machines, plain text for people.

kopf logs each attempt of each request; only what it gives up is worth a line beside ours.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

_LEVELS: Final = {
    "Debug": logging.DEBUG,
    "Info": logging.INFO,
    "Warning": logging.WARNING,
    "Error": logging.ERROR,
}
_MAX_MESSAGE: Final = 4000


def configure(log_format: str, level: str) -> None:
    """To be called once, before anything logs."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(_JsonLines() if log_format == "json" else plain)
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)
    for noisy in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(max(_LEVELS[level], logging.WARNING))
    # It says that it handles no signals, which it need not.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("mcpgroup_operator."),
            "message": record.getMessage()[:_MAX_MESSAGE],
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[:_MAX_MESSAGE]
        return json.dumps(line, ensure_ascii=False)
