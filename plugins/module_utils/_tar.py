# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Host

#: The compressors that all read standard input, write standard output with -c, decompress with -d and take a level as
#: -N; with the highest level of each.
COMPRESSORS = {"gzip": 9, "pigz": 9, "bzip2": 9, "xz": 9, "zstd": 19, "lz4": 12}

COMPRESSION_OPTIONS: dict[str, dict[str, Any]] = {
    "compression": {"type": "str", "choices": ["none", *COMPRESSORS], "default": "none"},
    "compression_level": {"type": "int"},
}


def compression_of(params: Mapping[str, Any]) -> str | None:
    """The chosen compressor, or null for none."""
    return None if params["compression"] == "none" else str(params["compression"])


def bad_level(params: Mapping[str, Any]) -> str | None:
    """What is wrong with the compression level, or null."""
    level, program = params["compression_level"], compression_of(params)
    if level is None:
        return None
    if program is None:
        return "compression_level needs a compression to apply to"
    if not 1 <= level <= COMPRESSORS[program]:
        return f"compression_level {level} is not one of {program}'s: choose 1 to {COMPRESSORS[program]}"
    return None


def label(params: Mapping[str, Any], transport: str) -> str:
    """C(tar|gzip -1|ssh) and the like."""
    parts = ["tar"]
    program = compression_of(params)
    if program:
        level = params["compression_level"]
        parts.append(program if level is None else f"{program} -{level}")
    return "|".join([*parts, transport])


def _in_directory(path: str) -> list[str]:
    """tar's option for a working directory; GNU tar reads backslashes in it as escapes unless told not to."""
    return [*(["--no-unquote"] if "\\" in path else []), "-C", path]


def create(host: Host, src: str) -> list[str]:
    """The argv that writes the content of C(src) as an archive to standard output."""
    return [host.program("tar"), *_in_directory(src), "-cf", "-", "--", "."]


def compress(host: Host, params: Mapping[str, Any]) -> list[list[str]]:
    """The stage that compresses, as a list of none or one."""
    program, level = compression_of(params), params["compression_level"]
    if program is None:
        return []
    return [[host.program(program, "choose compression: gzip"), *([] if level is None else [f"-{level}"]), "-c"]]


def decompress(host: Host, params: Mapping[str, Any]) -> list[list[str]]:
    """The stage that decompresses, as a list of none or one."""
    program = compression_of(params)
    return [[host.program(program, "choose compression: gzip"), "-d", "-c"]] if program else []


def extract(host: Host, dest: str, params: Mapping[str, Any] | None = None) -> list[str]:
    """The argv that reads an archive from standard input into C(dest), modes as they were whatever the umask. With
    C(params) tar runs the decompressor itself and answers for its status."""
    through = []
    program = compression_of(params) if params else None
    if program:
        through = ["--use-compress-program=" + host.program(program, "choose compression: gzip")]
    return [host.program("tar"), *through, *_in_directory(dest), "-xpf", "-"]
