# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import bz2
import gzip
import json
import math
import os
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset
from ansible_collections.linkops.bulkcopy.plugins.module_utils._dataset import DatasetError, Part

# 12 files in 5 directories: a/, a/d000 to a/d002, b/
PARTS = (
    Part("a", 9, 5000, directories=3, compressible=0.5),
    Part("b", 3, 70000, suffix=".dat"),
)
BYTES = 9 * 5000 + 3 * 70000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tree"


def make(tree: Path, **options: Any) -> _dataset.Result:
    return _dataset.present(str(tree), options.pop("parts", PARTS), **options)


def contents(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def beside(tree: Path) -> list[str]:
    return sorted(path.name for path in tree.parent.iterdir() if path != tree)


def sha256sums(tree: Path) -> dict[str, str]:
    """What coreutils says of every file."""
    names = sorted(contents(tree))
    out = subprocess.run(["sha256sum", "--", *names], cwd=tree, check=True, capture_output=True, text=True).stdout
    return {line[66:]: line[:64] for line in out.splitlines()}


def manifest(tree: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(f"{tree}.dataset.json").read_text())
    return document


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours catches it."""


def cut(tree: Path, number: int) -> None:
    """A run whose process ends within the file after number finished ones: half of that one stays on disk."""
    write, done = _dataset.Writer.write, 0

    def dying(self: _dataset.Writer, planned: _dataset.Planned) -> _dataset.Entry:
        nonlocal done
        if done == number:
            (tree / planned.path).write_bytes(b"half")
            raise Killed
        done += 1
        return write(self, planned)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(_dataset.Writer, "write", dying)
        make(tree)


# --------------------------------------------------------------------------------------------------------------------
# Shapes and plans


@pytest.mark.parametrize(
    ("shape", "files", "size"),
    [("small", 2000, 100_000), ("large", 200, 10_000_000)],
)
def test_the_sets_of_the_second_seed(shape: str, files: int, size: int) -> None:
    plan = _dataset.make_plan(_dataset.shape(shape))
    assert len(plan.files) == files
    assert {planned.size for planned in plan.files.values()} == {size}
    assert {planned.text_bytes for planned in plan.files.values()} == {0}
    assert plan.bytes == files * size


def test_the_tree_is_like_the_one_of_the_first_seed() -> None:
    plan = _dataset.make_plan(_dataset.shape("tree"))
    assert plan.bytes == pytest.approx(1.6e9, rel=0.01)
    by_suffix: dict[str, list[_dataset.Planned]] = {}
    for planned in plan.files.values():
        by_suffix.setdefault(planned.path.rsplit(".")[-1], []).append(planned)
    assert {suffix: len(group) for suffix, group in by_suffix.items()} == {"avi": 200, "jar": 500, "m": 40000}
    assert min(planned.size for planned in by_suffix["avi"]) > 1_000_000
    assert sum(planned.text_bytes for planned in plan.files.values()) / plan.bytes == pytest.approx(0.25, rel=0.01)
    assert max(path.count("/") for path in plan.files) == 4
    # parts, then 20 of videos, 4 + 20 of archives, 10 + 100 + 1000 of text
    assert len(plan.directories) == 3 + 20 + 24 + 1110


@pytest.mark.parametrize(("scale", "off"), [(0.5, 0.01), (0.1, 0.01), (0.03, 0.05), (0.01, 0.05), (0.001, 0.05)])
def test_the_tree_shrinks_in_proportion(scale: float, off: float) -> None:
    assert _dataset.make_plan(_dataset.shape("tree"), scale).bytes == pytest.approx(1.6e9 * scale, rel=off)


def test_sizes_are_log_normal_with_the_stated_mean() -> None:
    sizes = _dataset.size_classes(10000, 1.0)
    assert sum(sizes) == 50 * 10000
    logs = [math.log(size) for size in sizes]
    assert statistics.mean(logs) == pytest.approx(statistics.median(logs), abs=0.01)
    # The 16th and 84th percentile of a normal distribution lie one sigma from its median.
    assert logs[42] - logs[7] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(("mean", "spread"), [(1, 3.0), (2, 0.0), (7, 2.5), (10**13, 0.0)])
def test_sizes_keep_their_mean_and_are_never_empty(mean: int, spread: float) -> None:
    sizes = _dataset.size_classes(mean, spread)
    assert sum(sizes) == 50 * mean
    assert min(sizes) >= 1


@pytest.mark.parametrize(
    ("scale", "sizes"),
    [
        (3.0, [1000] * 12),
        (1.0, [1000] * 4),
        (0.6, [1000] * 2),  # 2.4 files
        (0.3, [1000]),  # 1.2 files
        (0.25, [1000]),
        (0.125, [500]),  # half a file
        (0.00001, [1]),
    ],
)
def test_scale(scale: float, sizes: list[int]) -> None:
    plan = _dataset.make_plan([Part("p", 4, 1000)], scale)
    assert [planned.size for planned in plan.files.values()] == sizes


def test_directories_and_names() -> None:
    plan = _dataset.make_plan([Part("p", 8, 10, directories=4, depth=2, suffix=".x"), Part("q", 1, 1)])
    assert plan.directories == [
        "p",
        "p/d000",
        "p/d000/d000",
        "p/d000/d001",
        "p/d001",
        "p/d001/d000",
        "p/d001/d001",
        "q",
    ]
    assert list(plan.files)[:3] == ["p/d000/d000/f000000.x", "p/d000/d000/f000001.x", "p/d000/d001/f000002.x"]
    assert list(plan.files)[-2:] == ["p/d001/d001/f000007.x", "q/f000000.bin"]


def test_a_smaller_scale_is_a_part_of_the_larger() -> None:
    small = _dataset.make_plan(_dataset.shape("tree"), 0.05).files
    large = _dataset.make_plan(_dataset.shape("tree"), 0.1).files
    assert set(small.values()) < set(large.values())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "x/y"}, "part name 'x/y'"),
        ({"name": ".."}, "part name '..'"),
        ({"name": ""}, "part name ''"),
        ({"name": "a\nb"}, "part name"),
        ({"name": "n" * 65}, "64 bytes"),
        ({"files": 0}, "files 0"),
        ({"files": -1}, "files -1"),
        ({"file_bytes": 0}, "file_bytes 0"),
        ({"directories": -1}, "directories -1"),
        ({"depth": 0}, "depth 0"),
        ({"depth": 9}, "depth 9"),
        ({"compressible": 1.1}, "compressible 1.1"),
        ({"compressible": math.nan}, "compressible nan"),
        ({"size_spread": -0.1}, "size_spread -0.1"),
        ({"suffix": "/x"}, "suffix of part 'p'"),
        ({"files": 3_000_000}, "3000000 files"),
    ],
)
def test_bad_parts_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        _dataset.make_plan([Part("p", 1, 1)._replace(**change)])


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_bad_scales_are_refused(scale: float) -> None:
    with pytest.raises(DatasetError, match="scale"):
        _dataset.make_plan(PARTS, scale)


def test_the_empty_shape_is_an_empty_directory(tmp_path: Path) -> None:
    tree = tmp_path / "empty"
    made = _dataset.present(str(tree), _dataset.shape("empty"))
    assert (made.changed, made.files, made.bytes, os.listdir(tree)) == (True, 0, 0, [])
    assert _dataset.present(str(tree), _dataset.shape("empty")).changed is False
    _dataset.absent(str(tree))
    assert os.listdir(tmp_path) == []


def test_other_bad_descriptions_are_refused() -> None:
    with pytest.raises(DatasetError, match="at least one part"):
        _dataset.check_parts([])
    with pytest.raises(DatasetError, match="two parts are called 'p'"):
        _dataset.make_plan([Part("p", 1, 1), Part("p", 2, 2)])
    with pytest.raises(DatasetError, match="no dataset shape 'huge': choose one of empty, large, small, tree"):
        _dataset.shape("huge")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("data/x", "not absolute"),
        ("", "not absolute"),
        ("/", "whole filesystem"),
        ("//", "whole filesystem"),
        ("/a/../b", "'..'"),
        ("/a\0b", "not absolute"),
    ],
)
def test_bad_paths_are_refused(path: str, says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        _dataset.check_path(path)


def test_needless_slashes_are_dropped(tmp_path: Path) -> None:
    assert _dataset.check_path(f"//{tmp_path}//x/./y/") == f"{tmp_path}/x/y"


# --------------------------------------------------------------------------------------------------------------------
# Making


def test_makes_what_the_plan_says(tree: Path) -> None:
    before = os.umask(0o077)
    try:
        result = make(tree)
    finally:
        os.umask(before)
    assert result == _dataset.Result(True, 12, 5, BYTES, created=12, replaced=0, removed=0)
    sizes = {name: len(data) for name, data in contents(tree).items()}
    assert sizes == {planned.path: planned.size for planned in _dataset.make_plan(PARTS).files.values()}
    assert {path.stat().st_mode & 0o7777 for path in tree.rglob("*") if path.is_file()} == {0o644}
    assert {path.stat().st_mode & 0o7777 for path in [tree, *tree.rglob("*")] if path.is_dir()} == {0o755}
    assert beside(tree) == ["tree.dataset.json"]


def test_the_manifest_agrees_with_coreutils(tree: Path) -> None:
    make(tree)
    files = {entry["path"]: entry for entry in manifest(tree)["files"]}
    assert {name: entry["sha256"] for name, entry in files.items()} == sha256sums(tree)
    for name, entry in files.items():
        status = (tree / name).stat()
        assert (entry["size"], entry["mtime_ns"]) == (status.st_size, status.st_mtime_ns)


def test_files_differ_from_each_other(tree: Path) -> None:
    make(tree)
    assert len(set(sha256sums(tree).values())) == 12


def test_one_dd_makes_all_files(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    real = subprocess.Popen

    def popen(argv: list[str], **options: Any) -> Any:
        started.append(argv)
        return real(argv, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    make(tree, parts=[Part("p", 30, 100_000)])
    # 3 000 000 bytes are 2.86 blocks
    assert started == [["dd", "if=/dev/urandom", "bs=1048576", "count=3", "iflag=fullblock"]]


def packed(pack: Any, data: bytes) -> float:
    return len(data) / len(pack(data))


def test_text_packs_like_source_text_and_the_rest_does_not(tree: Path) -> None:
    make(
        tree,
        parts=[
            Part("text", 60, 10_000, compressible=1.0),
            Part("other", 10, 60_000),
            Part("half", 1, 500_000, 0, 1, 0.5),
        ],
    )
    text, other, half = (
        b"".join(path.read_bytes() for path in sorted((tree / part).iterdir())) for part in ("text", "other", "half")
    )
    assert 3.0 < packed(gzip.compress, text) < 4.2
    assert 3.0 < packed(gzip.compress, text[:10_000]) < 4.2
    assert 3.0 < packed(bz2.compress, text) < 6.5
    assert packed(gzip.compress, other) < 1 / 0.99
    assert 3.0 < packed(gzip.compress, half[:250_000]) < 4.2
    assert packed(gzip.compress, half[250_000:]) < 1 / 0.99
    assert text.isascii() and text.count(b"\n") > 1000


# --------------------------------------------------------------------------------------------------------------------
# Keeping it right


@pytest.mark.parametrize("check", _dataset.CHECKS)
def test_a_second_run_changes_nothing(tree: Path, check: str) -> None:
    make(tree)
    before = {path: path.stat() for path in tree.parent.rglob("*")}
    assert make(tree, check=check) == _dataset.Result(False, 12, 5, BYTES, 0, 0, 0)
    after = {path: path.stat() for path in tree.parent.rglob("*")}
    assert {path: (s.st_ino, s.st_mtime_ns) for path, s in after.items()} == {
        path: (s.st_ino, s.st_mtime_ns) for path, s in before.items()
    }


@pytest.mark.parametrize("number", [0, 1, 7, 11])
def test_an_interrupted_run_is_completed(tree: Path, number: int) -> None:
    cut(tree, number)
    kept = {name: data for name, data in contents(tree).items() if data != b"half"}
    assert len(kept) == number
    result = make(tree)
    assert (result.created, result.replaced, result.removed) == (12 - number, 0, 0)
    now = contents(tree)
    assert {name: now[name] for name in kept} == kept
    assert {entry["path"]: entry["sha256"] for entry in manifest(tree)["files"]} == sha256sums(tree)
    assert beside(tree) == ["tree.dataset.json"]
    assert not make(tree).changed


def test_a_killed_process_loses_only_the_file_in_progress(tree: Path) -> None:
    pid = os.fork()
    if pid == 0:
        write, written = os.write, 0

        def dying(descriptor: int, data: Any) -> int:
            nonlocal written
            if len(data) > 20_000:
                written += 1
                if written == 2:
                    write(descriptor, data[: len(data) // 2])
                    os._exit(9)
            return write(descriptor, data)

        os.write = dying
        make(tree)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    before = contents(tree)
    assert [len(before[f"b/f00000{n}.dat"]) for n in range(2)] == [70_000, 35_000]
    assert beside(tree) == ["tree.dataset.journal"]
    result = make(tree)
    assert (result.created, result.replaced) == (2, 0)
    after = contents(tree)
    assert {name for name in before if before[name] != after[name]} == {"b/f000001.dat"}


@pytest.mark.parametrize("tail", [b'{"path":"a/d000/f0000', b"\0" * 100, b"\n\xff\xfe\n", b"[]\n5\n{}\n"])
def test_a_torn_journal_line_counts_for_nothing(tree: Path, tail: bytes) -> None:
    cut(tree, 4)
    with Path(f"{tree}.dataset.journal").open("ab") as journal:
        journal.write(tail)
    cut(tree, 3)
    assert make(tree).created == 12 - 4 - 3


def test_after_an_interruption_content_is_read_even_where_times_would_do(tree: Path) -> None:
    cut(tree, 4)
    damage(tree / "a/d000/f000000.bin")
    result = make(tree, check="size-mtime")
    assert (result.created, result.replaced) == (8, 1)


def damage(path: Path) -> None:
    """Flip one bit in the middle; size and modification time stay."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_damage_behind_the_same_size_and_time_is_found_by_content_only(tree: Path) -> None:
    make(tree)
    before = contents(tree)
    damage(tree / "b/f000001.dat")
    assert not make(tree, check="size-mtime").changed
    assert make(tree) == _dataset.Result(True, 12, 5, BYTES, created=0, replaced=1, removed=0)
    after = contents(tree)
    assert {name for name in before if after[name] != before[name]} == {"b/f000001.dat"}
    assert {entry["path"]: entry["sha256"] for entry in manifest(tree)["files"]} == sha256sums(tree)
    assert not make(tree).changed


def test_what_lies_in_place_of_a_file_is_replaced(tree: Path, tmp_path: Path) -> None:
    make(tree)
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 5000)
    truncated, link, missing, directory, fifo = (tree / f"a/d00{n // 3}/f00000{n}.bin" for n in (0, 1, 2, 3, 4))
    os.truncate(truncated, 100)
    for path in (link, missing, directory, fifo):
        path.unlink()
    link.symlink_to(outside)
    directory.mkdir()
    (directory / "more").write_bytes(b"y")
    os.mkfifo(fifo)
    result = make(tree, check="size-mtime")
    assert (result.created, result.replaced, result.removed) == (1, 4, 2)
    assert outside.read_bytes() == b"x" * 5000
    assert not make(tree).changed


