# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import mmap
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._tree import Entry, Manifest

LATIN1 = b"latin1_\xe9"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Four files of 3 + 0 + 5 + 5 bytes under three names of data, two directories, and one of each hard case."""
    root = tmp_path / "tree"
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "a").write_bytes(b"abc")
    (root / "sub" / "none").write_bytes(b"")
    (root / "sub" / "new\nline").write_bytes(b"12345")
    os.link(root / "sub" / "new\nline", root / "sub" / "twin")
    (root / "link").symlink_to("a")
    (root / "loop").symlink_to(".")
    os.mkfifo(root / "fifo")
    with open(os.path.join(os.fsencode(root), LATIN1), "wb") as stream:
        stream.write(b"x")
    return root


def entry(**changes: object) -> Entry:
    return Entry("f", 3, 0o644, 0, 0, 1_000_000_000, sha256="aa")._replace(**changes)  # type: ignore[arg-type]


def test_counts_by_hand(tree: Path) -> None:
    manifest = _tree.scan(tree)
    assert sorted(manifest.entries) == sorted(
        [b"a", b"fifo", LATIN1, b"link", b"loop", b"sub", b"sub/empty", b"sub/new\nline", b"sub/none", b"sub/twin"]
    )
    assert (manifest.files, manifest.directories, manifest.bytes) == (5, 2, 3 + 0 + 5 + 5 + 1)
    assert manifest.linked_bytes == 5
    assert manifest.entries[b"link"].link == b"a"
    assert manifest.entries[b"fifo"].kind == "p"
    assert manifest.entries[b"sub/twin"].same == b"sub/new\nline"


def test_checksums_are_those_of_sha256sum(tree: Path) -> None:
    manifest = _tree.scan(tree)
    for path in (b"a", b"sub/none", b"sub/new\nline", LATIN1):
        said = subprocess.run(["sha256sum", "-z", "--", path], cwd=tree, stdout=subprocess.PIPE, check=True).stdout
        assert manifest.entries[path].sha256 == said.split()[0].decode()


def test_a_digest_changes_with_one_byte_and_not_with_the_time(tree: Path) -> None:
    before = _tree.scan(tree)
    os.utime(tree / "a", (1, 1))
    later = _tree.scan(tree)
    assert later.digest == before.digest
    assert later.meta_digest != before.meta_digest
    (tree / "a").write_bytes(b"abd")
    assert _tree.scan(tree).digest != before.digest


def test_a_list_survives_packing_and_the_disk(tree: Path, tmp_path: Path) -> None:
    manifest = _tree.scan(tree)
    manifest.unreadable[LATIN1] = "reason"
    _tree.save(manifest, tmp_path / "list")
    again = _tree.load(tmp_path / "list")
    assert again.entries == manifest.entries
    assert again.unreadable == manifest.unreadable
    assert list(tmp_path.glob("list*")) == [tmp_path / "list"]


@pytest.mark.parametrize("text", ["", "nonsense", "bm9uc2Vuc2U="])
def test_a_damaged_list_is_no_list(text: str) -> None:
    with pytest.raises(ValueError):
        _tree.unpack(text)


def test_known_checksums_stand_until_the_file_changes(tree: Path) -> None:
    known = _tree.scan(tree)
    known.entries[b"a"] = known.entries[b"a"]._replace(sha256="kept")
    known.entries[b"sub/none"] = known.entries[b"sub/none"]._replace(sha256="stale")
    (tree / "sub" / "none").write_bytes(b"1")
    again = _tree.scan(tree, known=known)
    assert again.entries[b"a"].sha256 == "kept"
    # echo -n 1 | sha256sum
    assert again.entries[b"sub/none"].sha256 == "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"


def test_a_missing_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        _tree.scan(tmp_path / "none")


def test_only_regular_files_are_opened(tree: Path) -> None:
    with pytest.raises(OSError, match="regular"):
        list(_tree.read_whole(os.fsencode(tree / "fifo")))


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        ({}, ["missing: x"]),
        ({b"x": entry(kind="d")}, ["kind f is d: x"]),
        ({b"x": entry(size=2)}, ["size 3 is 2: x"]),
        ({b"x": entry(sha256="bb")}, ["content: x"]),
        ({b"x": entry(sha256=None)}, ["unreadable: x"]),
        ({b"x": entry(), LATIN1: entry()}, ["extra: latin1_\\xe9"]),
        ({b"x": entry()}, []),
    ],
)
def test_what_differs_is_named(copy: dict[bytes, Entry], expected: list[str]) -> None:
    assert _tree.compare(Manifest({b"x": entry()}), Manifest(copy), _tree.SHA256).mismatches == expected


def test_a_time_counts_only_where_nothing_better_is_compared() -> None:
    source, late = Manifest({b"x": entry()}), Manifest({b"x": entry(mtime_ns=9_000_000_000)})
    assert _tree.compare(source, late, _tree.SHA256) == ([], {"mtime": 1})
    assert _tree.compare(source, late, _tree.SIZE_MTIME).mismatches == ["time: x"]
    assert _tree.compare(source, late, _tree.SIZE_MTIME, [_tree.MTIME]) == ([], {"mtime": 1})


def test_part_of_a_second_is_no_difference() -> None:
    source, copy = Manifest({b"x": entry(mtime_ns=1_900_000_000)}), Manifest({b"x": entry()})
    assert _tree.compare(source, copy, _tree.SHA256) == ([], {})


def test_lost_metadata_is_counted_by_kind() -> None:
    source = Manifest({b"x": entry(), b"y": entry(same=b"x"), b"z": entry()})
    copy = Manifest({b"x": entry(mode=0o600), b"y": entry(), b"z": entry(uid=7)})
    assert _tree.compare(source, copy, _tree.SHA256) == ([], {"mode": 1, "hardlinks": 1, "owner": 1})


def test_a_followed_link_excuses_what_it_led_to() -> None:
    source = Manifest({b"d": entry(kind="l", link=b"e"), b"l": entry(kind="l", link=b"x")})
    copy = Manifest({b"d": entry(kind="d"), b"d/deep/er": entry(), b"d/deep": entry(kind="d"), b"dx": entry()})
    assert _tree.compare(source, copy, _tree.SHA256, [_tree.SYMLINKS]) == (["extra: dx"], {"symlinks": 2})
    assert len(_tree.compare(source, copy, _tree.SHA256).mismatches) == 5


def test_a_special_file_may_be_left_out_only_where_declared() -> None:
    source = Manifest({b"s": entry(kind="s")})
    assert _tree.compare(source, Manifest({}), _tree.SHA256).mismatches == ["missing: s"]
    assert _tree.compare(source, Manifest({}), _tree.SHA256, [_tree.SPECIAL_FILES]) == ([], {"special_files": 1})


def test_an_unknown_kind_of_loss_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="colour"):
        _tree.compare(Manifest({}), Manifest({}), _tree.SHA256, ["colour"])


def test_digests_show_equality_at_once(tree: Path) -> None:
    manifest = _tree.scan(tree)
    assert _tree.quick_match(manifest, manifest.digest, manifest.meta_digest)
    assert not _tree.quick_match(manifest, manifest.digest, "other")
    manifest.unreadable[b"a"] = "reason"
    assert not _tree.quick_match(manifest, manifest.digest, manifest.meta_digest)


@pytest.mark.parametrize("program", [shutil.which("zstd"), None])
def test_compressibility_of_the_two_extremes(tmp_path: Path, program: str | None) -> None:
    def measured() -> tuple[float | None, str | None]:
        return _tree.compressibility(tmp_path, _tree.scan(tmp_path), program)

    basis = "zstd -1" if program else "zlib -1"
    (tmp_path / "random").write_bytes(os.urandom(100_000))
    assert measured() == (pytest.approx(1.0, abs=0.01), basis)
    (tmp_path / "random").write_bytes(bytes(100_000))
    assert measured() == (pytest.approx(0.0, abs=0.02), basis)
    (tmp_path / "random").write_bytes(b"")
    assert measured() == (None, None)


@pytest.mark.parametrize("program", ["zstd", "gzip"])
def test_compressibility_is_what_the_program_makes_of_it(tmp_path: Path, program: str) -> None:
    """A small text: the sample is all of it."""
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    text = b"".join(b"%d squared is %d\n" % (number, number * number) for number in range(2000))
    (tmp_path / "text").write_bytes(text)
    found = _tree.compressibility(tmp_path, _tree.scan(tmp_path), shutil.which("zstd") if program == "zstd" else None)
    with open(tmp_path / "text", "rb") as stream:
        size = len(subprocess.run([program, "-1"], stdin=stream, stdout=subprocess.PIPE, check=True).stdout)
    # The headers of gzip's stream and of zlib's differ by a few bytes.
    assert found.value == pytest.approx(size / len(text), abs=30 / len(text))


def test_the_sample_is_spread_over_the_whole_content(tmp_path: Path) -> None:
    """A quarter of the bytes is random: the tail of one large file, and nothing at the beginning of any."""
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(20_000_000)
    with open(tmp_path / "tail", "wb") as stream:
        stream.truncate(10_000_000)
        stream.seek(10_000_000)
        stream.write(os.urandom(10_000_000))
    found = _tree.compressibility(tmp_path, _tree.scan(tmp_path), None)
    assert found.value == pytest.approx(0.25, abs=0.02)


def test_the_sample_of_many_small_files_takes_from_all_along(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number:04d}").write_bytes(bytes(10_000) if number < 500 else os.urandom(10_000))
    assert _tree.compressibility(tmp_path, _tree.scan(tmp_path), None).value == pytest.approx(0.5, abs=0.03)


def test_a_zstd_that_fails_leaves_it_to_zlib(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(1000))
    assert _tree.compressibility(tmp_path, _tree.scan(tmp_path), "/bin/false").basis == "zlib -1"
    assert _tree.compressibility(tmp_path, _tree.scan(tmp_path), "/no/such/zstd").basis == "zlib -1"


def forget(path: Path, offset: int = 0, length: int = 0) -> None:
    """Take a file, or a part of it, out of the page cache."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), offset, length, os.POSIX_FADV_DONTNEED)


