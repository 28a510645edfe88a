#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lab
short_description: Hosts and links for a try, as network namespaces on one machine
version_added: 0.1.0
description:
  - Makes, or takes down, a small network of hosts on the machine it runs on. Every host is a network namespace
    with an SSH server of its own; every link is a pair of virtual interfaces between two hosts, with a rate, delay,
    jitter, and loss.
  - Links without delay, jitter, and loss are veth pairs. The others are, too, where the kernel has netem; where it has
    not, a process that the module starts holds a TAP device in both hosts and carries the frames between them.
  - A management network leads from the machine to every host, so that Ansible can connect to them by SSH.
  - It never touches an interface, namespace, process, or file that it did not make. What it makes is written to a state
    file first, so that a run that was killed can be repeated or undone.
  - The hosts share the machine's file system, processors, and users. They have mount namespaces of their own.
author:
  - linkops.bulkcopy contributors (@linkops)
requirements:
  - root
  - iproute2, openssh-server, openssh-client, util-linux, mount, and procps (Debian's names)
  - C(/dev/net/tun), for a link with delay, jitter, or loss on a kernel without netem
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  state:
    description:
      - V(present) makes the lab, or brings an earlier one to what is asked for.
      - V(absent) takes it down and removes all that it made, the data directory included.
    type: str
    choices: [present, absent]
    default: present
  links:
    description:
      - The links, in the form of the inventory's C(bulkcopy_links). Needed when O(state=present).
      - 'Read from each: C(name), C(source), C(target), C(address) (the address of the target on this link,
        in 198.18.0.0/15), C(ssh_port) (default V(22)), and C(lab).'
      - 'C(lab) may hold C(rate_mbit) (in each direction; default: no limit), C(rtt_ms) (what the link adds to a round
        trip), C(jitter_ms) (by how much a round trip is longer or shorter at most, no more than C(rtt_ms)),
        C(loss_percent) (of the packets of each direction), and C(source_address) (default: the other address of the
        /31 of C(address)).'
      - 'It may also hold settings of TCP, by default those of the machine: C(tcp_buffer_bytes), the maximum of
        C(net.ipv4.tcp_rmem) and C(net.ipv4.tcp_wmem) of both hosts, where all links of a host that give it must give
        the same; and C(congestion_control) of connections over this link.'
      - A link without C(lab) is left alone; it leads to hosts that are not the lab's.
    type: list
    elements: dict
    default: []
  hosts:
    description:
      - 'Management addresses: the inventory name of each host of a link, to a dictionary of C(address)
        (in 198.18.0.0/15) and C(port) (default V(22)).'
    type: dict
    default: {}
  controller_address:
    description: The machine's own address on the management network.
    type: str
    default: 198.18.0.1
  prefix:
    description: What the names of the network namespaces begin with.
    type: str
    default: bulkcopy-
  state_dir:
    description: Keys, server configurations, and the state file. It is made by the lab and goes with it.
    type: path
    default: /run/linkops-bulkcopy-lab
  data_dir:
    description:
      - Where the hosts keep their data, each in a directory of its own. It is made by the lab and goes with it.
    type: path
    default: /var/tmp/linkops-bulkcopy-lab
seealso:
  - name: The role linkops.bulkcopy.lab
    description: Calls this module with what the inventory says.
"""

EXAMPLES = r"""
- name: Two hosts and a link of 100 Mbit/s
  linkops.bulkcopy.lab:
    links:
      - name: lan-100m
        source: lab-a
        target: lab-b
        address: 198.18.1.2
        lab:
          rate_mbit: 100
          source_address: 198.18.1.1
    hosts:
      lab-a: {address: 198.18.0.11}
      lab-b: {address: 198.18.0.12}

