"""An entry of `spec.members`: one MCP server, where it is and how it may be used."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from mcpgroup_api import rules
from mcpgroup_api.fields import (
    BY_NAME,
    SET,
    Argument,
    EnvName,
    EnvValue,
    FewNames,
    HeaderName,
    HeaderValue,
    Label,
    Labels,
    MemberName,
    Model,
    Names,
    Path,
    SecretKey,
    SecretName,
    Url,
)


class Isolation(StrEnum):
    """Who shares an upstream session."""

    PER_SESSION = "PerSession"
    SHARED = "Shared"


class Transport(StrEnum):
    """How a member at a URL is spoken to."""

    AUTO = "Auto"
    STREAMABLE_HTTP = "StreamableHttp"
    SSE = "Sse"


class Era(StrEnum):
    """Which revisions of MCP a member is spoken to in."""

    AUTO = "Auto"
    LEGACY = "Legacy"
    MODERN = "Modern"


class SecretKeyRef(Model):
    """One key of a Secret; locally the file `<name>/<key>` under `--secrets`."""

    name: SecretName
    """Name of the Secret."""
    key: SecretKey
    """Key in the Secret."""


class ValueSource(Model):
    """Where a value comes from when it is not written in the manifest."""

    secret_key_ref: SecretKeyRef
    """The key of a Secret that holds the value."""


class Header(Model):
    """A header sent with every request to the member."""

    name: HeaderName
    """Name of the header, unique in the list without regard to case."""
    value: HeaderValue | None = None
    """The value itself; visible to everyone who may read the group."""
    value_from: ValueSource | None = None
    """The Secret that holds the value."""

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        return rules.check(self, rules.one_value)


class EnvVariable(Model):
    """A variable in the environment of the member's process."""

    name: EnvName
    """Name of the variable, unique in the list."""
    value: EnvValue | None = None
    """The value itself; visible to everyone who may read the group. Nothing in it is expanded."""
    value_from: ValueSource | None = None
    """The Secret that holds the value."""

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        return rules.check(self, rules.one_value)


class Tls(Model):
    """How the member's certificate is checked."""

    ca_secret_ref: SecretKeyRef | None = None
    """Certificates in PEM that are trusted instead of the system's."""
    insecure_skip_verify: bool = False
    """Accept any certificate. For trials only: anyone on the way can read and change calls."""


class HttpSource(Model):
    """A server that speaks streamable HTTP, or the older HTTP+SSE transport, at a URL."""

    url: Url
    """Where the server answers, as in `https://example.com/mcp`."""
    fallback_urls: Annotated[tuple[Url, ...], Field(strict=False, max_length=8)] = ()
    """Tried in this order for new sessions when `url` cannot be reached."""
    headers: Annotated[
        tuple[Header, ...], Field(strict=False, max_length=32, json_schema_extra=BY_NAME)
    ] = ()
    """Headers sent with every request, for example `Authorization`."""
    forward_headers: Annotated[
        tuple[HeaderName, ...], Field(strict=False, max_length=16, json_schema_extra=SET)
    ] = ()
    """Headers of the client's request that are passed on to the server. Never credentials, which
    are set with `headers`; the trace context (`traceparent`) is passed on anyway."""
    tls: Tls = Tls()
    """How the server's certificate is checked."""


class StdioSource(Model):
    """A server that is a child process of the gateway and speaks over its pipes."""

    command: Annotated[tuple[Argument, ...], Field(strict=False, min_length=1, max_length=128)]
    """Program and arguments. No shell reads them, and nothing in them is expanded."""
    env: Annotated[
        tuple[EnvVariable, ...], Field(strict=False, max_length=64, json_schema_extra=BY_NAME)
    ] = ()
    """Variables added to the small environment that the process gets."""
    working_dir: Path | None = None
    """Where the process starts; the gateway's own folder when absent."""
    idle_seconds: Annotated[int, Field(ge=0, le=86400)] = 0
    """The process is stopped after so long without a call and started by the next; 0: never."""
    memory_limit_mib: Annotated[int, Field(ge=0, le=1048576, alias="memoryLimitMiB")] = 0
    """Private writable memory that each of its processes may take, in MiB; 0: no limit."""


class Provides(Model):
    """Hints of what a member offers, used until it was first reached."""

    tools: FewNames = ()
    """Names of tools."""
    resources: FewNames = ()
    """URIs of resources."""
    prompts: FewNames = ()
    """Names of prompts."""


class NameFilter(Model):
    """What may be seen and used. `deny` wins; an empty `allow` allows everything."""

    allow: Names = ()
    """Patterns (fnmatch) of what is allowed."""
    deny: Names = ()
    """Patterns (fnmatch) of what is hidden."""


class MemberFilter(NameFilter):
    """What of one member may be seen and used."""

    allow: FewNames = ()
    """Patterns (fnmatch) of what is allowed."""
    deny: FewNames = ()
    """Patterns (fnmatch) of what is hidden."""


class Member(Model):
    """One MCP server of the group. Exactly one of `http` and `stdio` says where it is."""

    name: MemberName
    """Unique in the group: a DNS label of at most 20 characters."""
    weight: Annotated[int, Field(ge=1, le=100)] = 1
    """Share of the calls under the strategies WeightedRoundRobin and Random."""
    priority: Annotated[int, Field(ge=1, le=100)] = 1
    """The lowest number is preferred under the strategy Priority."""
    http: HttpSource | None = None
    """A server at a URL."""
    stdio: StdioSource | None = None
    """A server that is a process beside the gateway."""
    transport: Annotated[Transport, Field(strict=False)] = Transport.AUTO
    """What is spoken at the URLs of `http`. Auto finds out for each URL; Sse is the HTTP+SSE
    transport of MCP 2024-11-05, whose URL often ends in `/sse`."""
    isolation: Annotated[Isolation | None, Field(strict=False)] = None
    """PerSession: one upstream session (or process) for each client session. Shared: one for
    all. Default Shared for `stdio`, PerSession otherwise."""
    era: Annotated[Era, Field(strict=False)] = Era.AUTO
    """Legacy: with `initialize` and sessions, up to 2025-11-25. Modern: without, from 2026-07-28.
    Auto asks the server when it starts."""
    region: Label | None = None
    """Where the server is, compared with `locality.region`."""
    resource_tags: Labels = ()
    """What the server has that a route may require, for example `gpu`."""
    provides: Provides = Provides()
    """Hints of what the server offers, used until it was first reached."""
    tools: MemberFilter = MemberFilter()
    """Tools of this member that may be seen and called."""
    resources: MemberFilter = MemberFilter()
    """Resources of this member, by URI, that may be seen and read."""
    prompts: MemberFilter = MemberFilter()
    """Prompts of this member that may be seen and got."""
    max_concurrent_requests: Annotated[int, Field(ge=0, le=10000)] = 0
    """Calls that may be in flight on this member at once, a replica; 0: no limit."""
    connect_timeout_seconds: Annotated[int, Field(ge=1, le=60)] = 2
    """How long a connection may take."""
    call_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 50
    """A call ends when the member sent neither answer nor progress for so long."""
    max_call_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """A call ends after so long in all, with or without progress."""

    @model_validator(mode="after")
    def _member_rules(self) -> Self:
        return rules.check(self, rules.member)

    @property
    def effective_isolation(self) -> Isolation:
        """What is written, else the default of the member's source."""
        if self.isolation is not None:
            return self.isolation
        return Isolation.SHARED if self.stdio is not None else Isolation.PER_SESSION
