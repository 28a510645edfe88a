# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _streams, _tree

MIB = 1 << 20


def entry(kind: str, size: int = 0, same: bytes = b"") -> _tree.Entry:
    return _tree.Entry(kind, size, 0o644, 0, 0, 0, same=same)


def tree(**files: int) -> _tree.Manifest:
    return _tree.Manifest({name.encode(): entry("f", size) for name, size in files.items()})


def carried(parts: list[_streams.Part], manifest: _tree.Manifest) -> list[int]:
    """Bytes of each part, hard-linked files once."""
    return [
        sum(
            manifest.entries[name].size
            for name in part.names
            if manifest.entries[name].kind == "f" and manifest.entries[name].same in (b"", name)
        )
        + sum(piece.length for piece in part.pieces)
        for part in parts
    ]


def check_whole(parts: list[_streams.Part], manifest: _tree.Manifest) -> None:
    """Every name is carried exactly once, or all of its bytes are, each once; directories only where they are empty."""
    names = [name for part in parts for name in part.names]
    assert len(names) == len(set(names))
    pieces: dict[bytes, list[tuple[int, int]]] = {}
    for part in parts:
        for piece in part.pieces:
            pieces.setdefault(piece.path, []).append((piece.offset, piece.length))
    for path, ranges in pieces.items():
        end = 0
        for offset, length in sorted(ranges):
            assert offset == end and length > 0
            end += length
        assert end == manifest.entries[path].size
    expected = {
        path
        for path, item in manifest.entries.items()
        if item.kind != "d" or not any(other.startswith(path + b"/") for other in manifest.entries)
    }
    assert set(names) | set(pieces) == expected and not set(names) & set(pieces)


def test_equal_files_are_cut_into_equal_parts() -> None:
    # 100 files of 20 MiB over 8 streams: 250 MiB each, and no more than 7 files are cut.
    manifest = tree(**{f"f{number:03}": 20 * MIB for number in range(100)})
    parts = _streams.cut(manifest, 8, split=True)
    check_whole(parts, manifest)
    assert len(parts) == 8
    assert max(carried(parts, manifest)) - min(carried(parts, manifest)) <= 2 * 2 * MIB
    assert len({piece.path for part in parts for piece in part.pieces}) <= 7


def test_one_large_file_is_carried_by_all() -> None:
    manifest = tree(big=800 * MIB + 5)
    parts = _streams.cut(manifest, 8, split=True)
    check_whole(parts, manifest)
    assert [len(part.pieces) for part in parts] == [1] * 8
    assert max(carried(parts, manifest)) - min(carried(parts, manifest)) <= 8


def test_without_cutting_files_stay_whole() -> None:
    manifest = tree(**{f"f{number}": 100 * MIB for number in range(9)})
    parts = _streams.cut(manifest, 4, split=False)
    check_whole(parts, manifest)
    assert not any(part.pieces for part in parts)
    assert sorted(carried(parts, manifest)) == [200 * MIB, 200 * MIB, 200 * MIB, 300 * MIB]


def test_small_and_large_are_both_shared_out() -> None:
    """4000 empty files in one directory and 4 GiB in another: each of 4 streams gets a quarter of both, within an
    eighth."""
    entries = {b"many/%05d" % number: entry("f") for number in range(4000)}
    entries.update({b"large/%d" % number: entry("f", 256 * MIB) for number in range(16)})
    entries.update({b"many": entry("d"), b"large": entry("d")})
    manifest = _tree.Manifest(entries)
    parts = _streams.cut(manifest, 4, split=True)
    check_whole(parts, manifest)
    for part, size in zip(parts, carried(parts, manifest), strict=True):
        assert 875 <= len(part.names) <= 1125
        assert abs(size - 1024 * MIB) <= 128 * MIB


def test_names_of_one_file_stay_together() -> None:
    names = [b"a/1", b"b/2", b"c/3"]
    entries = {name: entry("f", 50 * MIB, same=b"a/1") for name in names}
    entries.update({b"f%d" % number: entry("f", 10 * MIB) for number in range(20)})
    manifest = _tree.Manifest(entries)
    parts = _streams.cut(manifest, 5, split=True)
    check_whole(parts, manifest)
    assert sum(set(names) <= set(part.names) for part in parts) == 1


def test_fewer_names_than_streams() -> None:
    manifest = _tree.Manifest({b"only": entry("f", 5), b"link": entry("l"), b"empty": entry("d")})
    parts = _streams.cut(manifest, 8, split=True)
    check_whole(parts, manifest)
    assert len(parts) <= 3
    assert _streams.cut(_tree.Manifest({}), 8, split=True) == []


@pytest.mark.parametrize("seed", range(40))
def test_any_tree_is_carried_whole(seed: int) -> None:
    chance = random.Random(seed)
    entries: dict[bytes, _tree.Entry] = {}
    for number in range(chance.randrange(1, 300)):
        directory = b"d%d" % chance.randrange(20)
        if chance.random() < 0.7:
            entries[directory] = entry("d")
        size = int(chance.choice([0, 10, 4 * MIB, 40 * MIB, 900 * MIB]) * chance.random())
        entries[directory + b"/%d" % number] = entry(chance.choice("ffffflp"), size)
    manifest = _tree.Manifest(
        {path: item._replace(size=item.size * (item.kind == "f")) for path, item in entries.items()}
    )
    for streams in (1, 2, 7, 16):
        parts = _streams.cut(manifest, streams, split=chance.random() < 0.5)
        check_whole(parts, manifest)
        assert 1 <= len(parts) <= streams


