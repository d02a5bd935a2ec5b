"""From the manifest to what the core is told: the one place that knows both vocabularies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.core.policy import (
    BreakerPolicy,
    CanaryPolicy,
    EndpointPolicy,
    FilterPolicy,
    FiltersPolicy,
    GroupPolicy,
    HashPolicy,
    HealthPolicy,
    LocalityPolicy,
    NamesPolicy,
    QueuePolicy,
    RecoveryPolicy,
    RetryPolicy,
    RoutePolicy,
)
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup, McpServerGroupSpec, Member, NameFilter


def group_policy(group: McpServerGroup) -> GroupPolicy:
    spec = group.spec
    return GroupPolicy(
        name=group.metadata.name,
        members=tuple(member.name for member in spec.members),
        strategy=spec.strategy.value,
        hashing=HashPolicy(spec.consistent_hash.key.value, spec.consistent_hash.header),
        min_healthy=spec.min_healthy,
        health=HealthPolicy(
            interval_seconds=spec.health.interval_seconds,
            timeout_seconds=spec.health.timeout_seconds,
            unhealthy_threshold=spec.health.unhealthy_threshold,
            healthy_threshold=spec.health.healthy_threshold,
            startup_timeout_seconds=spec.health.startup_timeout_seconds,
        ),
        circuit_failure_threshold=spec.circuit_breaker.failure_threshold,
        breaker=BreakerPolicy(
            spec.member_breaker.failure_threshold, spec.member_breaker.cooldown_seconds
        ),
        recovery=RecoveryPolicy(
            spec.recovery.initial_backoff_seconds, spec.recovery.max_backoff_seconds
        ),
        retry=RetryPolicy(
            attempts=spec.retry.attempts,
            backoff_milliseconds=spec.retry.backoff_milliseconds,
            budget_percent=spec.retry.budget_percent,
            trust_annotations=spec.retry.trust_annotations,
        ),
        filters=_filters(spec),
        member_filters={member.name: _filters(member) for member in spec.members},
        names=NamesPolicy(spec.names.prefix.value, spec.names.separator),
        routes=tuple(_routes(spec)),
        locality=(
            LocalityPolicy(spec.locality.region, spec.locality.mode.value)
            if spec.locality is not None
            else LocalityPolicy()
        ),
        canary=(
            CanaryPolicy(
                spec.canary.member,
                spec.canary.split_percent,
                dict(spec.canary.pinned_tenants),
            )
            if spec.canary is not None
            else None
        ),
        queue=QueuePolicy(spec.limits.queue_milliseconds),
        input_seconds=spec.limits.input_seconds,
    )


def endpoint_policy(member: Member) -> EndpointPolicy:
    return EndpointPolicy(
        member=member.name,
        source="stdio" if member.stdio is not None else "http",
        weight=member.weight,
        priority=member.priority,
        region=member.region,
        resource_tags=frozenset(member.resource_tags),
        max_concurrent=member.max_concurrent_requests,
    )


def provides(spec: McpServerGroupSpec) -> dict[str, dict[Kind, frozenset[str]]]:
    """What each member's manifest promises, by kind."""
    return {
        member.name: {
            Kind.TOOL: frozenset(member.provides.tools),
            Kind.PROMPT: frozenset(member.provides.prompts),
            Kind.RESOURCE: frozenset(member.provides.resources),
        }
        for member in spec.members
    }


def _filter(names: NameFilter) -> FilterPolicy:
    return FilterPolicy(allow=tuple(names.allow), deny=tuple(names.deny))


def _filters(level: McpServerGroupSpec | Member) -> FiltersPolicy:
    return FiltersPolicy(
        tools=_filter(level.tools),
        resources=_filter(level.resources),
        prompts=_filter(level.prompts),
    )


def _routes(spec: McpServerGroupSpec) -> list[RoutePolicy]:
    return [
        RoutePolicy(
            tools=tuple(route.match.tools),
            resources=tuple(route.match.resources),
            prompts=tuple(route.match.prompts),
            methods=tuple(route.match.methods),
            members=tuple(route.members),
            requires=frozenset(route.requires),
            retries=route.retries,
            backoff_milliseconds=route.backoff_milliseconds,
        )
        for route in spec.routes
    ]
