# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One copy as several streams side by side: how many, and which part of the tree each carries."""

from __future__ import annotations

import math
import os
import shlex
import time
from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Job

AUTO = "auto"

STREAM_OPTIONS: dict[str, dict[str, Any]] = {
    "streams": {"type": "raw", "default": 1},
}

#: The most streams that may be asked for, and the most that C(auto) takes: on two cores 16 streams of 1 Gbit/s over 80 ms
#: were slower than 8.
MOST_STREAMS = 64
_MOST_AUTO = 8

#: How many times the streams that would just do C(auto) takes. Where windows are what fills the link, each of a few more
#: streams costs a login and gains little: on 1 Gbit/s x 80 ms, which five just fill, six took 19.0 s for 2 GB and eight
#: 19.9 s. Where a connection gets less than the link, it loses packets, and then has less than its share.
_WINDOW_HEADROOM = 1.25
_STREAM_HEADROOM = 2.0

#: A link whose rate nobody has measured, in bytes a second.
_UNKNOWN_BPS = 125e6

#: A file is cut only where each piece has this much: a piece costs a process at both ends.
_LEAST_PIECE_BYTES = 2 << 20

#: Neighbours in the tree travel together, in this many portions for each stream: they are read in the order in which they
#: lie on the disk, and few directories get names from two streams at once.
_PORTIONS = 16


def mistake(params: Mapping[str, Any]) -> str | None:
    """What is wrong with C(streams), or null."""
    if params["streams"] == AUTO or _number(params) is not None:
        return None
    return "streams {!r} is not a number of streams: give a whole number from 1 to {}, or {}".format(
        params["streams"], MOST_STREAMS, AUTO
    )


def _number(params: Mapping[str, Any]) -> int | None:
    wanted = params["streams"]
    if isinstance(wanted, str) and wanted.isdigit():
        wanted = int(wanted)
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        return None
    return wanted if 1 <= wanted <= MOST_STREAMS else None


def label(params: Mapping[str, Any]) -> str:
    """What follows a method's name: C( x8), C( xauto), nothing for one stream."""
    wanted = _number(params)
    return "" if wanted == 1 else f" x{AUTO if wanted is None else wanted}"


def auto(
    rate_Bps: float,  # noqa: N803
    stream_Bps: float | None,  # noqa: N803
    round_trip_s: float,
    window_bytes: int | None,
    cores: int,
    core_Bps: float,  # noqa: N803
) -> int:
    """How many streams fill a link of C(rate_Bps).

    A stream carries at most C(window_bytes) a round trip, and what one TCP connection carries on this link
    (C(stream_Bps), null where it is not known); somewhat more than that takes are started. Where one core
    cannot work at the link's rate (it does C(core_Bps)) there is a stream for each, up to the C(cores) at hand."""
    wanted = [min(float(cores), rate_Bps / core_Bps)]
    if window_bytes is not None:
        wanted.append(_WINDOW_HEADROOM * rate_Bps * round_trip_s / window_bytes)
    if stream_Bps:
        # One connection that gets nine tenths is enough.
        wanted.append(_STREAM_HEADROOM * rate_Bps / stream_Bps if stream_Bps < 0.9 * rate_Bps else 1.0)
    return max(1, min(_MOST_AUTO, math.ceil(max(wanted))))


class Piece(NamedTuple):
    """C(length) bytes of a regular file from C(offset) on."""

    path: bytes
    offset: int
    length: int


class Part(NamedTuple):
    """What one stream carries: whole names, directories among them only where they are empty, and pieces of files.
    C(attributes) are those of cut files and of directories that the stream itself has to set."""

    names: list[bytes]
    pieces: list[Piece]
    attributes: Mapping[bytes, _tree.Entry] = {}


