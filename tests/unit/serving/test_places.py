"""Where subscriptions hold, and whom a change concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from mcpgroup_gateway.serving.places import Places, Subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.wire.envelope import Raw


class Follower:
    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def caller(self) -> Caller:
        raise AssertionError("nobody is asked for here")

    def notify_updated(self, uri: str, params: Mapping[str, Raw]) -> None:
        raise AssertionError("nobody is told here")


def session() -> Upstream:
    return cast("Upstream", object())


def held(places: Places, where: Upstream, name: str, uri: str) -> Subscription:
    subscription = Subscription(Follower(name), uri)
    places.put(subscription, "a", where)
    return subscription


def names(places: Places, where: Upstream, changed: str) -> list[str]:
    return [cast("Any", each).name for each in places.followers(where, changed)]


def test_a_change_concerns_who_follows_the_uri_or_what_it_is_a_part_of() -> None:
    places, here = Places(), session()
    for name, uri in (
        ("file", "file:///a/b"),
        ("folder", "file:///a"),
        ("folder/", "file:///a/"),
        ("root", "file:///"),
        ("other", "file:///ab"),
    ):
        held(places, here, name, uri)
    assert sorted(names(places, here, "file:///a/b")) == ["file", "folder", "folder/", "root"]
    assert sorted(names(places, here, "file:///a")) == ["folder", "root"]
    assert sorted(names(places, here, "file:///a/")) == ["folder", "folder/", "root"]
    assert names(places, here, "http://x") == []
    assert names(places, session(), "file:///a/b") == []


def test_a_follower_of_a_resource_and_of_a_part_is_told_once() -> None:
    places, here = Places(), session()
    follower = Follower("both")
    for uri in ("file:///a", "file:///a/b"):
        places.put(Subscription(follower, uri), "a", here)
    assert places.followers(here, "file:///a/b") == [follower]


def test_a_subscription_holds_in_one_place_and_leaves_no_trace() -> None:
    places, here, there = Places(), session(), session()
    one = held(places, here, "one", "file:///a")
    two = held(places, here, "two", "file:///a")
    places.put(one, "b", there)
    assert (one.endpoint_id, one.upstream) == ("b", there)
    assert names(places, here, "file:///a") == ["two"]
    assert places.holds(here, "file:///a")
    places.take(two)
    places.take(two)
    assert not places.holds(here, "file:///a")
    assert places.uris(there) == ["file:///a"]
    places.take(one)
    assert len(places) == 0
    assert places.on(there) == []


def test_a_uri_of_many_parts_costs_no_more_than_some_of_them() -> None:
    places, here = Places(), session()
    held(places, here, "one", "a")
    assert names(places, here, "a" + "/" * 1_000_000) == ["one"]
