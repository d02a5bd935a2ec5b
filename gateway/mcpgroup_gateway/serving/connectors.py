"""From a member of the manifest to the connector that reaches it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from mcpgroup_api import Transport
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_reach import HttpReach
from mcpgroup_gateway.members.negotiation import Era
from mcpgroup_gateway.members.sse_connector import SseConnector
from mcpgroup_gateway.members.stdio import MAX_LINE_BYTES, StdioConnector
from mcpgroup_gateway.members.streamable import StreamableConnector
from mcpgroup_gateway.members.transport_choice import TransportChoice, UrlTransports
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.secret_files import SecretError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcpgroup_api import Limits, Member
    from mcpgroup_gateway.members.upstream import Connector, Opening, Upstream
    from mcpgroup_gateway.secret_files import SecretFiles


def build_connector(
    member: Member, secrets: SecretFiles, limits: Limits, conceal: Callable[[str], None]
) -> Connector:
    """The connector of one member. `conceal` hears each secret value, so that no log shows it.

    Secrets are read at each new session; a missing one is a failed start with its name.
    """
    if member.stdio is not None:
        stdio = member.stdio

        def environment() -> dict[str, str]:
            try:
                values = {variable.name: secrets.env(variable) for variable in stdio.env}
            except SecretError as fault:
                raise MemberFailure(Failure.START_FAILED, str(fault), sent=False) from fault
            for variable in stdio.env:
                if variable.value_from is not None:
                    conceal(values[variable.name])
            return values

        return StdioConnector(
            member.name,
            stdio.command,
            env=environment,
            working_dir=stdio.working_dir,
            memory_limit_mib=stdio.memory_limit_mib,
            max_line_bytes=min(limits.response_bytes, MAX_LINE_BYTES),
            era=Era(member.era),
        )
    assert member.http is not None  # noqa: S101 - the API demands exactly one source
    http = member.http

    def headers() -> list[tuple[str, str]]:
        try:
            values = [(header.name, secrets.header(header)) for header in http.headers]
        except SecretError as fault:
            raise MemberFailure(Failure.START_FAILED, str(fault), sent=False) from fault
        for header, (_, value) in zip(http.headers, values, strict=True):
            if header.value_from is not None:
                conceal(value)
        return values

    def connector(authority: bytes | None) -> Connector:
        def reach(urls: Sequence[str]) -> HttpReach:
            return HttpReach(
                member.name,
                urls[0],
                fallback_urls=urls[1:],
                headers=headers,
                ca_pem=authority,
                insecure_skip_verify=http.tls.insecure_skip_verify,
                connect_seconds=member.connect_timeout_seconds,
                response_limit=limits.response_bytes,
            )

        return _over_http(member, (http.url, *http.fallback_urls), reach)

    reference = http.tls.ca_secret_ref
    if reference is None:
        return connector(None)
    return _WithAuthority(connector, lambda: secrets.read(reference))


def _over_http(
    member: Member, urls: Sequence[str], reach: Callable[[Sequence[str]], HttpReach]
) -> Connector:
    era = Era(member.era)
    if member.transport is Transport.SSE:
        return SseConnector(reach(urls))
    if member.transport is Transport.STREAMABLE_HTTP or era is Era.MODERN:
        return StreamableConnector(reach(urls), era)
    return TransportChoice(
        [
            UrlTransports(StreamableConnector(reach([url]), era), SseConnector(reach([url])))
            for url in urls
        ]
    )


class _WithAuthority:
    """A connector whose authority (CA) comes from a Secret, which may change or be missing."""

    def __init__(
        self, connector: Callable[[bytes | None], Connector], read: Callable[[], bytes]
    ) -> None:
        self._connector = connector
        self._read = read
        self._authority: bytes | None = None
        self._connectors: list[Connector] = []

    async def open(self, opening: Opening, deadline: float) -> Upstream:
        try:
            authority = self._read()
            if authority != self._authority:
                self._connectors.append(self._connector(authority))
                self._authority = authority
        except (SecretError, ValueError) as fault:
            raise MemberFailure(Failure.TLS, str(fault), sent=False) from fault
        return await self._connectors[-1].open(opening, deadline)

    async def close(self) -> None:
        for connector in self._connectors:
            await connector.close()


def source_identity(member: Member, limits: Limits) -> str:
    """Equal for members that are the same server reached in the same way, whatever their name.

    What it covers needs a new process or connection when it changes; all else is taken over live.
    """
    source = member.stdio or member.http
    assert source is not None  # noqa: S101 - the API demands exactly one source
    exclude = {"idle_seconds"} if member.stdio is not None else {"forward_headers"}
    described = {
        "source": source.model_dump(mode="json", exclude=exclude),
        "transport": member.transport.value,
        "isolation": member.effective_isolation.value,
        "era": member.era.value,
        "connectTimeoutSeconds": member.connect_timeout_seconds if member.http else None,
        "responseBytes": limits.response_bytes,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
