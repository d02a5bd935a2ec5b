"""From a client request to its target: what it names, and who may serve that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.policy import RoutePolicy
from mcpgroup_gateway.core.selection import CallFacts
from mcpgroup_gateway.serving.links import Links
from mcpgroup_gateway.serving.targets import (
    NO_COMPLETION,
    NOT_HERE,
    NOT_KNOWN,
    Parameters,
    Target,
    target_of_method,
    target_of_name,
)
from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    MalformedMessage,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import (
    CALL_METHODS,
    INPUT_REQUIRED_METHODS,
    READ_METHODS,
    RESOURCE_NOT_FOUND,
    Kind,
)
from mcpgroup_gateway.wire.refusals import NoMember, Unknown

if TYPE_CHECKING:
    from mcpgroup_gateway.core.catalogue import Resolution
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.wire.envelope import Message


class Aiming:
    """Finds targets in the catalogue of the moment; remembers who linked to which resource."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.links = Links()

    async def target(self, message: Message, caller: Caller) -> Target:
        """What the request aims at. Raises `GatewayError` or `MalformedMessage`."""
        method = message.method or ""
        may_return = caller.modern and method in INPUT_REQUIRED_METHODS
        parameters = Parameters.read(message.params, may_return=may_return)
        if method == "tools/call":
            return await self._named(Kind.TOOL, method, parameters, caller)
        if method == "prompts/get":
            return await self._named(Kind.PROMPT, method, parameters, caller)
        if method == "resources/read":
            return await self._resource(parameters, caller)
        if method == "completion/complete":
            return self._completion(parameters, caller)
        facts = self._facts(method, None, "", None, caller)
        if facts.route is None:
            facts.route = RoutePolicy(members=self._context.policy.members)
        target = target_of_method(method, parameters, facts)
        target.moves_on_at = NOT_KNOWN
        return target

    async def _named(
        self, kind: Kind, method: str, parameters: Parameters, caller: Caller
    ) -> Target:
        name = parameters.string("name")
        resolution = self._context.view(caller).resolve(kind, name)
        if resolution is None:
            await self._context.client_lists.ensure(caller)
            resolution = self._context.view(caller).resolve(kind, name)
        if resolution is None:
            resolution, missing = await self._when_known(kind, name, caller)
            if missing:
                raise NoMember(
                    "starting",
                    f"{name} is not known yet: no catalogue of {', '.join(missing)}",
                    retryable=True,
                    retry_after=1.0,
                )
            if resolution is None:
                word = "tool" if kind is Kind.TOOL else "prompt"
                raise Unknown(f"Unknown {word}: {name[:200]}")
        facts = self._facts(method, kind, resolution.name, resolution, caller)
        target = target_of_name(kind, resolution, parameters, facts)
        if kind is Kind.TOOL:
            self._remember_links(target, caller)
        return target

    async def _resource(self, parameters: Parameters, caller: Caller) -> Target:
        uri = parameters.string("uri")
        view = self._context.view(caller)
        resolution = view.resolve(Kind.RESOURCE, uri)
        linked = self._linked(caller, uri)
        if linked not in view.resource_fallback(uri):  # what filters hide stays unknown
            linked = None
        members: tuple[str, ...]
        if resolution is None and linked is None:
            resolution, _ = await self._when_known(Kind.RESOURCE, uri, caller)
        if resolution is not None:
            members = resolution.members
        elif linked is not None:
            members = (linked,)
        else:
            members = self._context.view(caller).resource_fallback(uri)
            if not members:
                raise Unknown(f"Resource not found: {uri[:200]}", code=RESOURCE_NOT_FOUND)
        facts = self._facts("resources/read", Kind.RESOURCE, uri, None, caller)
        facts.members = frozenset(members)
        target = target_of_method("resources/read", parameters, facts)
        if resolution is None and linked is None:
            target.moves_on_at = NOT_HERE
            if facts.route is None:
                facts.route = RoutePolicy(members=members)
        return target

    def followed_at(self, uri: str, caller: Caller) -> tuple[tuple[str, ...], bool]:
        """The members at which a caller can follow a resource, and whether any of them is known
        to have it; else they are to be asked in this order. Raises `GatewayError`."""
        view = self._context.view(caller)
        resolution = view.resolve(Kind.RESOURCE, uri)
        linked = self._linked(caller, uri)
        fallback = view.resource_fallback(uri)
        if resolution is not None:
            members = resolution.members
        elif linked in fallback:
            members = (linked,)
        else:
            members = fallback
        able = tuple(name for name in members if name in view.subscribable)
        if not able:
            raise Unknown(f"Resource cannot be subscribed to: {uri[:200]}")
        return able, members is not fallback

    async def _when_known(
        self, kind: Kind, name: str, caller: Caller
    ) -> tuple[Resolution | None, list[str]]:
        """Look again as long as members without a catalogue may still offer the name.

        The second value is not empty when the time for that is over: it names those members.
        """
        context = self._context
        clock = asyncio.get_running_loop().time
        end = clock() + context.policy.health.startup_timeout_seconds
        while missing := context.catalogues.missing():
            context.want(missing)
            if not await context.catalogues.wait(max(0.0, end - clock())):
                return None, missing
            resolution = context.view(caller).resolve(kind, name)
            if resolution is not None:
                return resolution, []
        return None, []

    def _completion(self, parameters: Parameters, caller: Caller) -> Target:
        reference = parse_object(parameters.members.get("ref", b""))
        kind_of_reference = parse_string(reference.get("type"))
        if kind_of_reference == "ref/prompt":
            kind, name = Kind.PROMPT, parse_string(reference.get("name"))
        elif kind_of_reference == "ref/resource":
            kind, name = Kind.TEMPLATE, parse_string(reference.get("uri"))
        else:
            raise MalformedMessage(INVALID_PARAMS, '"ref" must name a prompt or a resource')
        if name is None:
            raise MalformedMessage(INVALID_PARAMS, '"ref" has no name')
        view = self._context.view(caller)
        resolution = view.resolve(kind, name)
        if resolution is None and kind is Kind.TEMPLATE:
            resolution = view.resolve(Kind.RESOURCE, name)
        able = frozenset(view.with_capability("completions"))
        members = able.intersection(resolution.members) if resolution is not None else frozenset()
        facts = self._facts("completion/complete", kind, name, None, caller)
        facts.members = members
        if resolution is not None:
            facts.pinned = resolution.pinned
            if kind is Kind.PROMPT and resolution.name != name:
                parameters = parameters.with_reference(resolution.name)
        target = target_of_method("completion/complete", parameters, facts)
        if not members:
            target.result = NO_COMPLETION
        return target

    def _facts(
        self,
        method: str,
        kind: Kind | None,
        name: str,
        resolution: Resolution | None,
        caller: Caller,
    ) -> CallFacts:
        is_read = method in READ_METHODS or (method in CALL_METHODS and kind is not Kind.TOOL)
        return CallFacts(
            kind=kind,
            name=name,
            members=resolution.members if resolution is not None else None,
            safe_on=(
                self._context.policy.members
                if is_read
                else resolution.safe_on
                if resolution is not None
                else frozenset()
            ),
            pinned=resolution.pinned if resolution is not None else None,
            tenant=caller.tenant,
            hash_key=self._hash_key(caller),
            route=self._context.routes.find(method, kind, name),
        )

    def _hash_key(self, caller: Caller) -> bytes:
        if self._context.policy.strategy != "ConsistentHash":
            return b""
        key = self._context.policy.hashing.key
        if key == "Tenant":
            value = caller.tenant or ""
        elif key == "Header":
            value = caller.headers.get(self._context.policy.hashing.header or "", "")
        elif key == "Session" and caller.session is not None:
            value = caller.session.id
        else:
            value = caller.remote
        return value.encode("utf-8", "surrogateescape")

    # -- links to resources --------------------------------------------------------------

    def _remember_links(self, target: Target, caller: Caller) -> None:
        session = caller.session
        if session is None:
            return

        def linked(endpoint: Endpoint, uris: list[str]) -> None:
            if not session.closed:
                self.links.put(session.id, uris, endpoint.member)

        target.linked = linked

    def _linked(self, caller: Caller, uri: str) -> str | None:
        if caller.session is None:
            return None
        member = self.links.member(caller.session.id, uri)
        return member if member in self._context.policy.members else None
