"""Regular expressions of the API, with the words for them.

What a regular expression can state is one, so that the same text is in the OpenAPI schema. They are
written for engines whose `$` matches at the very end only (Rust's in pydantic, Go's in Kubernetes)
and use nothing in which these differ: no look-around, no classes by name, no flags.
"""

from __future__ import annotations

from typing import Final

_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = rf"{_OCTET}(\.{_OCTET}){{3}}"
_HEX: Final = "[0-9A-Fa-f]{1,4}"
_IPV6: Final = (
    "("
    + "|".join(
        [
            rf"({_HEX}:){{7}}{_HEX}",
            *[rf"({_HEX}:){{1,{7 - n}}}(:{_HEX}){{1,{n}}}" for n in range(1, 7)],
            rf":((:{_HEX}){{1,7}}|:)",
            rf"({_HEX}:){{1,7}}:",
        ]
    )
    + ")"
)
"""An address of IPv6 without an IPv4 one at its end."""
_PORT: Final = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"

GROUP_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
REFERENCE_KEY: Final = r"^(\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*)$"
HEADER_NAME: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
ENV_NAME: Final = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
ONE_LINE: Final = r"^[^\x00-\x1f\x7f]*$"
LINES: Final = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
SEPARATOR: Final = r"^[_.]{1,4}$"
HOST: Final = r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$"
LABEL_KEY: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?$"
)
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$"
QUANTITY: Final = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$"
VARIABLE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
IMAGE: Final = r"^[A-Za-z0-9][-A-Za-z0-9._:/@+]*$"
LOG_FILE: Final = r"^(-|/tmp/[A-Za-z0-9][-._A-Za-z0-9]*)$"
CIDR: Final = (
    rf"^({_IPV4}/(3[0-2]|[12]?[0-9])"
    rf"|{_IPV6}/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$"
)
URL: Final = (
    rf"^[Hh][Tt][Tt][Pp][Ss]?://"
    rf"([A-Za-z0-9_]([-._A-Za-z0-9]*[A-Za-z0-9_.])?|\[({_IPV6}|::[Ff]{{4}}:{_IPV4})\])"
    rf"(:{_PORT})?([/?][\[\]A-Za-z0-9._~:/?@!$&'()*+,;=%-]*)?$"
)
ORIGIN: Final = r"^[a-z][-a-z0-9+.]*://[^\x00-\x20\x7f/?#@\\]+$"
CONFIG_HASH: Final = r"^(sha256:[0-9a-f]{64})?$"
SHARE: Final = r"^([0-9]{1,7}/[0-9]{1,7})?$"
CONDITION_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
CONDITION_REASON: Final = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"

PATTERNS: Final[dict[str, str]] = {
    GROUP_NAME: "a lower-case letter, then lower-case letters, digits and '-', not ending in '-'",
    DNS_LABEL: "lower-case letters, digits and '-', neither starting nor ending with '-'",
    DNS_SUBDOMAIN: "lower-case letters, digits, '-' and '.', as in the name of a Secret",
    REFERENCE_KEY: "letters, digits, '-', '_' and '.', as in the key of a Secret",
    HEADER_NAME: "the name of an HTTP header: letters, digits and '-', no spaces, no colon",
    ENV_NAME: "letters, digits, '_', '-' and '.', not starting with a digit",
    ONE_LINE: "text on one line without control characters",
    LINES: "text without control characters other than tab and new line",
    SEPARATOR: "one to four of '_' and '.'",
    HOST: "a host name or address, with or without a port, as in 'mcp.example.com:8080'",
    LABEL_KEY: "letters, digits, '-', '_' and '.', with or without a domain, as in 'team.dev/name'",
    LABEL_VALUE: "empty, or letters, digits, '-', '_' and '.', as in the value of a label",
    QUANTITY: "a quantity, as in 500m, 2 or 256Mi",
    VARIABLE_NAME: "letters, digits and '_', not starting with a digit",
    IMAGE: "an image, as in 'registry.example.com/mcpgroup-gateway:1.0'",
    LOG_FILE: "'-' or a file in /tmp, as in '/tmp/requests.log'",
    CIDR: "a range of addresses, as in '10.0.0.0/8'",
    URL: "an http or https URL without credentials and fragment, as in 'https://example.com/mcp'",
    ORIGIN: "an origin, scheme and host without a path, as in 'https://app.example.com'",
}
"""What each pattern allows, in words that follow "must be"."""
