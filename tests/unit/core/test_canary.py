"""Who is sent to the canary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.canary import Target, bucket, sees_canary, target_of
from mcpgroup_gateway.core.policy import CanaryPolicy

TENANTS = [f"tenant-{number}" for number in range(20_000)]


def share(group: str, percent: float) -> set[str]:
    policy = CanaryPolicy("new", percent)
    return {tenant for tenant in TENANTS if target_of(policy, group, tenant)}


def test_a_split_of_ten_percent_reaches_ten_percent_of_the_tenants() -> None:
    assert 0.09 <= len(share("search", 10)) / len(TENANTS) <= 0.11


def test_two_groups_try_their_canaries_on_different_tenants() -> None:
    one, other = share("search", 10), share("files", 10)
    assert len(one & other) / len(TENANTS) < 0.02


def test_a_larger_split_keeps_the_tenants_of_the_smaller() -> None:
    assert share("search", 10) < share("search", 20)


def test_no_split_reaches_nobody_and_a_full_one_everybody() -> None:
    assert share("search", 0) == set()
    assert share("search", 100) == set(TENANTS)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_tenant_keeps_its_bucket(group: str, tenant: str) -> None:
    assert 0 <= bucket(group, tenant) == bucket(group, tenant) < 100


def test_a_pinned_tenant_goes_to_its_member_whatever_the_split() -> None:
    policy = CanaryPolicy("new", 0, {"beta": "new", "careful": "old"})
    assert target_of(policy, "g", "beta") == Target("new", "pinned")
    assert target_of(policy, "g", "careful") == Target("old", "pinned")
    assert target_of(policy, "g", "other") is None


def test_without_a_tenant_or_a_canary_the_strategy_decides() -> None:
    assert target_of(CanaryPolicy("new", 100), "g", None) is None
    assert target_of(None, "g", "beta") is None


def test_only_tenants_of_the_canary_see_its_catalogue() -> None:
    policy = CanaryPolicy("new", 0, {"beta": "new", "careful": "old"})
    assert [sees_canary(policy, "g", t) for t in ("beta", "careful", None)] == [True, False, False]
