#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rsync_daemon
short_description: Copies a directory with rsync to a daemon, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one with C(rsync -a) to an rsync
    daemon, without ssh for the data.
  - The module starts the daemon on the target for the time of the copy, as the copy user, on a free port of O(address). It
    lets in only the source's address, only with a secret that is made for this copy, and only to write into the
    destination. The secret and the daemon's configuration lie in files that only the copy user can read, and are removed
    with the daemon.
  - The data crosses the network unencrypted. Use it on networks that you trust only.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
  - linkops.bulkcopy.connection
  - linkops.bulkcopy.copy
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
- name: Copy a release in clear text within the storage network
  linkops.bulkcopy.rsync_daemon:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
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

import re
import secrets

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _rsync, _streams
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Commands, CopyMethod, Job, Stream, run_copy
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ended

#: The daemon's names for what it lets write there, and for who may.
_MODULE = "copy"
_USER = "bulkcopy"

#: A daemon of root would else write as somebody else, and only root's may be told as whom. Without a chroot, which only
#: root can make, a daemon takes the slash off links that lead to absolute paths.
_AS_ROOT = "use chroot = yes\nnumeric ids = no\nuid = 0\ngid = 0\n"
_AS_USER = "use chroot = no\n"

#: See rsyncd.conf(5). Names are not asked of a name server; links are not marked, as they would be.
_CONFIGURATION = """\
address = {address}
reverse lookup = no
{owner}[{module}]
path = {path}/
read only = no
write only = yes
list = no
munge symlinks = no
hosts allow = {peer}
auth users = {user}
secrets file = {secrets_file}
"""


class RsyncDaemon(CopyMethod):
    name = "rsync_daemon"
    encrypted = False
    sessions = 0
    listens = True
    source_programs = ("rsync",)
    target_programs = ("rsync",)

    def label(self) -> str:
        return _rsync.label("rsyncd", self.params) + _streams.label(self.params)

    def mistake(self) -> str | None:
        return _rsync.mistake(self.params) or _streams.mistake(self.params)

    def losses(self) -> frozenset[str]:
        return _rsync.losses(self.params)

    def commands(self, job: Job) -> Commands:
        begin = _rsync.arguments(job.params, job.source, job.target)
        port = job.free_ports(1)[0]
        secret = secrets.token_hex(16)
        daemon = self._daemon(job, port, secret)
        password = job.source.private_file("password", secret + "\n")
        end = [f"--password-file={password}", "--", "./"]
        end.append(f"rsync://{_USER}@{job.ssh.operand_host}:{port}/{_MODULE}/")
        planned = _rsync.plan(job, None)
        if planned is None:
            return Commands([Stream([[*begin, *_rsync.whole(job), *end]], [daemon], port, serves=True)], cwd=job.src)
        # One daemon serves them all.
        streams = [
            Stream([[*begin, *_rsync.listed(job, number, part), *end]], [] if number else [daemon], port, serves=True)
            for number, part in enumerate(planned.parts)
        ]
        return Commands(streams, cwd=job.src, settled=planned.settled, planned_s=planned.took_s)

    def _daemon(self, job: Job, port: int, secret: str) -> list[str]:
        if job.peer is None:
            raise Ended(
                "unsupported",
                f"target {job.target.name} does not tell from which address the source comes (SSH_CONNECTION), so that the "
                "daemon cannot let in nobody else: choose rsync",
            )
        path = job.dest.rstrip("/")
        if "\n" in path or re.search(r"%\w+%", path):
            raise Ended(
                "unsupported", f"dest {path!r} has a line break or a %NAME% in it, which rsyncd.conf cannot name"
            )
        configuration = _CONFIGURATION.format(
            address=job.ssh.address,
            owner=_AS_ROOT if job.target.is_root else _AS_USER,
            module=_MODULE,
            path=path,
            peer=job.peer,
            user=_USER,
            secrets_file=job.target.private_file("rsyncd.secrets", f"{_USER}:{secret}\n"),
        )
        return [
            job.target.program("rsync"),
            "--daemon",
            "--no-detach",
            "--config=" + job.target.private_file("rsyncd.conf", configuration),
            f"--port={port}",
            # It would otherwise write to the host's system log.
            "--log-file=" + job.target.private_file("rsyncd.log", ""),
        ]


def main() -> None:
    run_copy(RsyncDaemon, dict(_rsync.RSYNC_OPTIONS, **_streams.STREAM_OPTIONS))


if __name__ == "__main__":
    main()
