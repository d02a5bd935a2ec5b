"""Which route a request takes."""

from __future__ import annotations

from mcpgroup_gateway.core.policy import RoutePolicy
from mcpgroup_gateway.core.routes import Routes
from mcpgroup_gateway.wire.protocol import Kind

READS = RoutePolicy(tools=("read_*",), members=("fs", "fs-backup"), retries=2)
ALL_TOOLS = RoutePolicy(tools=("*",), members=("other",))
FILES = RoutePolicy(resources=("file:///*",), prompts=("about_*",))
COMPLETIONS = RoutePolicy(methods=("completion/*",))
ROUTES = Routes([READS, ALL_TOOLS, FILES, COMPLETIONS])


def test_the_first_route_that_matches_wins() -> None:
    assert ROUTES.find("tools/call", Kind.TOOL, "read_file") is READS
    assert ROUTES.find("tools/call", Kind.TOOL, "write_file") is ALL_TOOLS


def test_any_of_its_patterns_makes_a_route_match() -> None:
    assert ROUTES.find("resources/read", Kind.RESOURCE, "file:///etc/hosts") is FILES
    assert ROUTES.find("prompts/get", Kind.PROMPT, "about_files") is FILES


def test_patterns_of_one_kind_say_nothing_about_another() -> None:
    assert ROUTES.find("prompts/get", Kind.PROMPT, "read_file") is None
    assert ROUTES.find("resources/read", Kind.RESOURCE, "about_files") is None


def test_templates_are_matched_as_resources() -> None:
    assert ROUTES.find("completion/complete", Kind.TEMPLATE, "file:///{path}") is FILES


def test_a_route_by_method_needs_no_name() -> None:
    assert ROUTES.find("completion/complete") is COMPLETIONS
    assert ROUTES.find("ping") is None


def test_a_group_without_routes_has_none() -> None:
    assert Routes([]).find("tools/call", Kind.TOOL, "read_file") is None


def test_a_very_long_name_finds_its_route_too() -> None:
    assert ROUTES.find("tools/call", Kind.TOOL, "read_" + "x" * 5000) is READS
