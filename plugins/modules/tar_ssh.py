#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tar_ssh
short_description: Copies a directory as a tar stream over ssh, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one as C(tar | ssh tar).
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
  - linkops.bulkcopy.connection
  - linkops.bulkcopy.copy
  - linkops.bulkcopy.copy.ssh
  - linkops.bulkcopy.copy.tar
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
- name: Copy a release as a tar stream, compressed with gzip at its fastest
  linkops.bulkcopy.tar_ssh:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    compression: gzip
    compression_level: 1
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


from ansible_collections.linkops.bulkcopy.plugins.module_utils import _streams, _tar, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Commands, CopyMethod, Job, Stream, run_copy
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_OPTIONS, SSH_WINDOW_BYTES, ssh_label

#: What one core encrypts and sends, with AES-GCM, and what it compresses with zlib, in bytes a second.
_SSH_BPS = 250e6
_SSH_C_BPS = 25e6


class TarSsh(CopyMethod):
    name = "tar_ssh"
    source_programs = ("ssh", "tar", "dd", "mbuffer", *_tar.COMPRESSORS)
    target_programs = ("tar", "dd", "touch", "mbuffer", *_tar.COMPRESSORS)

    def label(self) -> str:
        return _tar.label(self.params, ssh_label(self.params))

    def mistake(self) -> str | None:
        return _tar.mistake(self.params) or _streams.mistake(self.params)

    def losses(self) -> frozenset[str]:
        # tar leaves sockets out, with a warning and status 0, and deletes nothing.
        return frozenset([_tree.SPECIAL_FILES, _tree.DELETIONS])

    def commands(self, job: Job) -> Commands:
        # tar runs the decompressor itself, and pieces of files are not in its archive.
        split = _tar.compression_of(job.params) is None
        planned = _tar.plan(job, _SSH_C_BPS if job.params["ssh_compression"] else _SSH_BPS, SSH_WINDOW_BYTES, split)
        if planned is None:
            return Commands([self._stream(job)])
        streams = [self._stream(job, number, part) for number, part in enumerate(planned.parts)]
        return Commands(streams, cwd=job.src, settled=planned.settled, planned_s=planned.took_s)

    def _stream(self, job: Job, number: int = 0, part: _streams.Part | None = None) -> Stream:
        receive = _streams.piped([*_tar.buffer(job.target, job.params), _tar.extract(job, part, through=True)])
        ssh = job.ssh.argv(job.source.program("ssh"), receive)
        send = [*_tar.compress(job.source, job.params), *_tar.buffer(job.source, job.params), ssh]
        return Stream([_tar.create(job, number, part), *send])


def main() -> None:
    run_copy(TarSsh, dict(_tar.TAR_OPTIONS, **_streams.STREAM_OPTIONS, **SSH_OPTIONS))


if __name__ == "__main__":
    main()
