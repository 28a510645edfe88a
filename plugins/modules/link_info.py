#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: link_info
short_description: Looks at a link before copies cross it
version_added: 0.1.0
author:
  - linkops.bulkcopy contributors (@linkops)
description:
  - Logs in to the target from the host that the task runs on, and tells what a copy will meet there and on the way.
  - It fails, with the reason in one sentence, where no copy could work, for example because the host key is not known, the
    login is refused, or the address leads to another machine than the one that was prepared.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
  - linkops.bulkcopy.connection
attributes:
  check_mode:
    support: full
    details:
      - The ceiling is not measured.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  ceiling_s:
    description:
      - Seconds of iperf3 traffic with one stream, and as many with four, to find the most that the link carries. V(0)
        sends none.
    type: int
    default: 0
  ssh_variants:
    description:
      - Other ways to log in, of which to tell what the connection agrees on.
    type: list
    elements: dict
    default: []
    suboptions:
      ssh_options:
        description: Values for C(-o) that come before those of O(ssh_options).
        type: list
        elements: str
        default: []
      compression:
        description: Whether ssh is asked to compress.
        type: bool
        default: false
      cipher:
        description: The cipher that ssh is asked for.
        type: str
      mac:
        description: The message authentication that ssh is asked for.
        type: str
  scratch_dir:
    description:
      - Scratch directory on the target whose marker file is compared with O(scratch_token).
    type: str
  data_dir:
    description:
      - Directory on the source, there or yet to be made, whose filesystem RV(source.fingerprint) describes.
    type: path
  programs:
    description:
      - Programs of which the fingerprints tell path and version, beside C(ssh) and C(iperf3), each with the argument at
        which it prints its version, null for one that does not.
    type: dict
    default: {}
seealso:
  - module: linkops.bulkcopy.tree_info
"""

EXAMPLES = r"""
- name: See whether dc1-a can copy to dc2-a
  linkops.bulkcopy.link_info:
    address: 198.18.1.2
  delegate_to: dc1-a
  register: link
"""

RETURN = r"""
link:
  description: The way to the target.
  returned: success
  type: dict
  contains:
    address:
      description: As given.
      type: str
    device:
      description: The source's network device on the route to the address.
      type: str
      sample: eth1
    mtu:
      description: MTU of RV(link.device) in bytes.
      type: int
    rtt_ms:
      description: Round-trip time as the kernel measures it when a TCP connection opens, the least of three. Null where the
        ssh port is not reached directly.
      type: float
    connect_s:
      description: Seconds that an ssh login takes that does nothing, the median of three.
      type: float
    ceiling_Bps:
      description:
        - The most that the link carries, bytes of payload a second as iperf3 received them, with one stream or four,
          whichever was more. Null where it was not measured.
      type: int
    streams_Bps:
      description: The same for each number of streams, C(1) and C(4). Null where it was not measured.
      type: dict
      sample: {"1": 117600000, "4": 117700000}
ssh:
  description: What the ssh connection has negotiated, towards the target.
  returned: success
  type: dict
  contains:
    cipher:
      description: The cipher.
      type: str
      sample: chacha20-poly1305@openssh.com
    mac:
      description: The message authentication; V(implicit) where the cipher brings its own.
      type: str
    compression:
      description: Compression without the method's asking for it.
      type: str
ssh_variants:
  description: The O(ssh_variants), each with C(negotiated), which holds the keys of RV(ssh).
  returned: success
  type: list
  elements: dict
flags:
  description: What to know before copying, for example V(shell-not-clean), or V(no-iperf3) or V(ceiling-not-measured)
    (the target cannot listen at the address, or nothing gets through) where there is no ceiling, and
    V(streams-not-measured) where it comes from some of RV(link.streams_Bps) only.
  returned: success
  type: list
  elements: str