def fincore(path: Path) -> int:
    """Bytes of a file's pages in memory; the last page counts whole."""
    program = shutil.which("fincore")
    if program is None:
        pytest.skip("no fincore here")
    said = subprocess.run([program, "-nbo", "RES", path], stdout=subprocess.PIPE, check=True).stdout
    return int(said)


PAGE = mmap.PAGESIZE


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """40 pages and 100 bytes, all in memory and on disk; nothing is read ahead."""
    path = tmp_path / "big" / "file"
    path.parent.mkdir()
    path.write_bytes(os.urandom(40 * PAGE + 100))
    return path


@pytest.mark.parametrize("map_pages", [1 << 16, 8])
def test_what_is_in_memory_is_what_fincore_says(big: Path, monkeypatch: pytest.MonkeyPatch, map_pages: int) -> None:
    monkeypatch.setattr(_tree, "_MAP_BYTES", map_pages * PAGE)
    manifest = _tree.scan(big.parent, False)
    assert _tree.resident(big.parent, manifest) == (40 * PAGE + 100, 40 * PAGE + 100, 0)
    assert fincore(big) == 41 * PAGE
    forget(big, 10 * PAGE, 20 * PAGE)
    in_part = _tree.resident(big.parent, manifest)
    # A page of the cache may be larger than one of memory, and then goes whole or not at all.
    assert in_part.resident_bytes == fincore(big) - PAGE + 100
    forget(big)
    if fincore(big):
        pytest.skip("this filesystem does not forget")
    cold = _tree.resident(big.parent, manifest)
    assert cold == (0, 40 * PAGE + 100, 0)
    assert (cold.share, cold.state) == (0.0, "cold")
    _tree.warm(big.parent, manifest)
    warm = _tree.resident(big.parent, manifest)
    assert (warm.share, warm.state) == (1.0, "warm")


