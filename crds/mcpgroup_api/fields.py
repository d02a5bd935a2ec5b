"""The kinds of values that fields of the API hold, and what is said when one does not fit.

A constraint that a regular expression can state is one of `patterns`, bounds are beside it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mcpgroup_api.patterns import (
    CIDR,
    DNS_LABEL,
    DNS_SUBDOMAIN,
    ENV_NAME,
    GROUP_NAME,
    HEADER_NAME,
    HOST,
    IMAGE,
    LABEL_KEY,
    LABEL_VALUE,
    LINES,
    LOG_FILE,
    ONE_LINE,
    ORIGIN,
    REFERENCE_KEY,
    URL,
    VARIABLE_NAME,
)

if TYPE_CHECKING:
    from pydantic.config import JsonDict


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


_URL: Final = re.compile(URL)
_URL_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+", re.ASCII)


def _check_url(url: str) -> str:
    """What `URL` says, with the reason when it does not fit: pydantic's own tells the pattern."""
    if _URL.fullmatch(url):
        return url
    if not _URL_CHARACTERS.fullmatch(url):
        raise ValueError(
            "must be an http or https URL of printable ASCII characters without a fragment"
            " (variables such as ${NAME} are not expanded)"
        )
    scheme, found, rest = url.partition("://")
    if scheme.lower() not in ("http", "https") or not found or rest[:1] in ("", "/", "?"):
        raise ValueError(
            "must be an http or https URL with a host, as in 'https://example.com/mcp'"
        )
    if "@" in re.split("[/?]", rest)[0]:
        raise ValueError(
            "must not hold credentials: give them as a header with valueFrom.secretKeyRef"
        )
    raise ValueError("must be an http or https URL with a valid host and port")


BY_NAME: Final[JsonDict] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
"""A list in which each name is there once: appliers own entries, not the list."""
SET: Final[JsonDict] = {"x-kubernetes-list-type": "set"}
"""A list in which each value is there once."""

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
Url = Annotated[
    str,
    Field(min_length=1, max_length=2048, json_schema_extra={"pattern": URL}),
    AfterValidator(_check_url),
]
Name = Annotated[str, Field(pattern=ONE_LINE, min_length=1, max_length=512)]
"""Name of a tool or prompt, URI of a resource, or an fnmatch pattern over them."""
Label = Annotated[str, Field(pattern=ONE_LINE, min_length=1, max_length=63)]
Tenant = Annotated[str, Field(pattern=ONE_LINE, min_length=1, max_length=253)]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, min_length=1, max_length=253)]
"""Key of a label or an annotation."""
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE, max_length=63)]
AnnotationValue = Annotated[str, Field(max_length=8192)]
Image = Annotated[str, Field(pattern=IMAGE, min_length=1, max_length=512)]
VariableName = Annotated[str, Field(pattern=VARIABLE_NAME, min_length=1, max_length=253)]
"""Name of a variable of a container."""
LogFile = Annotated[str, Field(pattern=LOG_FILE, min_length=1, max_length=128)]
Cidr = Annotated[str, Field(pattern=CIDR, min_length=1, max_length=64)]
Host = Annotated[str, Field(pattern=HOST, min_length=1, max_length=260)]
Origin = Annotated[str, Field(pattern=ORIGIN, min_length=1, max_length=300)]
Names = Annotated[tuple[Name, ...], Field(strict=False, max_length=256)]
FewNames = Annotated[tuple[Name, ...], Field(strict=False, max_length=64)]
"""For what there are many of: members and routes."""
Labels = Annotated[tuple[Label, ...], Field(strict=False, max_length=32)]
MemberNames = Annotated[
    tuple[MemberName, ...], Field(strict=False, max_length=16, json_schema_extra=SET)
]
