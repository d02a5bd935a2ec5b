"""One replica: the one place that composes core, members, serving, front and admin."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import random
import secrets
import signal
import socket
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from mcpgroup_gateway import manifest
from mcpgroup_gateway.admin.app import build_admin
from mcpgroup_gateway.core.group import Group
from mcpgroup_gateway.core.retries import Retries
from mcpgroup_gateway.core.routes import Routes
from mcpgroup_gateway.core.selection import Selector
from mcpgroup_gateway.front.front import Front
from mcpgroup_gateway.front.settings import FrontSettings
from mcpgroup_gateway.manifest import ManifestError
from mcpgroup_gateway.operations import Operations
from mcpgroup_gateway.secret_files import SecretFiles
from mcpgroup_gateway.serving.catalogues import EVERYBODY, Audience, Catalogues
from mcpgroup_gateway.serving.connectors import build_connector
from mcpgroup_gateway.serving.context import Context
from mcpgroup_gateway.serving.policies import group_policy
from mcpgroup_gateway.serving.records import Records
from mcpgroup_gateway.serving.reload import Reload
from mcpgroup_gateway.serving.rollout import Rollout
from mcpgroup_gateway.serving.roster import Roster, is_awaited
from mcpgroup_gateway.serving.service import GroupService
from mcpgroup_gateway.serving.sessions import SessionTable
from mcpgroup_gateway.serving.status import ConfigState, FrontState, StatusReport
from mcpgroup_gateway.serving.upstream_messages import UpstreamMessages
from mcpgroup_gateway.serving.upstreams import UpstreamSessions
from mcpgroup_gateway.telemetry.eventlog import EventLog
from mcpgroup_gateway.telemetry.lines import Descriptor, LineWriter, RotatedFile
from mcpgroup_gateway.telemetry.logs import configure_logging
from mcpgroup_gateway.telemetry.metrics import Metrics, watch_loop_lag
from mcpgroup_gateway.telemetry.redaction import Redactor
from mcpgroup_gateway.telemetry.requestlog import RequestLog
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from mcpgroup_api import Limits, McpServerGroup, Member
    from mcpgroup_gateway.core.events import Event
    from mcpgroup_gateway.manifest import Manifest
    from mcpgroup_gateway.members.upstream import Connector, MemberFailure, Upstream
    from mcpgroup_gateway.serving.sessions import Session
    from mcpgroup_gateway.wire.envelope import Message

_log = logging.getLogger(__name__)

#: Readiness waits so long for the first members to be tried, once (DESIGN section 9).
_FIRST_READY_SECONDS = 20.0
#: While draining: the replica ends when nothing arrived for so long; new calls are refused in the
#: last so many seconds.
_QUIET_SECONDS = 2.0
_REFUSE_SECONDS = 2.0
#: How long the answers of what was ended may take to leave.
_ANSWER_SECONDS = 2.0
#: How long answers of the admin port may take at the end.
_ADMIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `mcpgroup run` was asked for; `request_log` is a path, `-` for stderr, or None."""

    manifest_path: str
    host: str = "127.0.0.1"
    port: int = 8080
    admin_host: str = "127.0.0.1"
    admin_port: int = 9090
    secrets_dir: Path | None = None
    log_format: Literal["json", "console"] = "json"
    log_level: str = "Info"
    request_log: str | None = None
    request_log_sample: float = 1.0
    request_log_max_mb: int = 100
    request_log_arguments: bool = False