- name: A link between two continents
  linkops.bulkcopy.lab:
    links:
      - name: wan
        source: lab-a
        target: lab-b
        address: 198.18.4.2
        lab:
          rate_mbit: 1000
          rtt_ms: 80
          tcp_buffer_bytes: 67108864
          congestion_control: cubic
    hosts:
      lab-a: {address: 198.18.0.11}
      lab-b: {address: 198.18.0.12}

- name: Take the lab down
  linkops.bulkcopy.lab:
    state: absent
"""

RETURN = r"""
actions:
  description: What was done, or would be done in check mode, in order.
  returned: success
  type: list
  elements: str
  sample: [create network namespace bulkcopy-lab-a]
hosts:
  description: The hosts by their inventory names.
  returned: when O(state=present)
  type: dict
  contains:
    netns:
      description: Name of the network namespace.
      type: str
    address:
      description: Management address.
      type: str
    port:
      description: Port for Ansible's connection.
      type: int
    device:
      description: The machine's interface that leads to the host.
      type: str
    sshd_pid:
      description: Process ID of the host's SSH server; none in check mode before the first start.
      type: int
links:
  description: The links.
  returned: when O(state=present)
  type: list
  elements: dict
  contains:
    name:
      description: Name of the link.
      type: str
    source:
      description: Host at the source end.
      type: str
    target:
      description: Host at the target end.
      type: str
    source_device:
      description: Name of the interface in the source.
      type: str
    target_device:
      description: Name of the interface in the target.
      type: str
    source_address:
      description: Address of the source end.
      type: str
    address:
      description: Address of the target end.
      type: str
    ssh_port:
      description: Port of the target's SSH server.
      type: int
    mtu:
      description: Size of the largest packet.
      type: int
    rate_mbit:
      description: Rate in each direction in Mbit/s; none where it is not limited.
      type: float
    rtt_ms:
      description: What the link adds to a round trip, in milliseconds.
      type: float
    jitter_ms:
      description: By how much a round trip is longer or shorter at most, in milliseconds.
      type: float
    loss_percent:
      description: Share of the packets of each direction that are lost.
      type: float
    tcp_buffer_bytes:
      description: Maximum of the source's TCP buffers; none where it is the machine's.
      type: int
    congestion_control:
      description: Congestion control of connections over the link; none where it is the machine's.
      type: str
    made_of:
      description: V(veth), V(netem) (a veth pair with it), or V(wire) (TAP devices that a process holds); none in check
        mode before it is made.
      type: str
identity_file:
  description: Private key that logs in to every host as root.
  returned: when O(state=present)
  type: str
known_hosts:
  description: Host keys of all hosts, by management address and by the address of every link.
  returned: when O(state=present)
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _lab, _lab_system


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "links": {"type": "list", "elements": "dict", "default": []},
            "hosts": {"type": "dict", "default": {}},
            "controller_address": {"type": "str", "default": "198.18.0.1"},
            "prefix": {"type": "str", "default": "bulkcopy-"},
            "state_dir": {"type": "path", "default": "/run/linkops-bulkcopy-lab"},
            "data_dir": {"type": "path", "default": "/var/tmp/linkops-bulkcopy-lab"},
        },
        supports_check_mode=True,
    )
    options = module.params
    machine = _lab_system.Machine(options["state_dir"], options["data_dir"])
    result: dict[str, object] = {}
    try:
        if options["state"] == "present":
            lab = _lab.wanted_lab(
                options["links"],
                options["hosts"],
                options["prefix"],
                options["state_dir"],
                options["data_dir"],
                options["controller_address"],
            )
            _lab_system.need_root()
            with _lab_system.locked(options["state_dir"]):
                actions = machine.up(lab, module.check_mode)
            result = _lab_system.facts(lab, machine.state)
        else:
            _lab_system.need_root()
            with _lab_system.locked(options["state_dir"]):
                actions = machine.down(module.check_mode)
            for reason in machine.left:
                module.warn(f"Left alone: {reason}.")
    except (_lab.LabError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(actions), actions=actions, **result)


if __name__ == "__main__":
    main()
