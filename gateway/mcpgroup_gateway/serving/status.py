"""What a replica shows of itself: `/status` and the gauges, from the same objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.telemetry.lines import rfc3339
from mcpgroup_gateway.telemetry.snapshot import ConfigSnapshot, EndpointSnapshot, GroupSnapshot
from mcpgroup_gateway.wire.envelope import MalformedMessage, parse_object, parse_string
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.manifest import Manifest
    from mcpgroup_gateway.serving.context import Context

#: Whoever asks must be able to take the whole answer: characters of a text and of a name, names
#: in a list.
_MAX_TEXT: Final = 1000
_MAX_NAME: Final = 253
_MAX_NAMES: Final = 100


@dataclass(slots=True)
class ConfigState:
    """The configuration that serves; times are Unix times, `rejected` is a sentence.

    `ignored` are paths of fields that this gateway does not know, `missing_secrets` are
    `name/key` of what the configuration refers to and cannot be read.
    """

    digest: str
    generation: int | None
    loaded_at: float
    ignored: tuple[str, ...] = ()
    rejected: str | None = None
    missing_secrets: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, loaded: Manifest, now: float) -> ConfigState:
        return cls(loaded.digest, loaded.group.metadata.generation, now, loaded.ignored)

    def take(self, loaded: Manifest, now: float) -> None:
        """Another configuration serves from now on."""
        self.digest = loaded.digest
        self.generation = loaded.group.metadata.generation
        self.loaded_at = now
        self.ignored = loaded.ignored


@dataclass(slots=True)
class FrontState:
    """Numbers of the front at one moment."""

    sessions: int
    sessions_limit: int
    streams: int
    replay_bytes: int
    listening: int
    in_flight: int
    in_flight_limit: int
    draining: bool


class StatusReport:
    """`pod` and `namespace` say whose view it is; `instance` is random for each process.

    `hide` takes secrets out of what members said.
    """

    def __init__(
        self,
        context: Context,
        *,
        instance: str,
        pod: str,
        namespace: str,
        config: ConfigState,
        front: Callable[[], FrontState],
        wall_clock: Callable[[], float],
        hide: Callable[[str], str],
    ) -> None:
        self.context = context
        self.instance = instance
        self.pod = pod
        self.namespace = namespace
        self.config = config
        self._front = front
        self._wall_clock = wall_clock
        self._hide = hide

    # -- /status -------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        group = self.context.group
        counts, front, config = group.counts(), self._front(), self.config
        return {
            "apiVersion": "mcpgroup.dev/v1alpha1",
            "kind": "GatewayStatus",
            "group": self.context.name,
            "namespace": self.namespace,
            "pod": self.pod,
            "instance": self.instance,
            "config": {
                "hash": config.digest,
                "generation": config.generation,
                "loadedAt": rfc3339(config.loaded_at),
                "rejected": self._text(config.rejected),
                "ignored": [_cut(path, _MAX_NAME) for path in config.ignored[:_MAX_NAMES]],
                "missingSecrets": config.missing_secrets[:_MAX_NAMES],
            },
            "state": group.state.value,
            "available": group.available,
            "circuit": {
                "open": group.circuit.open,
                "consecutiveFailures": group.circuit.consecutive_failures,
                "since": self._time(group.circuit.since),
            },
            "counts": {
                "total": counts.total,
                "inRotation": counts.in_rotation,
                "healthy": counts.healthy,
                "selectable": counts.selectable,
            },
            "draining": front.draining,
            "sessions": {
                "open": front.sessions,
                "owned": front.sessions,
                "replayBytes": front.replay_bytes,
                "openQuestions": len(self.context.questions),
            },
            # Of clients without a session, and of both kinds.
            "inputRequired": len(self.context.pending),
            "listening": front.listening,
            "subscriptions": len(self.context.subscriptions),
            "store": None,
            "members": [
                self._member(endpoint)
                for endpoint in group.endpoints.values()
                if not endpoint.staged
            ],
            "events": self.context.records.events.recent(),
        }

    def _member(self, endpoint: Endpoint) -> dict[str, object]:
        context, now = self.context, self.context.clock()
        supervisor = context.supervisors.get(endpoint.id)
        control = supervisor.control if supervisor is not None else None
        catalogue = context.catalogues.of(endpoint.member)
        shadowed = sorted(
            {
                report.name
                for report in context.catalogues.view(canary=endpoint.canary).shadowed
                if report.member == endpoint.member
            }
        )
        p95 = endpoint.latencies.p95(now)
        return {
            "name": endpoint.member,
            "endpoint": endpoint.id,
            "source": endpoint.source,
            "canary": endpoint.canary,
            "inRotation": endpoint.rotation.in_rotation and not endpoint.leaving,
            "state": endpoint.state.value,
            "breaker": endpoint.breaker.state(now).value,
            "consecutiveFailures": endpoint.rotation.consecutive_failures,
            "lastError": self._text(endpoint.last_error or None),
            "since": self._time(endpoint.state_since),
            "inFlight": endpoint.in_flight,
            "queued": endpoint.queued,
            "selections": endpoint.selections,
            "p95Seconds": None if p95 is None else round(p95, 6),
            "era": ("Modern" if control.handshake.modern else "Legacy") if control else None,
            "protocolVersion": control.handshake.protocol_version if control else None,
            "serverInfo": self._server_info(control.handshake.server_info) if control else None,
            "pid": control.pid if control is not None else None,
            "tools": len(catalogue.entries.get(Kind.TOOL, ())) if catalogue else None,
            "catalogueHash": catalogue.hash if catalogue else None,
            "shadowed": [_cut(name, _MAX_NAME) for name in shadowed[:_MAX_NAMES]],
        }

    # -- gauges --------------------------------------------------------------------------

    def snapshot(self) -> GroupSnapshot:
        context = self.context
        group, front, config = context.group, self._front(), self.config
        counts, now = group.counts(), context.clock()
        canary = context.policy.canary
        return GroupSnapshot(
            state=group.state,
            available=group.available,
            circuit_open=group.circuit.open,
            members=counts.total,
            members_in_rotation=counts.in_rotation,
            members_healthy=counts.healthy,
            members_selectable=counts.selectable,
            min_healthy=context.policy.min_healthy,
            endpoints=[
                EndpointSnapshot(
                    member=endpoint.member,
                    in_rotation=endpoint.rotation.in_rotation,
                    selectable=group.is_selectable(endpoint, now),
                    state=endpoint.state,
                    breaker=endpoint.breaker.state(now),
                    consecutive_failures=endpoint.rotation.consecutive_failures,
                    in_flight=endpoint.in_flight,
                    queued=endpoint.queued,
                    last_success=(
                        None
                        if endpoint.last_success_at is None
                        else self._wall(endpoint.last_success_at)
                    ),
                )
                for endpoint in group.endpoints.values()
                if not endpoint.staged and not endpoint.leaving
            ],
            requests_in_flight=front.in_flight,
            requests_in_flight_limit=front.in_flight_limit,
            sessions=front.sessions,
            sessions_limit=front.sessions_limit,
            streams_open=front.streams,
            draining=front.draining,
            config=ConfigSnapshot(
                hash=config.digest,
                generation=config.generation,
                last_reload_successful=config.rejected is None,
                last_success=config.loaded_at,
            ),
            canary_split_ratio=canary.split_percent / 100 if canary is not None else None,
        )

    def _text(self, text: str | None) -> str | None:
        """What others said, or wrote: without secrets, and bounded."""
        return None if text is None else _cut(self._hide(text), _MAX_TEXT)

    def _wall(self, monotonic: float) -> float:
        return self._wall_clock() - (self.context.clock() - monotonic)

    def _time(self, monotonic: float) -> str:
        return rfc3339(self._wall(monotonic))

    def _server_info(self, raw: bytes) -> dict[str, str]:
        """Name and version of a member; other keys are its own affair."""
        try:
            members = parse_object(raw)
        except MalformedMessage:
            return {}
        found = {key: parse_string(members.get(key)) for key in ("name", "version")}
        return {key: self._hide(value)[:200] for key, value in found.items() if value is not None}


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"
