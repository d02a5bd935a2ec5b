"""Names and numbers of the Model Context Protocol that the gateway acts on.

Source: MCP specification, revisions 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

#: The newest revision with `initialize`.
LATEST_VERSION: Final = "2025-11-25"
#: Revisions without sessions, newest first: each request says all there is to know.
MODERN_VERSIONS: Final = ("2026-07-28",)
#: Revisions with `initialize` and sessions, newest first; what a client may negotiate.
LEGACY_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
#: What a member may answer; 2024-11-05 servers are reached over stdio and streamable HTTP too.
MEMBER_VERSIONS: Final = (*LEGACY_VERSIONS, "2024-11-05")
#: Assumed when a client sends no `MCP-Protocol-Version` (streamable HTTP, 2025-06-18).
ASSUMED_VERSION: Final = "2025-03-26"

SESSION_HEADER: Final = "Mcp-Session-Id"
VERSION_HEADER: Final = "MCP-Protocol-Version"
#: What modern requests repeat of their body, for intermediaries.
METHOD_HEADER: Final = "Mcp-Method"
NAME_HEADER: Final = "Mcp-Name"
#: The methods with an `Mcp-Name`, and the member of their params that it repeats.
NAMED_METHODS: Final[dict[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}
DISCOVER: Final = "server/discover"
LISTEN: Final = "subscriptions/listen"

#: Error codes of the legacy revisions alone.
RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042
#: Error codes of 2026-07-28.
HEADER_MISMATCH: Final = -32020
MISSING_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

#: Keys of `_meta` with which a modern request says what `initialize` used to say.
VERSION_KEY: Final = b"io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY: Final = b"io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY: Final = b"io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = b"io.modelcontextprotocol/logLevel"
#: Keys of `_meta` that the server writes.
SERVER_INFO_KEY: Final = b"io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY: Final = b"io.modelcontextprotocol/subscriptionId"


class Kind(StrEnum):
    """What a member offers under a name or URI."""

    TOOL = "tools"
    PROMPT = "prompts"
    RESOURCE = "resources"
    TEMPLATE = "resourceTemplates"


#: Method of a list request, the kind it lists.
LIST_METHODS: Final[dict[str, Kind]] = {
    "tools/list": Kind.TOOL,
    "prompts/list": Kind.PROMPT,
    "resources/list": Kind.RESOURCE,
    "resources/templates/list": Kind.TEMPLATE,
}
LIST_METHOD_OF: Final[dict[Kind, str]] = {kind: method for method, kind in LIST_METHODS.items()}
#: The capability that a member declares for a kind.
CAPABILITY_OF: Final[dict[Kind, str]] = {
    Kind.TOOL: "tools",
    Kind.PROMPT: "prompts",
    Kind.RESOURCE: "resources",
    Kind.TEMPLATE: "resources",
}

CALL_METHODS: Final = ("tools/call", "prompts/get", "resources/read", "completion/complete")
#: Requests that may run twice whatever they name (DESIGN-MCP section 5).
READ_METHODS: Final = frozenset(
    {"ping", "prompts/get", "resources/read", "completion/complete", *LIST_METHODS}
)
#: Methods whose results a modern client may keep (MCP 2026-07-28, caching).
CACHEABLE_METHODS: Final = frozenset({DISCOVER, "resources/read", *LIST_METHODS})
#: Methods that a modern server may answer by asking its client first.
INPUT_REQUIRED_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
#: What a member may ask of a client, and the capability that a client declares for it.
CLIENT_METHODS: Final[dict[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
#: The methods that metrics name; every other one is `_other`.
KNOWN_METHODS: Final = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        DISCOVER,
        LISTEN,
        *LIST_METHODS,
        *CALL_METHODS,
    }
)

#: RFC 5424 severities as MCP names them, least severe first.
LOG_LEVELS: Final = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
