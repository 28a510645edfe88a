#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tar_nc
short_description: Copies a directory as a tar stream over netcat, verifies the copy and measures both ends
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Copies the content of a directory from the host that the task runs on to another one as C(tar | nc), into C(nc | tar)
    on the target, which the module starts there itself, on a free port of O(address).
  - With O(transport=socat) socat takes the place of netcat at both ends.
  - The data crosses the network unencrypted, and whoever connects to the port first can feed the receiver. Use it on
    networks that you trust only.
  - The netcats of OpenBSD, the traditional one, nmap's ncat and BusyBox's are told apart and each is given the options
    with which it ends when the stream does.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
  - linkops.bulkcopy.connection
  - linkops.bulkcopy.copy
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

options:
  transport:
    description:
      - The program that carries the stream, at both ends.
    type: str
    choices: [netcat, socat]
    default: netcat
  netcat:
    description:
      - Name or path of the netcat to use at both ends. By default the first of C(nc), C(ncat), C(netcat),
        C(nc.openbsd), C(nc.traditional) and C(busybox) that a host has.
    type: str
"""

EXAMPLES = r"""
- name: Copy a release in clear text within the storage network
  linkops.bulkcopy.tar_nc:
    src: /srv/release
    dest: /srv/release-copy
    address: 198.18.1.2
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

import ipaddress
import re
from typing import Callable, NamedTuple, Sequence

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _streams, _tar, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import (
    Commands,
    CopyMethod,
    Host,
    Job,
    Stream,
    run_copy,
)
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ended

NAMES = ("nc", "ncat", "netcat", "nc.openbsd", "nc.traditional", "busybox")

#: What each netcat says of itself when asked for help; the first that fits is it.
FLAVOURS = (
    ("busybox", r"BusyBox"),
    ("ncat", r"Ncat \d"),
    ("openbsd", r"OpenBSD netcat|usage: nc \[-46"),
    ("traditional", r"\[v1\.\d+"),
)


def is_literal(address: str) -> bool:
    """Whether C(address) is an IP address and no name; a zone (C(%eth0)) may follow."""
    try:
        ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return True


class Netcat(NamedTuple):
    """A host's netcat: its flavour, how its argv begins, and whether it can listen on one address only."""

    flavour: str
    start: list[str]
    binds: bool


def netcat(host: Host, wanted: str | None) -> Netcat:
    """Find a host's netcat, C(wanted) or the first that there is, and ask it what it is."""
    path = host.program(wanted) if wanted else host.find(*NAMES)
    if path is None:
        raise Ended("unsupported", f"{host.end} {host.name} has no netcat: install netcat-openbsd there")
    start = [path, "nc"] if path.endswith("busybox") else [path]
    # All of them explain themselves at -h, whatever status they then end with.
    said = host.ask([*start, "-h"])
    for flavour, pattern in FLAVOURS:
        if re.search(pattern, said):
            # A small BusyBox is built without -s and then listens on every address.
            return Netcat(flavour, start, flavour != "busybox" or re.search(r"^\s+-s ", said, re.MULTILINE) is not None)
    first_line = (said.strip().splitlines() or ["nothing"])[0]
    raise Ended(
        "unsupported",
        f"{path} on {host.end} {host.name} is an unknown netcat, it says: {first_line}; set netcat to another one",
    )


def listen(nc: Netcat, address: str, port: int) -> list[str]:
    """The argv that takes one connection on C(address) and C(port) and writes what comes to standard output."""
    if nc.flavour in ("openbsd", "ncat"):
        return [*nc.start, *_numeric(nc, address), "-l", address, str(port)]
    return [*nc.start, *_numeric(nc, address), "-l", "-p", str(port), "-s", address]


#: How a netcat is told to close the connection when its input ends; BusyBox's does so by itself.
SEND = {"openbsd": ["-N"], "traditional": ["-q", "0"], "ncat": ["--send-only"], "busybox": []}


def send(nc: Netcat, address: str, port: int) -> list[str]:
    """The argv that sends standard input to C(address) and C(port) and ends with it."""
    return [*nc.start, *_numeric(nc, address), *SEND[nc.flavour], address, str(port)]


def _numeric(nc: Netcat, address: str) -> list[str]:
    """An address needs no name server, and a dead one would cost seconds."""
    return ["-n"] if is_literal(address) and nc.flavour != "busybox" else []


#: What one core sends of an archive, in bytes a second.
_NETCAT_BPS = 800e6


