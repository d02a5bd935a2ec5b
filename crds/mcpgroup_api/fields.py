"""The kinds of values that fields of the API hold, and what is said when one does not fit.

A constraint that a regular expression can state is a pattern, so that the same text can go into
an OpenAPI schema; `PATTERNS` has the words for it. Patterns are written for engines whose `$`
matches at the very end only (Rust's in pydantic, Go's in Kubernetes).
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Base of every object of the API: camelCase on the wire, immutable, closed, no coercion."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=False,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
    )


GROUP_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
_GROUP: Final = "[0-9A-Fa-f]{1,4}"
IPV6: Final = (
    "("
    + "|".join(
        [
            rf"({_GROUP}:){{7}}{_GROUP}",
            *[rf"({_GROUP}:){{1,{7 - n}}}(:{_GROUP}){{1,{n}}}" for n in range(1, 7)],
            rf":((:{_GROUP}){{1,7}}|:)",
            rf"({_GROUP}:){{1,7}}:",
        ]
    )
    + ")"
)
"""An address of IPv6 without an IPv4 one at its end."""
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
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
CIDR: Final = (
    rf"^({_OCTET}(\.{_OCTET}){{3}}/(3[0-2]|[12]?[0-9])"
    rf"|{IPV6}/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$"
)
ORIGIN: Final = r"^[a-z][-a-z0-9+.]*://[^\x00-\x20\x7f/?#@\\]+$"

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
    ORIGIN: "an origin, scheme and host without a path, as in 'https://app.example.com'",
}
"""What each pattern allows, in words that follow "must be"."""

_URL_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+", re.ASCII)


def _check_url(url: str) -> str:
    """An absolute http or https URL; credentials belong into headers from a Secret."""
    if not _URL_CHARACTERS.fullmatch(url):
        raise ValueError(
            "must be an http or https URL of printable ASCII characters without a fragment"
            " (variables such as ${NAME} are not expanded)"
        )
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number up to 65535
    except ValueError:
        raise ValueError("must be an http or https URL with a valid host and port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            "must be an http or https URL with a host, as in 'https://example.com/mcp'"
        )
    if "@" in parts.netloc:
        raise ValueError(
            "must not hold credentials: give them as a header with valueFrom.secretKeyRef"
        )
    return url


GroupName = Annotated[str, Field(pattern=GROUP_NAME, min_length=1, max_length=40)]
MemberName = Annotated[str, Field(pattern=DNS_LABEL, min_length=1, max_length=20)]
Namespace = Annotated[str, Field(pattern=DNS_LABEL, min_length=1, max_length=63)]
SecretName = Annotated[str, Field(pattern=DNS_SUBDOMAIN, min_length=1, max_length=253)]
SecretKey = Annotated[str, Field(pattern=REFERENCE_KEY, min_length=1, max_length=253)]
HeaderName = Annotated[str, Field(pattern=HEADER_NAME, min_length=1, max_length=128)]
HeaderValue = Annotated[str, Field(pattern=ONE_LINE, max_length=8192)]
EnvName = Annotated[str, Field(pattern=ENV_NAME, min_length=1, max_length=253)]
EnvValue = Annotated[str, Field(pattern=LINES, max_length=32768)]
Argument = Annotated[str, Field(pattern=LINES, max_length=4096)]
Path = Annotated[str, Field(pattern=ONE_LINE, min_length=1, max_length=4096)]
Url = Annotated[str, Field(min_length=1, max_length=2048), AfterValidator(_check_url)]
Name = Annotated[str, Field(pattern=ONE_LINE, min_length=1, max_length=512)]
"""Name of a tool or prompt, URI of a resource, or an fnmatch pattern over them."""
Label = Annotated[str, Field(pattern=ONE_LINE, min_length=1, max_length=63)]
Tenant = Annotated[str, Field(pattern=ONE_LINE, min_length=1, max_length=253)]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, min_length=1, max_length=253)]
"""Key of a label or an annotation."""
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE, max_length=63)]
AnnotationValue = Annotated[str, Field(max_length=8192)]
Host = Annotated[str, Field(pattern=HOST, min_length=1, max_length=260)]
Origin = Annotated[str, Field(pattern=ORIGIN, min_length=1, max_length=300)]
Names = Annotated[tuple[Name, ...], Field(strict=False, max_length=256)]
Labels = Annotated[tuple[Label, ...], Field(strict=False, max_length=32)]
MemberNames = Annotated[tuple[MemberName, ...], Field(strict=False, max_length=16)]
