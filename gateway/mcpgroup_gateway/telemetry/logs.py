"""The process's log: JSON lines or lines for people, redacted, written by a `LineWriter`.

    {"time": "…Z", "kind": "log", "level": "Warning", "logger": "mcpgroup…", "message": "…"}

`kind` tells log lines from events and requests when all go to one stream.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal

from mcpgroup_gateway.telemetry.eventlog import printable
from mcpgroup_gateway.telemetry.lines import line_of, rfc3339

if TYPE_CHECKING:
    from mcpgroup_gateway.telemetry.lines import LineWriter
    from mcpgroup_gateway.telemetry.redaction import Redactor

LogFormat = Literal["json", "console"]
#: The levels as manifests and the command line name them.
LEVELS: Final = {
    "Debug": logging.DEBUG,
    "Info": logging.INFO,
    "Warning": logging.WARNING,
    "Error": logging.ERROR,
}
MAX_MESSAGE: Final = 16 * 1024
#: Loggers of members' standard error and ends are named so; people need the member's name.
_MEMBER: Final = "mcpgroup.member."
#: Their debug output shows headers, selectors and every connection: nothing for our readers.
_TALKATIVE: Final = ("aiohttp", "asyncio", "concurrent", "mcp", "httpx", "markdown_it")


class LineHandler(logging.Handler):
    """Formats records, hides secrets in the whole text (arguments and traces too), writes lines."""

    def __init__(self, writer: LineWriter, redactor: Redactor, log_format: LogFormat) -> None:
        super().__init__()
        self._writer = writer
        self._redactor = redactor
        self._is_json = log_format == "json"
        self._trace = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(self._line(record))
        except Exception:  # noqa: BLE001  # what logging itself does: a bad record breaks nothing
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> bytes:
        message = self._redactor.text(record.getMessage())[:MAX_MESSAGE]
        trace = ""
        if record.exc_info:
            trace = self._redactor.text(self._trace.formatException(record.exc_info))
        level = _level_name(record.levelno)
        time = rfc3339(record.created)
        if not self._is_json:
            who = record.name.removeprefix(_MEMBER) + " " if record.name.startswith(_MEMBER) else ""
            lines = [f"{time[11:19]} {level.lower():<7} {who}{printable(message)}"]
            lines += [f"    {printable(line)}" for line in trace.splitlines()]
            return ("\n".join(lines) + "\n").encode("utf-8", "replace")
        line = {
            "time": time,
            "kind": "log",
            "level": level,
            "logger": record.name,
            "message": message,
        }
        if trace:
            line["error"] = trace
        return line_of(line)

    def close(self) -> None:
        """Called by `logging.shutdown` at exit: the last lines are written."""
        self._writer.close()
        super().close()


def _level_name(number: int) -> str:
    if number >= logging.ERROR:
        return "Error"
    if number >= logging.WARNING:
        return "Warning"
    return "Info" if number >= logging.INFO else "Debug"


def configure_logging(
    writer: LineWriter,
    redactor: Redactor,
    *,
    level: str = "Info",
    log_format: LogFormat = "json",
) -> LineHandler:
    """Send every log record of the process to `writer`, in place of earlier handlers.

    `level` is a key of `LEVELS`. Libraries log from Info on, at the least.
    """
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    handler = LineHandler(writer, redactor, log_format)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(LEVELS[level], logging.INFO))
    logging.captureWarnings(capture=True)
    return handler
