"""The one place that composes core, members, serving, front and admin."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from mcpgroup_gateway.admin.app import build_admin
from mcpgroup_gateway.core.group import Group
from mcpgroup_gateway.core.retries import Retries
from mcpgroup_gateway.core.routes import Routes
from mcpgroup_gateway.core.selection import Selector
from mcpgroup_gateway.front.checks import is_loopback
from mcpgroup_gateway.front.front import Front
from mcpgroup_gateway.front.settings import FrontSettings
from mcpgroup_gateway.operations import Operations
from mcpgroup_gateway.replica.admin_token import AdminToken
from mcpgroup_gateway.replica.draining import drain
from mcpgroup_gateway.replica.recording import Recording
from mcpgroup_gateway.replica.upkeep import Upkeep
from mcpgroup_gateway.secret_files import SecretFiles
from mcpgroup_gateway.serving.catalogues import EVERYBODY, Audience, Catalogues
from mcpgroup_gateway.serving.connectors import build_connector
from mcpgroup_gateway.serving.context import Context
from mcpgroup_gateway.serving.policies import group_policy
from mcpgroup_gateway.serving.reload import Reload
from mcpgroup_gateway.serving.rollout import Rollout
from mcpgroup_gateway.serving.roster import Roster, is_awaited
from mcpgroup_gateway.serving.secret_watch import SecretWatch
from mcpgroup_gateway.serving.service import GroupService
from mcpgroup_gateway.serving.sessions import SessionTable
from mcpgroup_gateway.serving.status import ConfigState, FrontState, StatusReport
from mcpgroup_gateway.serving.upstream_messages import UpstreamMessages
from mcpgroup_gateway.serving.upstreams import UpstreamSessions
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from mcpgroup_api import Limits, McpServerGroup, Member
    from mcpgroup_gateway.core.events import Event
    from mcpgroup_gateway.manifest import Manifest
    from mcpgroup_gateway.members.upstream import Connector
    from mcpgroup_gateway.replica.options import RunOptions
    from mcpgroup_gateway.serving.sessions import Session

#: How long answers of the admin port may take at the end.
_ADMIN_SECONDS = 2.0


class Replica:
    """Everything one process of the gateway consists of; also what the admin port may ask."""

    def __init__(self, options: RunOptions, loaded: Manifest) -> None:
        self.options = options
        self.instance = secrets.token_hex(8)
        self.url = ""
        self.admin_url = ""
        self._started = False
        self._admin: web.AppRunner | None = None
        group = loaded.group
        spec = group.spec
        recording = self._recording = Recording(group.metadata.name, self.instance, options)
        self.admin_token = AdminToken(options.keys_dir, recording.redactor.register)
        self.metrics, self.records = recording.metrics, recording.records
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
                # Made later, of the context that they are a part of.
                opened=lambda *heard: self._upstream_messages.opened(*heard),
                message=lambda *heard: self._upstream_messages.heard(*heard),
                requested=lambda *heard: self._upstream_messages.asked(*heard),
                lost=lambda *heard: self._upstream_messages.lost(*heard),
            ),
            records=self.records,
            clock=clock,
            log_levels=lambda: self.service.asked_levels(),
        )
        self._secrets = SecretFiles(options.secrets_dir)
        self.roster = Roster(self.context, self._connect)
        self.service = GroupService(self.context, self.sessions, spec.description)
        self._upstream_messages = UpstreamMessages(self.context, self.sessions)
        self.front = Front(
            self.service, self.sessions, self._front_settings(group), self, clock=clock
        )
        self._config = ConfigState.of(loaded, time.time())
        self.report = StatusReport(
            self.context,
            instance=self.instance,
            pod=os.environ.get("POD_NAME") or socket.gethostname(),
            namespace=os.environ.get("POD_NAMESPACE") or group.metadata.namespace or "",
            config=self._config,
            front=self._front_state,
            wall_clock=time.time,
            hide=recording.redactor.text,
        )
        self.rollout = Rollout(
            self.context,
            self.roster,
            group,
            fingerprint=self._secrets.fingerprint,
            applied=self._applied,
        )
        self.reload = Reload(
            options.manifest_path,
            self.rollout,
            SecretWatch(self._secrets, self.context, self._config, self.rollout),
            self._config,
            self.records,
            rendered=options.ignore_unknown_keys,
        )
        self._upkeep = Upkeep(self.context, self.metrics)

    # -- life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen and start the members; the listener never waits for them. Raises `OSError`."""
        self.admin_token.prepare()
        self.rollout.start()
        self.metrics.bind(self.report.snapshot)
        port = await self.front.start()
        app = build_admin(
            Operations(
                self.context,
                self.report,
                is_started=lambda: self._started,
                is_ready=lambda: self._upkeep.was_ready and not self.service.draining,
            ),
            self.metrics,
            token=self.admin_token,
            loopback_only=is_loopback(self.options.admin_host),
        )
        self._admin = web.AppRunner(app, access_log=None, shutdown_timeout=_ADMIN_SECONDS)
        await self._admin.setup()
        site = web.TCPSite(self._admin, self.options.admin_host, self.options.admin_port)
        await site.start()
        self.url = f"http://{_authority(self.options.host, port)}/mcp"
        self.admin_url = f"http://{_authority(self.options.admin_host, site.port)}/"
        self._started = True
        self.reload.tell_ignored()
        self._upkeep.start(starts_members=lambda: self.rollout.group.spec.start_members)
        self.reload.start()

    async def drain(self) -> None:
        """After SIGTERM: serve what comes, end what runs, then return."""
        self.reload.stop()
        self.records.events.config(to="draining")
        await drain(self.front, self.service, self.rollout.group.spec.drain.timeout_seconds)

    async def close(self) -> None:
        """Stop everything, each part whatever became of the one before: no process may stay."""
        async with AsyncExitStack() as stack:  # the last one first
            stack.callback(self._recording.close)
            if self._admin is not None:
                stack.push_async_callback(self._admin.cleanup)
            stack.push_async_callback(self._close_members)
            stack.push_async_callback(self.service.close)
            stack.push_async_callback(self.front.close)
            stack.push_async_callback(self.reload.close)
            stack.push_async_callback(self._upkeep.close)

    async def _close_members(self) -> None:
        """All of them at once: a process may take seconds to end."""
        await asyncio.gather(
            self.context.upstreams.close(), self.roster.close(), return_exceptions=True
        )

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
            loopback=is_loopback(self.options.host),
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
            draining=self.service.draining,
        )

    def _connect(self, member: Member, limits: Limits) -> Connector:
        return build_connector(member, self._secrets, limits, self._recording.redactor.register)

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

    # -- front's observer ----------------------------------------------------------------

    def request_answered(self, method: str, outcome: str, seconds: float) -> None:
        self.records.answered_here(method, outcome, seconds)

    def request_refused(self, reason: str) -> None:
        self.metrics.refused(reason)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
