"""The folder of `--keys`: made where it can be, read again at each use, never trusted blindly."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from mcpgroup_gateway.key_files import KeyFiles, KeyUnusable

if TYPE_CHECKING:
    from pathlib import Path


def test_a_missing_key_is_made_for_its_owner_only(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    keys.make_missing()
    made = tmp_path / "admin-token"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert keys.admin_token() == made.read_text().strip()
    assert len(keys.admin_token()) >= 32
    assert [path.name for path in tmp_path.iterdir()] == ["admin-token"]


def test_a_key_that_is_there_stays_and_one_that_changes_counts_at_once(tmp_path: Path) -> None:
    (tmp_path / "admin-token").write_text("given-by-the-operator\n")
    keys = KeyFiles(tmp_path)
    keys.make_missing()
    assert keys.admin_token() == "given-by-the-operator"
    (tmp_path / "admin-token").write_text("rotated-by-the-operator")
    assert keys.admin_token() == "rotated-by-the-operator"


def test_two_replicas_that_make_the_keys_at_once_read_the_same_ones(tmp_path: Path) -> None:
    first, second = KeyFiles(tmp_path), KeyFiles(tmp_path)
    first.make_missing()
    second.make_missing()
    assert first.admin_token() == second.admin_token()


def test_a_folder_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refused)  # root may write wherever the mode says otherwise
    with pytest.raises(KeyUnusable, match=r"admin-token is missing.*read-only file system"):
        KeyFiles(tmp_path).make_missing()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"x" * 5000])
def test_what_is_no_key_is_none_and_is_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "admin-token").write_bytes(content)
    keys = KeyFiles(tmp_path)
    keys.make_missing()
    assert (tmp_path / "admin-token").read_bytes() == content
    with pytest.raises(KeyUnusable) as refused:
        keys.admin_token()
    assert "admin-token" in str(refused.value)
    assert "short" not in str(refused.value)


def test_a_missing_file_a_folder_and_a_dangling_link_are_no_key(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    with pytest.raises(KeyUnusable, match="is missing"):
        keys.admin_token()
    (tmp_path / "admin-token").symlink_to("..data/admin-token")
    with pytest.raises(KeyUnusable, match="is missing"):
        keys.admin_token()
    keys.make_missing()  # whose link that is knows better
    assert (tmp_path / "admin-token").is_symlink()
    (tmp_path / "admin-token").unlink()
    (tmp_path / "admin-token").mkdir()
    with pytest.raises(KeyUnusable, match="cannot be read"):
        keys.admin_token()
