# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.linkops.bulkcopy.plugins.modules import scratch

MARKER = ".linkops-bulkcopy"


def test_makes_the_folder_with_its_parents_and_removes_both(tmp_path: Path) -> None:
    path = tmp_path / "x" / "y"
    assert scratch.present(str(path), "t1", False)
    assert path.stat().st_mode & 0o777 == 0o700
    assert json.loads((path / MARKER).read_text())["token"] == "t1"
    assert not scratch.present(str(path), "t1", False)
    (path / "tree").mkdir()
    (path / "tree" / "f").write_text("x")
    assert scratch.absent(str(path), "t1", False) == "removed"
    assert list(tmp_path.iterdir()) == []
    assert scratch.absent(str(path), "t1", False) == "missing"


def test_parents_that_hold_something_else_stay(tmp_path: Path) -> None:
    path = tmp_path / "x" / "y"
    scratch.present(str(path), "t1", False)
    (tmp_path / "x" / "mine").write_text("x")
    scratch.absent(str(path), "t1", False)
    assert [p.name for p in (tmp_path / "x").iterdir()] == ["mine"]


def test_refuses_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(scratch.ScratchError, match="exists, is not empty and was not made by"):
        scratch.present(str(tmp_path), "t1", False)
    assert "was left alone" in scratch.absent(str(tmp_path), "t1", False)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("marker", ["", "{}", "[]", '{"token": 7}', "\xff"])
def test_a_marker_that_we_did_not_write_is_none(tmp_path: Path, marker: str) -> None:
    (tmp_path / MARKER).write_text(marker, encoding="latin-1")
    with pytest.raises(scratch.ScratchError):
        scratch.present(str(tmp_path), "t1", False)


def test_takes_over_what_an_earlier_campaign_left(tmp_path: Path) -> None:
    path = tmp_path / "s"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("x")
    scratch.present(str(path), "old", False)
    (path / "tree").mkdir()
    (path / "link").symlink_to(outside)
    assert scratch.present(str(path), "new", True)
    assert sorted(os.listdir(path)) == [MARKER, "link", "tree"]
    assert scratch.present(str(path), "new", False)
    assert os.listdir(path) == [MARKER]
    assert (outside / "f").exists()
    assert "was left alone" in scratch.absent(str(path), "old", False)
    assert path.exists()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.mkdir(mode=0o755)
    assert scratch.present(str(path), "t", False)
    assert path.stat().st_mode & 0o777 == 0o700


def test_refuses_links_files_and_the_root(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(scratch.ScratchError, match="is not a folder"):
            scratch.present(str(tmp_path / name), "t", False)
    for path in ("/", "//", "relative"):
        with pytest.raises(scratch.ScratchError, match="must be an absolute path below /"):
            scratch.present(path, "t", False)


def test_a_marker_that_is_a_link_or_a_fifo_is_not_opened(tmp_path: Path) -> None:
    for number, make in enumerate((lambda p: os.mkfifo(p), lambda p: os.symlink("/etc/passwd", p))):
        path = tmp_path / str(number)
        path.mkdir()
        make(path / MARKER)
        assert scratch.read_marker(str(path)) is None


def test_check_mode_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert scratch.present(str(path), "t", True)
    assert not path.exists()
    scratch.present(str(path), "t", False)
    assert scratch.absent(str(path), "t", True) == "removed"
    assert path.exists()


def test_free_room(tmp_path: Path) -> None:
    room = scratch.free(str(tmp_path))
    assert room is not None
    assert room["bytes"] is not None
    assert room["bytes"] > 0
    assert scratch.free(str(tmp_path / "none")) is None