@pytest.mark.parametrize(
    ("rate_Bps", "stream_Bps", "round_trip_s", "window_bytes", "cores", "core_Bps", "streams"),
    [
        # 1 Gbit/s x 80 ms hold 4.5 windows of 2 MiB, and a quarter more than that is 5.6.
        (118e6, None, 0.08, 2 << 20, 2, 250e6, 6),
        # x 10 ms: 0.56 windows. x 300 ms: 21 streams would be more than are ever taken.
        (118e6, None, 0.01, 2 << 20, 2, 250e6, 1),
        (118e6, None, 0.3, 2 << 20, 2, 250e6, 8),
        (12.5e6, 12.5e6, 0.0002, 2 << 20, 64, 250e6, 1),
        # As fast as memory: a stream for each core.
        (3e9, 3e9, 0.00005, 2 << 20, 2, 250e6, 2),
        (3e9, 3e9, 0.00005, 2 << 20, 64, 250e6, 8),
        # One connection carries a third of what four do: losses keep it back.
        (24e6, 8e6, 0.08, None, 2, 800e6, 6),
        # gzip does 30 MB/s on a core.
        (118e6, 118e6, 0.0002, None, 16, 30e6, 4),
    ],
)
def test_auto(
    rate_Bps: float,  # noqa: N803
    stream_Bps: float | None,  # noqa: N803
    round_trip_s: float,
    window_bytes: int | None,
    cores: int,
    core_Bps: float,  # noqa: N803
    streams: int,
) -> None:
    assert _streams.auto(rate_Bps, stream_Bps, round_trip_s, window_bytes, cores, core_Bps) == streams


@pytest.mark.parametrize("streams", [0, -1, 65, 2.5, "2.5", "", "many", True, None, [2]])
def test_what_is_no_number_of_streams(streams: Any) -> None:
    assert "from 1 to 64, or auto" in str(_streams.mistake({"streams": streams}))


@pytest.mark.parametrize(("streams", "label"), [(1, ""), ("1", ""), (8, " x8"), ("8", " x8"), ("auto", " xauto")])
def test_labels(streams: Any, label: str) -> None:
    assert _streams.mistake({"streams": streams}) is None
    assert _streams.label({"streams": streams}) == label


def test_pieces_and_an_archive_share_one_stream(tmp_path: Path) -> None:
    """What follows a piece in the stream is not eaten by it, and pieces that arrive in any order make the file."""
    source, target = tmp_path / "source", tmp_path / "target dir"
    (source / "sub").mkdir(parents=True)
    (target / "sub").mkdir(parents=True)
    content = random.Random(7).randbytes(3 * MIB + 12345)
    (source / "sub" / "it's big").write_bytes(content)
    (source / "-small").write_text("small")
    cut_at = 2 * MIB + 77
    first = _streams.Piece(b"sub/it's big", 0, cut_at)
    second = _streams.Piece(b"sub/it's big", cut_at, len(content) - cut_at)
    for piece in (second, first):
        send = _streams.in_turn([_streams.send_piece("dd", piece), ["tar", "-cf", "-", "--", "./-small"]])
        receive = _streams.in_turn(
            [_streams.receive_piece("dd", str(target), piece), ["tar", "-C", str(target), "-xf", "-"]]
        )
        sender = subprocess.Popen(send, cwd=source, stdout=subprocess.PIPE)
        assert subprocess.run(receive, stdin=sender.stdout, check=False).returncode == 0
        assert sender.stdout is not None
        sender.stdout.close()
        assert sender.wait() == 0
        assert (target / "-small").read_text() == "small"
    assert (target / "sub" / "it's big").read_bytes() == content


@pytest.mark.parametrize(
    ("stages", "status", "told"),
    [
        (["cat", "cat >it"], 0, "hello"),
        (["cat; exit 3", "cat >it"], 3, "hello"),
        (["cat", "cat >it; exit 4"], 4, "hello"),
        (["cat; exit 3", "cat >it; exit 4"], 3, "hello"),
        (["cat", "exit 2"], 2, None),
        # A program that has lost its reader is not what failed first, unless nothing else did.
        (["yes", "exit 2"], 2, None),
        (["yes", "exit 0"], 141, None),
        (["cat"], 0, None),
    ],
)
def test_a_remote_pipeline_fails_where_a_stage_does(
    tmp_path: Path, stages: list[str], status: int, told: str | None
) -> None:
    argv = _streams.piped([["sh", "-c", stage] for stage in stages])
    done = subprocess.run(argv, cwd=tmp_path, input=b"hello", stdout=subprocess.PIPE, check=False)
    assert done.returncode == status
    if told is not None:
        assert (tmp_path / "it").read_text() == told
