# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a host may make its copies fast or slow, in words that stay the same over a reboot."""

from __future__ import annotations

import array
import fcntl
import glob
import math
import os
import platform
import re
import shlex
import socket
import struct
from typing import Any, Iterator, NamedTuple

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _counters

#: Every reader takes the root of the file system, so that a test can hand it a made one.
ROOT = "/"


def _read(root: str, path: str) -> str | None:
    """The text of a file without the space round it; null where there is none that we may read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="backslashreplace") as stream:
            return stream.read().strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def existing_parent(path: str) -> str:
    """C(path), or the nearest directory above it that exists."""
    while not os.path.lexists(path):
        above = os.path.dirname(path)
        if above == path:
            break
        path = above
    return path


def room(path: str) -> dict[str, Any]:
    """Free space for us on the filesystem that has, or would have, C(path). C(inodes) is null where the filesystem has
    no fixed number of them. Raises OSError."""
    status = os.statvfs(existing_parent(path))
    return {
        "bytes": status.f_bavail * status.f_frsize,
        "inodes": status.f_favail if status.f_files else None,
        "block_bytes": status.f_frsize,
    }


def os_name(root: str = ROOT) -> str | None:
    """C(PRETTY_NAME) of os-release(5)."""
    for path in ("etc/os-release", "usr/lib/os-release"):
        for line in (_read(root, path) or "").splitlines():
            key, _equals, value = line.partition("=")
            if key == "PRETTY_NAME":
                try:
                    return " ".join(shlex.split(value)) or None
                except ValueError:
                    return value
    return None


def _cpuinfo(root: str) -> list[tuple[str, str]]:
    lines = (_read(root, "proc/cpuinfo") or "").splitlines()
    pairs = [line.partition(":") for line in lines]
    return [(key.strip(), value.strip()) for key, colon, value in pairs if colon]


def _cpu_flags(info: list[tuple[str, str]]) -> frozenset[str] | None:
    """As x86 and as ARM call them."""
    return next((frozenset(value.split()) for key, value in info if key in ("flags", "Features")), None)


#: What makes ciphers and checksums fast: of x86, and of ARM.
_CRYPTO_FLAGS = frozenset(
    [
        "aes",
        "vaes",
        "pclmulqdq",
        "vpclmulqdq",
        "ssse3",
        "avx",
        "avx2",
        "avx512f",
        "sha_ni",
        "sha512",
        "pmull",
        "sha1",
        "sha2",
        "sha3",
        "asimd",
    ]
)


def _cores(text: str | None) -> int | None:
    """How many processors a list such as C(0-3,6) names."""
    try:
        ranges = [part.split("-") for part in (text or "").split(",")]
        return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)
    except ValueError:
        return None


def cpu(root: str = ROOT) -> dict[str, Any]:
    """Model, processors online, frequency governors, and which of C(_CRYPTO_FLAGS) there are."""
    info = _cpuinfo(root)
    first: dict[str, str] = {}
    for key, value in info:
        first.setdefault(key, value)
    model = first.get("model name") or first.get("cpu") or first.get("Hardware")
    if model is None and "CPU part" in first:
        # 64-bit ARM has no name.
        model = "implementer {} part {}".format(first.get("CPU implementer"), first["CPU part"])
    flags = _cpu_flags(info)
    files = glob.glob(os.path.join(glob.escape(root), "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
    governors = {_read(root, path) for path in files} - {None, ""}
    return {
        "model": model,
        "cores": _cores(_read(root, "sys/devices/system/cpu/online"))
        or sum(1 for key, _value in info if key == "processor")
        or None,
        "governor": ",".join(sorted(str(governor) for governor in governors)) or None,
        "flags": None if flags is None else sorted(flags & _CRYPTO_FLAGS),
    }


#: How what SMBIOS says begins, and what systemd-detect-virt(1) calls it.
_SMBIOS = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Oracle Corporation", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Apple Virtualization", "apple"),
    ("Google Compute Engine", "google"),
)
_SMBIOS_FILES = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")


def virtualisation(root: str = ROOT) -> str | None:
    """What systemd-detect-virt(1) would say, as far as files tell it: the container that we are in, else the virtual
    machine, V(vm-other) for one that does not say which, V(none) on bare metal. Null where that is not known."""
    manager = _read(root, "run/systemd/container")
    if manager:
        return manager
    for marker, name in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if os.path.lexists(os.path.join(root, marker)):
            return name
    for pair in (_read(root, "proc/1/environ") or "").split("\0"):
        if pair.startswith("container=") and len(pair) > len("container="):
            return pair[len("container=") :]
    if re.search("Microsoft|WSL", _read(root, "proc/sys/kernel/osrelease") or ""):
        return "wsl"
    flags = _cpu_flags(_cpuinfo(root))
    # Only x86 has a flag that tells. SMBIOS alone does not: clouds have bare metal, too.
    x86 = flags is not None and "fpu" in flags
    if x86 and flags is not None and "hypervisor" not in flags:
        return "none"
    for file in _SMBIOS_FILES:
        said = _read(root, f"sys/class/dmi/id/{file}") or ""
        for begins, name in _SMBIOS:
            if said.startswith(begins):
                return name
    if _read(root, "sys/hypervisor/type") == "xen":
        return "xen"
    compatible = (_read(root, "proc/device-tree/hypervisor/compatible") or "").strip("\0")
    if compatible:
        return {"linux,kvm": "kvm", "vmware": "vmware"}.get(compatible, "xen" if "xen" in compatible else "vm-other")
    return "vm-other" if x86 else None


def memory_bytes(root: str = ROOT) -> int | None:
    for line in (_read(root, "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            kib = _number(line.split()[1])
            return None if kib is None else kib * 1024
    return None


def cpu_limit(root: str = ROOT) -> dict[str, Any]:
    """The most processors that our control groups let us use at once, a fraction maybe; null where none sets a limit.
    Both versions of cgroups(7) are asked, at their usual places, from our group up to the highest."""
    limits = []
    for line in (_read(root, "proc/self/cgroup") or "").splitlines():
        _number_of, controllers, group = line.split(":", 2)
        if not controllers:
            places = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            places = [f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu"]
        else:
            continue
        for place in places:
            for above in _upwards(group):
                limits.append(_quota(root, f"{place}{above}"))
    return {"cores": min([limit for limit in limits if limit is not None], default=None)}


def usable_cores(root: str = ROOT) -> int:
    """How many processors may be at work for us at once: those that the scheduler lets us have, within C(cpu_limit), of
    which a fraction counts as one."""
    limit = cpu_limit(root)["cores"]
    ours = len(os.sched_getaffinity(0))
    return ours if limit is None else max(1, min(ours, math.ceil(limit)))


def _upwards(group: str) -> Iterator[str]:
    """A group and those above it; within a namespace ours may seem to lie outside of it."""
    while group not in ("", "/"):
        yield group
        group = os.path.dirname(group)
    yield ""


def _quota(root: str, group: str) -> float | None:
    words = (_read(root, f"{group}/cpu.max") or "").split()
    if len(words) != 2:
        words = [_read(root, f"{group}/cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    quota, period = _number(words[0]), _number(words[1])
    # V(max), or -1.
    return None if quota is None or quota < 0 or not period else round(quota / period, 3)


class Mount(NamedTuple):
    """One line of C(/proc/self/mountinfo) (proc(5))."""

    device: str
    point: str
    options: list[str]
    type: str
    source: str


def mounts(root: str = ROOT) -> list[Mount]:
    found = []
    for line in (_read(root, "proc/self/mountinfo") or "").splitlines():
        left, _dash, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if len(fields) >= 6 and len(rest) >= 2:
            options = fields[5].split(",")
            options += [option for option in (rest[2] if len(rest) > 2 else "").split(",") if option not in options]
            found.append(Mount(fields[2], _unescape(fields[4]), options, rest[0], _unescape(rest[1])))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), text)


def mount_of(path: str, all_mounts: list[Mount]) -> Mount | None:
    """The mount that holds C(path), an absolute path without symbolic links: the longest, and of those on one another
    the last."""
    found = None
    for mount in all_mounts:
        point = mount.point.rstrip("/") + "/"
        if (path + "/").startswith(point) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


#: Options that name users, places, or what changes with each mount.
_PRIVATE_OPTIONS = frozenset(
    [
        "lowerdir",
        "lowerdir+",
        "datadir+",
        "upperdir",
        "workdir",
        "user",
        "username",
        "name",
        "domain",
        "pass",
        "password",
        "password2",
        "credentials",
        "secret",
        "secretfile",
        "addr",
        "clientaddr",
        "mountaddr",
        "mountport",
        "ip",
        "prefixpath",
        "srcaddr",
        "fd",
        "rfdno",
        "wfdno",
        "pgrp",
        "pipe_ino",
        "rootcontext",
        "context",
        "fscontext",
        "uuid",
    ]
)
_WITHOUT_DISK = {"tmpfs": "memory", "ramfs": "memory", "overlay": "overlay", "fuseblk": "fuse"}
_REMOTE = re.compile(r"nfs|cifs|smb|9p|virtiofs|ceph|gluster|lustre|afs")
#: How the names of block devices begin, and what they are.
_BLOCK = (
    ("nvme", "nvme"),
    ("sd", "scsi"),
    ("vd", "virtio"),
    ("xvd", "xen"),
    ("dm-", "device-mapper"),
    ("md", "raid"),
    ("mmcblk", "mmc"),
    ("loop", "loop"),
    ("zram", "memory"),
    ("ram", "memory"),
    ("nbd", "network"),
    ("rbd", "network"),
)


def filesystem(path: str | None, root: str = ROOT) -> dict[str, Any]:
    """The filesystem that has, or would have, C(path): its type, its options, and the C(device) below it: what kind of
    disk that is, and whether it rotates."""
    mount = None
    if path is not None:
        mount = mount_of(os.path.realpath(existing_parent(path)), mounts(root))
    if mount is None:
        return {"type": None, "options": None, "device": {"kind": None, "rotational": None}}
    kept = [option for option in mount.options if option.partition("=")[0] not in _PRIVATE_OPTIONS]
    return {"type": mount.type, "options": kept, "device": _disk(mount, root)}


def _disk(mount: Mount, root: str) -> dict[str, Any]:
    """Of what kind a mount's device is."""
    if mount.type in _WITHOUT_DISK:
        return {"kind": _WITHOUT_DISK[mount.type], "rotational": None}
    if _REMOTE.match(mount.type):
        return {"kind": "network", "rotational": None}
    entry = os.path.join(root, "sys/dev/block", mount.device)
    if not os.path.exists(entry):
        # btrfs has a number of its own, and names the disk.
        entry = os.path.join(root, "sys/class/block", os.path.basename(mount.source))
    if not os.path.exists(entry):
        return {"kind": None, "rotational": None}
    place = os.path.realpath(entry)
    kind = next((kind for begins, kind in _BLOCK if os.path.basename(place).startswith(begins)), "other")
    # A partition's queue is its disk's.
    turns = _read(place, "queue/rotational") or _read(os.path.dirname(place), "queue/rotational")
    return {"kind": kind, "rotational": {"0": False, "1": True}.get(turns or "")}


