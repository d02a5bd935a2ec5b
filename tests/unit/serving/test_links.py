"""Who linked to which resource, within bounds."""

from __future__ import annotations

from mcpgroup_gateway.core.templates import MAX_URI_LENGTH
from mcpgroup_gateway.serving.links import LINKS_OF_ALL, LINKS_OF_ONE, Links


def test_the_member_that_linked_last_counts_for_the_session_that_was_given_the_link() -> None:
    links = Links()
    links.put("s", ["file:///a", "file:///b"], "one")
    links.put("s", ["file:///b"], "two")
    links.put("t", ["file:///a"], "two")
    assert links.member("s", "file:///a") == "one"
    assert links.member("s", "file:///b") == "two"
    assert links.member("t", "file:///a") == "two"
    assert links.member("t", "file:///b") is None
    assert len(links) == 3


def test_a_session_keeps_its_newest_links_and_takes_nothing_with_it_from_others() -> None:
    links = Links()
    links.put("other", ["file:///a"], "one")
    links.put("s", (f"file:///{number}" for number in range(LINKS_OF_ONE + 5)), "one")
    assert len(links) == LINKS_OF_ONE + 1
    assert links.member("s", "file:///4") is None
    assert links.member("s", "file:///5") == "one"
    assert links.member("other", "file:///a") == "one"


def test_all_sessions_together_keep_a_bounded_number() -> None:
    links = Links()
    for number in range(30):
        links.put(str(number), (f"file:///{each}" for each in range(LINKS_OF_ONE)), "one")
    assert len(links) == LINKS_OF_ALL
    assert links.member("19", "file:///999") is None
    assert links.member("20", "file:///0") == "one"


def test_what_a_session_was_given_goes_with_it() -> None:
    links = Links()
    links.put("s", ["file:///a", "x" * (MAX_URI_LENGTH + 1)], "one")
    links.put("t", ["x" * (MAX_URI_LENGTH + 1)], "one")
    assert len(links) == 1
    links.session_ended("s")
    links.session_ended("t")
    assert len(links) == 0
    assert links.member("s", "file:///a") is None
