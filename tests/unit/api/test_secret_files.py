"""Values from the files of Secrets. The folder is a real one: reading files is all this does."""

from pathlib import Path

import pytest
from tests.unit.api.cases import SECRET, Case

from mcpgroup_api import EnvVariable, Header, McpServerGroup, Member, SecretKeyRef
from mcpgroup_gateway.secret_files import MAX_BYTES, SecretError, SecretFiles
from mcpgroup_gateway.telemetry.redaction import Redactor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("not yours")
    (tmp_path / "secrets" / "search").mkdir(parents=True)
    return tmp_path / "secrets"


def put(folder: Path, content: bytes) -> SecretFiles:
    (folder / "search" / "token").write_bytes(content)
    return SecretFiles(folder)


HEADER = Header.model_validate({"name": "Authorization", "valueFrom": SECRET})
VARIABLE = EnvVariable.model_validate({"name": "TOKEN", "valueFrom": SECRET})


def test_written_values_need_no_files() -> None:
    files = SecretFiles(None)

    assert files.header(Header.model_validate({"name": "A", "value": "x"})) == "x"
    assert files.env(EnvVariable.model_validate({"name": "A", "value": ""})) == ""


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"abc", "abc"),
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b" abc ", " abc "),
        (b"${A} $B $$", "${A} $B $$"),
        (b"", ""),
    ],
)
def test_one_new_line_at_the_end_is_left_out_and_nothing_else_changes(
    folder: Path, content: bytes, value: str
) -> None:
    files = put(folder, content)

    assert files.header(HEADER) == value
    assert files.env(VARIABLE) == value


def test_a_variable_may_have_lines(folder: Path) -> None:
    assert put(folder, b"one\ntwo\n\n").env(VARIABLE) == "one\ntwo\n"


@pytest.mark.parametrize("content", [b"a\nb", b"a\n\n", b"a\r\nX: y", b"a\0", b"\x1b"])
def test_a_header_with_control_characters_is_refused(folder: Path, content: bytes) -> None:
    with pytest.raises(
        SecretError, match=r"secret search, key token is unusable \(it holds control characters"
    ):
        put(folder, content).header(HEADER)


@pytest.mark.parametrize("content", [b"\xff", b"a\0b", b"x" * (MAX_BYTES + 1)])
def test_what_no_variable_can_hold_is_refused_without_showing_it(
    folder: Path, content: bytes
) -> None:
    with pytest.raises(SecretError) as caught:
        put(folder, content).env(VARIABLE)
    assert len(str(caught.value)) < 100


def test_a_rotated_secret_is_read_again(folder: Path) -> None:
    files = put(folder, b"old")
    assert files.header(HEADER) == "old"
    put(folder, b"new")
    assert files.header(HEADER) == "new"


def test_links_as_in_a_pod_are_followed(folder: Path) -> None:
    (folder / "search" / "..2026").mkdir()
    (folder / "search" / "..2026" / "token").write_text("abc")
    (folder / "search" / "..data").symlink_to("..2026")
    (folder / "search" / "token").symlink_to("..data/token")

    assert SecretFiles(folder).header(HEADER) == "abc"


def test_a_missing_secret_is_told_by_name_and_key(folder: Path) -> None:
    with pytest.raises(
        SecretError, match=r"secret search, key token is unusable \(there is no such file\)"
    ):
        SecretFiles(folder).header(HEADER)
    with pytest.raises(SecretError, match="--secrets DIR"):
        SecretFiles(None).env(VARIABLE)


def test_what_is_missing_can_be_read_in_a_redacted_log(folder: Path) -> None:
    with pytest.raises(SecretError) as caught:
        SecretFiles(folder).header(HEADER)
    assert Redactor().text(str(caught.value)) == str(caught.value)


def test_a_folder_is_no_value(folder: Path) -> None:
    (folder / "search" / "token").mkdir()

    with pytest.raises(SecretError, match="its file cannot be read, is a directory"):
        SecretFiles(folder).header(HEADER)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("..", "outside"),
        (".", "outside"),
        ("search", "../../outside"),
        ("search/..", "x"),
    ],
)
def test_no_reference_leads_out_of_the_folder(folder: Path, name: str, key: str) -> None:
    reference = SecretKeyRef.model_construct(name=name, key=key)

    with pytest.raises(SecretError, match="no Secret has such a name and key"):
        SecretFiles(folder).read(reference)


def test_everything_that_is_missing_is_listed_once_in_order(folder: Path) -> None:
    put(folder, b"abc")
    ca = {"name": "ca", "key": "ca.crt"}
    http = {"url": "https://x/", "tls": {"caSecretRef": ca}}
    entries = [
        {"name": "A", "valueFrom": SECRET},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "search", "key": "gone"}}},
    ]
    members = [
        {"name": "a", "http": {**http, "headers": entries}},
        {"name": "b", "http": http},
        {"name": "c", "stdio": {"command": ["x"], "env": entries}},
    ]
    group = McpServerGroup.model_validate(Case("", {"members": members}).data())

    assert SecretFiles(folder).missing(group) == ["ca/ca.crt", "search/gone"]


def test_a_fingerprint_is_that_of_all_values_and_none_while_one_is_missing(folder: Path) -> None:
    def member(*keys: str) -> Member:
        env = [
            {"name": f"V{at}", "valueFrom": {"secretKeyRef": {"name": "search", "key": key}}}
            for at, key in enumerate(keys)
        ]
        return Member.model_validate({"name": "a", "stdio": {"command": ["x"], "env": env}})

    files = SecretFiles(folder)
    for key, value in (("one", b"ab"), ("two", b"c"), ("three", b"a"), ("four", b"bc")):
        (folder / "search" / key).write_bytes(value)
    prints = [files.fingerprint(member(*keys)) for keys in (("one", "two"), ("three", "four"))]
    assert len({*prints, files.fingerprint(member())}) == 3
    assert files.fingerprint(member("one", "gone")) is None
    before = files.fingerprint(member("one"))
    (folder / "search" / "one").write_bytes(b"abc")
    assert files.fingerprint(member("one")) not in (None, before)
    assert SecretFiles(None).fingerprint(member("one")) is None
    assert SecretFiles(None).fingerprint(member()) is not None
