#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: command
short_description: Copies a directory with your own command lines, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one with the programs that you name,
    and measures and verifies that copy like any other. So tools that the collection does not know are compared with those
    that it does.
  - No shell is involved. A stage is a list of words, and a stage's output is the next one's input. In each word the
    names below are replaced where they stand in braces. Other braces stay as they are; C({open}) and C({close}) stand for
    braces round a word that is none of these names.
  - C({src}) and C({dest}) are the two directories; the stages on the source run in C({src}).
  - C({address}) is the target's address, and C({host}) the same as it stands before a colon, in brackets for IPv6.
  - C({port}) is a free port on the target's address, C({peer}) the source's address as the target sees it.
  - C({ssh_config}) is a file for C(ssh -F) and for all programs that read ssh's configuration, with everything that the
    link and this module's options say of the login. C({ssh_user}), C({ssh_port}), C({ssh_identity_file}) and
    C({ssh_known_hosts}) are what ssh makes of them.
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
  source:
    description:
      - The stages on the source, each a list of words, the first one's being the program. Every one must end with 0.
    type: list
    elements: raw
    required: true
  target:
    description:
      - The stages on the target, which the module starts there before those on the source. One of them must listen on
        C({port}) of the target's address and nowhere else.
    type: list
    elements: raw
    default: []
  target_serves:
    description:
      - Whether the stages on the target do not end by themselves. Then they are ended after the copy, and how they end says
        nothing.
    type: bool
    default: false
  encrypted:
    description:
      - Whether the data crosses the network encrypted, which the module cannot know. Only encrypted methods are recommended.
    type: bool
    required: true
  logins:
    description:
      - How many logins at the target's ssh server the stages make altogether. Without it the target's CPU time is not known,
        unless O(target) is there.
    type: int
  may_lose:
    description:
      - What the programs do not keep by their nature. It is counted; the loss of data or of anything else is a fault.
    type: list
    elements: str
    choices: [symlinks, special_files, hardlinks, mode, owner, mtime, deletions]
    default: []
  follows_symlinks:
    description:
      - Whether the programs copy what a symbolic link leads to. Then a link that leads in a circle is refused, and
        V(symlinks) should be in O(may_lose).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Copy with eight connections of mscp
  linkops.bulkcopy.command:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    label: mscp -n 8
    encrypted: true
    source:
      - [mscp, -q, -n, "8", -F, "{ssh_config}", ., "{host}:{dest}"]
    follows_symlinks: true
    may_lose: [symlinks, special_files, hardlinks, owner, mode, mtime]
  delegate_to: dc1-a

- name: Copy as a tar stream through hpn-ssh, whose window grows with the link
  linkops.bulkcopy.command:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    label: tar|hpnssh
    encrypted: true
    logins: 1
    source:
      - [tar, -cf, "-", .]
      - [hpnssh, -F, "{ssh_config}", -p, "2222", "{address}", "tar -C '{dest}' -xpf -"]
    may_lose: [special_files]
  delegate_to: dc1-a

- name: Copy with eight connections of bbcp, which are not encrypted
  linkops.bulkcopy.command:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    label: bbcp -s 8
    encrypted: false
    source:
      # Its -T says how it starts itself on the target.
      - [bbcp, -r, -s, "8", -T, "ssh -F {ssh_config} %H bbcp", ., "{host}:{dest}/"]
    follows_symlinks: true
    may_lose: [symlinks, special_files, hardlinks, owner, mode, mtime]
  delegate_to: dc1-a

- name: Copy with programs at both ends
  linkops.bulkcopy.command:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
    label: cpio|ncat
    encrypted: false
    source:
      - [find, ., -mindepth, "1", -print0]
      - [cpio, --quiet, -0, -o, -H, newc]
      - [ncat, --send-only, "{address}", "{port}"]
    target:
      - [ncat, -l, "{address}", "{port}"]
      - [cpio, --quiet, -i, -d, -m, -D, "{dest}"]
    may_lose: [mtime, special_files]
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
import shlex
from typing import Any, Callable, Mapping

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import Commands, CopyMethod, Job, Stream, run_copy
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_OPTIONS, Ended

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

_PORT = "port"


def _asked(job: Job) -> dict[str, str]:
    """What ssh makes of the settings, by its own names; the first value of each."""
    said = job.source.ask([job.source.program("ssh"), *job.ssh.flags(), "-G", "--", job.ssh.address])
    told: dict[str, str] = {}
    for line in said.splitlines():
        name, _space, value = line.partition(" ")
        told.setdefault(name, value)
    return told


def _known(job: Job, name: str, value: str | None) -> str:
    """Raises C(Ended) where nobody has said it."""
    if value:
        return value
    raise Ended("unsupported", f"{{{name}}} is used and not known for target {job.target.name}: set {name} of the link")