def test_a_touched_file_is_kept_when_its_content_is_right(tree: Path) -> None:
    make(tree)
    os.utime(tree / "b/f000001.dat", (1, 1))
    assert not make(tree, check="size-mtime").changed


def test_modes_are_mended(tree: Path) -> None:
    make(tree)
    before = contents(tree)
    (tree / "b/f000001.dat").chmod(0o600)
    (tree / "a").chmod(0o700)
    tree.chmod(0o2775)
    assert make(tree) == _dataset.Result(True, 12, 5, BYTES, 0, 0, 0)
    assert contents(tree) == before
    modes = [path.stat().st_mode & 0o7777 for path in (tree / "b/f000001.dat", tree / "a", tree)]
    assert modes == [0o644, 0o755, 0o755]
    assert not make(tree).changed


def test_extra_entries_are_removed_and_links_not_followed(tree: Path, tmp_path: Path) -> None:
    make(tree)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"!")
    (tree / "link").symlink_to(outside)
    (tree / "a/new/deep").mkdir(parents=True)
    (tree / "a/new/deep/file").write_bytes(b"")
    (tree / os.fsdecode(b"latin1_\xe9")).write_bytes(b"")
    assert make(tree) == _dataset.Result(True, 12, 5, BYTES, 0, 0, removed=5)
    assert (outside / "precious").read_bytes() == b"!"
    assert not make(tree).changed