_SIOCETHTOOL = 0x8946
_ETHTOOL_GSET = 0x1
_ETHTOOL_GDRVINFO = 0x3
_ETHTOOL_GLINKSETTINGS = 0x4C


def _ethtool(device: str, request: bytes, size: int) -> bytes | None:
    """Ask a device's driver: C(request) is the beginning of a structure of C(size) bytes that comes back filled."""
    data = array.array("B", request + bytes(size - len(request)))
    try:
        # struct ifreq: a name and a pointer.
        ifreq = struct.pack("16sP16x", device.encode(), data.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, ifreq)
    except (OSError, struct.error):
        return None
    return data.tobytes()


def _driver(device: str) -> str | None:
    told = _ethtool(device, struct.pack("=I", _ETHTOOL_GDRVINFO), 196)
    return (told[4:36].split(b"\0")[0].decode("ascii", "replace") or None) if told else None


def _speed_mbit(device: str) -> int | None:
    # The kernel first says how long its masks are, by a negative number of words, and then wants to hear it.
    told = _ethtool(device, struct.pack("=I", _ETHTOOL_GLINKSETTINGS), 48)
    words = -struct.unpack_from("=b", told, 15)[0] if told else 0
    if words > 0:
        request = struct.pack("=II7xb", _ETHTOOL_GLINKSETTINGS, 0, words)
        told = _ethtool(device, request, 48 + 3 * 4 * words)
        speed = struct.unpack_from("=I", told, 4)[0] if told else 0
    else:
        told = _ethtool(device, struct.pack("=I", _ETHTOOL_GSET), 44)
        low, high = struct.unpack_from("=H14xH", told, 12) if told else (0, 0)
        speed = high << 16 | low
        if speed == 0xFFFF:
            speed = 0
    # -1 where there is no speed.
    return speed if 0 < speed < 0xFFFFFFFF else None


