"""Where the messages of an old HTTP+SSE session are posted: what an `endpoint` event says.

Source: MCP 2024-11-05, transports, "HTTP with SSE".
"""

from __future__ import annotations

from urllib.parse import urljoin

from mcpgroup_gateway.members.http_address import Address


def endpoint_address(stream: Address, data: bytes) -> Address:
    """The address in the data of the event, absolute or relative to that of the stream.

    Requests go there with the credentials for the stream, so it must have the same scheme, host
    and port; a userinfo of its own is not used. Raises `ValueError` with a sentence otherwise.
    """
    base = f"{stream.scheme}://{stream.host_field}{stream.target}"
    try:
        location = data.decode("ascii").strip()
        found = Address.parse(urljoin(base, location).partition("#")[0])
    except ValueError:
        raise ValueError("the member's endpoint event holds no URL") from None
    if not location:
        raise ValueError("the member's endpoint event is empty")
    if found.origin != stream.origin:
        raise ValueError(
            "the member's endpoint event names another scheme, host or port; that is refused"
        )
    return Address(found.scheme, found.host, found.port, found.target, stream.authorization)
