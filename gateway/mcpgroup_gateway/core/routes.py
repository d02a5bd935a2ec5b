"""Routes: which members a kind of call may go to, in which order, and how often.

The first route that matches wins. A route matches when any of its patterns does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.filters import Patterns
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpgroup_gateway.core.policy import RoutePolicy

_KEPT_ANSWERS = 4096
_KEPT_LENGTH = 512


class _Route:
    __slots__ = ("_methods", "_names", "policy")

    def __init__(self, policy: RoutePolicy) -> None:
        self.policy = policy
        resources = Patterns(policy.resources)
        self._names = {
            Kind.TOOL: Patterns(policy.tools),
            Kind.PROMPT: Patterns(policy.prompts),
            Kind.RESOURCE: resources,
            Kind.TEMPLATE: resources,
        }
        self._methods = Patterns(policy.methods)

    def matches(self, method: str, kind: Kind | None, name: str) -> bool:
        if kind is not None and self._names[kind].match(name):
            return True
        return self._methods.match(method)


class Routes:
    """`spec.routes`, compiled."""

    def __init__(self, policies: Sequence[RoutePolicy]) -> None:
        self._routes = tuple(_Route(policy) for policy in policies)
        self._find_kept = lru_cache(maxsize=_KEPT_ANSWERS)(self._find)

    def find(self, method: str, kind: Kind | None = None, name: str = "") -> RoutePolicy | None:
        """The route of a request; `name` is the bare tool or prompt name, or the URI."""
        if not self._routes:
            return None
        if len(name) + len(method) > _KEPT_LENGTH:
            return self._find(method, kind, name)
        return self._find_kept(method, kind, name)

    def _find(self, method: str, kind: Kind | None, name: str) -> RoutePolicy | None:
        for route in self._routes:
            if route.matches(method, kind, name):
                return route.policy
        return None