class Carrier(NamedTuple):
    """A way for a stream: the argv that sends standard input to a port, the one that takes one connection on a port and
    writes what comes to standard output, and what is known of the programs' versions."""

    send: Callable[[int], list[str]]
    listen: Callable[[int], list[str]]
    versions: dict[str, str]


def by_netcat(job: Job) -> Carrier:
    """Raises C(Ended) where the netcats at hand cannot do it."""
    address, wanted = job.ssh.address, job.params["netcat"]
    here, there = netcat(job.source, wanted), netcat(job.target, wanted)
    if ":" in address and "traditional" in (here.flavour, there.flavour):
        raise Ended(
            "unsupported",
            f"the traditional netcat knows no IPv6 and the address is {address}: install netcat-openbsd",
        )
    if not there.binds:
        raise Ended(
            "unsupported",
            f"BusyBox's netcat on target {job.target.name} can only listen on every address at once: install netcat-openbsd there",
        )
    return Carrier(
        lambda port: send(here, address, port),
        lambda port: listen(there, address, port),
        {"netcat": here.flavour, "target netcat": there.flavour},
    )


#: socat's own blocks of 8 KiB cost two calls to the kernel each; a pipe holds 64 KiB.
_SOCAT = ("-u", "-b", "65536")


def by_socat(job: Job) -> Carrier:
    """socat at both ends, each with one direction only: the sender closes the connection when its input ends."""
    here, there = job.source.program("socat"), job.target.program("socat")
    address, family = job.ssh.operand_host, ""
    if is_literal(job.ssh.address):
        family = "6" if ":" in address else "4"
    return Carrier(
        lambda port: [here, *_SOCAT, "STDIN", f"TCP{family}:{address}:{port}"],
        lambda port: [there, *_SOCAT, f"TCP{family}-LISTEN:{port},bind={address},reuseaddr", "STDOUT"],
        {},
    )


CARRIERS = {"netcat": by_netcat, "socat": by_socat}


class TarNc(CopyMethod):
    name = "tar_nc"
    encrypted = False
    sessions = 0
    listens = True
    source_programs = ("tar", "dd", "mbuffer", "socat", *NAMES, *_tar.COMPRESSORS)
    target_programs = source_programs

    def label(self) -> str:
        return _tar.label(self.params, "socat" if self.params["transport"] == "socat" else "nc")

    def mistake(self) -> str | None:
        if self.params["netcat"] and self.params["transport"] != "netcat":
            return "netcat {} is not used by transport: {}: leave one of them out".format(
                self.params["netcat"], self.params["transport"]
            )
        return _tar.mistake(self.params) or _streams.mistake(self.params)

    def version_option(self, program: str) -> str | None:
        # Their flavour is told instead, most have no version.
        if program in NAMES:
            return None
        return "-V" if program == "socat" else super().version_option(program)

    def losses(self) -> frozenset[str]:
        # tar leaves sockets out, with a warning and status 0, and deletes nothing.
        return frozenset([_tree.SPECIAL_FILES, _tree.DELETIONS])

    def commands(self, job: Job) -> Commands:
        carrier = CARRIERS[job.params["transport"]](job)
        planned = _tar.plan(job, _NETCAT_BPS, None, split=True)
        parts: Sequence[_streams.Part | None] = [None] if planned is None else planned.parts
        streams = [
            Stream(
                [
                    _tar.create(job, number, part),
                    *_tar.compress(job.source, job.params),
                    *_tar.buffer(job.source, job.params),
                    carrier.send(port),
                ],
                [
                    carrier.listen(port),
                    *_tar.buffer(job.target, job.params),
                    *_tar.decompress(job.target, job.params),
                    _tar.extract(job, part),
                ],
                port,
                # mbuffer wakes itself with a byte more.
                counted=-3 if job.params["buffer"] else -2,
            )
            for number, (part, port) in enumerate(zip(parts, job.free_ports(len(parts))))
        ]
        if planned is None:
            return Commands(streams, versions=carrier.versions)
        return Commands(
            streams, cwd=job.src, versions=carrier.versions, settled=planned.settled, planned_s=planned.took_s
        )


def main() -> None:
    run_copy(
        TarNc,
        {
            **_tar.TAR_OPTIONS,
            **_streams.STREAM_OPTIONS,
            "transport": {"type": "str", "choices": list(CARRIERS), "default": "netcat"},
            "netcat": {"type": "str"},
        },
    )


if __name__ == "__main__":
    main()
