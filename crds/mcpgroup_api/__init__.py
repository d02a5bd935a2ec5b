"""The API `mcpgroup.dev/v1alpha1`: models of the kind `McpServerGroup`, defaults, validation.

`McpServerGroup.model_validate(data)` takes plain data as a YAML or JSON parser gives it and raises
`pydantic.ValidationError`; rules over several fields come as one error of type `rules.RULES`.
`warnings(group)` has what is allowed and still probably a mistake.
"""

from mcpgroup_api.advice import Advice, warnings
from mcpgroup_api.fields import PATTERNS, Model
from mcpgroup_api.group import API_VERSION, KIND, McpServerGroup, McpServerGroupSpec, Metadata
from mcpgroup_api.members import (
    EnvVariable,
    Era,
    Header,
    HttpSource,
    Isolation,
    Member,
    NameFilter,
    Provides,
    SecretKeyRef,
    StdioSource,
    Tls,
    Transport,
    ValueSource,
)
from mcpgroup_api.policies import (
    Canary,
    CircuitBreaker,
    ConsistentHash,
    Drain,
    HashKey,
    Health,
    Limits,
    Locality,
    LocalityMode,
    MemberBreaker,
    Naming,
    PrefixMode,
    Recovery,
    Retry,
    Route,
    RouteMatch,
    Sessions,
    Strategy,
    TenantSource,
)
from mcpgroup_api.rules import OWN_HEADERS, RULES, Violation

__all__ = [
    "API_VERSION",
    "KIND",
    "OWN_HEADERS",
    "PATTERNS",
    "RULES",
    "Advice",
    "Canary",
    "CircuitBreaker",
    "ConsistentHash",
    "Drain",
    "EnvVariable",
    "Era",
    "HashKey",
    "Header",
    "Health",
    "HttpSource",
    "Isolation",
    "Limits",
    "Locality",
    "LocalityMode",
    "McpServerGroup",
    "McpServerGroupSpec",
    "Member",
    "MemberBreaker",
    "Metadata",
    "Model",
    "NameFilter",
    "Naming",
    "PrefixMode",
    "Provides",
    "Recovery",
    "Retry",
    "Route",
    "RouteMatch",
    "SecretKeyRef",
    "Sessions",
    "StdioSource",
    "Strategy",
    "TenantSource",
    "Tls",
    "Transport",
    "ValueSource",
    "Violation",
    "warnings",
]
