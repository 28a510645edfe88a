#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: scp
short_description: Copies a directory with scp, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one with C(scp -r).
  - Symbolic links are followed, special files are left out, owners and hard links are not kept; that is scp's nature
    and counted, not a fault.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
  - linkops.bulkcopy.connection
  - linkops.bulkcopy.copy
  - linkops.bulkcopy.copy.ssh
attributes:
  check_mode:
    support: full
    details:
      - Returns the exact commands and changes nothing on either host.
  diff_mode:
    support: none
  idempotent:
    support: N/A
    details:
      - A copy is made and measured each time; a destination that holds something is refused.

options:
  protocol:
    description:
      - What scp speaks. The two differ in speed and in what they keep, so neither stands in for the other.
    type: str
    choices:
      sftp: What scp speaks since OpenSSH 9.0; it needs an SFTP server on the target.
      legacy: The older protocol (C(scp -O)); it needs scp on the target.
    default: sftp
  preserve:
    description:
      - Keep times and modes (C(scp -p)).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Copy a release with scp and see what it costs
  linkops.bulkcopy.scp:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
  delegate_to: dc1-a
  register: copy

- name: Show the throughput
  ansible.builtin.debug:
    msg: "{{ (copy.record.throughput_Bps / 1000000) | round(1) }} MB/s"
"""

RETURN = r"""
record:
  description:
    - All that was measured, whatever the outcome; the same as the fact C(bulkcopy). What could not be measured is null,
      and RV(record.flags) says why.
  returned: always
  type: dict
  contains:
    status:
      description: How the run ended. The task fails unless it is V(ok), or V(planned) in check mode.
      type: str
      sample: ok
    message:
      description: Why it did not end V(ok), in one sentence.
      type: str
    flags:
      description: What to know before trusting a figure.
      type: list
      elements: str
      sample: [setup-dominated]
    stages:
      description: Every process of the pipeline, with C(end), C(argv), C(rc), C(wall_s), C(user_s), C(system_s), C(max_rss_bytes)
        and the end of its C(stderr). In check mode C(end) and C(argv) only.
      type: list
      elements: dict
    setup_s:
      description: Seconds spent before data could flow, on starting a listener for example.
      type: float
    wall_s:
      description: Seconds from the start of the first stage to the end of the last one, at either end.
      type: float
    total_s:
      description: RV(record.setup_s) and RV(record.wall_s) together, by which methods are compared.
      type: float
    durable_s:
      description: Seconds from the same start until the target's filesystem had written everything out.
      type: float
    throughput_Bps:
      description: Bytes of the files a second of RV(record.total_s).
      type: int
    cpu:
      description: For C(source) and C(target) the C(user_s), C(system_s), C(percent) of one core, and the C(basis).
      type: dict
    verified:
      description: How the copy was compared, the names that differ, and how many names lost what the method does not
        keep. Null with O(fidelity=true).
      type: dict
    fidelity:
      description: With O(fidelity=true) the C(cases), each with C(id), C(what) it is, how many C(names) it has and how many
        were C(kept), the C(outcome) (V(kept), V(changed), V(followed), V(lost), V(refused) or V(not-made)) and the
        C(detail). V(lost) is what is missing though the tool ended with 0, and what lost the attribute. V(refused) is what
        is missing where the tool said so by its status.
      type: dict
"""

import os
import re

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import (
    Commands,
    CopyMethod,
    Host,
    Job,
    Stream,
    run_copy,
)
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_OPTIONS, Ended, quote, ssh_label


def openssh_version(host: Host) -> tuple[int, int] | None:
    """(major, minor) of a host's OpenSSH, null where it is another ssh."""
    found = re.match(r"OpenSSH_(\d+)\.(\d+)", host.version("ssh") or "")
    return (int(found.group(1)), int(found.group(2))) if found else None


class Scp(CopyMethod):
    name = "scp"
    follows_symlinks = True
    needs_clean_shell = True
    source_programs = ("ssh", "scp")
    target_programs = ("scp",)

    def label(self) -> str:
        letters = ""
        letters += "O" if self.params["protocol"] == "legacy" else ""
        letters += "C" if self.params["ssh_compression"] else ""
        letters += "p" if self.params["preserve"] else ""
        words = ["scp", *(["-" + letters] if letters else [])]
        return " ".join(words + ssh_label({**self.params, "ssh_compression": False}).split()[1:])

    def version_option(self, program: str) -> str | None:
        # scp has ssh's version and no option to tell it.
        return None if program == "scp" else super().version_option(program)

    def losses(self) -> frozenset[str]:
        # Set-id bits are lost with -p too. So are times before 1970, which are no reason to compare no times at all.
        lost = frozenset(
            [_tree.SYMLINKS, _tree.SPECIAL_FILES, _tree.HARDLINKS, _tree.OWNER, _tree.MODE, _tree.DELETIONS]
        )
        return lost if self.params["preserve"] else lost | {_tree.MTIME}

    def commands(self, job: Job) -> Commands:
        # The old protocol refuses "." and scp has no option for a directory's content, so the operand is a link to the
        # source with the destination's name, copied into the directory above the destination.
        above, name = os.path.split(job.dest.rstrip("/"))
        os.symlink(job.src, os.path.join(job.private_dir, name))
        if job.params["protocol"] == "legacy":
            job.target.program("scp")
            above = quote(above)
        argv = [
            job.source.program("scp"),
            *self._protocol_flag(job.source),
            "-r",
            *(["-p"] if job.params["preserve"] else []),
            *job.ssh.flags(),
            "--",
            "./" + name,
            "{}:{}/".format(job.ssh.operand_host, above.rstrip("/")),
        ]
        return Commands([Stream([argv])], cwd=job.private_dir)

    def _protocol_flag(self, host: Host) -> tuple[str, ...]:
        """SFTP came with 8.7 as -s and became the default in 9.0; then -O asks for the old protocol."""
        version = openssh_version(host)
        if version is None:
            raise Ended(
                "unsupported", f"ssh on source {host.name} is not OpenSSH: which protocol its scp speaks is not known"
            )
        if self.params["protocol"] == "legacy":
            return ("-O",) if version >= (8, 7) else ()
        if version < (8, 7):
            raise Ended(
                "unsupported",
                f"scp of OpenSSH {version[0]}.{version[1]} on source {host.name} speaks the old protocol only: choose protocol: legacy",
            )
        return ("-s",) if version < (9, 0) else ()


def main() -> None:
    run_copy(
        Scp,
        {
            **SSH_OPTIONS,
            "protocol": {"type": "str", "choices": ["sftp", "legacy"], "default": "sftp"},
            "preserve": {"type": "bool", "default": False},
        },
    )


if __name__ == "__main__":
    main()