def test_a_changed_description_changes_only_what_it_must(tree: Path) -> None:
    make(tree)
    before = contents(tree)
    changed = (PARTS[0], PARTS[1]._replace(file_bytes=60_000), Part("c", 1, 10))
    result = make(tree, parts=changed)
    assert (result.created, result.replaced, result.removed) == (1, 3, 0)
    after = contents(tree)
    assert all(after[name] == before[name] for name in before if name.startswith("a/"))
    assert make(tree, parts=PARTS[:1]) == _dataset.Result(True, 9, 4, 45_000, 0, 0, removed=4 + 2)
    assert make(tree, parts=PARTS[:1], scale=2.0).created == 9


def test_check_mode_writes_nothing(tree: Path) -> None:
    assert make(tree, dry_run=True) == _dataset.Result(True, 12, 5, BYTES, 12, 0, 0)
    assert not tree.parent.exists()
    make(tree)
    damage(tree / "b/f000001.dat")
    before = contents(tree.parent)
    assert make(tree, dry_run=True).replaced == 1
    assert _dataset.absent(str(tree), dry_run=True).removed == 12 + 5
    assert contents(tree.parent) == before


# --------------------------------------------------------------------------------------------------------------------
# What is not ours


def test_a_foreign_directory_is_refused(tree: Path) -> None:
    tree.mkdir(parents=True)
    make(tree)  # an empty one is welcome
    Path(f"{tree}.dataset.json").unlink()
    before = contents(tree.parent)
    for run in (make, lambda path: _dataset.absent(str(path))):
        with pytest.raises(DatasetError, match="was not made by this module"):
            run(tree)
    assert contents(tree.parent) == before


