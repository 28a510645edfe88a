# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import page, report, wording

from . import samples

FINGERPRINT: dict[str, Any] = {
    "kernel": "6.1.0-28-amd64",
    "architecture": "x86_64",
    "os": "Debian GNU/Linux 12 (bookworm)",
    "python": "3.11.2",
    "cpu": {"model": "AMD EPYC", "cores": 2, "governor": None, "flags": ["aes", "sha_ni"]},
    "cpu_limit": {"cores": 1.5},
    "memory_bytes": 25_276_502_016,
    "virtualisation": "kvm",
    "filesystem": {"type": "ext4", "options": ["rw", "relatime"], "device": {"kind": "virtio", "rotational": False}},
    "room": {"bytes": 81_674_186_752, "inodes": 5},
    "nic": {"device": "eth1", "driver": "virtio_net", "speed_mbit": None, "mtu": 9000, "qdisc": "fq"},
    "tcp": {"congestion_control": "cubic", "rmem": [4096, 131072, 33_554_432], "wmem": None},
    "programs": {
        "tar": {"path": "/bin/tar", "version": "tar (GNU tar) 1.34"},
        "nc": {"path": "/bin/nc", "version": None},
    },
}


def test_what_a_host_is() -> None:
    assert wording.host_facts(FINGERPRINT) == {
        "system": "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-28-amd64, x86_64, Python 3.11.2",
        "machine": "AMD EPYC, cores 2, limited to 1.5 of them, aes sha_ni, memory 25.3 GB, virtualisation kvm",
        "disk": "ext4, virtio, 81.7 GB free, mounted rw,relatime",
        "network": "eth1, driver virtio_net, MTU 9000, qdisc fq",
        "TCP": "cubic, receive buffer up to 33.6 MB",
        "programs": "nc: /bin/nc; tar: tar (GNU tar) 1.34",
    }


def test_what_is_not_known_of_a_host_is_left_out() -> None:
    unknown = {key: dict.fromkeys(value) if isinstance(value, dict) else None for key, value in FINGERPRINT.items()}
    assert wording.host_facts({**unknown, "programs": {}}) == {}
    assert wording.host_facts({}) == {}


def test_hosts_and_software_stand_in_the_reports() -> None:
    link = samples.link(samples.result(samples.method("scp")), source="lab_a", fingerprints={"source": FINGERPRINT})
    software = {"linkops.bulkcopy": "0.1.0", "ansible_core": "2.19.14", "controller": None}
    summary = dataclasses.replace(samples.summary(link), seed=7, software=software)
    text = report.markdown(summary)
    assert "|  | source lab\\_a | target " in text
    assert "| disk | ext4, virtio, 81.7 GB free, mounted rw,relatime | ? |" in text
    assert "Made with linkops.bulkcopy 0.1.0, ansible\\_core 2.19.14, seed 7." in text
    shown = page.html(summary)
    assert '<td class="words">ext4, virtio, 81.7 GB free, mounted rw,relatime</td>' in shown
    assert "Made with linkops.bulkcopy 0.1.0, ansible_core 2.19.14, seed 7." in shown


def test_what_limits_a_method_and_what_does_not() -> None:
    limited = samples.method("scp", limiter="link", limiter_reason="99 % of it")
    assert wording.limit_line(limited) == "scp is limited by link: 99 % of it"
    free = samples.method("scp", limiter=None, limiter_reason="nothing stands out: 50 % of the link")
    assert wording.limit_line(free) == "scp: nothing stands out: 50 % of the link"