def test_another_s_file_is_unknown_and_not_resident() -> None:
    """The kernel calls all of it resident."""
    size = os.stat("/etc/passwd").st_size
    manifest = Manifest({b"passwd": entry(size=size), b"no such": entry(size=7)})
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        found = _tree.resident("/etc", manifest)
    finally:
        os.seteuid(user)
    assert found == (0, size + 7, size + 7)
    assert (found.share, found.state) == (None, None)


@pytest.mark.parametrize(
    ("resident", "unknown", "share", "state"),
    [
        (990, 0, 0.99, "warm"),
        (989, 0, 0.989, "partly-warm"),
        (10, 0, 0.01, "cold"),
        (11, 0, 0.011, "partly-warm"),
        # What is not known may change nothing, or all.
        (995, 5, None, "warm"),
        (0, 10, None, "cold"),
        (500, 10, None, "partly-warm"),
        (985, 10, None, None),
        (5, 10, None, None),
    ],
)
def test_states_of_the_cache(resident: int, unknown: int, share: float | None, state: str | None) -> None:
    found = _tree.Residency(resident, 1000, unknown)
    assert (found.share, found.state) == (share, state)


def test_an_empty_tree_is_neither_warm_nor_cold(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    found = _tree.resident(tmp_path, _tree.scan(tmp_path))
    assert found == (0, 0, 0)
    assert (found.share, found.state) == (None, None)


def test_what_vanishes_while_it_is_listed_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One name that goes must not cost the others in its directory."""
    for name in ("kept", "listed", "stated"):
        (tmp_path / name).write_text(name)
    scandir, read_whole = os.scandir, _tree.read_whole

    class Listing:
        def __enter__(self) -> Any:
            found = list(scandir(os.fsencode(tmp_path)))
            (tmp_path / "listed").unlink()
            return iter(found)

        def __exit__(self, *_error: object) -> None:
            pass

    def read(path: bytes) -> Any:
        (tmp_path / "stated").unlink(missing_ok=True)
        return read_whole(path)

    monkeypatch.setattr(os, "scandir", lambda _path: Listing())
    monkeypatch.setattr(_tree, "read_whole", read)
    manifest = _tree.scan(tmp_path)
    assert set(manifest.entries) <= {b"kept", b"stated"}
    assert b"kept" in manifest.entries
    assert manifest.unreadable == {}


@pytest.mark.parametrize(
    ("links", "loop"),
    [
        ({}, False),
        ({"a/self": "."}, True),
        ({"a/up": ".."}, True),
        ({"a/out": "../.."}, True),
        ({"a/to_b": "../b", "b/to_a": "../a"}, True),
        ({"a/to_b": "../b", "b/deep/to_a": "../../a"}, True),
        ({"a/to_b": "../b"}, False),
        ({"a/to_b": "../b", "a/again": "../b", "to_a": "a"}, False),
        # Not a directory above: a sibling whose name begins alike.
        ({"a/to_ab": "../ab", "ab/file": "nothing"}, False),
        # These lead nowhere, and to each other; neither is a directory.
        ({"a/broken": "gone", "x": "y", "y": "x"}, False),
        # A link through a link.
        ({"via": "a", "b/back": "../via/..", "other": "b"}, True),
    ],
)
def test_a_circle_of_links_is_found(tmp_path: Path, links: dict[str, str], loop: bool) -> None:
    """Checked with find -L, which says it too."""
    root = tmp_path / "root"
    for directory in ("a", "ab", "b/deep"):
        (root / directory).mkdir(parents=True)
    for name, text in links.items():
        (root / name).symlink_to(text)
    found = _tree.symlink_loop(root, _tree.scan(root))
    assert (found is not None) == loop
    said = subprocess.run(["find", "-L", root], capture_output=True, text=True, env={"LC_ALL": "C"}, check=False).stderr
    assert ("File system loop detected" in said) == loop


def test_what_is_laid_out_is_ours_alone_until_it_is_settled(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "shared" / "deep").mkdir(parents=True)
    (source / "shared" / "big").write_bytes(b"x" * 10)
    (source / "shared" / "big").chmod(0o4755)
    (source / "shared").chmod(0o2555)
    for path in (source / "shared" / "deep", source / "shared" / "big", source / "shared"):
        os.utime(path, ns=(0, 1_234_567_890_123_456_789))
    manifest = _tree.scan(source, hash_content=False)
    copy.mkdir()
    _tree.lay_out(copy, manifest)
    modes = {str(path.relative_to(copy)): stat.S_IMODE(path.lstat().st_mode) for path in copy.rglob("*")}
    assert modes == {"shared": 0o700, "shared/deep": 0o700, "shared/big": 0o600}
    (copy / "shared" / "big").write_bytes(b"x" * 10)
    _tree.settle(copy, manifest)
    for path in source.rglob("*"):
        there = copy / path.relative_to(source)
        assert (there.stat().st_mode, there.stat().st_mtime_ns) == (path.stat().st_mode, path.stat().st_mtime_ns)
    # What has gone meanwhile, or became something else, is left alone.
    (copy / "shared").chmod(0o755)
    (copy / "shared" / "big").unlink()
    (copy / "shared" / "big").symlink_to(source / "shared" / "big")
    (source / "shared" / "big").chmod(0o600)
    _tree.settle(copy, manifest)
    assert stat.S_IMODE((source / "shared" / "big").stat().st_mode) == 0o600


def test_what_is_laid_out_takes_the_place_of_what_an_older_version_had_there(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "now a directory").mkdir(parents=True)
    (source / "kept").mkdir()
    (source / "now a file").write_bytes(b"x")
    (copy / "now a file" / "below").mkdir(parents=True)
    (copy / "now a directory").symlink_to(tmp_path)
    (copy / "kept").mkdir()
    (copy / "kept" / "old").write_bytes(b"old")
    _tree.lay_out(copy, _tree.scan(source, hash_content=False))
    assert (copy / "now a directory").is_dir() and not (copy / "now a directory").is_symlink()
    assert (copy / "now a file").read_bytes() == b""
    assert (copy / "kept" / "old").read_bytes() == b"old"
    assert tmp_path.is_dir()


def test_what_else_there_is_to_a_name_is_listed_only_where_asked_for(tree: Path) -> None:
    with open(tree / "hole", "wb") as stream:
        stream.truncate(1 << 20)
    value = b"\0\xffvalue"
    try:
        os.setxattr(tree / "a", "user.linkops", value)
    except OSError:
        pytest.skip("this filesystem has no extended attributes")
    plain, whole = _tree.scan(tree), _tree.scan(tree, more=True)
    assert {entry.more for entry in plain.entries.values()} == {None}
    assert (plain.digest, plain.meta_digest) == (whole.digest, whole.meta_digest)
    assert whole.entries[b"a"].more is not None
    assert whole.entries[b"a"].more.xattrs == {"user.linkops": value.hex()}
    said = subprocess.run(["stat", "-c", "%b", tree / "hole"], stdout=subprocess.PIPE, check=True).stdout
    assert whole.entries[b"hole"].more is not None
    assert whole.entries[b"hole"].more.allocated == int(said) * 512
    for manifest in (plain, whole):
        assert _tree.unpack(manifest.pack()).entries == manifest.entries
    # A list without it is as good for knowing checksums.
    assert _tree.scan(tree, known=whole).entries == plain.entries


def test_attributes_of_directories_are_settled_and_those_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "read-only").mkdir(parents=True)
    (source / "read-only").chmod(0o500)
    manifest = _tree.scan(source, more=True)
    entry = manifest.entries[b"read-only"]
    xattrs = {"user.linkops": "00ff", "nonsense.linkops": "00"}
    wanted = Manifest({b"read-only": entry._replace(more=_tree.More(xattrs, 0, (0, 0)))})
    (copy / "read-only").mkdir(parents=True)
    try:
        os.setxattr(copy, "user.linkops", b"1")
    except OSError:
        pytest.skip("this filesystem has no extended attributes")
    _tree.settle(copy, wanted)
    assert os.getxattr(copy / "read-only", "user.linkops") == b"\0\xff"
    assert os.listxattr(copy / "read-only") == ["user.linkops"]
    assert stat.S_IMODE((copy / "read-only").stat().st_mode) == 0o500
    assert (copy / "read-only").stat().st_mtime_ns == entry.mtime_ns
