#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fpsync
short_description: Copies a directory with fpsync, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one with C(fpsync), which cuts the tree
    into parts with fpart and carries these by several rsyncs over ssh.
  - The times of directories are lost where a later part writes into them, and hard links are; that is its nature and
    counted, not a fault.
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
  workers:
    description:
      - How many rsyncs work at the same time (C(-n)). By default fpsync's own number.
    type: int
  files_per_job:
    description:
      - The most files that one rsync carries (C(-f)). By default fpsync's own number.
    type: int
  bytes_per_job:
    description:
      - The most bytes that one rsync carries (C(-s)). By default fpsync's own number.
    type: int
requirements:
  - fpart on the source, rsync on both hosts
"""

EXAMPLES = r"""
- name: Copy a release with four rsyncs at a time
  linkops.bulkcopy.fpsync:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    workers: 4
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

import re

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _rsync, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Commands, CopyMethod, Job, Stream, run_copy
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_OPTIONS, Ended, ssh_label

#: Options of ours, and what fpsync calls them.
_NUMBERS = {"workers": "-n", "files_per_job": "-f", "bytes_per_job": "-s"}

#: fpsync's own, and that the destination's name goes through rsync's own channel.
_RSYNC = "-lptgoD -v --numeric-ids -s"

#: fpsync writes names into shell scripts, between quotes of both kinds.
_UNSAFE = re.compile(r"[\"'`$\\\n|&]")


class Fpsync(CopyMethod):
    name = "fpsync"
    sessions = None
    needs_clean_shell = True
    source_programs = ("ssh", "fpsync", "fpart", "rsync", "env")
    target_programs = ("rsync",)

    def label(self) -> str:
        given = [f"{flag} {self.params[name]}" for name, flag in _NUMBERS.items() if self.params[name] is not None]
        over = ssh_label(self.params)
        return " ".join(["fpsync", *given, *([] if over == "ssh" else [f"-e '{over}'"])])

    def mistake(self) -> str | None:
        for name in _NUMBERS:
            if self.params[name] is not None and self.params[name] < 1:
                return f"{name} {self.params[name]} is below 1"
        return None

    def version_option(self, program: str) -> str | None:
        return {"fpsync": "-h", "fpart": "-V", "env": None}.get(program, super().version_option(program))

    def losses(self) -> frozenset[str]:
        return frozenset([_tree.HARDLINKS, _tree.MTIME, _tree.DELETIONS])

    def commands(self, job: Job) -> Commands:
        fpsync = job.source.program("fpsync", "its package (fpart)")
        for name in ("fpart", "rsync"):
            job.source.program(name)
        job.target.program("rsync")
        for path in (job.src, job.dest):
            if _UNSAFE.search(path):
                raise Ended(
                    "unsupported", f"fpsync passes {path!r} through a shell, which would read it as something else"
                )
        numbers = [[flag, str(job.params[name])] for name, flag in _NUMBERS.items() if job.params[name] is not None]
        argv = [
            job.source.program("env"),
            # fpsync's scripts would take quotes in rsync's -e for their own.
            "RSYNC_RSH=" + _rsync.remote_shell([job.source.program("ssh"), *job.ssh.flags()]),
            fpsync,
            *[word for pair in numbers for word in pair],
            "-t",
            job.private_dir,
            "-o",
            _RSYNC,
            job.src + "/",
            "{}:{}/".format(job.ssh.operand_host, job.dest.rstrip("/")),
        ]
        return Commands([Stream([argv])])


def main() -> None:
    run_copy(Fpsync, dict(SSH_OPTIONS, **{name: {"type": "int"} for name in _NUMBERS}))


if __name__ == "__main__":
    main()
