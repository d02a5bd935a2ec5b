"""Where a replica writes down what happens: logs, events, request log, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mcpgroup_gateway.serving.records import Records
from mcpgroup_gateway.telemetry.eventlog import EventLog
from mcpgroup_gateway.telemetry.lines import Descriptor, LineWriter, RotatedFile
from mcpgroup_gateway.telemetry.logs import configure_logging
from mcpgroup_gateway.telemetry.metrics import Metrics
from mcpgroup_gateway.telemetry.redaction import Redactor
from mcpgroup_gateway.telemetry.requestlog import RequestLog

if TYPE_CHECKING:
    from mcpgroup_gateway.replica.options import RunOptions


class Recording:
    """Sets the process's logging up. `redactor` keeps secrets out of all of it."""

    def __init__(self, group: str, instance: str, options: RunOptions) -> None:
        self.redactor = Redactor()
        self._writers = [LineWriter(Descriptor(2))]
        configure_logging(
            self._writers[0], self.redactor, level=options.log_level, log_format=options.log_format
        )
        self.metrics = Metrics(group)
        events = EventLog(
            group,
            instance,
            self._writers[0],
            self.redactor,
            console=options.log_format == "console",
            routing=options.log_level == "Debug",
        )
        self.records = Records(self.metrics, events, self._request_log(group, instance, options))

    def close(self) -> None:
        """Write what is left."""
        for writer in reversed(self._writers):
            writer.close()

    def _request_log(self, group: str, instance: str, options: RunOptions) -> RequestLog | None:
        if options.request_log is None:
            return None
        if options.request_log != "-":
            megabytes = options.request_log_max_mb
            file = RotatedFile(Path(options.request_log), megabytes * 1024 * 1024)
            self._writers.append(LineWriter(file))
        return RequestLog(
            group,
            instance,
            self._writers[-1],
            self.redactor,
            sample_ratio=options.request_log_sample,
            arguments=options.request_log_arguments,
        )