def run(options: RunOptions) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0, or 1 when it could not start."""
    try:
        loaded = manifest.read(options.manifest_path)
    except ManifestError as error:
        print(error, file=sys.stderr)
        return 1
    for warning in loaded.warnings:
        print(f"{loaded.source}:{warning.line}: {warning.path}: {warning.text}", file=sys.stderr)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_main(options, loaded))
    code: int = uvloop.run(_main(options, loaded))
    return code


async def _main(options: RunOptions, loaded: Manifest) -> int:
    replica = Replica(options, loaded)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(replica.close)
        try:
            await replica.start()
        except OSError as error:
            print(f"mcpgroup: cannot listen: {error.strerror or error}", file=sys.stderr)
            return 1
        where = f"{replica.context.name} on {replica.url}, admin on {replica.admin_url}"
        print(f"mcpgroup: group {where}", flush=True)
        print(f"mcpgroup: admin token: {replica.token}", flush=True)
        await stop.wait()
        await replica.drain()
    return 0


class Replica:
    """Everything one process of the gateway consists of; also what the admin port may ask."""

    def __init__(self, options: RunOptions, loaded: Manifest) -> None:
        self.options = options
        self.token = secrets.token_urlsafe(24)
        self.instance = secrets.token_hex(8)
        self.url = ""
        self.admin_url = ""
        self._draining = False
        self._started = False
        self._was_ready = False
        self._tasks: list[asyncio.Task[None]] = []
        self._admin: web.AppRunner | None = None
        group = loaded.group
        spec = group.spec
        self._redactor = Redactor()
        self._redactor.register(self.token)
        self._writer = LineWriter(Descriptor(2))
        configure_logging(
            self._writer, self._redactor, level=options.log_level, log_format=options.log_format
        )
        self._request_writer: LineWriter | None = None
        self.metrics = Metrics(group.metadata.name)
        events = EventLog(
            group.metadata.name,
            self.instance,
            self._writer,
            self._redactor,
            console=options.log_format == "console",
            routing=options.log_level == "Debug",
        )
        self.records = Records(self.metrics, events, self._request_log(group.metadata.name))
        clock = time.monotonic
        policy = group_policy(group)
        # Not for secrets: spreads probes and calls.
        source = random.Random()  # noqa: S311
        core = Group(policy, clock=clock, random=source, listener=self._event)
        self.sessions = SessionTable(
            max_sessions=spec.sessions.max,
            idle_seconds=spec.sessions.idle_seconds,
            listener=self._session,
        )
        self.context = Context(
            policy=policy,
            group=core,
            selector=Selector(core, policy, clock=clock, random=source),
            retries=Retries(policy.retry, clock=clock, random=source),
            routes=Routes(policy.routes),
            catalogues=Catalogues(
                lambda member: is_awaited(self.context, member), self._lists_changed
            ),
            upstreams=UpstreamSessions(
                maximum=spec.sessions.max,
                idle_seconds=spec.sessions.idle_seconds,
                opened=self._upstream_opened,
                message=self._upstream_message,
                lost=self._upstream_lost,
                requested=self._upstream_request,
            ),
            records=self.records,
            clock=clock,
            log_levels=lambda: self.service.asked_levels(),
        )
        self._secrets = SecretFiles(options.secrets_dir)
        self.roster = Roster(self.context, self._connect)
        self.service = GroupService(self.context, self.sessions, spec.description)
        self.roster.service = self.service
        self.upstream_messages = UpstreamMessages(self.context, self.sessions)
        self.front = Front(
            self.service, self.sessions, self._front_settings(group), self, clock=clock
        )
        self._config = ConfigState(loaded.digest, group.metadata.generation, time.time())
        self.report = StatusReport(
            self.context,
            instance=self.instance,
            pod=os.environ.get("POD_NAME") or socket.gethostname(),
            namespace=group.metadata.namespace or os.environ.get("POD_NAMESPACE", ""),
            config=self._config,
            front=self._front_state,
            wall_clock=time.time,
            hide=self._redactor.text,
        )
        self.rollout = Rollout(self.context, self.roster, group, applied=self._applied)
        self.reload = Reload(options.manifest_path, self.rollout, self._config, self.records)

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen and start the members; the listener never waits for them. Raises `OSError`."""
        self.rollout.start()
        self.metrics.bind(self.report.snapshot)
        port = await self.front.start()
        app = build_admin(
            Operations(
                self.context,
                self.report,
                is_started=lambda: self._started,
                is_ready=lambda: self._started and self._was_ready and not self._draining,
            ),
            self.metrics,
            token=self.token,
            loopback_only=_is_loopback(self.options.admin_host),
        )
        self._admin = web.AppRunner(app, access_log=None, shutdown_timeout=_ADMIN_SECONDS)
        await self._admin.setup()
        site = web.TCPSite(self._admin, self.options.admin_host, self.options.admin_port)
        await site.start()
        self.url = f"http://{_authority(self.options.host, port)}/mcp"
        self.admin_url = f"http://{_authority(self.options.admin_host, site.port)}/"
        self._started = True
        self._tasks = [
            asyncio.create_task(watch_loop_lag(self.metrics), name="loop lag"),
            asyncio.create_task(self._expire_upstreams(), name="expire upstream sessions"),
            asyncio.create_task(self._first_readiness(), name="first readiness"),
            asyncio.create_task(self.context.subscriptions.run(), name="subscriptions"),
            asyncio.create_task(self._end_questions(), name="questions of absent clients"),
        ]
        if self.options.manifest_path != "-":
            self.reload.start()

    async def drain(self) -> None:
        """After SIGTERM (DESIGN section 8): serve what comes, end what runs, then return."""
        loop = asyncio.get_running_loop()
        seconds = float(self.rollout.group.spec.drain.timeout_seconds)
        end = loop.time() + seconds
        self._draining = self.service.draining = True
        self.reload.stop()
        self.records.events.config(to="draining")
        self.front.begin_drain()
        self.service.end_listening()
        began, refusing = time.monotonic(), False
        while (now := loop.time()) < end:
            idle_since = self.front.idle_since
            quiet_since = None if idle_since is None else max(idle_since, began)
            if quiet_since is not None and time.monotonic() - quiet_since >= _QUIET_SECONDS:
                break
            if end - now <= _REFUSE_SECONDS and not refusing:
                refusing = True
                self.front.refuse()
            await asyncio.sleep(0.05)
        self.service.end_calls()
        answered = loop.time() + _ANSWER_SECONDS
        while loop.time() < answered:
            if not self.front.in_flight:
                break
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Stop everything, each part whatever became of the one before: no process may stay."""
        async with AsyncExitStack() as stack:  # the last one first
            stack.callback(self._writer.close)
            if self._request_writer is not None:
                stack.callback(self._request_writer.close)
            if self._admin is not None:
                stack.push_async_callback(self._admin.cleanup)
            stack.push_async_callback(self.roster.close)
            stack.push_async_callback(self.context.upstreams.close)
            stack.push_async_callback(self.service.close)
            stack.push_async_callback(self.front.close)
            stack.push_async_callback(self.reload.close)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _expire_upstreams(self) -> None:
        while True:
            await asyncio.sleep(10)
            try:
                self.context.upstreams.expire(self.context.subscriptions.held())
            except Exception:  # noqa: BLE001 - logged; one session must not stop the others' expiry
                _log.exception("the expiry of upstream sessions failed")

    async def _end_questions(self) -> None:
        while True:
            await asyncio.sleep(1)
            try:
                self.context.questions.end_of_absent(time.monotonic())
                self.context.pending.end_lost()
            except Exception:  # noqa: BLE001 - logged; the others are still to be ended
                _log.exception("questions of absent clients could not be ended")

    async def _first_readiness(self) -> None:
        """Ready once a member is, or all that start were tried, or after 20 s; for ever then."""
        end = time.monotonic() + _FIRST_READY_SECONDS
        while time.monotonic() < end:
            supervisors = list(self.context.supervisors.values())
            tried = all(supervisor.tried.is_set() for supervisor in supervisors)
            ready = any(supervisor.endpoint.ready for supervisor in supervisors)
            if tried or ready or not self.rollout.group.spec.start_members:
                break
            await asyncio.sleep(0.05)
        self._was_ready = True

    # -- configuration -------------------------------------------------------------------

    def _applied(self, group: McpServerGroup) -> None:
        spec = group.spec
        self.service.description = spec.description
        self.sessions.reconfigure(
            max_sessions=spec.sessions.max, idle_seconds=spec.sessions.idle_seconds
        )
        self.context.upstreams.maximum = spec.sessions.max
        self.context.upstreams.idle_seconds = spec.sessions.idle_seconds
        self.front.update(self._front_settings(group))
        self.metrics.set_members(member.name for member in spec.members)
        self._config.missing_secrets = self._secrets.missing(group)

    def _front_settings(self, group: McpServerGroup) -> FrontSettings:
        spec = group.spec
        return FrontSettings(
            host=self.options.host,
            port=self.options.port,
            loopback=_is_loopback(self.options.host),
            allowed_hosts=spec.allowed_hosts,
            allowed_origins=spec.allowed_origins,
            tenant_header=spec.tenant.header if spec.tenant is not None else None,
            request_bytes=spec.limits.request_bytes,
            requests_in_flight=spec.limits.requests_in_flight,
        )

    def _front_state(self) -> FrontState:
        spec = self.rollout.group.spec
        return FrontState(
            sessions=len(self.sessions),
            sessions_limit=spec.sessions.max,
            streams=self.front.open_streams,
            replay_bytes=self.sessions.replay.size,
            listening=len(self.service.listening),
            in_flight=self.front.in_flight,
            in_flight_limit=spec.limits.requests_in_flight,
            draining=self._draining,
        )

    def _connect(self, member: Member, limits: Limits) -> Connector:
        return build_connector(member, self._secrets, limits, self._redactor.register)

    def _request_log(self, group: str) -> RequestLog | None:
        options = self.options
        if options.request_log is None:
            return None
        writer = self._writer
        if options.request_log != "-":
            megabytes = options.request_log_max_mb
            writer = LineWriter(RotatedFile(Path(options.request_log), megabytes * 1024 * 1024))
            self._request_writer = writer
        return RequestLog(
            group,
            self.instance,
            writer,
            self._redactor,
            sample_ratio=options.request_log_sample,
            arguments=options.request_log_arguments,
        )

    # -- what the parts tell each other --------------------------------------------------

    def _event(self, event: Event) -> None:
        self.records.event(event)
        self.roster.event(event)

    def _lists_changed(
        self, kinds: list[Kind], audience: Audience, unaffected: frozenset[str]
    ) -> None:
        if Kind.TOOL in kinds and audience == EVERYBODY:
            view = self.context.catalogues.view(canary=False)
            self.metrics.set_tools(view.tool_names())
        self.service.lists_changed(kinds, audience, unaffected)

    def _session(self, session: Session, what: str) -> None:
        if what == "opened":
            session.on_close(lambda: self.service.session_ended(session))
            return
        if what != "deleted":
            reason = {"displaced": "capacity"}.get(what, what)
            self.metrics.session_lost(reason)
            self.records.events.session(to="ended", reason=reason)

    async def _upstream_opened(self, owner: str, endpoint_id: str, upstream: Upstream) -> None:
        endpoint = self.context.group.endpoints.get(endpoint_id)
        if endpoint is not None:
            await self.upstream_messages.opened(owner, endpoint, upstream)

    def _upstream_message(
        self, owner: str, endpoint_id: str, upstream: Upstream, message: Message
    ) -> None:
        endpoint = self.context.group.endpoints.get(endpoint_id)
        if endpoint is not None:
            self.upstream_messages.heard(owner, endpoint, upstream, message)

    def _upstream_request(
        self, owner: str, endpoint_id: str, upstream: Upstream, message: Message
    ) -> None:
        endpoint = self.context.group.endpoints.get(endpoint_id)
        if endpoint is not None:
            self.upstream_messages.asked(owner, endpoint, upstream, message)

    def _upstream_lost(self, endpoint_id: str, failure: MemberFailure) -> None:
        supervisor = self.context.supervisors.get(endpoint_id)
        if supervisor is not None:
            supervisor.probe_now()
        self.context.subscriptions.look_again()

    # -- front's observer ----------------------------------------------------------------

    def request_answered(self, method: str, outcome: str, seconds: float) -> None:
        self.records.answered_here(method, outcome, seconds)

    def request_refused(self, reason: str) -> None:
        self.metrics.refused(reason)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
