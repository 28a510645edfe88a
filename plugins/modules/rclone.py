#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rclone
short_description: Copies a directory with rclone over SFTP, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one with C(rclone copy) and its backend
    for SFTP, several files at a time.
  - From version 1.62 on rclone uses the host's ssh, with the link's settings. An older one has an ssh client of its own,
    which knows neither jump hosts nor O(ssh_options), and takes no cipher, MAC or compression from here.
  - Symbolic links and special files are left out; modes, owners, hard links and the times of directories are not kept.
    That is rclone's nature and counted, not a fault.
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
  transfers:
    description:
      - How many files are copied at the same time (C(--transfers)). By default rclone's own number.
    type: int
  checkers:
    description:
      - How many files are looked at at the same time (C(--checkers)). By default rclone's own number.
    type: int
  extra_args:
    description:
      - More arguments for rclone, each one reaching it byte for byte; nothing is split or unquoted.
    type: list
    elements: str
    default: []
requirements:
  - rclone on the source
"""

EXAMPLES = r"""
- name: Copy a release with rclone, eight files at a time
  linkops.bulkcopy.rclone:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    transfers: 8
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
import re

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Commands, CopyMethod, Job, Stream, run_copy
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_OPTIONS, Ended, ssh_label

#: Since when it can use another ssh than its own (C(--sftp-ssh)).
_EXTERNAL_SSH = (1, 62)

_REMOTE = "target"


class Rclone(CopyMethod):
    name = "rclone"
    sessions = None
    needs_clean_shell = True
    source_programs = ("ssh", "rclone")

    def label(self) -> str:
        numbers = [
            f"--{name} {self.params[name]}" for name in ("transfers", "checkers") if self.params[name] is not None
        ]
        over = ssh_label(self.params)
        words = ["rclone", *numbers, *self.params["extra_args"], *([] if over == "ssh" else [f"--sftp-ssh '{over}'"])]
        return " ".join(words)

    def mistake(self) -> str | None:
        for name in ("transfers", "checkers"):
            if self.params[name] is not None and self.params[name] < 1:
                return f"{name} {self.params[name]} is below 1"
        return None

    def losses(self) -> frozenset[str]:
        return frozenset([_tree.SYMLINKS, _tree.SPECIAL_FILES, _tree.HARDLINKS, _tree.MODE, _tree.OWNER, _tree.MTIME])

    def commands(self, job: Job) -> Commands:
        rclone = job.source.program("rclone")
        found = re.search(r"v(\d+)\.(\d+)", job.source.version("rclone") or "")
        external = found is not None and (int(found.group(1)), int(found.group(2))) >= _EXTERNAL_SSH
        settings = self._host_ssh(job) if external else self._own_ssh(job)
        # It asks the target's shell what it is, unless that is known.
        lines = [
            f"[{_REMOTE}]",
            "type = sftp",
            "shell_type = unix",
            *(f"{key} = {value}" for key, value in settings.items()),
        ]
        numbers = [f"--{name}={job.params[name]}" for name in ("transfers", "checkers") if job.params[name] is not None]
        argv = [
            rclone,
            "sync" if job.update else "copy",
            "--config=" + job.source.private_file("rclone.conf", "\n".join(lines) + "\n"),
            "--quiet",
            "--create-empty-src-dirs",
            *numbers,
            *job.params["extra_args"],
            "--",
            ".",
            f"{_REMOTE}:{job.dest}",
        ]
        return Commands([Stream([argv])], cwd=job.src, own_ssh=not external)

    def _host_ssh(self, job: Job) -> dict[str, str]:
        # rclone's lists are divided by spaces, and a word with one in it stands in double quotes.
        words = [
            job.source.program("ssh"),
            "-F",
            job.source.private_file("ssh_config", job.ssh.config()),
            job.ssh.address,
        ]
        return {"ssh": " ".join(f'"{word}"' if " " in word else word for word in words)}

    def _own_ssh(self, job: Job) -> dict[str, str]:
        """The login for rclone's own ssh client, as far as it can be told."""
        asked = [name for name in SSH_OPTIONS if job.params[name]]
        told: dict[str, str] = {}
        said = job.source.ask([job.source.program("ssh"), *job.ssh.flags(), "-G", "--", job.ssh.address])
        for line in said.splitlines():
            name, _space, value = line.partition(" ")
            told.setdefault(name, value)
        # ssh tries several keys and lists of host keys; rclone takes one.
        keys = [line.partition(" ")[2] for line in said.splitlines() if line.startswith("identityfile ")]
        asked += [name for name in ("proxyjump", "proxycommand") if told.get(name, "none") != "none"]
        if asked:
            raise Ended(
                "unsupported",
                f"rclone on source {job.source.name} is older than 1.62 and uses an ssh client of its own, which does not "
                f"know {', '.join(asked)}: install a newer one there or leave it out",
            )
        key = job.ssh.identity_file or next(
            (path for path in map(os.path.expanduser, keys) if os.path.exists(path)), None
        )
        hosts = told.get("userknownhostsfile", "").split()
        known = job.ssh.known_hosts or next(
            (path for path in map(os.path.expanduser, hosts) if os.path.exists(path)), None
        )
        if known is None:
            raise Ended(
                "unsupported",
                f"rclone on source {job.source.name} would trust any machine, since there is no file of known host keys: set "
                "ssh_known_hosts",
            )
        settings = {"host": job.ssh.address, "known_hosts_file": known}
        login = {"user": job.ssh.user or told.get("user"), "port": job.ssh.port or told.get("port")}
        settings.update({name: str(value) for name, value in login.items() if value})
        # Without a key it asks the agent that keeps them.
        return dict(settings, key_file=key) if key else settings


def main() -> None:
    run_copy(
        Rclone,
        {
            **SSH_OPTIONS,
            "transfers": {"type": "int"},
            "checkers": {"type": "int"},
            "extra_args": {"type": "list", "elements": "str", "default": []},
        },
    )


if __name__ == "__main__":
    main()
