# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Version 2 of a tree: what is in it, how a copy of it is judged, and what the target's copy begins with."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._dataset import DatasetError, Part
from ansible_collections.linkops.bulkcopy.plugins.module_utils._tree import Entry, Manifest

# 200 files
PARTS = (Part("a", 150, 1000, directories=10, compressible=0.5), Part("b", 50, 3000, suffix=".dat"))
#: Of 200 files: 10, 4, 6 and 2.
SHARES = {"changed": 0.05, "grew": 0.02, "appeared": 0.03, "vanished": 0.01}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "first"
    _dataset.present(str(path), PARTS)
    return path


def second_of(first: Path, name: str = "second", seed: int = 7, **options: Any) -> tuple[Path, _dataset.Result]:
    path = first.parent / name
    return path, _dataset.present_update(str(path), str(first), options.pop("shares", SHARES), seed, **options)


def files(tree: Path) -> dict[str, Path]:
    return {str(path.relative_to(tree)): path for path in tree.rglob("*") if path.is_file()}


def differences(first: Path, second: Path) -> dict[str, set[str]]:
    """What diff says of the two, by kind; of what differs, whether the size does."""
    said = subprocess.run(
        ["diff", "-rq", "--", str(first), str(second)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    found: dict[str, set[str]] = {"changed": set(), "grew": set(), "appeared": set(), "vanished": set()}
    for line in said.splitlines():
        only = re.fullmatch(r"Only in (.+): (.+)", line)
        if only:
            path = Path(only[1], only[2])
            kind, top = ("vanished", first) if first in path.parents else ("appeared", second)
            found[kind].add(str(path.relative_to(top)))
        else:
            differ = re.fullmatch(r"Files (.+) and (.+) differ", line)
            assert differ, line
            one, other = Path(differ[1]), Path(differ[2])
            kind = "changed" if one.stat().st_size == other.stat().st_size else "grew"
            found[kind].add(str(one.relative_to(first)))
    return found


def test_as_many_files_differ_as_were_asked_for(first: Path) -> None:
    second, result = second_of(first)
    found = differences(first, second)
    assert {kind: len(names) for kind, names in found.items()} == {
        "changed": 10,
        "grew": 4,
        "appeared": 6,
        "vanished": 2,
    }
    assert (result.changed, result.files) == (True, 200 - 2 + 6)
    assert result.bytes == sum(path.stat().st_size for path in files(second).values())


def test_the_seed_chooses_the_files(first: Path) -> None:
    found = [differences(first, second_of(first, name, seed)[0]) for name, seed in (("x", 7), ("y", 7), ("z", 8))]
    assert found[0] == found[1]
    assert found[0]["changed"] != found[2]["changed"]


def test_what_grew_begins_as_before(first: Path) -> None:
    second, _result = second_of(first)
    for name in differences(first, second)["grew"]:
        before, after = files(first)[name], files(second)[name]
        # cmp compares no more than so many bytes
        size = before.stat().st_size
        assert subprocess.run(["cmp", f"--bytes={size}", str(before), str(after)], check=False).returncode == 0
        assert after.stat().st_size == size * 1.1


def test_only_what_differs_has_another_time(first: Path) -> None:
    second, _result = second_of(first)
    found = differences(first, second)
    before, after = files(first), files(second)
    for name in set(before) & set(after):
        old, new = before[name].stat().st_mtime_ns, after[name].stat().st_mtime_ns
        if name in found["changed"] | found["grew"]:
            # a tool that looks at whole seconds must see it
            assert new // 10**9 > old // 10**9
        else:
            assert new == old


def test_a_directory_in_which_no_name_came_or_went_keeps_its_time(first: Path) -> None:
    second, _result = second_of(first)
    directories = [path.relative_to(first) for path in first.rglob("*") if path.is_dir()]
    assert len(directories) == 1 + 10 + 1
    kept = 0
    for name in directories:
        same_names = set(os.listdir(first / name)) == set(os.listdir(second / name))
        assert ((first / name).stat().st_mtime_ns == (second / name).stat().st_mtime_ns) is same_names
        kept += same_names
    assert 0 < kept < 12


def test_a_second_time_nothing_changes(first: Path) -> None:
    second, _result = second_of(first)
    before = {name: (path.read_bytes(), path.stat().st_mtime_ns) for name, path in files(second).items()}
    again = second_of(first)[1]
    assert not again.changed
    assert {name: (path.read_bytes(), path.stat().st_mtime_ns) for name, path in files(second).items()} == before


class Killed(BaseException):
    """The end of a process in the middle of its work."""


def interrupted(first: Path, number: int) -> None:
    """A run that ends after so many finished files."""
    write, done = _dataset.Writer.write, 0

    def dying(self: _dataset.Writer, planned: _dataset.Planned) -> _dataset.Entry:
        nonlocal done
        done += 1
        if done > number:
            raise Killed
        return write(self, planned)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(_dataset.Writer, "write", dying)
        second_of(first)


def test_an_interrupted_run_is_completed(first: Path) -> None:
    interrupted(first, 150)
    kept = {name: (path.read_bytes(), path.stat().st_mtime_ns) for name, path in files(first.parent / "second").items()}
    assert len(kept) == 150
    second, result = second_of(first)
    now = {name: (path.read_bytes(), path.stat().st_mtime_ns) for name, path in files(second).items()}
    assert {name: now[name] for name in kept} == kept
    assert (result.created, result.replaced, result.removed) == (200 - 2 + 6 - 150, 0, 0)
    assert sum(map(len, differences(first, second).values())) == 10 + 4 + 6 + 2
    assert not second_of(first)[1].changed


def test_what_an_interrupted_run_made_of_another_version_1_is_made_again(first: Path) -> None:
    interrupted(first, 150)
    _dataset.absent(str(first))
    _dataset.present(str(first), PARTS)
    second, result = second_of(first)
    assert result.created == 200 - 2 + 6
    assert sum(map(len, differences(first, second).values())) == 10 + 4 + 6 + 2


def test_version_1_stays_as_it_is(first: Path) -> None:
    before = {name: (path.read_bytes(), path.stat().st_mtime_ns) for name, path in files(first).items()}
    second_of(first)
    assert {name: (path.read_bytes(), path.stat().st_mtime_ns) for name, path in files(first).items()} == before


@pytest.mark.parametrize("spoil", ["a changed file", "an unchanged file", "an extra file", "a missing file"])
def test_what_was_spoilt_is_made_again(first: Path, spoil: str) -> None:
    second, _result = second_of(first)
    found = differences(first, second)
    expected = {name: path.stat().st_size for name, path in files(second).items()}
    unchanged = min(set(files(first)) - found["changed"] - found["grew"] - found["vanished"])
    if spoil == "an extra file":
        (second / min(found["vanished"])).write_bytes(b"back")
    elif spoil == "a missing file":
        (second / unchanged).unlink()
    else:
        name = min(found["changed"]) if spoil == "a changed file" else unchanged
        path = second / name
        path.write_bytes(bytes(path.stat().st_size))
    assert second_of(first)[1].changed
    assert {name: path.stat().st_size for name, path in files(second).items()} == expected
    assert differences(first, second) == found
    assert not second_of(first)[1].changed


def test_another_version_1_makes_another_version_2(first: Path) -> None:
    second, _result = second_of(first)
    _dataset.absent(str(first))
    _dataset.present(str(first), PARTS)
    assert second_of(first)[1].changed
    assert sum(map(len, differences(first, second).values())) == 10 + 4 + 6 + 2


def test_a_damaged_version_1_is_noticed(first: Path) -> None:
    victim = min(files(first).values())
    status = victim.stat()
    victim.write_bytes(bytes(status.st_size))
    os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DatasetError, match="is not what its manifest says"):
        second_of(first, shares={"appeared": 0.01})


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"changed": 1.5}, "the shares of changes must be from 0 to 1"),
        ({"changed": -0.1, "grew": 0.5}, "the shares of changes must be from 0 to 1"),
        ({"changed": 0.0}, "more than 0"),
        ({"changed": 0.6, "vanished": 0.6}, "at most 1 together"),
        ({"shrank": 0.1}, "no kind of change 'shrank'"),
    ],
)
def test_shares_that_cannot_be_are_refused(first: Path, shares: dict[str, float], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        second_of(first, shares=shares)


def test_an_update_needs_a_whole_dataset(first: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no complete dataset"):
        _dataset.present_update(str(tmp_path / "x"), str(tmp_path / "none"), SHARES, 1)
    with pytest.raises(DatasetError, match="cannot be an update of itself"):
        _dataset.present_update(str(first), str(first), SHARES, 1)


# --------------------------------------------------------------------------------------------------------------------
# How a copy is judged


def entry(content: str, kind: str = "f") -> Entry:
    return Entry(kind, 3, 0o644, 0, 0, 1_000_000_000, sha256=content)


BEFORE = Manifest({b"a": entry("1"), b"gone": entry("2"), b"old": entry("", "d"), b"old/x": entry("3")})
AFTER = Manifest({b"a": entry("9"), b"new": entry("4")})


def left(*names: bytes) -> Manifest:
    return Manifest({**AFTER.entries, **{name: BEFORE.entries[name] for name in names}})


def test_what_vanished_is_a_loss_of_a_method_that_cannot_delete() -> None:
    copy = left(b"gone", b"old", b"old/x")
    assert _tree.compare(AFTER, copy, _tree.SHA256, [_tree.DELETIONS], BEFORE) == ([], {"deletions": 3})
    # one that can has left them behind
    assert _tree.compare(AFTER, copy, _tree.SHA256, [], BEFORE) == (["extra: gone", "extra: old", "extra: old/x"], {})


def test_a_name_of_neither_version_is_a_fault() -> None:
    copy = Manifest({**left(b"gone").entries, b"stray": entry("5")})
    assert _tree.compare(AFTER, copy, _tree.SHA256, [_tree.DELETIONS], BEFORE) == (["extra: stray"], {"deletions": 1})


def test_without_an_older_version_there_are_no_deletions() -> None:
    assert _tree.compare(AFTER, left(b"gone"), _tree.SHA256, [_tree.DELETIONS]) == (["extra: gone"], {})


def test_old_content_is_a_fault() -> None:
    copy = Manifest({**AFTER.entries, b"a": BEFORE.entries[b"a"]})
    assert _tree.compare(AFTER, copy, _tree.SHA256, [_tree.DELETIONS], BEFORE) == (["content: a"], {})


# --------------------------------------------------------------------------------------------------------------------
# What the target's copy begins with


def listed(tree: Path) -> str:
    """Every name with kind, mode, owner, size, time to the nanosecond, names of the file and link, as find says."""
    return subprocess.run(
        ["find", ".", "-mindepth", "1", "-printf", r"%p %y %m %U:%G %s %T@ %n %l\n"],
        cwd=tree,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def sorted_without_directory_sizes(text: str) -> list[str]:
    return sorted(re.sub(r"( d \S+ \S+) \d+", r"\1", line) for line in text.splitlines())


def test_a_duplicate_is_like_its_original_in_everything(tmp_path: Path) -> None:
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "a").write_bytes(b"abc")
    (tree / "sub" / "x").write_bytes(b"12345")
    os.link(tree / "sub" / "x", tree / "twin")
    (tree / "link").symlink_to("nowhere")
    os.mkfifo(tree / "fifo")
    os.chmod(tree / "a", 0o4751)
    os.utime(tree / "a", ns=(1, 1_234_567_890_123_456_789))
    os.utime(tree / "link", ns=(1, 987_654_321_123_456_789), follow_symlinks=False)
    if os.geteuid() == 0:
        os.chown(tree / "sub" / "x", 1234, 4321)
    os.chmod(tree / "sub", 0o500)
    os.utime(tree / "sub", ns=(1, 1_111_111_111_111_111_111))
    _tree.duplicate(tree, copy)
    assert sorted_without_directory_sizes(listed(copy)) == sorted_without_directory_sizes(listed(tree))
    assert subprocess.run(["diff", "-r", "--no-dereference", "-x", "fifo", tree, copy], check=False).returncode == 0
    assert copy.stat().st_mode == tree.stat().st_mode
    # a method that writes in place must not spoil the original
    assert {(copy / name).stat().st_ino for name in ("a", "twin")}.isdisjoint(
        (tree / name).stat().st_ino for name in ("a", "twin")
    )
    os.chmod(tree / "sub", 0o700)
    os.chmod(copy / "sub", 0o700)