class _Load:
    """A part that is being filled."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.pieces: list[Piece] = []
        self.bytes = 0


def cut(manifest: _tree.Manifest, streams: int, split: bool) -> list[Part]:
    """Cut a tree into at most C(streams) parts of about equal bytes and of a fair number of names each.

    The names of one hard-linked file stay together. With C(split) a large file is cut where the share of a stream ends
    (McNaughton's wrap-around rule, Management Science 6 (1959), 1-12), so that no more than C(streams - 1) files are.
    Directories that hold something are in no part."""
    holders = {path.rpartition(b"/")[0] for path in manifest.entries}
    groups: dict[bytes, list[bytes]] = {}
    for path in sorted(manifest.entries):
        if manifest.entries[path].kind != "d" or path not in holders:
            groups.setdefault(manifest.entries[path].same or path, []).append(path)
    size = {first: manifest.entries[first].size for first in groups}
    total_bytes, total_names = sum(size.values()), sum(map(len, groups.values()))
    large = [
        first for first, names in groups.items() if split and len(names) == 1 and size[first] >= 2 * _LEAST_PIECE_BYTES
    ]
    loads = [_Load() for _stream in range(streams)]
    small = [first for first in groups if first not in set(large)]
    portions = _portions(small, groups, size, total_bytes / (streams * _PORTIONS), total_names / (streams * _PORTIONS))
    # Largest first, each to where it hurts least: what is the fullest of bytes or names then.
    share = [
        (sum(size[first] for first in portion), sum(len(groups[first]) for first in portion)) for portion in portions
    ]
    for number in sorted(range(len(portions)), key=lambda number: share[number], reverse=True):
        more_bytes, more_names = share[number]
        load = min(
            loads,
            key=lambda load: max(
                (load.bytes + more_bytes) / (total_bytes or 1), (len(load.names) + more_names) / (total_names or 1)
            ),
        )
        load.bytes += more_bytes
        load.names += [name for first in portions[number] for name in groups[first]]
    _pour(large, size, loads)
    return [Part(sorted(load.names), load.pieces) for load in loads if load.names or load.pieces]


def _portions(
    firsts: Sequence[bytes],
    groups: Mapping[bytes, Sequence[bytes]],
    size: Mapping[bytes, int],
    most_bytes: float,
    most_names: float,
) -> list[list[bytes]]:
    """Neighbours put together as long as they are no more than that."""
    portions: list[list[bytes]] = []
    held_bytes = held_names = 0.0
    for first in firsts:
        held_bytes += size[first]
        held_names += len(groups[first])
        if not portions or held_bytes > most_bytes or held_names > most_names:
            portions.append([])
            held_bytes, held_names = size[first], len(groups[first])
        portions[-1].append(first)
    return portions


def _pour(large: Sequence[bytes], size: Mapping[bytes, int], loads: Sequence[_Load]) -> None:
    """Fill the parts with large files one after the other, each up to its share of what is left, cutting the file that
    does not fit."""
    pending = list(loads)
    left_bytes = sum(size[path] for path in large)
    for path in large:
        offset = 0
        while offset < size[path]:
            left = size[path] - offset
            room = math.ceil((left_bytes + sum(load.bytes for load in pending)) / len(pending)) - pending[0].bytes
            if len(pending) > 1 and room < min(_LEAST_PIECE_BYTES, left):
                pending.pop(0)
                continue
            length = left if len(pending) == 1 or left - room < _LEAST_PIECE_BYTES else room
            pending[0].bytes += length
            left_bytes -= length
            if length == size[path]:
                pending[0].names.append(path)
            else:
                pending[0].pieces.append(Piece(path, offset, length))
            offset += length


class Planned(NamedTuple):
    """The parts, what listing and cutting the tree took (in seconds), and the names whose mode, owner and times can only
    be set when every stream has ended: directories get names from several, pieces are no whole files. Null where each
    stream sets what it has a part in."""

    parts: list[Part]
    took_s: float
    settled: _tree.Manifest | None


def plan(
    job: Job,
    core_Bps: float,  # noqa: N803
    window_bytes: int | None,
    split: bool,
    more: bool = False,
) -> Planned | None:
    """The parts of a job; null where it is a single stream, which needs no list. With C(more) the names to settle have
    C(_tree.Entry.more)."""
    wanted = _number(job.params)
    if wanted is None:
        wanted = auto(
            job.link_Bps or _UNKNOWN_BPS, job.link_stream_Bps, job.round_trip_s(), window_bytes, job.cores, core_Bps
        )
    if wanted == 1:
        return None
    # What programs can do is no part of the copy, as their versions are none.
    split = split and can_split(job)
    began = time.monotonic()
    listed = job.list_source(more)
    parts = cut(listed, wanted, split)
    cut_files = {piece.path for part in parts for piece in part.pieces}
    settled = {path: entry for path, entry in listed.entries.items() if entry.kind == "d" or path in cut_files}
    return Planned(parts, time.monotonic() - began, _tree.Manifest(settled)) if len(parts) > 1 else None


def settle_within(planned: Planned) -> Planned:
    """The same with directories in the list of each stream that has a name or a piece below them, and with the attributes
    of cut files beside their pieces. Who writes last there then also sets them last, and nobody has to do it when all
    have ended: on a long link that is two round trips less."""
    if planned.settled is None:
        return planned
    began, entries = time.monotonic(), planned.settled.entries

    def within(part: Part) -> Part:
        above: set[bytes] = set()
        for path in (*part.names, *(piece.path for piece in part.pieces)):
            above.update(path[:end] for end, byte in enumerate(path) if byte == ord("/"))
        cut_files = {piece.path: entries[piece.path] for piece in part.pieces}
        return Part(sorted({*part.names, *above}), part.pieces, cut_files)

    parts = [within(part) for part in planned.parts]
    return Planned(parts, planned.took_s + time.monotonic() - began, None)


def write_list(job: Job, number: int, part: Part) -> str:
    """Write a part's names, each with C(./) before it and a null byte behind it, to a file on the source; its path."""
    path = os.path.join(job.private_dir, f"part-{number}")
    with open(path, "wb") as stream:
        stream.writelines(b"./" + name + b"\0" for name in part.names)
    return path


def send_piece(dd: str, piece: Piece) -> list[str]:
    """The argv that writes a piece to standard output; it runs in the source directory."""
    return [
        dd,
        "if=./" + os.fsdecode(piece.path),
        "iflag=skip_bytes,count_bytes,fullblock",
        f"skip={piece.offset}",
        f"count={piece.length}",
        "bs=1M",
        "status=none",
    ]


def receive_piece(dd: str, dest: str, piece: Piece) -> list[str]:
    """The argv that puts a piece from standard input into its place below C(dest), and reads not one byte more."""
    return [
        dd,
        "of=" + _below(dest, piece.path),
        "iflag=count_bytes,fullblock",
        "oflag=seek_bytes",
        "conv=notrunc",
        f"count={piece.length}",
        f"seek={piece.offset}",
        "bs=1M",
        "status=none",
    ]


def make_places(dest: str, part: Part) -> list[list[str]]:
    """The argvs after which a part's pieces have a place below C(dest), for nobody but us until it gets its mode; none
    where the stream does not make it."""
    if not part.attributes:
        return []
    places = {os.path.dirname(path) for path in part.attributes} - {b""}
    made = [["mkdir", "-p", "--", *(_below(dest, place) for place in sorted(places))]] if places else []
    return [["umask", "077"], *made]


def restore_piece(dest: str, part: Part, piece: Piece, owner: bool) -> list[list[str]]:
    """The argvs that give a cut file below C(dest) its attributes, with C(owner) its owner and group too; none where the
    stream does not. Every stream that has a piece of it does so after its own, so the last one does it last."""
    entry = part.attributes.get(piece.path)
    if entry is None:
        return []
    path = _below(dest, piece.path)
    seconds, rest_ns = divmod(abs(entry.mtime_ns), 10**9)
    sign = "-" if entry.mtime_ns < 0 else ""
    return [
        # First: a change of owner takes set-id bits away.
        *([["chown", f"{entry.uid}:{entry.gid}", "--", path]] if owner else []),
        ["chmod", f"{entry.mode:04o}", "--", path],
        ["touch", "-m", "-d", f"@{sign}{seconds}.{rest_ns:09d}", "--", path],
    ]


def _below(dest: str, path: bytes) -> str:
    return os.path.join(dest, os.fsdecode(path))


def in_turn(commands: Sequence[Sequence[str]]) -> list[str]:
    """One argv that runs commands one after the other with the same standard input and output, as long as each ends
    with 0."""
    if len(commands) == 1:
        return list(commands[0])
    words = [" ".join(map(shlex.quote, argv)) for argv in commands]
    return ["/bin/sh", "-c", " && ".join([*words[:-1], "exec " + words[-1]])]


#: Ends with the status of the first stage that failed by itself; 141 is that of one that has lost its reader.
_JUDGE = "for r in $s; do case $r in 0|141) ;; *) exit $r ;; esac; done; case $s in *141*) exit 141 ;; esac"


def piped(commands: Sequence[Sequence[str]]) -> list[str]:
    """One argv that runs commands at once, each feeding the next, and fails when any of them does."""
    if len(commands) == 1:
        return list(commands[0])
    stages = ["{ " + " ".join(map(shlex.quote, argv)) + "; echo $? >&3; }" for argv in commands]
    return ["/bin/sh", "-c", "s=$({ " + " | ".join(stages) + " >/dev/null; } 3>&1); " + _JUDGE]


#: What a dd must know to carry a piece; another one than GNU's may not.
_DD_PROBE = (
    "iflag=skip_bytes,count_bytes,fullblock oflag=seek_bytes conv=notrunc if=/dev/null of=/dev/null count=0 status=none"
)


def can_split(job: Job) -> bool:
    """Whether both ends have a dd that can carry a piece of a file."""
    for host in (job.source, job.target):
        dd = host.find("dd")
        if dd is None or host.ask([dd, *_DD_PROBE.split()]):
            return False
    return True
