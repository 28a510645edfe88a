#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rsync
short_description: Copies a directory with rsync over ssh, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one with C(rsync -a) over ssh.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
  - linkops.bulkcopy.connection
  - linkops.bulkcopy.copy
  - linkops.bulkcopy.copy.ssh
  - linkops.bulkcopy.copy.rsync
  - linkops.bulkcopy.copy.streams
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
"""

EXAMPLES = r"""
- name: Copy a release with rsync, hard links and ACLs kept
  linkops.bulkcopy.rsync:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    extra_args:
      - -HA
  delegate_to: dc1-a

- name: Compress with zstd and send whole files
  linkops.bulkcopy.rsync:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    compress_choice: zstd
    compress_level: 1
    whole_file: true
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

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _rsync, _streams
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Commands, CopyMethod, Job, Stream, run_copy
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_OPTIONS, SSH_WINDOW_BYTES, ssh_label


class Rsync(CopyMethod):
    name = "rsync"
    needs_clean_shell = True
    source_programs = ("ssh", "rsync")
    target_programs = ("rsync",)

    def label(self) -> str:
        words = _rsync.label("rsync", self.params)
        over = ssh_label(self.params)
        return (words if over == "ssh" else f"{words} -e '{over}'") + _streams.label(self.params)

    def mistake(self) -> str | None:
        return _rsync.mistake(self.params) or _streams.mistake(self.params)

    def losses(self) -> frozenset[str]:
        return _rsync.losses(self.params)

    def commands(self, job: Job) -> Commands:
        begin = _rsync.arguments(job.params, job.source, job.target)
        planned = _rsync.plan(job, SSH_WINDOW_BYTES)
        if planned is None:
            return Commands([Stream([self._argv(job, [*begin, *_rsync.whole(job)])])], cwd=job.src)
        streams = [
            Stream([self._argv(job, [*begin, *_rsync.listed(job, number, part)])])
            for number, part in enumerate(planned.parts)
        ]
        return Commands(streams, cwd=job.src, settled=planned.settled, planned_s=planned.took_s)

    def _argv(self, job: Job, begin: list[str]) -> list[str]:
        return [
            *begin,
            "-e",
            _rsync.remote_shell([job.source.program("ssh"), *job.ssh.flags()]),
            "--",
            "./",
            "{}:{}/".format(job.ssh.operand_host, job.dest.rstrip("/")),
        ]


def main() -> None:
    run_copy(Rsync, dict(_rsync.RSYNC_OPTIONS, **SSH_OPTIONS, **_streams.STREAM_OPTIONS))


if __name__ == "__main__":
    main()
