"""Manifests as people write them: YAML, JSON, mistakes, and where they are."""

import contextlib
import hashlib
import json
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.api.cases import ACCEPTED

from mcpgroup_gateway.manifest import MAX_BYTES, Manifest, ManifestError, load

HEAD = """\
apiVersion: mcpgroup.dev/v1alpha1
kind: McpServerGroup
metadata: {name: time}
spec:
"""
GOOD = HEAD + "  members: [{name: a, stdio: {command: [server]}}]\n"


def good(text: str) -> Manifest:
    return load(text.encode(), name="group.yaml")


def faults(text: str | bytes) -> list[str]:
    source = text.encode() if isinstance(text, str) else text
    with pytest.raises(ManifestError) as caught:
        load(source, name="group.yaml")
    assert str(caught.value) == "\n".join(f.at("group.yaml") for f in caught.value.faults)
    return str(caught.value).splitlines()


def spec(text: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(text), "  ")


def test_each_fault_names_file_line_field_and_what_is_allowed() -> None:
    found = faults(
        spec("""\
        strategy: Fastest
        members:
        - name: a
          stdio:
            command: [server]
            memoryLimitMiB: lots
        - name: b
          http:
            url: b.example.com
          wieght: 3
        """)
    )

    assert found[0].startswith("group.yaml:5: spec.strategy: must be one of RoundRobin, ")
    assert found[1] == (
        "group.yaml:10: spec.members[0].stdio.memoryLimitMiB:"
        " must be a whole number from 0 to 1048576"
    )
    assert found[2].startswith("group.yaml:13: spec.members[1].http.url: must be an http or https")
    assert found[3].startswith(
        "group.yaml:14: spec.members[1].wieght: unknown field (did you mean weight?); allowed: name"
    )
    assert len(found) == 4


def test_no_fault_holds_a_value_of_the_manifest() -> None:
    found = faults(
        spec("""\
        members:
        - name: a
          http:
            url: https://user:hunter2@example.com
            headers: [{name: A, value: "hunter2\\n"}, {name: B, value: hunter2, valueFrom: hunter2}]
        """)
    )

    assert len(found) == 3
    assert "hunter2" not in "".join(found)


def test_something_missing_is_told_at_the_line_of_what_should_hold_it() -> None:
    assert faults(spec("members:\n- name: a\n  http: {tls: {}}\n")) == [
        "group.yaml:7: spec.members[0].http.url: is required: an http or https URL without"
        " credentials and fragment, as in 'https://example.com/mcp' (1 to 2048 characters)"
    ]


def test_a_key_given_twice_is_refused_with_both_lines() -> None:
    assert faults(GOOD + "  minHealthy: 1\n  minHealthy: 1\n") == [
        "group.yaml:7: spec.minHealthy: must be given once: it is already in line 6"
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing yet\n", "---\n", "null"])
def test_an_empty_file_is_told_what_it_must_hold(text: str) -> None:
    assert faults(text) == [
        "group.yaml:1: is empty: it must hold a McpServerGroup of mcpgroup.dev/v1alpha1"
    ]


@pytest.mark.parametrize("text", ["- a", "text", "5", "true"])
def test_a_file_of_something_else_is_told_what_it_must_hold(text: str) -> None:
    assert faults(text) == ["group.yaml:1: must be a mapping of apiVersion, kind, metadata, spec"]


def test_a_section_without_a_value_is_an_unfinished_line() -> None:
    assert (
        "group.yaml:6: spec.health: must be a mapping of intervalSeconds"
        in faults(GOOD + "  health:\n")[0]
    )


@pytest.mark.parametrize("word", ["no", "off", "Yes", "true"])
def test_a_word_that_yaml_reads_as_a_boolean_must_be_in_quotes(word: str) -> None:
    text = "members: [{name: a, stdio: {command: [server]}, region: WORD}]"

    found = faults(spec(text.replace("WORD", word)))
    assert "put it in quotes: YAML reads it as a boolean" in found[0]
    assert good(spec(text.replace("WORD", f'"{word}"'))).group.spec.members[0].region == word


@pytest.mark.parametrize("text", ["12:30", "2026-11-30", "2026-11-30T10:00:00Z", "="])
def test_times_and_dates_stay_the_text_that_they_were(text: str) -> None:
    group = good(spec(f"members: [{{name: a, stdio: {{command: [server, {text}]}}}}]")).group

    assert group.spec.members[0].stdio is not None
    assert group.spec.members[0].stdio.command == ("server", text)


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("0x10", 16), ("010", 8), ("1_0", 10), ("+3", 3), ("0b11", 3)]
)
def test_whole_numbers_are_read_as_kubernetes_reads_them(text: str, number: int) -> None:
    group = good(GOOD + f"  drain: {{timeoutSeconds: {text}}}\n").group

    assert group.spec.drain.timeout_seconds == number


