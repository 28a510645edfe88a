# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _fidelity, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._dataset import DatasetError
from ansible_collections.linkops.bulkcopy.plugins.module_utils._fidelity import Case

#: What users ask for, and what the issue lists.
GROUPS = {
    *("names", "long_names", "long_paths", "empty_files", "empty_directories", "symlinks", "hardlinks", "sparse"),
    *("fifos", "sockets", "devices", "modes", "setid", "unreadable", "owners", "xattrs", "acls", "growing"),
    *("mtime_s", "mtime_ns", "mtime_old", "directory_mtimes"),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    _fidelity.present(str(tmp_path / "hard"))
    return tmp_path / "hard"


def scan(tree: Path) -> _tree.Manifest:
    return _tree.scan(tree, more=True)


def test_every_group_is_there_and_what_is_not_made_says_why(tree: Path) -> None:
    cases = _fidelity.cases_of(str(tree))
    assert {case.group for case in cases} == GROUPS
    assert len({case.id for case in cases}) == len(cases)
    for case in cases:
        assert bool(case.names) is not bool(case.reason)
        assert all(os.path.lexists(os.path.join(os.fsencode(tree), name)) for name in case.names)
    if os.geteuid() == 0:
        assert not {case.group for case in cases if case.reason} & {"owners", "devices", "setid", "fifos", "sockets"}


def test_names_and_paths_are_as_long_as_they_say(tree: Path) -> None:
    made = {case.id: case.names for case in _fidelity.cases_of(str(tree))}
    assert {max(map(len, name.split(b"/"))) for name in made["long_names"]} == {255}
    assert [len(name.split(b"/", 1)[1]) for name in made["long_paths.100"]] == [104]
    assert [len(name.split(b"/", 1)[1]) for name in made["long_paths.255"]] == [284]


def test_coreutils_and_getfacl_see_what_was_made(tree: Path) -> None:
    def said(form: str, name: str) -> str:
        return subprocess.run(
            ["stat", "-c", form, tree / name], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()

    assert said("%y", "mtime_ns.files/name").startswith("2001-02-03 04:05:06.123456789") or os.environ.get("TZ")
    assert said("%Y", "mtime_old.before_1970/name") == "-157766400"
    assert said("%Y", "mtime_old.after_2038/name") == "2208988800"
    assert said("%a", "setid.files/file 4755") == "4755"
    assert said("%h", "hardlinks/one") == "2"
    assert said("%F", "sockets/socket") == "socket"
    assert int(said("%b", "sparse/hole")) * 512 < 1 << 20 < 8 << 20 < int(said("%s", "sparse/hole"))


def test_a_tree_that_is_right_is_left_alone_and_another_is_made_anew(tree: Path) -> None:
    # An owner who may not read a file has to change it for that, which its change time shows.
    same = ("st_ino", "st_mtime_ns", "st_mode", "st_size")

    def status() -> list[list[int]]:
        found = [os.lstat(os.path.join(os.fsencode(tree), path)) for path in sorted(before.entries)]
        return [[getattr(each, name) for name in same] for each in found]

    before = scan(tree)
    was = status()
    assert _fidelity.present(str(tree)).changed is False
    assert status() == was
    (tree / "hardlinks" / "one").unlink()
    assert _fidelity.present(str(tree), dry_run=True).changed is True
    assert not (tree / "hardlinks" / "one").exists()
    again = _fidelity.present(str(tree))
    assert (again.changed, again.created, again.replaced) == (True, 0, before.files)
    assert scan(tree).digest == before.digest


def test_what_is_not_ours_is_left_alone(tree: Path, tmp_path: Path) -> None:
    (tree / "mine").touch()
    with pytest.raises(DatasetError, match="mine is in the way"):
        _fidelity.present(str(tree))
    with pytest.raises(DatasetError, match="mine is in the way"):
        _fidelity.absent(str(tree))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(DatasetError, match="file is in the way"):
        _fidelity.present(str(tmp_path / "full"))


def test_a_file_grows_and_is_what_it_was_again(tree: Path) -> None:
    case = next(case for case in _fidelity.cases_of(str(tree)) if case.id == "growing")
    log = tree / "growing" / "log"
    before = (log.read_bytes(), log.stat().st_mtime_ns)
    limit = time.monotonic() + 30
    with _fidelity.growing(str(tree), case):
        while log.stat().st_size == len(before[0]) and time.monotonic() < limit:
            pass
        grown = log.read_bytes()
    assert grown.startswith(before[0])
    assert len(grown) > len(before[0])
    assert (log.read_bytes(), log.stat().st_mtime_ns) == before
    # Whole lines, each with its number.
    assert grown.splitlines()[-1] == b"%063d" % (len(grown) // 64 - 1)


def entry(kind: str = "f", **other: Any) -> _tree.Entry:
    given: dict[str, Any] = {
        "size": 10 if kind == "f" else 0,
        "mode": 0o644,
        "uid": 1,
        "gid": 1,
        "mtime_ns": 10**18 + 5,
        "sha256": "a" if kind == "f" else None,
        "more": _tree.More({}, 0, (0, 0)),
    }
    return _tree.Entry(kind, **{**given, **other})


def having(**xattrs: str) -> _tree.More:
    return _tree.More(xattrs, 0, (0, 0))


SYMLINK = entry("l", link=b"to")
HOLE = entry(size=8_000_000, more=_tree.More({}, 100_000, (0, 0)))
NULL = entry("c", more=_tree.More({}, 0, (1, 3)))


@pytest.mark.parametrize(
    ("group", "source", "copy", "outcome"),
    [
        ("names", entry(), entry(mode=0, uid=2, mtime_ns=0), "kept"),
        ("names", entry(), None, "lost"),
        ("names", entry(), entry(sha256="b"), "changed"),
        ("names", entry(), entry("d"), "changed"),
        ("symlinks", SYMLINK, SYMLINK._replace(mtime_ns=0), "kept"),
        ("symlinks", SYMLINK, entry("d"), "followed"),
        ("symlinks", SYMLINK, entry(), "followed"),
        ("symlinks", SYMLINK, SYMLINK._replace(link=b"elsewhere"), "changed"),
        ("hardlinks", entry(same=b"x"), entry(same=b"x"), "kept"),
        ("hardlinks", entry(same=b"x"), entry(), "lost"),
        ("sparse", HOLE, HOLE._replace(more=_tree.More({}, 200_000, (0, 0))), "kept"),
        ("sparse", HOLE, HOLE._replace(more=_tree.More({}, 8_003_584, (0, 0))), "lost"),
        ("devices", NULL, NULL, "kept"),
        ("devices", NULL, NULL._replace(more=_tree.More({}, 0, (1, 5))), "changed"),
        ("modes", entry(), entry(mode=0o600), "changed"),
        ("setid", entry(mode=0o4755), entry(mode=0o755), "lost"),
        ("setid", entry(mode=0o4755), entry(mode=0o4711), "changed"),
        ("owners", entry(), entry(gid=0), "lost"),
        ("mtime_s", entry(), entry(mtime_ns=10**18), "changed"),
        ("mtime_s", entry(), entry(mtime_ns=time.time_ns()), "lost"),
        # scp -p and scp -Op with 1965: a wrapped 32-bit number, and the epoch.
        ("mtime_old", entry(mtime_ns=-157766400 * 10**9), entry(mtime_ns=(2**32 - 157766400) * 10**9), "changed"),
        ("mtime_old", entry(mtime_ns=-157766400 * 10**9), entry(mtime_ns=0), "changed"),
        ("xattrs", entry(more=having(a="00")), entry(more=having(a="00", b="01")), "kept"),
        ("xattrs", entry(more=having(a="00")), entry(more=having(a="01")), "changed"),
        ("acls", entry(more=having(a="00")), entry(), "lost"),
    ],
)
def test_a_name_is_judged(group: str, source: _tree.Entry, copy: _tree.Entry | None, outcome: str) -> None:
    case = Case(group, "", [b"x"])
    copied = _tree.Manifest({} if copy is None else {b"x": copy})
    [judged] = _fidelity.judge([case], _tree.Manifest({b"x": source}), copied, failed=False)
    assert (judged["outcome"], judged["names"], judged["kept"]) == (outcome, 1, int(outcome == "kept"))
    assert bool(judged["detail"]) is (outcome != "kept")


def test_what_is_missing_was_refused_where_the_tool_said_so_and_the_worst_name_counts() -> None:
    case, source = Case("names.space", "", [b"a", b"b", b"c"]), {b"a": entry(), b"b": entry(), b"c": entry()}
    copy = {b"a": entry(), b"b": entry(sha256="b")}
    [judged] = _fidelity.judge([case], _tree.Manifest(source), _tree.Manifest(copy), failed=True)
    assert (judged["outcome"], judged["kept"], judged["detail"]) == ("refused", 1, "c: missing")


def test_a_case_that_was_not_made_is_not_judged() -> None:
    [judged] = _fidelity.judge([Case("owners", "who", [], "only root")], *[_tree.Manifest({})] * 2, failed=False)
    assert judged == {
        "id": "owners",
        "what": "who",
        "names": 0,
        "kept": 0,
        "outcome": "not-made",
        "detail": "only root",
    }


@pytest.mark.parametrize(
    ("make", "outcome"),
    [
        (lambda whole: whole, "kept"),
        (lambda whole: whole[:-100], "kept"),
        (lambda whole: whole[: 4 << 20], "kept"),
        # What tar fills up where a file has shrunk.
        (lambda whole: whole[:-100] + bytes(100), "changed"),
        (lambda whole: whole[:1000], "changed"),
    ],
)
def test_a_copy_of_a_growing_file_ends_where_it_likes(
    tree: Path, tmp_path: Path, make: Callable[[bytes], bytes], outcome: str
) -> None:
    case = next(case for case in _fidelity.cases_of(str(tree)) if case.id == "growing")
    source = scan(tree)
    whole = b"".join(b"%063d\n" % number for number in range((4 << 20) // 64 + 50))
    (tmp_path / "copy" / "growing").mkdir(parents=True)
    (tmp_path / "copy" / "growing" / "log").write_bytes(make(whole))
    [judged] = _fidelity.judge([case], source, scan(tmp_path / "copy"), failed=False)
    assert judged["outcome"] == outcome
