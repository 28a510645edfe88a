# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _streams, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Host, Job
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ended

#: The compressors that all read standard input, write standard output with -c, decompress with -d and take a level as
#: -N; with the highest level of each.
COMPRESSORS = {"gzip": 9, "pigz": 9, "bzip2": 9, "xz": 9, "zstd": 19, "lz4": 12}

#: What one core compresses, in bytes a second; pigz takes every core by itself.
_CORE_BPS = {"gzip": 30e6, "bzip2": 12e6, "xz": 4e6, "zstd": 400e6, "lz4": 500e6}

#: What an archive can be told to keep beyond what it always does: GNU tar's options where it is made, and where it is
#: unpacked. Only this format has times to the nanosecond.
_KEEP: dict[str, tuple[list[str], list[str]]] = {
    "sparse": (["-S"], []),
    "xattrs": (["--xattrs", "--xattrs-include=*"], ["--xattrs", "--xattrs-include=*"]),
    "acls": (["--acls"], ["--acls"]),
    "times": (["--format=posix"], []),
}

#: Options of every method that sends archives: what is in them, and what they go through on their way.
TAR_OPTIONS: dict[str, dict[str, Any]] = {
    "compression": {"type": "str", "choices": ["none", *COMPRESSORS], "default": "none"},
    "compression_level": {"type": "int"},
    "buffer": {"type": "str"},
    "keep": {"type": "list", "elements": "str", "choices": list(_KEEP), "default": []},
}


def compression_of(params: Mapping[str, Any]) -> str | None:
    """The chosen compressor, or null for none."""
    return None if params["compression"] == "none" else str(params["compression"])


def mistake(params: Mapping[str, Any]) -> str | None:
    """What is wrong with C(TAR_OPTIONS), or null."""
    size = params["buffer"]
    if size is not None and not re.match(r"[1-9]\d*[kMG]$", size):
        return f"buffer {size!r} is not a size that mbuffer takes: give one like 512k, 64M or 1G"
    return _bad_level(params)


def _bad_level(params: Mapping[str, Any]) -> str | None:
    level, program = params["compression_level"], compression_of(params)
    if level is None:
        return None
    if program is None:
        return "compression_level needs a compression to apply to"
    if not 1 <= level <= COMPRESSORS[program]:
        return f"compression_level {level} is not one of {program}'s: choose 1 to {COMPRESSORS[program]}"
    return None


def label(params: Mapping[str, Any], transport: str) -> str:
    """C(tar|gzip -1|ssh), C(tar|mbuffer -m 64M|nc) and the like."""
    parts = [" ".join(["tar", *(source[0] for source, _target in _kept(params))])]
    program = compression_of(params)
    if program:
        level = params["compression_level"]
        parts.append(program if level is None else f"{program} -{level}")
    if params["buffer"]:
        parts.append(f"mbuffer -m {params['buffer']}")
    return "|".join([*parts, transport]) + _streams.label(params)


def core_Bps(params: Mapping[str, Any], transport_Bps: float) -> float:  # noqa: N802, N803
    """What one core carries of a stream in bytes a second, where its transport takes one at C(transport_Bps)."""
    return min(transport_Bps, _CORE_BPS.get(compression_of(params) or "", transport_Bps))


def _in_directory(path: str) -> list[str]:
    """tar's option for a working directory; GNU tar reads backslashes in it as escapes unless told not to."""
    return [*(["--no-unquote"] if "\\" in path else []), "-C", path]


def _kept(params: Mapping[str, Any]) -> list[tuple[list[str], list[str]]]:
    """The options of what is to be kept, in an order of ours."""
    return [options for name, options in _KEEP.items() if name in params["keep"]]


def _keep_at(host: Host, params: Mapping[str, Any], end: int) -> list[str]:
    """tar's options for what is to be kept, at the source (0) or the target (1). Raises C(Ended) where its tar cannot."""
    if not params["keep"]:
        return []
    tar = host.program("tar")
    if "GNU tar" not in (host.version("tar") or ""):
        raise Ended(
            "unsupported",
            f"tar on {host.end} {host.name} is not GNU tar, which keeps {', '.join(params['keep'])}: install it there or "
            "leave out keep",
        )
    options = [option for options in _kept(params) for option in options[end]]
    # It says so when it was built without, and then goes on.
    said = host.ask([tar, *options, "-cf", "/dev/null", "-T", "/dev/null"])
    if said:
        raise Ended(
            "unsupported",
            f"tar on {host.end} {host.name} cannot keep {', '.join(params['keep'])}, it says: {said.strip().splitlines()[0]}",
        )
    return options