@pytest.mark.parametrize(
    "text", ["1.0", "1e3", ".inf", ".nan", "1:30", "9" * 30, "9" * 5000, "3 s"]
)
def test_other_numbers_are_no_whole_numbers(text: str) -> None:
    assert len(faults(GOOD + f"  drain: {{timeoutSeconds: {text}}}\n")) == 1


def test_broken_yaml_is_told_with_its_line() -> None:
    assert faults(HEAD + "  members: [\n") == [
        "group.yaml:6: is not valid YAML: expected the node content, but found '<stream end>'"
    ]
    assert faults(HEAD + "\tmembers: []\n")[0].startswith("group.yaml:5: is not valid YAML")
    assert faults("a: b\nc: \x07\n") == [
        "group.yaml:2: is not valid YAML: control characters are not allowed"
    ]


def test_text_in_another_encoding_is_refused_and_a_byte_order_mark_is_not() -> None:
    assert faults(b"a: b\nc: \xff\n") == ["group.yaml:2: must be text in UTF-8"]
    assert load(b"\xef\xbb\xbf" + GOOD.encode(), name="x").group == good(GOOD).group


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!secret", "!!binary", "!!set"])
def test_tags_are_refused(tag: str) -> None:
    assert faults(GOOD + f"  description: {tag} x\n")[0].startswith("group.yaml:6: ")


def test_keys_that_are_no_text_are_refused() -> None:
    assert "keys must be text" in faults(GOOD + "  on: x\n")[0]
    assert "keys must be text" in faults(GOOD + "  ? [x]\n  : y\n")[0]


def test_anchors_and_merge_keys_work() -> None:
    group = good(
        spec("""\
        members:
        - &base
          name: a
          callTimeoutSeconds: 7
          stdio: &process {command: [server]}
        - {<<: *base, name: b}
        - {<<: [{<<: {weight: 2}}, *base], name: c, stdio: *process}
        """)
    ).group

    assert [member.name for member in group.spec.members] == ["a", "b", "c"]
    assert [member.call_timeout_seconds for member in group.spec.members] == [7, 7, 7]
    assert group.spec.members[2].weight == 2


def test_anchors_that_unfold_without_end_are_refused() -> None:
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
    )

    assert "must unfold to at most 100000 values" in faults(laughs)[0]
    assert "must be nested at most 40 deep" in faults("a: &a [*a]")[0]
    assert "must be nested at most 40 deep" in faults("a: &a\n  <<: *a\n")[0]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "- " * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert "must be nested at most 40 deep" in faults(text)[0]


def test_a_file_over_a_megabyte_is_refused_unread() -> None:
    assert faults(GOOD + "#" * MAX_BYTES) == [f"group.yaml: must be at most {MAX_BYTES} bytes long"]


def test_a_group_beside_other_documents_is_found() -> None:
    beside = f"kind: Secret\nmetadata: {{name: x}}\n---\n{GOOD}---\n"

    assert good(beside).group == good(GOOD).group


def test_the_lines_of_a_later_document_count_from_the_top_of_the_file() -> None:
    text = "kind: Secret\n---\n" + GOOD.replace("a,", "A,")

    assert faults(text)[0].startswith("group.yaml:7: spec.members[0].name: ")