def test_a_directory_that_took_the_place_of_ours_is_refused(tree: Path) -> None:
    make(tree)
    tree.rename(tree.with_name("moved"))
    tree.mkdir()
    (tree / "thesis").write_bytes(b"!")
    with pytest.raises(DatasetError, match="another directory took its place"):
        make(tree)
    with pytest.raises(DatasetError, match="thesis was not made by this module"):
        _dataset.absent(str(tree))
    assert contents(tree) == {"thesis": b"!"}


def test_links_files_and_nested_datasets_are_refused(tree: Path, tmp_path: Path) -> None:
    make(tree)
    link = tmp_path / "link"
    link.symlink_to(tree)
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    with pytest.raises(DatasetError, match="symbolic link"):
        make(link)
    with pytest.raises(DatasetError, match="is no directory"):
        make(plain)
    with pytest.raises(DatasetError, match="lies within the dataset"):
        make(tree / "b/inner")
    with pytest.raises(DatasetError, match="plain"):
        make(plain / "below")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"made_by": "x", "schema": 1}', "\xff"])
def test_an_unusable_manifest_is_refused(tree: Path, text: str) -> None:
    make(tree)
    Path(f"{tree}.dataset.json").write_text(text, encoding="latin-1")
    with pytest.raises(DatasetError, match=r"manifest .* cannot be used"):
        make(tree)


