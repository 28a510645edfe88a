# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _agent, _counters, _fingerprint


def put(root: Path, **files: str) -> str:
    """Files below C(root); C(__) stands for a slash and C(_DOT_) for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_the_system_s_name(tmp_path: Path) -> None:
    root = put(tmp_path, etc__os_DOT_release='NAME="Debian"\n')
    (tmp_path / "etc" / "os-release").write_text(
        'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
    )
    assert _fingerprint.os_name(root) == "Debian GNU/Linux 12 (bookworm)"
    (tmp_path / "etc" / "os-release").write_text("PRETTY_NAME=Alpine\\ Linux\n")
    assert _fingerprint.os_name(root) == "Alpine Linux"
    assert _fingerprint.os_name(str(tmp_path / "none")) is None


X86 = "processor\t: 0\nmodel name\t: AMD EPYC 7763\nflags\t\t: fpu sse2 aes avx2 sha_ni{}\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd aes pmull sha1 sha2 crc32\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


class TestCpu:
    def test_x86(self, tmp_path: Path) -> None:
        root = put(
            tmp_path,
            proc__cpuinfo=X86.format("") * 2,
            sys__devices__system__cpu__online="0-3,6\n",
            sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="powersave\n",
            sys__devices__system__cpu__cpu1__cpufreq__scaling_governor="performance\n",
        )
        assert _fingerprint.cpu(root) == {
            "model": "AMD EPYC 7763",
            "cores": 5,
            "governor": "performance,powersave",
            "flags": ["aes", "avx2", "sha_ni"],
        }

    def test_arm_without_a_list_of_what_is_online(self, tmp_path: Path) -> None:
        found = _fingerprint.cpu(put(tmp_path, proc__cpuinfo=ARM * 3))
        assert found == {
            "model": "implementer 0x41 part 0xd0c",
            "cores": 3,
            "governor": None,
            "flags": ["aes", "asimd", "pmull", "sha1", "sha2"],
        }

    def test_nothing_known(self, tmp_path: Path) -> None:
        assert set(_fingerprint.cpu(str(tmp_path)).values()) == {None}

    def test_this_machine_s_cores_are_nproc_s(self) -> None:
        said = subprocess.run(["nproc", "--all"], stdout=subprocess.PIPE, check=True).stdout
        assert _fingerprint.cpu()["cores"] <= int(said)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"run__systemd__container": "lxc\n"}, "lxc"),
        ({"_DOT_dockerenv": "", "proc__cpuinfo": X86.format(" hypervisor")}, "docker"),
        ({"run___DOT_containerenv": ""}, "podman"),
        ({"proc__1__environ": "a=b\0container=lxc\0"}, "lxc"),
        ({"proc__sys__kernel__osrelease": "5.15.90.1-microsoft-standard-WSL2\n"}, "wsl"),
        ({"proc__cpuinfo": X86.format(" hypervisor"), "sys__class__dmi__id__sys_vendor": "QEMU\n"}, "qemu"),
        (
            {
                "proc__cpuinfo": X86.format(" hypervisor"),
                "sys__class__dmi__id__product_name": "KVM\n",
                "sys__class__dmi__id__sys_vendor": "QEMU\n",
            },
            "kvm",
        ),
        ({"proc__cpuinfo": X86.format(" hypervisor"), "sys__class__dmi__id__sys_vendor": "VMware, Inc.\n"}, "vmware"),
        # A cloud's bare metal.
        ({"proc__cpuinfo": X86.format(""), "sys__class__dmi__id__sys_vendor": "Amazon EC2\n"}, "none"),
        ({"proc__cpuinfo": X86.format(" hypervisor")}, "vm-other"),
        ({"proc__cpuinfo": X86.format(" hypervisor"), "sys__hypervisor__type": "xen\n"}, "xen"),
        ({"proc__cpuinfo": ARM, "proc__device-tree__hypervisor__compatible": "linux,kvm\0"}, "kvm"),
        # ARM has no flag that tells.
        ({"proc__cpuinfo": ARM}, None),
        ({}, None),
    ],
)
def test_what_we_run_in(tmp_path: Path, files: dict[str, str], found: str | None) -> None:
    assert _fingerprint.virtualisation(put(tmp_path, **files)) == found


def test_a_container_is_what_systemd_calls_it() -> None:
    if shutil.which("systemd-detect-virt") is None:
        pytest.skip("no systemd-detect-virt here")
    said = subprocess.run(["systemd-detect-virt", "--container"], stdout=subprocess.PIPE, text=True, check=False).stdout
    if said.strip() == "none":
        pytest.skip("no container")
    assert _fingerprint.virtualisation() == said.strip()


def test_memory_is_what_free_says() -> None:
    said = subprocess.run(["free", "--bytes"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert _fingerprint.memory_bytes() == int(said.splitlines()[1].split()[1])


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu_DOT_max": "150000 100000\n"}, 1.5),
        ({"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu_DOT_max": "max 100000\n"}, None),
        # The tightest of ours and those above.
        (
            {
                "proc__self__cgroup": "0::/a/b\n",
                "sys__fs__cgroup__a__b__cpu_DOT_max": "400000 100000\n",
                "sys__fs__cgroup__a__cpu_DOT_max": "200000 100000\n",
            },
            2.0,
        ),
        (
            {
                "proc__self__cgroup": "4:cpu,cpuacct:/x\n1:name=systemd:/x\n",
                "sys__fs__cgroup__cpu,cpuacct__x__cpu_DOT_cfs_quota_us": "50000\n",
                "sys__fs__cgroup__cpu,cpuacct__x__cpu_DOT_cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc__self__cgroup": "4:cpu:/\n",
                "sys__fs__cgroup__cpu__cpu_DOT_cfs_quota_us": "-1\n",
                "sys__fs__cgroup__cpu__cpu_DOT_cfs_period_us": "100000\n",
            },
            None,
        ),
        ({}, None),
    ],
)
def test_the_limit_of_the_control_group(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    assert _fingerprint.cpu_limit(put(tmp_path, **files)) == {"cores": cores}


MOUNTINFO = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:21 / /proc rw - proc proc rw
30 22 253:0 / /srv rw,noatime - xfs /dev/mapper/data rw,attr2
31 30 0:40 / /srv/big\\040data rw - nfs4 nas:/x rw,vers=4.2,addr=198.51.100.9,clientaddr=198.51.100.1
35 22 0:70 / /ceph rw - ceph mon:/ rw,name=backup,secret=<hidden>,acl
36 22 0:71 / /nfs3 rw - nfs nas:/y rw,vers=3,mountaddr=198.51.100.9,mountport=40123,proto=tcp
37 22 0:72 / /plan9 rw - 9p none rw,trans=fd,rfdno=8,wfdno=9
32 22 0:50 / /run/user rw - tmpfs tmpfs rw,size=1k
33 22 0:60 / /over rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,index=off
34 30 8:2 / /srv rw - btrfs /dev/sda2 rw,subvol=/x
"""