def test_two_groups_in_one_file_are_refused() -> None:
    assert faults(GOOD + "---\n" + GOOD) == [
        "group.yaml:7: must hold exactly one McpServerGroup, it holds 2 in 2 documents"
    ]
    assert faults("kind: A\n---\nkind: B\n") == [
        "group.yaml:1: must hold exactly one McpServerGroup, it holds 0 in 2 documents"
    ]


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_is_read_as_it_is_commonly_written(indent: Any, ascii_only: bool) -> None:
    data = ACCEPTED[1].data()
    data["spec"]["description"] = 'café 😀 \\ " / \n\t'

    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    assert good(text).group.spec.description == 'café 😀 \\ " / \n\t'


def test_faults_in_json_have_lines_too() -> None:
    data = ACCEPTED[0].data()
    data["spec"]["minHealthy"] = 0

    assert faults(json.dumps(data, indent="\t"))[0].startswith("group.yaml:18: spec.minHealthy: ")


def test_half_a_surrogate_pair_is_refused() -> None:
    assert "half surrogate" in faults(GOOD + '  description: "\\ud83d"\n')[0]


def test_the_digest_is_that_of_the_bytes() -> None:
    assert good(GOOD).digest == "sha256:" + hashlib.sha256(GOOD.encode()).hexdigest()
    assert good(GOOD).digest == good(GOOD).digest != good(GOOD + "\n").digest


def test_warnings_have_lines() -> None:
    manifest = good(spec("members:\n- name: a\n  stdio: {command: [server]}\n  weight: 3\n"))

    assert [warning.at("g.yaml").split(" ")[:2] for warning in manifest.warnings] == [
        ["g.yaml:8:", "spec.members[0].weight:"]
    ]


def test_what_only_pods_obey_is_named_with_its_line_and_the_option_that_counts() -> None:
    manifest = good(
        spec("""\
        members: [{name: a, stdio: {command: [server]}}]
        replicas: 3
        gateway:
          logLevel: Info
          image: registry.example.com/gateway:1
          requestLog: {sampleRatio: 0.5}
        """)
    )
    assert manifest.warnings == ()
    assert [note.at("g.yaml") for note in manifest.for_pods] == [
        "g.yaml:8: spec.gateway.logLevel: is for pods: where you start it, --log-level counts",
        "g.yaml:10: spec.gateway.requestLog: is for pods: where you start it, --request-log counts",
    ]
    assert good(GOOD).for_pods == ()


def test_a_rendered_file_may_hold_fields_that_are_not_known_yet() -> None:
    text = spec("""\
    members:
    - name: a
      stdio: {command: [server], newer: null}
    later: [{a: 1}]
    """)
    assert len(faults(text)) == 2
    loaded = load(text.encode(), name="group.yaml", rendered=True)
    assert loaded.group == good(text.replace(", newer: null", "").replace("later", "# ")).group
    assert sorted(loaded.ignored) == ["spec.later", "spec.members[0].stdio.newer"]
    assert loaded.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert good(GOOD).ignored == ()


def test_a_rendered_file_is_strict_in_all_else_and_its_faults_have_their_lines() -> None:
    text = spec("""\
    members:
    - name: a
      newer: {b: 1}
      stdio: {command: [server], memoryLimitMiB: lots}
    - {name: a, stdio: {command: [server]}}
    """)
    with pytest.raises(ManifestError) as caught:
        load(text.encode(), name="group.yaml", rendered=True)
    assert [fault.at("g")[:41] for fault in caught.value.faults] == [
        "g:8: spec.members[0].stdio.memoryLimitMiB"
    ]
    text = text.replace(", memoryLimitMiB: lots", "")
    with pytest.raises(ManifestError, match=r"members\[1\]\.name"):
        load(text.encode(), name="group.yaml", rendered=True)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_loader(source: bytes) -> None:
    with pytest.raises(ManifestError):
        load(source, name="x")


@given(st.data())
def test_no_mutation_of_a_good_manifest_breaks_the_loader(data: st.DataObject) -> None:
    source = bytearray(json.dumps(ACCEPTED[1].data(), indent=1).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(source) - 1))
        source[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    for rendered in (False, True):
        with contextlib.suppress(ManifestError):
            load(bytes(source), name="x", rendered=rendered)