def test_two_runs_at_once_are_refused(tree: Path) -> None:
    tree.parent.mkdir()
    journal = _dataset.Journal(str(tree), _dataset.make_plan(PARTS))
    try:
        with pytest.raises(DatasetError, match="another run"):
            make(tree)
    finally:
        journal.close()
    assert make(tree).created == 12


def test_absent_removes_only_ours(tree: Path) -> None:
    assert not _dataset.absent(str(tree)).changed
    make(tree)
    extra = tree / "a/extra"
    extra.write_bytes(b"")
    before = contents(tree)
    with pytest.raises(DatasetError, match="a/extra was not made"):
        _dataset.absent(str(tree))
    assert contents(tree) == before
    extra.unlink()
    assert _dataset.absent(str(tree)) == _dataset.Result(True, 0, 0, 0, 0, 0, removed=17)
    assert list(tree.parent.iterdir()) == []
    assert not _dataset.absent(str(tree)).changed


def test_absent_removes_an_interrupted_run(tree: Path) -> None:
    cut(tree, 2)
    assert _dataset.absent(str(tree)).changed
    assert list(tree.parent.iterdir()) == []


# --------------------------------------------------------------------------------------------------------------------
# Space and other trouble


def filesystem(bavail: int = 10**6, files: int = 10**6, favail: int = 10**6) -> Any:
    """A statvfs of 4 KiB blocks."""
    result = os.statvfs_result([4096, 4096, 10**6, bavail, bavail, files, favail, favail, 0, 255])
    return lambda _path: result


