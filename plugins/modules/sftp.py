#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sftp
short_description: Copies a directory with sftp, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one with C(put -R) in a batch of
    sftp.
  - Symbolic links and special files are left out, owners and hard links are not kept; that is sftp's nature and counted,
    not a fault.
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
  preserve:
    description:
      - Keep times and modes (C(put -pR)).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Copy a release with sftp, times and modes kept
  linkops.bulkcopy.sftp:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    preserve: true
  delegate_to: dc1-a
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

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Commands, CopyMethod, Job, Stream, run_copy
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_OPTIONS, Ended, ssh_label


def batch_word(path: str) -> str:
    """A path as a batch of sftp takes it: in double quotes, which keep all but themselves and the backslash. Raises
    C(Ended) for a path that a line cannot hold."""
    if "\n" in path:
        raise Ended("unsupported", f"dest {path!r} has a line break in it, which a batch of sftp cannot name")
    return '"{}"'.format(path.replace("\\", "\\\\").replace('"', '\\"'))


class Sftp(CopyMethod):
    name = "sftp"
    needs_clean_shell = True
    source_programs = ("ssh", "sftp")

    def label(self) -> str:
        letters = ("C" if self.params["ssh_compression"] else "") + ("p" if self.params["preserve"] else "")
        words = ["sftp", *(["-" + letters] if letters else [])]
        return " ".join(words + ssh_label({**self.params, "ssh_compression": False}).split()[1:])

    def version_option(self, program: str) -> str | None:
        # sftp has ssh's version and no option to tell it.
        return None if program == "sftp" else super().version_option(program)

    def losses(self) -> frozenset[str]:
        # Set-id bits are lost with -p too. So are times before 1970, which are no reason to compare no times at all.
        lost = frozenset(
            [_tree.SYMLINKS, _tree.SPECIAL_FILES, _tree.HARDLINKS, _tree.OWNER, _tree.MODE, _tree.DELETIONS]
        )
        return lost if self.params["preserve"] else lost | {_tree.MTIME}

    def commands(self, job: Job) -> Commands:
        batch = os.path.join(job.private_dir, "batch")
        put = "put -pR" if job.params["preserve"] else "put -R"
        with open(batch, "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(f"{put} . {batch_word(job.dest)}\n")
        argv = [job.source.program("sftp"), "-b", batch, *job.ssh.flags(), "--", job.ssh.operand_host]
        return Commands([Stream([argv])], cwd=job.src)


def main() -> None:
    run_copy(Sftp, dict(SSH_OPTIONS, preserve={"type": "bool", "default": False}))


if __name__ == "__main__":
    main()