class TestFilesystem:
    @pytest.mark.parametrize(
        ("path", "point", "type_"),
        [
            ("/", "/", "ext4"),
            ("/home/x", "/", "ext4"),
            ("/srvx", "/", "ext4"),
            # Mounted on another one.
            ("/srv", "/srv", "btrfs"),
            ("/srv/big data/x", "/srv/big data", "nfs4"),
        ],
    )
    def test_the_longest_mount_holds_a_path(self, tmp_path: Path, path: str, point: str, type_: str) -> None:
        found = _fingerprint.mount_of(path, _fingerprint.mounts(put(tmp_path, proc__self__mountinfo=MOUNTINFO)))
        assert found is not None
        assert (found.point, found.type) == (point, type_)

    def test_this_machine_s_is_what_findmnt_says(self, tmp_path: Path) -> None:
        said = subprocess.run(
            ["findmnt", "--json", "--target", tmp_path, "--output", "FSTYPE,OPTIONS"],
            stdout=subprocess.PIPE,
            check=True,
        )
        told = json.loads(said.stdout)["filesystems"][0]
        found = _fingerprint.filesystem(str(tmp_path / "not" / "there"))
        assert found["type"] == told["fstype"]
        assert set(found["options"]) <= set(told["options"].split(","))

    def options(self, tmp_path: Path, point: str) -> list[str]:
        every = _fingerprint.mounts(put(tmp_path, proc__self__mountinfo=MOUNTINFO.replace(point, str(tmp_path))))
        assert str(tmp_path) in {mount.point for mount in every}
        options: list[str] = _fingerprint.filesystem(str(tmp_path), str(tmp_path))["options"]
        return options

    def test_addresses_and_places_are_left_out(self, tmp_path: Path) -> None:
        assert self.options(tmp_path, "/srv/big\\040data") == ["rw", "vers=4.2"]
        assert self.options(tmp_path, "/over") == ["rw", "index=off"]
        assert self.options(tmp_path, "/ceph") == ["rw", "acl"]
        assert self.options(tmp_path, "/nfs3") == ["rw", "vers=3", "proto=tcp"]
        assert self.options(tmp_path, "/plan9") == ["rw", "trans=fd"]

    def disk(self, tmp_path: Path, device: str, type_: str = "ext4", source: str = "/dev/sda2") -> dict[str, Any]:
        disk = put(
            tmp_path,
            sys__devices__nvme0n1__queue__rotational="0\n",
            sys__devices__nvme0n1__nvme0n1p1__partition="1\n",
            sys__devices__sda__queue__rotational="1\n",
            sys__devices__sda__sda2__partition="2\n",
            sys__dev__block__other="",
            sys__class__block__other="",
        )
        for link, place in (("dev/block/259:1", "nvme0n1/nvme0n1p1"), ("class/block/sda2", "sda/sda2")):
            (tmp_path / "sys" / link).symlink_to(tmp_path / "sys" / "devices" / place)
        mount = _fingerprint.Mount(device, "/", [], type_, source)
        return _fingerprint._disk(mount, disk)

    def test_a_partition_s_disk(self, tmp_path: Path) -> None:
        assert self.disk(tmp_path, "259:1") == {"kind": "nvme", "rotational": False}

    def test_a_filesystem_with_a_number_of_its_own(self, tmp_path: Path) -> None:
        assert self.disk(tmp_path, "0:33", "btrfs") == {"kind": "scsi", "rotational": True}

    @pytest.mark.parametrize(
        ("type_", "kind"), [("tmpfs", "memory"), ("nfs4", "network"), ("cifs", "network"), ("zfs", None)]
    )
    def test_without_a_disk(self, tmp_path: Path, type_: str, kind: str | None) -> None:
        assert self.disk(tmp_path, "0:33", type_, "pool/data") == {"kind": kind, "rotational": None}

    def test_nothing_known(self, tmp_path: Path) -> None:
        nothing = {"type": None, "options": None, "device": {"kind": None, "rotational": None}}
        assert _fingerprint.filesystem("/", str(tmp_path)) == nothing
        assert _fingerprint.filesystem(None) == nothing