# 9 files of 2 blocks, 3 of 18, 5 directories of 1; journal, manifest and directory entries 12 * 600 + 2 * 4096 bytes
NEED = (9 * 2 + 3 * 18 + 5) * 4096 + 12 * 600 + 2 * 4096


def test_too_little_space_is_refused_before_the_first_byte(tree: Path) -> None:
    blocks = NEED // 4096  # one too few, since NEED is no multiple
    with pytest.raises(DatasetError, match=rf"needs {NEED} bytes .* has {blocks * 4096} bytes free"):
        make(tree, statvfs=filesystem(bavail=blocks))
    assert not tree.parent.exists()
    assert make(tree, statvfs=filesystem(bavail=blocks + 1)).created == 12


def test_too_few_inodes_are_refused(tree: Path) -> None:
    with pytest.raises(DatasetError, match=r"needs 20 inodes .* has 19 free"):
        make(tree, statvfs=filesystem(favail=19))
    assert not tree.parent.exists()
    make(tree, statvfs=filesystem(files=0, favail=0))  # btrfs counts none


def test_what_exists_needs_no_space(tree: Path) -> None:
    make(tree)
    full = filesystem(bavail=0, favail=0)
    assert not make(tree, statvfs=full).changed
    (tree / "b/f000001.dat").unlink()
    with pytest.raises(DatasetError, match="has 0 bytes free"):
        make(tree, statvfs=full)


def test_a_full_disk_in_mid_run_loses_only_the_file_in_progress(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all, number = _dataset._write_all, 0

    def failing(descriptor: int, view: memoryview) -> None:
        nonlocal number
        number += len(view) == 70_000
        if number == 2:
            raise OSError(28, "No space left on device")
        write_all(descriptor, view)

    with monkeypatch.context() as patch:
        patch.setattr(_dataset, "_write_all", failing)
        with pytest.raises(DatasetError, match=r"cannot write .*b/f000001.dat: No space left on device; free space"):
            make(tree)
    assert not (tree / "b/f000001.dat").exists()
    assert make(tree).created == 2


def test_a_host_without_dd_keeps_what_it_has(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tree)
    before = contents(tree)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not make(tree).changed
    with pytest.raises(DatasetError, match="no dd"):
        make(tree, parts=[Part("b", 1, 1)])
    assert contents(tree) == before


def test_a_dd_that_fails_is_named(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "dd"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(DatasetError, match="dd gave too few random bytes: out of order"):
        make(tree)
    monkeypatch.undo()
    assert shutil.which("dd") is not None
    assert make(tree).created == 12
