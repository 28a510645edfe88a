# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What every copy method has in common."""

    DOCUMENTATION = r"""
options:
  src:
    description:
      - Directory on the host that the task runs on. Its content is copied, whatever the tool's own habit with trailing
        slashes is.
    type: path
    required: true
  dest:
    description:
      - Absolute path on the target. It is created where it is absent, and must be empty where it is not.
      - With O(scratch=true) the scratch directory.
    type: str
    required: true
  scratch:
    description:
      - Whether the copy is made for its measurement only. Then O(dest) is a directory with our marker file, the copy goes
        to C(tree) below it, and is deleted after it has been verified.
    type: bool
    default: false
  label:
    description:
      - What to call the method in the record. By default as the field writes it, C(tar|gzip -1|ssh) for example.
    type: str
  timeout_s:
    description:
      - Seconds after which the copy is ended at both ends.
    type: float
    default: 86400.0
  verify:
    description:
      - How the copy is compared with the source, after the clock has stopped.
    type: str
    choices:
      sha256: Names, kinds, sizes and the checksum of every file.
      size-mtime: Names, kinds, sizes and times.
      none: Not at all; the record says so.
    default: sha256
  cache:
    description:
      - The state of the page cache before the copy. The record has what the kernel says of the source then, as
        C(cache.achieved), and the share of its bytes that is in memory, as C(cache.resident).
    type: str
    choices:
      as-is: Whatever it is; the record says V(warm), V(cold) or C(partly-warm).
      warm: The source has been read once, and at least 99 % of it is in memory.
      cold: Neither host holds the data in memory, of the source at most 1 %; needs root at both ends.
    default: as-is
  update:
    description:
      - Whether the destination holds an older version that the copy brings to the state of O(src). Then it need not be
        empty. Names that are no longer in O(src) go too, where the method can delete; where it cannot, they are counted
        in C(verified.not_kept.deletions), and no other difference is left.
    type: bool
    default: false
  base:
    description:
      - With O(scratch=true) and O(update=true) the version that the copy begins with, put there by
        M(linkops.bulkcopy.base).
    type: str
  fidelity:
    description:
      - Whether O(src) is a tree of the shape V(fidelity) of M(linkops.bulkcopy.dataset), so that the record says of each
        hard case what became of it. The run ends V(ok) when all are judged, whatever was lost. Needs O(scratch=true).
      - Cases that were not kept are copied again, each by itself, when a tool has ended with a failure, so that one
        does not spoil the others. So is the file that grows while it is read.
    type: bool
    default: false
  link_Bps:
    description:
      - What the link carries, in bytes a second, for what adapts itself to it. A campaign fills in what it measured. By
        default 1 Gbit/s is taken.
    type: float
  link_stream_Bps:
    description:
      - What one TCP connection carries on the link, in bytes a second, where that was measured.
    type: float
  manifest:
    description:
      - File on the source, written by M(linkops.bulkcopy.tree_info), with checksums that stand while a file's size,
        times and inode are as they were. It saves reading the source once for every copy.
    type: path
notes:
  - The module runs on the source and pushes; use C(delegate_to) or a play over the sources.
seealso:
  - module: linkops.bulkcopy.tree_info
  - module: linkops.bulkcopy.link_info
"""

    SSH = r"""
options:
  ssh_compression:
    description:
      - Let ssh compress what it sends (C(ssh -C)). A C(Compression) in the user's ssh configuration counts for nothing
        here.
    type: bool
    default: false
  ssh_cipher:
    description:
      - The cipher of the copy's connection, by the name that C(ssh -Q cipher) has for it, V(aes128-gcm@openssh.com) for
        example. By default what both ends prefer. It comes before one in O(ssh_options).
    type: str
  ssh_mac:
    description:
      - The message authentication beside O(ssh_cipher), by the name that C(ssh -Q mac) has for it. Ciphers that
        authenticate by themselves (C(*-gcm@openssh.com), C(chacha20-poly1305@openssh.com)) use none.
    type: str
"""

    RSYNC = r"""
options:
  compress:
    description:
      - Let rsync compress what it sends (C(rsync -z)), by the compressor that both ends prefer.
    type: bool
    default: false
  compress_choice:
    description:
      - Let rsync compress with this (C(--compress-choice)). Needs rsync 3.2.0 or later, built with it, at both ends.
    type: str
    choices: [zstd, zlib, zlibx, lz4]
  compress_level:
    description:
      - Level of the compressor (C(--compress-level)), V(1) to V(9), for V(zstd) V(-131072) to V(22); V(lz4) has none. By
        default the compressor's own.
    type: int
  whole_file:
    description:
      - Send whole files, whatever the target has of them (C(--whole-file)).
    type: bool
    default: false
  inplace:
    description:
      - Write into the files themselves instead of beside them (C(--inplace)).
    type: bool
    default: false
  checksum:
    description:
      - Compare files by checksum instead of size and time (C(--checksum)).
    type: bool
    default: false
  checksum_choice:
    description:
      - The checksum that rsync uses (C(--checksum-choice)). Needs rsync 3.2.0 or later, built with it, at both ends. With
        V(none) whole files are sent and nothing is checked by rsync itself.
    type: str
    choices: [xxh128, xxh3, xxh64, sha1, md5, md4, none]
  extra_args:
    description:
      - More arguments for rsync on the source, each one reaching it byte for byte; nothing is split or unquoted.
    type: list
    elements: str
    default: []
"""

    STREAMS = r"""
options:
  streams:
    description:
      - How many streams, each with its own part of the tree, carry the copy side by side. The parts have about the same
        bytes and a fair number of names; hard-linked names stay together. The copy fails when one stream does.
      - V(auto) takes from one to eight, by what the link carries (O(link_Bps)), its round trip and the processors at hand.
      - Modes, owners and times of directories are set by the agent on the target when all streams have ended, which is
        part of the time measured; so is listing and cutting the tree.
      - More than eight ssh logins are not begun at one moment, since a server refuses from ten on (C(MaxStartups)).
    type: raw
    default: 1
"""

    TAR = r"""
options:
  compression:
    description:
      - The compressor that the archive goes through, at both ends.
    type: str
    choices: [none, gzip, pigz, bzip2, xz, zstd, lz4]
    default: none
  compression_level:
    description:
      - Level for O(compression), V(1) to V(9) (V(19) for V(zstd), V(12) for V(lz4)). By default the compressor's own.
    type: int
  buffer:
    description:
      - Memory of this size that evens out reading, sending and writing, V(64M) for example, by C(mbuffer) at both ends.
    type: str
  keep:
    description:
      - What the archive keeps beyond names, content, links, modes, owners and times to the second. Needs GNU tar at both
        ends.
      - With several streams the agent on the target sets directories' attributes when all have ended.
    type: list
    elements: str
    choices:
      sparse: Holes in files (C(-S)). With several streams no file is cut then.
      xattrs: Extended attributes (C(--xattrs)), those of every namespace that the users at both ends may read and set.
      acls: POSIX ACLs (C(--acls)).
      times: Times to the nanosecond (C(--format=posix)); V(xattrs) and V(acls) use this format too.
    default: []
"""