class TestNic:
    def test_loopback_is_what_ip_says(self) -> None:
        (told,) = json.loads(
            subprocess.run(["ip", "-j", "link", "show", "lo"], stdout=subprocess.PIPE, check=True).stdout
        )
        assert _fingerprint.nic("lo") == {
            "device": "lo",
            "driver": None,
            "speed_mbit": None,
            "mtu": told["mtu"],
            "qdisc": told["qdisc"],
        }

    def test_every_device_is_what_sysfs_and_ip_say(self) -> None:
        for told in json.loads(subprocess.run(["ip", "-j", "link"], stdout=subprocess.PIPE, check=True).stdout):
            place = Path("/sys/class/net") / told["ifname"]
            if not (place / "device" / "driver").exists():
                continue
            found = _fingerprint.nic(told["ifname"])
            assert (found["mtu"], found["qdisc"]) == (told["mtu"], told["qdisc"])
            assert found["driver"] == os.path.basename(os.path.realpath(place / "device" / "driver"))
            speed = int((place / "speed").read_text())
            assert found["speed_mbit"] == (speed if speed > 0 else None)

    def test_no_such_device(self) -> None:
        nothing = {"driver": None, "speed_mbit": None, "mtu": None, "qdisc": None}
        assert _fingerprint.nic("nosuch0") == {"device": "nosuch0", **nothing}
        assert _fingerprint.nic(None) == {"device": None, **nothing}


def test_tcp_is_set_as_the_files_say(tmp_path: Path) -> None:
    found = _fingerprint.tcp(
        put(
            tmp_path,
            proc__sys__net__ipv4__tcp_congestion_control="cubic\n",
            proc__sys__net__ipv4__tcp_rmem="4096\t131072\t6291456\n",
            proc__sys__net__core__rmem_max="212992\n",
        )
    )
    assert (found["congestion_control"], found["rmem"], found["rmem_max"]) == ("cubic", [4096, 131072, 6291456], 212992)
    assert (found["wmem_max"], found["mtu_probing"]) == (None, None)


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(keys(inner) for inner in value.values()))
    return set()


def test_the_whole_is_stable_and_names_nobody(tmp_path: Path) -> None:
    first = _agent.fingerprint(str(tmp_path), "127.0.0.1", {"tar": "--version"})
    second = _agent.fingerprint(str(tmp_path), "127.0.0.1", {"tar": "--version"})
    first.pop("room"), second.pop("room")
    assert first == second
    assert json.loads(json.dumps(first)) == first
    assert not keys(first) & {"boot_id", "hostname", "uptime", "pid", "user", "ifindex", "uuid", "serial"}
    boot_id = _counters.boot_id()
    assert boot_id is None or boot_id not in json.dumps(first)
    assert first["nic"]["device"] == "lo"
    assert (
        first["architecture"]
        == subprocess.run(["uname", "-m"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    )


def test_nothing_is_known_without_a_path_and_an_address() -> None:
    found = _fingerprint.fingerprint(None, None)
    assert (found["room"], found["nic"]["device"]) == ({"bytes": None, "inodes": None}, None)
    assert _fingerprint.fingerprint("/", "no.such.name.invalid")["nic"]["device"] is None


def test_programs_are_where_the_shell_finds_them() -> None:
    found = _agent.programs({"tar": "--version", "sh": None, "no-such-program": "--version"})
    assert set(found) == {"tar", "sh"}
    assert re.search(r"tar", str(found["tar"]["version"]))
    assert found["sh"] == {"path": shutil.which("sh"), "version": None}