#: What each placeholder stands for, told when it is used.
PLACEHOLDERS: dict[str, Callable[[Job], str]] = {
    "src": lambda job: job.src,
    "dest": lambda job: job.dest,
    "address": lambda job: job.ssh.address,
    "host": lambda job: job.ssh.operand_host,
    _PORT: lambda job: str(job.free_ports(1)[0]),
    "peer": lambda job: _known(job, "peer", job.peer),
    "ssh_config": lambda job: job.source.private_file("ssh_config", job.ssh.config()),
    "ssh_user": lambda job: _known(job, "ssh_user", job.ssh.user or _asked(job).get("user")),
    "ssh_port": lambda job: _known(job, "ssh_port", str(job.ssh.port or "") or _asked(job).get("port")),
    "ssh_identity_file": lambda job: _known(job, "ssh_identity_file", job.ssh.identity_file),
    "ssh_known_hosts": lambda job: _known(job, "ssh_known_hosts", job.ssh.known_hosts),
    "open": lambda job: "{",
    "close": lambda job: "}",
}


def used(stages: Any) -> set[str]:
    """The names in braces in well-formed stages."""
    return {name for argv in stages for word in argv for name in _PLACEHOLDER.findall(word)}


def expand(stages: Any, values: Mapping[str, str]) -> list[list[str]]:
    """The stages with each name in braces replaced, once."""
    return [[_PLACEHOLDER.sub(lambda found: values[found.group(1)], word) for word in argv] for argv in stages]


class Command(CopyMethod):
    name = "command"
    source_programs = ("ssh",)

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self.encrypted = bool(params["encrypted"])
        self.follows_symlinks = bool(params["follows_symlinks"])
        self.listens = bool(params["target"])
        self.sessions = params["logins"]
        if self.mistake() is None:
            self.source_programs = ("ssh", *(argv[0] for argv in params["source"]))
            self.target_programs = tuple(argv[0] for argv in params["target"])

    def label(self) -> str:
        return "|".join(" ".join(shlex.quote(str(word)) for word in argv) for argv in self.params["source"])

    def version_option(self, program: str) -> str | None:
        # What a program that nobody knows does with --version nobody knows either.
        return super().version_option(program) if program == "ssh" else None

    def mistake(self) -> str | None:
        for end in ("source", "target"):
            for number, argv in enumerate(self.params[end], 1):
                if (
                    not isinstance(argv, list)
                    or not argv
                    or not all(isinstance(word, str) and word for word in argv[:1])
                ):
                    return f"stage {number} of {end} is not a list of words that begins with a program: {argv!r}"
                wrong = next((word for word in argv if not isinstance(word, str)), None)
                if wrong is not None:
                    return f"stage {number} of {end} has {wrong!r} in it, which is not a text: put it in quotes"
                unknown = used([argv]) - set(PLACEHOLDERS)
                if unknown:
                    return "stage {} of {} has the unknown name {{{}}} in it; known are {}".format(
                        number, end, min(unknown), ", ".join(sorted(PLACEHOLDERS))
                    )
        if not self.params["source"]:
            return "source has no stage: give one list of words for each program"
        ports = [_PORT in used(self.params[end]) for end in ("source", "target")]
        if self.params["target"] and not all(ports):
            return f"{'source' if ports[1] else 'target'} does not use {{{_PORT}}}, where the target has to listen"
        if ports[0] and not self.params["target"]:
            return f"source uses {{{_PORT}}}, and there is no target to listen on it"
        if self.params["target_serves"] and not self.params["target"]:
            return "target_serves is set, and there is no target"
        if self.params["logins"] is not None and self.params["logins"] < 0:
            return f"logins {self.params['logins']} is not a number of logins"
        return None

    def losses(self) -> frozenset[str]:
        return frozenset(self.params["may_lose"])

    def commands(self, job: Job) -> Commands:
        names = used(job.params["source"]) | used(job.params["target"])
        values = {name: PLACEHOLDERS[name](job) for name in sorted(names)}
        source, target = expand(job.params["source"], values), expand(job.params["target"], values)
        for host, stages in ((job.source, source), (job.target, target)):
            for argv in stages:
                argv[0] = host.program(argv[0])
        stream = Stream(source, target, int(values.get(_PORT, 0)), job.params["target_serves"])
        return Commands([stream], cwd=job.src, own_ssh=self.encrypted)


def main() -> None:
    run_copy(
        Command,
        {
            **SSH_OPTIONS,
            "source": {"type": "list", "elements": "raw", "required": True},
            "target": {"type": "list", "elements": "raw", "default": []},
            "target_serves": {"type": "bool", "default": False},
            "encrypted": {"type": "bool", "required": True},
            "logins": {"type": "int"},
            "may_lose": {"type": "list", "elements": "str", "choices": sorted(_tree.LOSSES), "default": []},
            "follows_symlinks": {"type": "bool", "default": False},
        },
    )


if __name__ == "__main__":
    main()
