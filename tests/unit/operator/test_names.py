"""What is named once and for all."""

from __future__ import annotations

import re

from mcpgroup_operator import names

LONGEST = "g" * 40


def test_the_selector_is_what_it_was_in_the_first_version() -> None:
    assert names.selector("search") == {
        "app.kubernetes.io/name": "mcpgroup-gateway",
        "app.kubernetes.io/instance": "search",
        "mcpgroup.dev/component": "gateway",
    }


def test_every_label_of_the_selector_is_on_the_children() -> None:
    assert names.selector("search").items() <= names.labels("search").items()
    assert names.labels("search")[names.GROUP_LABEL] == "search"
    assert names.labels("search")["app.kubernetes.io/managed-by"] == "mcpgroup-operator"


def test_the_selector_as_text_is_what_the_scale_subresource_wants() -> None:
    assert names.selector_text("search") == (
        "app.kubernetes.io/name=mcpgroup-gateway"
        ",app.kubernetes.io/instance=search"
        ",mcpgroup.dev/component=gateway"
    )


def test_names_of_children_are_dns_labels_whatever_the_group_is_called() -> None:
    for name in (names.child(LONGEST), names.peers_service(LONGEST), names.keys_secret(LONGEST)):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 63


def test_a_mark_names_the_namespace_and_the_release_of_an_operator() -> None:
    assert names.operator_mark("mcpgroup-system", "mcpgroup") == "mcpgroup-system.mcpgroup"