def create(job: Job, number: int = 0, part: _streams.Part | None = None) -> list[str]:
    """The argv that writes the source's content as an archive to standard output, or C(part) of it, as stream
    C(number): first pieces of files, as they are, and then an archive of the other names."""
    tar, keep = job.source.program("tar"), _keep_at(job.source, job.params, 0)
    if part is None:
        return [tar, *keep, *_in_directory(job.src), "-cf", "-", "--", "."]
    # Names in a list are read as escapes and options unless it is said that they are not.
    listed = ["--no-unquote", "--no-recursion", "--null", "-C", job.src, "-T", _streams.write_list(job, number, part)]
    pieces = [_streams.send_piece(job.source.program("dd"), piece) for piece in part.pieces]
    return _streams.in_turn([*pieces, *([[tar, *keep, *listed, "-cf", "-"]] if part.names else [])])


def plan(job: Job, transport_Bps: float, window_bytes: int | None, split: bool) -> _streams.Planned | None:  # noqa: N803
    """C(_streams.plan) for archives."""
    keep = job.params["keep"]
    # A piece of a file has no holes.
    split = split and "sparse" not in keep
    more = bool({"xattrs", "acls"} & set(keep))
    planned = _streams.plan(job, core_Bps(job.params, transport_Bps), window_bytes, split, more)
    if planned is not None and planned.settled is not None and more:
        planned = planned._replace(settled=_only_kept(planned.settled, keep))
    if planned is not None and "GNU tar" not in (job.source.version("tar") or ""):
        raise Ended(
            "unsupported",
            f"tar on source {job.source.name} is not GNU tar, which reads the list of what a stream carries: install it "
            "there or choose streams: 1",
        )
    if planned is not None and planned.settled is not None and not more and _can_settle_within(job, planned.settled):
        planned = _streams.settle_within(planned)
    return planned


#: What a touch must know to give a file its time to the nanosecond; another one than GNU's may not.
_TOUCH_PROBE = "-c -m -d @1.000000001 -- /nonexistent"


def _can_settle_within(job: Job, settled: _tree.Manifest) -> bool:
    """Whether streams may set the attributes of directories and cut files while others still write there."""
    if job.update or "GNU tar" not in (job.target.version("tar") or ""):
        # What an older version has in a directory's place goes first; and another tar may not take one that is there.
        return False
    entries = settled.entries.values()
    if any(entry.kind == "f" for entry in entries) and (
        job.target.find("touch") is None or job.target.ask(["touch", *_TOUCH_PROBE.split()])
    ):
        return False
    # Who is not root must still be able to write there when one stream has ended.
    open_to_us = all(entry.mode & 0o200 and (entry.kind == "f" or entry.mode & 0o100) for entry in entries)
    return open_to_us or job.target.is_root


def _only_kept(settled: _tree.Manifest, keep: Sequence[str]) -> _tree.Manifest:
    """The names with no more of their attributes than tar is asked to keep."""

    def kept(entry: _tree.Entry) -> _tree.Entry:
        if entry.more is None:
            return entry
        xattrs = {
            name: value
            for name, value in entry.more.xattrs.items()
            if ("acls" if name in _tree.ACLS else "xattrs") in keep
        }
        return entry._replace(more=entry.more._replace(xattrs=xattrs))

    return _tree.Manifest({path: kept(entry) for path, entry in settled.entries.items()})


def compress(host: Host, params: Mapping[str, Any]) -> list[list[str]]:
    """The stage that compresses, as a list of none or one."""
    program, level = compression_of(params), params["compression_level"]
    if program is None:
        return []
    return [[host.program(program, "choose compression: gzip"), *([] if level is None else [f"-{level}"]), "-c"]]


def buffer(host: Host, params: Mapping[str, Any]) -> list[list[str]]:
    """The stage that evens out reading, sending and writing, as a list of none or one."""
    size = params["buffer"]
    return [[host.program("mbuffer", "leave out buffer"), "-q", "-m", size]] if size else []


def decompress(host: Host, params: Mapping[str, Any]) -> list[list[str]]:
    """The stage that decompresses, as a list of none or one."""
    program = compression_of(params)
    return [[host.program(program, "choose compression: gzip"), "-d", "-c"]] if program else []


def extract(job: Job, part: _streams.Part | None = None, through: bool = False) -> list[str]:
    """The argv that reads what C(create) wrote from standard input into the destination, modes as they were whatever the
    umask. With C(through) tar runs the decompressor itself and answers for its status."""
    host, options = job.target, []
    program = compression_of(job.params) if through else None
    if program:
        options = ["--use-compress-program=" + host.program(program, "choose compression: gzip")]
    tar = [host.program("tar"), *_keep_at(host, job.params, 1), *options, *_in_directory(job.dest), "-xpf", "-"]
    if part is None:
        return tar
    owner = bool(part.attributes) and host.is_root
    commands = _streams.make_places(job.dest, part)
    for piece in part.pieces:
        commands.append(_streams.receive_piece(host.program("dd"), job.dest, piece))
        commands += _streams.restore_piece(job.dest, part, piece, owner)
    return _streams.in_turn([*commands, *([tar] if part.names else [])])
