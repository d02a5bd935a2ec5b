"""Which URIs a URI template stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.templates import UriTemplate


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("file:///{name}", "file:///a.txt", True),
        ("file:///{name}", "file:///", False),
        ("file:///{name}", "file:///a/b", False),
        ("file:///{+path}", "file:///a/b", True),
        ("file:///{path*}", "file:///a/b", True),
        ("db://{table}/{id}", "db://users/7", True),
        ("db://{table}/{id}", "db://users/7/x", False),
        ("db://{table}/{id}", "db://users", False),
        ("x://{a}-{b}/end", "x://1-2-3/end", True),
        ("x://{a}-{b}/end", "x://1-2-3/END", False),
        ("q://s{?term,lang}", "q://s", True),
        ("q://s{?term,lang}", "q://s?term=a/b&lang=c", True),
        ("q://s{?term}", "q://sterm=a", False),
        ("q://s?a=1{&b}", "q://s?a=1&b=2", True),
        ("d://h{#part}", "d://h#x/y", True),
        ("d://h{/a,b}/end", "d://h/1/2/end", True),
        ("d://h{/a}/end", "d://h/end", True),
        ("d://h{.format}", "d://h.json", True),
        ("d://h{;v}", "d://h;v=1", True),
        ("plain://uri", "plain://uri", True),
        ("plain://uri", "plain://uri/more", False),
        ("broken://{name", "broken://{name", True),
        ("broken://{name", "broken://x", False),
        ("{+any}", "what://ever", True),
    ],
)
def test_a_template_matches_what_it_can_expand_to(
    template: str, uri: str, *, expected: bool
) -> None:
    assert UriTemplate(template).matches(uri) is expected


names = st.text("abc09-_.~%", min_size=1, max_size=8)


@given(names, names)
def test_every_simple_expansion_matches(first: str, second: str) -> None:
    assert UriTemplate("t://{a}/x/{b}").matches(f"t://{first}/x/{second}")


@given(st.text("ab/{}?*", max_size=30), st.text("ab/{}?*", max_size=30))
def test_any_text_can_be_a_template(template: str, uri: str) -> None:
    assert UriTemplate(template).matches(uri) in (True, False)


@pytest.mark.timeout(5)
def test_a_hostile_pair_takes_no_time_to_speak_of() -> None:
    template = UriTemplate("x" + "{+a}x" * 16)
    assert not template.matches("x" * 4000 + "!")
    assert not UriTemplate("{a}" * 16 + "z").matches("x" * 4000)


def test_a_uri_or_template_beyond_the_limits_does_not_match() -> None:
    assert not UriTemplate("a{+b}").matches("a" * 5000)
    assert not UriTemplate("{+b}" * 40).matches("abc")
    assert not UriTemplate("{+b}" + "x" * 3000).matches("a" + "x" * 3000)
