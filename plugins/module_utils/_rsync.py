# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from typing import Any, Mapping

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _streams, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Host, Job
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ended

#: The compressors of rsync(1) with their levels; lz4 has none to choose from.
_LEVELS = {"zstd": (-131072, 22), "zlib": (1, 9), "zlibx": (1, 9), "lz4": None}

#: The option of each choice, and what C(rsync --version) calls the list of those that it has.
_CHOICES = (("compress_choice", "--compress-choice", "Compress"), ("checksum_choice", "--checksum-choice", "Checksum"))

#: What one core sends, in bytes a second, as it is and compressed with zlib.
_RSYNC_BPS = 200e6
_RSYNC_Z_BPS = 25e6

#: Options of every method that runs rsync.
RSYNC_OPTIONS: dict[str, dict[str, Any]] = {
    "compress": {"type": "bool", "default": False},
    "compress_choice": {"type": "str", "choices": list(_LEVELS)},
    "compress_level": {"type": "int"},
    "whole_file": {"type": "bool", "default": False},
    "inplace": {"type": "bool", "default": False},
    "checksum": {"type": "bool", "default": False},
    "checksum_choice": {
        "type": "str",
        "choices": ["xxh128", "xxh3", "xxh64", "sha1", "md5", "md4", "none"],
    },
    "extra_args": {"type": "list", "elements": "str", "default": []},
}


def mistake(params: Mapping[str, Any]) -> str | None:
    """What is wrong with the options beyond what their types say, or null."""
    level, choice = params["compress_level"], params["compress_choice"]
    if level is not None:
        if choice is None and not params["compress"]:
            return "compress_level needs compress or a compress_choice to apply to"
        # Without a choice the two ends agree on one: then only what each of them knows is a level.
        limits = _LEVELS[choice or "zlib"]
        if limits is None:
            return f"compress_level {level} has no meaning for {choice}: it has no levels"
        if not limits[0] <= level <= limits[1]:
            return "compress_level {} is not one of {}'s: choose {} to {}".format(level, choice or "zlib", *limits)
    if params["checksum"] and params["checksum_choice"] == "none":
        return "checksum compares checksums and checksum_choice is none: leave one of them out"
    return None


def label(program: str, params: Mapping[str, Any]) -> str:
    """C(rsync -a), C(rsync -az), C(rsync --zc=zstd --zl=1 -W) and the like."""
    words = [program]
    if params["compress_choice"]:
        words.append("--zc=" + params["compress_choice"])
    else:
        words.append("-az" if params["compress"] else "-a")
    return " ".join([*words, *_short(params), *params["extra_args"]])


def _short(params: Mapping[str, Any]) -> list[str]:
    return [
        *([] if params["compress_level"] is None else [f"--zl={params['compress_level']}"]),
        *(["-W"] if params["whole_file"] else []),
        *(["--inplace"] if params["inplace"] else []),
        *(["-c"] if params["checksum"] else []),
        *([f"--cc={params['checksum_choice']}"] if params["checksum_choice"] else []),
    ]


def losses(params: Mapping[str, Any]) -> frozenset[str]:
    """What such an rsync does not keep."""
    keeps_links = any(re.match(r"-[A-Za-z]*H|--hard-links$", word) for word in params["extra_args"])
    lost = frozenset() if keeps_links else frozenset([_tree.HARDLINKS])
    # With a list of names rsync looks at no other ones.
    return lost if params["streams"] in (1, "1") else lost | {_tree.DELETIONS}


def arguments(params: Mapping[str, Any], source: Host, target: Host) -> list[str]:
    """The beginning of the argv, up to where rsync is told how to reach the other end. Raises C(Ended) where one of the
    ends has no rsync, or one that cannot do what is asked for."""
    target.program("rsync")
    argv = [source.program("rsync"), "-az" if params["compress"] or params["compress_choice"] else "-a"]
    for name, option, title in _CHOICES:
        if params[name]:
            _refuse_unknown(source, target, name, params[name], title)
            argv.append(f"{option}={params[name]}")
    if params["compress_level"] is not None:
        argv.append(f"--compress-level={params['compress_level']}")
    argv += [
        *(["--whole-file"] if params["whole_file"] else []),
        *(["--inplace"] if params["inplace"] else []),
        *(["--checksum"] if params["checksum"] else []),
        # The destination's name goes through rsync's own channel, not through a remote shell.
        "-s",
        *params["extra_args"],
    ]
    return argv


def remote_shell(argv: list[str]) -> str:
    """C(argv) as rsync's -e takes it: rsync splits at spaces itself, knows quotes, and reads a doubled one as one."""
    return " ".join(
        "'" + word.replace("'", "''") + "'" if re.search(r"[\s'\"]", word) or not word else word for word in argv
    )


def plan(job: Job, window_bytes: int | None) -> _streams.Planned | None:
    """C(_streams.plan) for rsync, which carries whole files."""
    compresses = any(job.params.get(name) for name in ("compress", "compress_choice", "ssh_compression"))
    return _streams.plan(job, _RSYNC_Z_BPS if compresses else _RSYNC_BPS, window_bytes, split=False)


def whole(job: Job) -> list[str]:
    """The arguments with which one stream carries all."""
    return ["--delete"] if job.update else []


def listed(job: Job, number: int, part: _streams.Part) -> list[str]:
    """The arguments with which stream C(number) carries C(part)."""
    # Directories are given their attributes at the very end, and no stream may close one to the others.
    return [f"--files-from={_streams.write_list(job, number, part)}", "--from0", "--no-implied-dirs"]


def _refuse_unknown(source: Host, target: Host, name: str, choice: str, title: str) -> None:
    for host in (source, target):
        said = host.ask([host.program("rsync"), "--version"])
        found = re.search(rf"^{title} list:\n((?: +.*\n?)+)", said, re.MULTILINE)
        if found is None:
            version = (said.splitlines() or ["an rsync without a version"])[0]
            raise Ended(
                "unsupported",
                f"{host.end} {host.name} has {version.strip()}, which does not tell what it can choose from: "
                f"{name} needs rsync 3.2.0 or later",
            )
        known = re.findall(r"[\w-]+", found.group(1))
        if choice not in known:
            raise Ended(
                "unsupported",
                f"rsync on {host.end} {host.name} was built without {choice}: choose a {name} of {', '.join(known)}",
            )