def _qdisc(device: str) -> str | None:
    try:
        body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(device), 0, 0)
        for kind, message in _counters.rtnetlink(18, body):  # RTM_GETLINK
            name = _counters.rtnetlink_attributes(message, 16).get(6)  # IFLA_QDISC
            if kind == 16 and name:  # RTM_NEWLINK
                return name.rstrip(b"\0").decode("ascii", "replace")
    except (OSError, struct.error):
        pass
    return None


def nic(device: str | None) -> dict[str, Any]:
    """A network device of our network namespace, as its driver and the kernel describe it."""
    if device is None:
        return dict.fromkeys(("device", "driver", "speed_mbit", "mtu", "qdisc"))
    return {
        "device": device,
        "driver": _driver(device),
        "speed_mbit": _speed_mbit(device),
        "mtu": _counters.device_mtu(device),
        "qdisc": _qdisc(device),
    }


#: Below C(/proc/sys/net); what has several numbers is a list.
_TCP = {
    "congestion_control": "ipv4/tcp_congestion_control",
    "rmem": "ipv4/tcp_rmem",
    "wmem": "ipv4/tcp_wmem",
    "rmem_max": "core/rmem_max",
    "wmem_max": "core/wmem_max",
    "timestamps": "ipv4/tcp_timestamps",
    "sack": "ipv4/tcp_sack",
    "window_scaling": "ipv4/tcp_window_scaling",
    "adv_win_scale": "ipv4/tcp_adv_win_scale",
    "moderate_rcvbuf": "ipv4/tcp_moderate_rcvbuf",
    "slow_start_after_idle": "ipv4/tcp_slow_start_after_idle",
    "no_metrics_save": "ipv4/tcp_no_metrics_save",
    "mtu_probing": "ipv4/tcp_mtu_probing",
    "notsent_lowat": "ipv4/tcp_notsent_lowat",
    "ecn": "ipv4/tcp_ecn",
    "default_qdisc": "core/default_qdisc",
}


def tcp(root: str = ROOT) -> dict[str, Any]:
    """How the kernel is set for TCP; null where our network namespace does not show it."""
    return {name: _setting(_read(root, f"proc/sys/net/{path}")) for name, path in _TCP.items()}


def _setting(text: str | None) -> Any:
    if text is None:
        return None
    words = [int(word) if re.fullmatch(r"-?\d+", word) else word for word in text.split()]
    return words[0] if len(words) == 1 else words


def fingerprint(path: str | None, address: str | None) -> dict[str, Any]:
    """This host, the filesystem that has C(path), and the device on the route to C(address). What is not known is null;
    nothing of it changes by a mere reboot but the C(room), and nothing names a user or a secret."""
    try:
        free = None if path is None else room(path)
    except OSError:
        free = None
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "os": os_name(),
        "python": platform.python_version(),
        "cpu": cpu(),
        "cpu_limit": cpu_limit(),
        "memory_bytes": memory_bytes(),
        "virtualisation": virtualisation(),
        "filesystem": filesystem(path),
        "room": {key: free and free[key] for key in ("bytes", "inodes")},
        "nic": nic(_counters.route_device(address) if address else None),
        "tcp": tcp(),
    }