source:
  description: Facts of the source, C(hostname), C(user), C(kernel), C(python) and C(boot_id) among them.
  returned: success
  type: dict
  contains:
    fingerprint:
      description:
        - What of the host may make its copies fast or slow; what is not known is null. But for C(room) it is the same
          after a reboot.
        - C(kernel), C(architecture), C(os), C(python), C(memory_bytes); C(cpu) with C(model), C(cores) online,
          C(governor) and those C(flags) that ciphers and checksums use; C(cpu_limit.cores) of the control group, null
          for none; C(virtualisation) as C(systemd-detect-virt) calls it.
        - C(filesystem) with C(type), C(options) and the C(device)'s C(kind) and whether it is C(rotational), and
          C(room) with free C(bytes) and C(inodes), both of O(data_dir) here and of O(scratch_dir) on the target.
        - C(nic) with C(device), C(driver), C(speed_mbit), C(mtu) and C(qdisc) of the device on the route to the other
          end; C(tcp), the kernel's settings for TCP; C(programs), C(path) and C(version) of each that is installed.
      type: dict
target:
  description: The same of the target, C(fingerprint) included, and C(room), the free C(bytes) and C(inodes) at
    O(scratch_dir).
  returned: success
  type: dict
"""

import json
import math
import socket
import statistics
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _agent, _counters
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import (
    CONNECTION_OPTIONS,
    die_with_controller,
    log_in,
    ssh_of,
)
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ended, Ssh, Target

_REPEATS = 3

#: What a link is looked at with, and how each program is asked for its version.
_PROGRAMS: dict[str, str | None] = {"ssh": "-V", "iperf3": "--version"}

#: One stream is what most methods use; several show what the link itself carries.
_STREAMS = (1, 4)

#: Left out at the start, while TCP finds its rate: it doubles each round trip, from 14 kB to the 375 MB that 10 Gbit/s
#: have on their way at 300 ms in 15; and what iperf3 accepts. How long it may take beyond the test to start and to end.
_SLOW_START_S = 1
_SLOW_START_ROUNDS = 15
_SLOW_START_MOST_S = 60
_IPERF_SLACK_S = 30.0


def received_Bps(said: str) -> int | None:  # noqa: N802  the unit
    """Bytes a second that the receiver got, out of iperf3's JSON; null where the test did not come to its end."""
    try:
        # A warning on standard error comes behind it.
        told, _end = json.JSONDecoder().raw_decode(said.lstrip())
        return round(float(told["end"]["sum_received"]["bits_per_second"]) / 8)
    except (ValueError, KeyError, TypeError):
        return None


def slow_start_s(round_trip_ms: float) -> int:
    """Whole seconds that TCP may need to find the rate of a link with this round-trip time."""
    needed_s = math.ceil(_SLOW_START_ROUNDS * round_trip_ms / 1000)
    return min(max(_SLOW_START_S, needed_s), _SLOW_START_MOST_S)


def measure_streams(ssh: Ssh, target: Target, seconds: int) -> tuple[dict[str, int | None], list[str]]:
    """The most that each of C(_STREAMS) carries in bytes a second, by number of streams; null where it was not measured,
    with the flag that says why."""
    rates: dict[str, int | None] = {str(streams): None for streams in _STREAMS}
    here, there = _agent.which(["iperf3"])["iperf3"], target.request("which", names=["iperf3"])["iperf3"]
    if not here or not there:
        return rates, ["no-iperf3"]
    omit_s = slow_start_s(target.round_trip_ms())
    for streams in _STREAMS:
        try:
            (port,) = target.request("free_ports", address=ssh.address, count=1)["ports"]
            server = [there, "--server", "--one-off", "--bind", ssh.address, "--port", str(port)]
            target.request("start", streams=[{"stages": [server], "port": port}], address=ssh.address)
            client = [here, "--client", ssh.address, "--port", str(port), "--json", "--interval", "0"]
            client += ["--parallel", str(streams), "--omit", str(omit_s), "--time", str(seconds)]
            said = _agent.ask(client, omit_s + seconds + _IPERF_SLACK_S)["output"]
            # What carried nothing was not measured.
            rates[str(streams)] = received_Bps(said) or None
            target.request("wait", timeout_s=1.0)
        except Ended:
            # Nothing listens at an address that is a router's, for example; ssh may work all the same. Where the session
            # is lost the next request says so.
            break
    missing = [rate for rate in rates.values() if rate is None]
    if len(missing) == len(rates):
        return rates, ["ceiling-not-measured"]
    return rates, ["streams-not-measured"] if missing else []


