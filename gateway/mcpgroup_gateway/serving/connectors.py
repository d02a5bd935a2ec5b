"""From a member of the manifest to the connector that reaches it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.stdio import StdioConnector
from mcpgroup_gateway.members.streamable import StreamableConnector
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.secret_files import SecretError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_api import Limits, Member
    from mcpgroup_gateway.members.upstream import Connector
    from mcpgroup_gateway.secret_files import SecretFiles


def build_connector(
    member: Member, secrets: SecretFiles, limits: Limits, conceal: Callable[[str], None]
) -> Connector:
    """The connector of one member. `conceal` hears each secret value, so that no log shows it.

    Secrets are read at each new session; a missing one is a failed start with its name. Raises
    `MemberFailure` when a certificate authority cannot be used.
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

    def authority() -> bytes | None:
        if http.tls.ca_secret_ref is None:
            return None
        try:
            return secrets.read(http.tls.ca_secret_ref)
        except SecretError as fault:
            raise MemberFailure(Failure.TLS, str(fault), sent=False) from fault

    return StreamableConnector(
        member.name,
        http.url,
        fallback_urls=http.fallback_urls,
        headers=headers,
        ca_pem=authority,
        insecure_skip_verify=http.tls.insecure_skip_verify,
        connect_seconds=member.connect_timeout_seconds,
        response_limit=limits.response_bytes,
    )


def source_identity(member: Member, limits: Limits) -> str:
    """Equal for members that are the same server reached in the same way, whatever their name.

    What it covers needs a new process or connection when it changes; all else is taken over live.
    """
    source = member.stdio or member.http
    assert source is not None  # noqa: S101 - the API demands exactly one source
    exclude = {"idle_seconds"} if member.stdio is not None else set()
    described = {
        "source": source.model_dump(mode="json", exclude=exclude),
        "isolation": member.effective_isolation.value,
        "connectTimeoutSeconds": member.connect_timeout_seconds if member.http else None,
        "responseBytes": limits.response_bytes,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