def with_variant(ssh: Ssh, variant: dict[str, Any]) -> Ssh:
    """The login with a variant's own options before the common ones, as ssh takes the first value that it meets."""
    asked = {key: variant[key] for key in ("compression", "cipher", "mac")}
    return ssh._replace(options=(*variant["ssh_options"], *ssh.options), **asked)


def look(module: AnsibleModule, ssh: Ssh, program: str, target: Target) -> dict[str, Any]:
    """Everything that the module returns. Raises C(Ended)."""
    hello = target.open()
    programs = dict(_PROGRAMS, **module.params["programs"])
    scratch_dir = module.params["scratch_dir"]
    if scratch_dir:
        place = target.request("examine", dest=scratch_dir, scratch=True, token=module.params["scratch_token"])
        hello["room"] = place["room"]
    logins = [log_in(ssh, program) for _repeat in range(_REPEATS)]
    connects = [login.seconds for login in logins]
    round_trips = [_counters.tcp_round_trip_ms(ssh.address, ssh.port or 22)]
    # Behind a jump host each would wait for its limit.
    while len(round_trips) < _REPEATS and round_trips[0] is not None:
        round_trips.append(_counters.tcp_round_trip_ms(ssh.address, ssh.port or 22))
    device = _counters.route_device(ssh.address)
    flags = ["shell-not-clean"] if target.noise else []
    rates: dict[str, int | None] = {str(streams): None for streams in _STREAMS}
    if module.params["ceiling_s"] and not module.check_mode:
        rates, why = measure_streams(ssh, target, module.params["ceiling_s"])
        flags += why
    return {
        "link": {
            "address": ssh.address,
            "device": device,
            "mtu": _counters.device_mtu(device),
            "rtt_ms": None if None in round_trips else min(round_trips),  # type: ignore[type-var]
            "connect_s": None if None in connects else statistics.median(connects),  # type: ignore[type-var]
            "ceiling_Bps": max((rate for rate in rates.values() if rate), default=None),
            "streams_Bps": rates,
        },
        "ssh": logins[-1].negotiated,
        "ssh_variants": [
            dict(variant, negotiated=log_in(with_variant(ssh, variant), program).negotiated)
            for variant in module.params["ssh_variants"]
        ],
        "flags": flags,
        "source": dict(
            _agent.host_facts(), fingerprint=_agent.fingerprint(module.params["data_dir"], ssh.address, programs)
        ),
        "target": dict(hello, fingerprint=target.request("fingerprint", path=scratch_dir, wanted=programs)),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            CONNECTION_OPTIONS,
            scratch_dir={"type": "str"},
            data_dir={"type": "path"},
            programs={"type": "dict", "default": {}},
            ceiling_s={"type": "int", "default": 0},
            ssh_variants={
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "ssh_options": {"type": "list", "elements": "str", "default": []},
                    "compression": {"type": "bool", "default": False},
                    "cipher": {"type": "str"},
                    "mac": {"type": "str"},
                },
            },
        ),
        supports_check_mode=True,
    )
    ssh = ssh_of(module.params)
    program = _agent.which(["ssh"])["ssh"] or ""
    if not program:
        name = module.params["source_name"] or socket.gethostname()
        module.fail_json(msg=f"source {name} has no ssh: install openssh-client there", status="unsupported")
    target = Target(ssh, program, module.params["target_python"], module.params["target_name"] or ssh.address)
    die_with_controller(target.close)
    try:
        result = look(module, ssh, program, target)
    except Ended as ended:
        target.close()
        module.fail_json(msg=ended.message, status=ended.status)
    target.close()
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
