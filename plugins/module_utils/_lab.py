# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the lab is, decided without touching the system.

A lab is a set of hosts (network namespaces with an sshd each) and links between them: veth pairs, or, where a link has
a delay and the kernel has no netem, TAP devices that the process ``_wire`` holds.
This file names things, checks the input, says whose a thing is, and plans the steps from what is
there to what is wanted. ``_lab_system`` looks at the machine and carries the steps out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import ipaddress
import json
import math
import os
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Mapping, Sequence, Tuple

from . import _wire

NETWORK = ipaddress.ip_network("198.18.0.0/15")  # RFC 2544: reserved for benchmarks
MTU = _wire.MTU
BURST_BYTES = 32 * 1024  # a larger bucket lets more than the rate through
QUEUE_MS = 50
MIN_RATE_MBIT, MAX_RATE_MBIT = 0.01, 10000  # where tc keeps the bucket's size
MAX_RTT_MS = 2000
MAX_LOSS_PERCENT = 50
MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = 64 * 1024, 1024**3
# A long link's queue holds what is under way in one round trip, within these bounds.
QUEUE_MIN_MS = 10
QUEUE_MIN_BYTES, QUEUE_MAX_BYTES = 32 * 1024, 32 * 1024**2
MANAGEMENT_DEVICE = "mgmt0"
ENVIRONMENT_MARK = "LINKOPS_BULKCOPY_LAB"
MARK_PREFIX = "linkops-bulkcopy-lab:"
MARKER_FILE = ".linkops-bulkcopy-lab"
SCHEMA = 1
TCP_BUFFERS = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")

# Interfaces that the kernel puts into every namespace by itself.
KERNEL_DEVICES = frozenset(
    ["lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"]
)

# What a link may say below `lab`.
LINK_OPTIONS = (
    "rate_mbit",
    "rtt_ms",
    "jitter_ms",
    "loss_percent",
    "tcp_buffer_bytes",
    "congestion_control",
    "source_address",
)


class LabError(Exception):
    """One sentence: what is wrong, where, and what to do."""


# --- names -------------------------------------------------------------------------------------


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def netns_name(prefix: str, host: str) -> str:
    """Name of a host's network namespace; hosts with unusual or long names get a hashed one."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", host):
        return prefix + host
    return prefix + _digest(host)[:12]


def management_device(netns: str) -> str:
    """Name of the interface in the root namespace that leads to a host (14 characters)."""
    return "bclab-" + _digest(netns)[:8]


def link_device(link: str) -> str:
    """Name of a link's interface at both ends: the link's own name where it fits in 15 characters."""
    reserved = link in KERNEL_DEVICES or link in (MANAGEMENT_DEVICE, "all", "default")
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", link) and not reserved:
        return link
    return re.sub(r"[^A-Za-z0-9]", "", link)[:6] + "-" + _digest(link)[:8]


def mac_address(lab_id: str, netns: str, device: str) -> str:
    """A locally administered address that only this lab's interface has: it is set when the
    interface is made, so that an interface is ours from its first moment, or not at all."""
    raw = _digest("\0".join((lab_id, netns, device)))
    return ":".join(["02"] + [raw[i : i + 2] for i in range(0, 10, 2)])


def mark(lab_id: str) -> str:
    return MARK_PREFIX + lab_id


# --- what is wanted ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Host:
    name: str
    netns: str
    address: str
    port: int
    ports: tuple[int, ...]  # all that its sshd listens on
    device: str  # in the root namespace
    tcp_buffer_bytes: int | None = None  # None: as the machine has it


@dataclass(frozen=True)
class Link:
    name: str
    device: str
    source: str
    target: str
    source_address: str
    address: str
    ssh_port: int
    rate_bps: int | None = None  # None: not limited
    rtt_ms: float = 0.0  # what the link adds to a round trip, half of it each way
    jitter_ms: float = 0.0  # by how much a round trip is longer or shorter at most
    loss_percent: float = 0.0  # of the packets of each direction
    congestion_control: str | None = None  # None: as the machine has it

    @property
    def long(self) -> bool:
        """Whether it takes more than a rate to make it."""
        return bool(self.rtt_ms or self.jitter_ms or self.loss_percent)

    @property
    def queue_bytes(self) -> int:
        """What may wait for its turn at the rate."""
        product = (self.rate_bps or 0) / 8 * max(self.rtt_ms, QUEUE_MIN_MS) / 1000
        return round(min(max(product, QUEUE_MIN_BYTES), QUEUE_MAX_BYTES))

    def wire_settings(self) -> _wire.Settings:
        return _wire.Settings(
            rate_bps=self.rate_bps,
            queue_bytes=self.queue_bytes,
            delay_s=self.rtt_ms / 2000,
            jitter_s=self.jitter_ms / 2000,
            loss=self.loss_percent / 100,
        )

    def ends(self) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
        """(host, its address, the peer's address) of the source and of the target."""
        return (
            (self.source, self.source_address, self.address),
            (self.target, self.address, self.source_address),
        )


@dataclass(frozen=True)
class Lab:
    prefix: str
    state_dir: str
    data_dir: str
    controller_address: str
    hosts: dict[str, Host]
    links: dict[str, Link]

    @property
    def identity_file(self) -> str:
        return os.path.join(self.state_dir, "id_ed25519")

    @property
    def known_hosts(self) -> str:
        return os.path.join(self.state_dir, "known_hosts")

    def host_dir(self, host: str) -> str:
        return os.path.join(self.state_dir, self.hosts[host].netns)


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)


def _address(value: Any, where: str) -> str:
    try:
        if not isinstance(value, str):
            raise ValueError(value)
        address = ipaddress.ip_address(value)
    except ValueError:
        raise LabError(
            f"{where}: {_show(value)} is not an IP address: give one in {NETWORK}, such as 198.18.1.2"
        ) from None
    if address not in NETWORK:
        raise LabError(
            f"{where}: {value} is not in {NETWORK}, the range reserved for benchmarks: choose an address in it"
        )
    return str(address)


def _port(value: Any, where: str) -> int:
    try:
        if isinstance(value, (bool, float)):
            raise ValueError(value)
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if not 0 < number < 65536:
        raise LabError(f"{where}: {_show(value)} is not a port: give a whole number from 1 to 65535")
    return number


# What is not usable as which option: what it is not, what to give from where to where, what leaving it out means.
_NUMBERS = {
    "rate_mbit": ("a rate", "Mbit/s as a number", MIN_RATE_MBIT, MAX_RATE_MBIT, "no limit"),
    "rtt_ms": ("a round-trip time", "milliseconds as a number", 0, MAX_RTT_MS, "no delay"),
    "jitter_ms": ("a time", "milliseconds as a number", 0, MAX_RTT_MS, "none"),
    "loss_percent": ("a share", "percent as a number", 0, MAX_LOSS_PERCENT, "no loss"),
    "tcp_buffer_bytes": (
        "a size", "bytes as a whole number", MIN_BUFFER_BYTES, MAX_BUFFER_BYTES, "what the machine has"
    ),
}  # fmt: skip


def _number(options: Mapping[str, Any], key: str, where: str) -> float | None:
    value = options.get(key)
    if value is None:
        return None
    kind, unit, least, most, absent = _NUMBERS[key]
    try:
        if isinstance(value, bool):
            raise ValueError(value)
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most or ("whole" in unit and number != int(number)):
        raise LabError(
            f"{where}: {key} {_show(value)} is not {kind}: give {unit} from {least} to {most}, or leave it out for {absent}"
        )
    return number


def _text(mapping: Mapping[str, Any], key: str, where: str) -> str:
    value = mapping.get(key)
    if not isinstance(value, str) or not value:
        raise LabError("{}: {} is {}: give a name".format(where, key, "missing" if value is None else _show(value)))
    return value


class _Draft:
    """The hosts and links accepted so far, and who has which name and address."""

    def __init__(self, prefix: str, known: Mapping[str, Any]) -> None:
        self.prefix = prefix
        self.known = known
        self.owner_of: dict[str, str] = {}
        self.hosts: dict[str, Host] = {}
        self.links: dict[str, Link] = {}

    def claim(self, address: str, what: str) -> str:
        if address in self.owner_of:
            owner = self.owner_of[address]
            raise LabError(f"{what}: address {address} is also that of {owner}: give every end its own")
        self.owner_of[address] = what
        return address

    def add_host(self, name: str) -> None:
        if name in self.hosts:
            return
        where = f"host {name}"
        about = self.known[name]
        if not isinstance(about, Mapping) or not about.get("address"):
            raise LabError(f"{where}: it has no management address: set ansible_host to an address in {NETWORK}")
        port = _port(22 if about.get("port") is None else about["port"], f"{where}: ansible_port")
        netns = netns_name(self.prefix, name)
        for other in self.hosts.values():
            if other.netns == netns:
                raise LabError(f"{where}: its namespace would be called {netns} like that of {other.name}: rename it")
        address = self.claim(_address(about["address"], f"{where}: ansible_host"), where)
        self.hosts[name] = Host(name, netns, address, port, (port,), management_device(netns))

    def add_link(self, link: Mapping[str, Any], name: str, options: Mapping[str, Any]) -> None:
        where = f"link {name}"
        device = link_device(name)
        for other in self.links.values():
            if other.device == device:
                raise LabError(
                    f"{where}: its interface would be called {device} like that of link {other.name}: rename it"
                )
        source, target = _text(link, "source", where), _text(link, "target", where)
        if source == target:
            raise LabError(f"{where}: source and target are both {source}: a link joins two hosts")
        for role, host in (("source", source), ("target", target)):
            if host not in self.known:
                raise LabError(f"{where}: {role} {host} is not a host of the inventory: add it, or correct the link")
        for key in options:
            if key not in LINK_OPTIONS:
                raise LabError(f"{where}: lab option {_show(key)} is not known: use {' or '.join(LINK_OPTIONS)}")
        rate_mbit, rtt_ms, jitter_ms, loss_percent, buffer_bytes = (_number(options, key, where) for key in _NUMBERS)
        if (jitter_ms or 0) > (rtt_ms or 0):
            raise LabError(
                f"{where}: jitter_ms {jitter_ms:g} is more than rtt_ms ({rtt_ms or 0:g}): "
                "a round trip cannot be shorter than none"
            )
        control = options.get("congestion_control")
        if control is not None and not (isinstance(control, str) and re.fullmatch(r"[a-z0-9_]{1,15}", control)):
            raise LabError(
                f"{where}: congestion_control {_show(control)} is not a name: give one such as cubic, "
                "or leave it out for what the machine has"
            )
        if link.get("address") is None:
            raise LabError(f"{where}: address is missing: give the target's address in {NETWORK}")
        address = self.claim(_address(link["address"], f"{where}: address"), where)
        if options.get("source_address") is None:
            # The other address of its /31.
            source_address = str(ipaddress.ip_address(int(ipaddress.ip_address(address)) ^ 1))
        else:
            source_address = _address(options["source_address"], f"{where}: source_address")
        self.claim(source_address, f"{where} (source end)")
        port = _port(22 if link.get("ssh_port") is None else link["ssh_port"], f"{where}: ssh_port")
        self.add_host(source)
        self.add_host(target)
        ports = tuple(sorted({*self.hosts[target].ports, port}))
        self.hosts[target] = replace(self.hosts[target], ports=ports)
        if buffer_bytes is not None:
            for host in (source, target):
                self.tune(host, name, int(buffer_bytes))
        self.links[name] = Link(
            name, device, source, target, source_address, address, port,
            rate_bps=None if rate_mbit is None else round(rate_mbit * 1e6),
            rtt_ms=rtt_ms or 0.0,
            jitter_ms=jitter_ms or 0.0,
            loss_percent=loss_percent or 0.0,
            congestion_control=control,
        )  # fmt: skip

    def tune(self, host: str, link: str, buffer_bytes: int) -> None:
        """Note the TCP buffers that a link wants; a host has one setting for all its links."""
        before = self.hosts[host].tcp_buffer_bytes
        if before not in (None, buffer_bytes):
            raise LabError(
                f"link {link}: tcp_buffer_bytes {buffer_bytes} is not the {before} of another link of host {host}, "
                "and a host has one setting: give both the same, or other hosts"
            )
        self.hosts[host] = replace(self.hosts[host], tcp_buffer_bytes=buffer_bytes)


def wanted_lab(
    links: Sequence[Any],
    hosts: Mapping[str, Any],
    prefix: str,
    state_dir: str,
    data_dir: str,
    controller_address: str,
) -> Lab:
    """Check the input and turn it into a Lab.

    links: bulkcopy_links of the inventory; those with a `lab` mapping, an empty one too, are the lab's,
    the others lead to hosts of other people's making. hosts: inventory name to {address, port}, the
    management address (ansible_host) and port.

    Raises LabError with one sentence for the first thing wrong.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,19}", prefix):
        raise LabError(
            f"lab: prefix {_show(prefix)} cannot begin a namespace's name: use up to 20 letters, digits, - and _"
        )
    for what, path in (("state_dir", state_dir), ("data_dir", data_dir)):
        # sshd_config and known_hosts have no certain quoting for anything else.
        if not re.fullmatch(r"(/[A-Za-z0-9._-]+){2,}", path) or os.path.normpath(path) != path:
            raise LabError(
                f"lab: {what} {_show(path)} cannot be used: give an absolute path, two levels or deeper, without spaces"
            )
    if not links:
        raise LabError("lab: the inventory lists no link: set bulkcopy_links")
    draft = _Draft(prefix, hosts)
    controller = draft.claim(_address(controller_address, "lab: controller_address"), "the controller")
    names: set[str] = set()
    for number, link in enumerate(links, 1):
        if not isinstance(link, Mapping):
            raise LabError(f"link {number}: {_show(link)} is not a mapping: give name, source, target and address")
        name = _text(link, "name", f"link {number}")
        if name in names:
            raise LabError(f"link {name}: the name is used twice: give every link its own")
        names.add(name)
        options = link.get("lab")
        if options is None:
            continue
        if not isinstance(options, Mapping):
            allowed = " and ".join(LINK_OPTIONS)
            raise LabError(f"link {name}: lab {_show(options)} is not a mapping: give {allowed}, or leave it out")
        draft.add_link(link, name, options)
    if not draft.links:
        raise LabError("lab: none of the links asks for it: give one a lab, as in lab: {rate_mbit: 100}")
    return Lab(prefix, state_dir, data_dir, controller, draft.hosts, draft.links)


# --- files -------------------------------------------------------------------------------------


def sshd_config(lab: Lab, host: str, lab_id: str, extra: Sequence[str] = ()) -> str:
    """The whole configuration of one host's sshd; nothing of /etc/ssh is read."""
    directory = lab.host_dir(host)
    lines = [f"Port {port}" for port in lab.hosts[host].ports]
    lines += [
        "AddressFamily inet",
        "HostKey {}".format(os.path.join(directory, "ssh_host_ed25519_key")),
        "AuthorizedKeysFile {}".format(os.path.join(lab.state_dir, "authorized_keys")),
        "AuthenticationMethods publickey",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitUserRC no",
        "UsePAM no",
        "UseDNS no",
        "PidFile none",
        "PrintMotd no",
        "PrintLastLog no",
        "X11Forwarding no",
        "MaxStartups 200",
        "MaxSessions 200",
        "Subsystem sftp internal-sftp",
        f"SetEnv {ENVIRONMENT_MARK}={lab_id}",
    ]
    return "\n".join(lines + list(extra)) + "\n"


def known_hosts(lab: Lab, host_keys: Mapping[str, str]) -> str:
    """Lines for the management address and for every link's address; host_keys: host to 'type key'."""
    names: dict[tuple[str, int], str] = {}
    for host in lab.hosts.values():
        for port in host.ports:
            names[(host.address, port)] = host.name
    for link in lab.links.values():
        names[(link.address, link.ssh_port)] = link.target
    return "".join(
        f"{address if port == 22 else f'[{address}]:{port}'} {host_keys[host]}\n"
        for (address, port), host in sorted(names.items())
    )


def shadow_override(shadow: str, today: int) -> str | None:
    """The shadow file for the lab's hosts, or None where root's own entry lets sshd admit a key.

    today: days since 1970. Without PAM sshd refuses an account that is locked ('!', the default of
    many installations), expired, or whose password must be changed. The lab's hosts then see a file
    of one line in their own mount namespace; the machine's own file is neither changed nor copied.
    """
    for line in shadow.splitlines():
        fields = line.split(":")
        if fields[0] != "root" or len(fields) < 8:
            continue
        changed, most, expires = (int(fields[i]) if fields[i].isdigit() else None for i in (2, 4, 7))
        locked = fields[1].startswith("!")
        password_old = changed == 0 or (changed is not None and most is not None and changed + most < today)
        if not locked and not password_old and (expires is None or expires >= today):
            return None
    return "root:*:19000::::::\n"


# --- what was made: the state file ---------------------------------------------------------------


@dataclass
class HostState:
    netns: str
    inode: int | None = None  # of the namespace; known before its name is made
    device: str = ""
    sshd_pid: int | None = None
    sshd_start: int | None = None  # clock ticks after boot: pids are used again, pairs are not
    sshd_config: str = ""  # digest of the configuration it was started with
    tuned: bool = False  # whether its TCP buffers were ever set


@dataclass
class LinkState:
    device: str
    source: str  # hosts
    target: str
    character: str = ""  # what netem was told, or the digest of what the wire was started with
    wire_pid: int | None = None
    wire_start: int | None = None


@dataclass
class State:
    """What the lab made or is about to make. Written before it is made."""

    id: str
    boot_id: str
    hosts: dict[str, HostState] = field(default_factory=dict)
    links: dict[str, LinkState] = field(default_factory=dict)
    data_dir: str = ""
    made_dirs: list[str] = field(default_factory=list)  # /run/sshd, /run/netns
    made_netns_mount: bool = False
    schema: int = SCHEMA

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def load_state(text: str, path: str) -> State:
    """Read a state file; LabError where it is not one of ours."""
    try:
        raw = json.loads(text)
        if raw["schema"] != SCHEMA:
            raise ValueError("schema")
        hosts = {name: HostState(**item) for name, item in raw.pop("hosts").items()}
        links = {name: LinkState(**item) for name, item in raw.pop("links").items()}
        state = State(hosts=hosts, links=links, **raw)
        if not re.fullmatch(r"[0-9a-f]{16}", state.id):
            raise ValueError("id")
        return state
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LabError(
            f"{path} is not a state file that this version of the lab wrote: look at what is there, then remove it"
        ) from None


def after_boot(state: State, boot_id: str) -> State:
    """Drop what cannot have outlived a reboot; files can (where /run is not a tmpfs)."""
    if state.boot_id == boot_id:
        return state
    return State(state.id, boot_id, data_dir=state.data_dir, made_dirs=state.made_dirs)


# --- whose is it: /proc and namespaces ------------------------------------------------------------

ABSENT, OURS, DEBRIS, FOREIGN = "absent", "ours", "debris", "foreign"


def judge_netns(path: str, recorded: int | None, alias: str | None, lab_id: str, nsfs_dev: int) -> str:
    """Whose the namespace at `path` is.

    It is ours when its inode is the one recorded before the name was made, and its loopback carries
    the lab's mark. An empty file that is no namespace is what a killed `ip netns` leaves: ours to
    remove when a namespace of this name was recorded.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return ABSENT
    if found.st_dev != nsfs_dev:
        return DEBRIS if recorded is not None and found.st_size == 0 and os.path.isfile(path) else FOREIGN
    return OURS if found.st_ino == recorded and alias == mark(lab_id) else FOREIGN


@dataclass(frozen=True)
class Process:
    pid: int
    start: int
    parent: int
    name: str


def read_process(proc: str, pid: int) -> Process | None:
    """None where there is no such process, or it is a zombie."""
    try:
        text = Path(proc, str(pid), "stat").read_bytes().decode("utf-8", "backslashreplace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    if rest[0] in "ZX":
        return None
    return Process(pid, int(rest[19]), int(rest[1]), name)


def namespace_inode(proc: str, pid: int, kind: str) -> int | None:
    try:
        text = os.readlink(os.path.join(proc, str(pid), "ns", kind))
    except OSError:
        return None
    found = re.fullmatch(rf"{kind}:\[(\d+)\]", text)
    return int(found.group(1)) if found else None


def carries_mark(proc: str, pid: int, lab_id: str) -> bool:
    """Whether a process descends from this lab's sshd: by the environment that sshd gives to every
    session, or by the mount that only the mount namespace of our sshd has (sshd itself overwrites
    its environment, and what a session starts may clear it)."""
    wanted = f"{ENVIRONMENT_MARK}={lab_id}"
    try:
        if wanted.encode() in Path(proc, str(pid), "environ").read_bytes().split(b"\0"):
            return True
    except OSError:
        pass
    try:
        mounts = Path(proc, str(pid), "mountinfo").read_bytes()
    except OSError:
        return False
    return mark(lab_id).encode() in mounts.split()


def processes_in(proc: str, inodes: set[int]) -> list[int]:
    """Pids whose network namespace is one of these."""
    found = []
    for entry in os.listdir(proc):
        if entry.isdigit() and namespace_inode(proc, int(entry), "net") in inodes:
            found.append(int(entry))
    return sorted(found)


def lab_processes(proc: str, state: State) -> tuple[dict[str, list[Process]], list[Process]]:
    """Processes in the lab's namespaces: ours by host, and those of others.

    Ours: in a namespace that was recorded, and either the recorded sshd (pid and start time) or one
    that carries the mark.
    """
    host_of = {item.inode: name for name, item in state.hosts.items() if item.inode is not None}
    ours: dict[str, list[Process]] = {name: [] for name in state.hosts}
    others: list[Process] = []
    for pid in processes_in(proc, set(host_of)):
        inode = namespace_inode(proc, pid, "net")
        process = read_process(proc, pid)
        if process is None or inode not in host_of:
            continue
        item = state.hosts[host_of[inode]]
        if (pid, process.start) == (item.sshd_pid, item.sshd_start) or carries_mark(proc, pid, state.id):
            ours[host_of[inode]].append(process)
        else:
            others.append(process)
    return ours, others


def sshd_alive(proc: str, item: HostState) -> bool:
    """Whether the recorded sshd runs, in the recorded namespace."""
    if item.sshd_pid is None or item.inode is None:
        return False
    process = read_process(proc, item.sshd_pid)
    return (
        process is not None
        and process.start == item.sshd_start
        and process.name.startswith("sshd")
        and namespace_inode(proc, item.sshd_pid, "net") == item.inode
    )


def wire_alive(proc: str, item: LinkState) -> bool:
    """Whether the recorded wire runs. Its devices are gone when it does not."""
    process = None if item.wire_pid is None else read_process(proc, item.wire_pid)
    return process is not None and process.start == item.wire_start


def listening_ports(tcp: str) -> set[int]:
    """Ports in state LISTEN (0A) of the text of /proc/PID/net/tcp."""
    ports = set()
    for line in tcp.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 3 and fields[3] == "0A":
            ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


# --- what is there -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interface:
    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[tuple[str, str | None], ...] = ()  # (local, peer)
    qdisc: str = "noqueue"
    rate_bps: int | None = None
    burst_bytes: int | None = None
    queue_ms: float | None = None
    congestion_control: str | None = None  # of the route to the peer


def parse_interfaces(addr_json: str, qdisc_json: str, route_json: str = "[]") -> dict[str, Interface]:
    """From `ip -json address show`, `tc -json qdisc show` and `ip -json route show`."""
    controls = {}
    for route in json.loads(route_json or "[]"):
        for metrics in route.get("metrics", []):
            if "congestion" in metrics:
                controls[(route.get("dev"), route.get("dst"))] = metrics["congestion"]
    shaped = {}
    for item in json.loads(qdisc_json or "[]"):
        if item.get("root"):
            shaped[item["dev"]] = item
    found = {}
    for item in json.loads(addr_json or "[]"):
        if not item:
            continue
        options = shaped.get(item["ifname"], {}).get("options", {})
        tbf = shaped.get(item["ifname"], {}).get("kind") == "tbf"
        addresses = tuple(
            (entry["local"], entry.get("address"))
            for entry in item.get("addr_info", [])
            if entry.get("family") == "inet"
        )
        found[item["ifname"]] = Interface(
            name=item["ifname"],
            mac=item.get("address", ""),
            mtu=item.get("mtu", 0),
            up="UP" in item.get("flags", []),
            addresses=addresses,
            qdisc=shaped.get(item["ifname"], {}).get("kind", item.get("qdisc", "noqueue")),
            rate_bps=options["rate"] * 8 if tbf else None,
            burst_bytes=options.get("burst") if tbf else None,
            queue_ms=options["lat"] / 1000 if tbf and "lat" in options else None,
            congestion_control=controls.get((item["ifname"], addresses[0][1])) if addresses else None,
        )
    return found


@dataclass
class Observed:
    """The machine as it is, as far as the lab is concerned. Hosts are the recorded and the wanted."""

    netns: dict[str, str] = field(default_factory=dict)  # namespace name -> ABSENT, OURS, DEBRIS, FOREIGN
    interfaces: dict[str, dict[str, Interface]] = field(default_factory=dict)  # "" is the root namespace
    sshd: dict[str, bool] = field(default_factory=dict)  # host -> alive and in place
    processes: dict[str, int] = field(default_factory=dict)  # host -> how many of ours run
    wires: dict[str, bool] = field(default_factory=dict)  # link -> its wire runs
    netem: bool = False  # whether the kernel has it; looked for where a link needs it
    congestion_controls: tuple[str, ...] = ()
    # namespace ("" is the root's) -> the three values of tcp_rmem and of tcp_wmem
    tcp_buffers: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


# --- from there to here --------------------------------------------------------------------------

Command = Tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One thing to do. kind says who does it: `run` by its commands, the others by _lab_system."""

    kind: str  # run, netns, unname, sshd, stop, tune, wire, unwire
    text: str
    host: str = ""
    commands: tuple[Command, ...] = ()
    link: str = ""  # the link that the commands make


def ip(netns: str, *words: str) -> Command:
    return ("ip", "-netns", netns, *words) if netns else ("ip", *words)


def netem(link: Link) -> tuple[str, ...]:
    """What netem is told of one direction of a link, which it does at the sender's end.

    Its limit counts packets, those under way among them. Without a rate it would let packets overtake each other."""
    rate_bps = link.rate_bps or round(MAX_RATE_MBIT * 10 * 1e6)
    held = link.queue_bytes + rate_bps / 8 * (link.rtt_ms + link.jitter_ms) / 2000
    words = ["limit", str(math.ceil(held / MTU) + 1000), "delay", f"{link.rtt_ms / 2:g}ms"]
    if link.jitter_ms:
        words.append(f"{link.jitter_ms / 2:g}ms")
    if link.loss_percent:
        words += ["loss", "random", f"{link.loss_percent:g}%"]
    return (*words, "rate", f"{rate_bps}bit")


def shape(link: Link, netns: str) -> list[Command]:
    """The commands that give one end of a veth link its character."""
    qdisc = ("tc", "-netns", netns, "qdisc")
    if link.long:
        # netem loses and counts what it is handed: packets, not segments of many.
        whole = ip(netns, "link", "set", "dev", link.device, "gso_max_segs", "1")
        return [whole, (*qdisc, "replace", "dev", link.device, "root", "netem", *netem(link))]
    if link.rate_bps is None:
        return [(*qdisc, "delete", "dev", link.device, "root")]
    return [(
        *qdisc, "replace", "dev", link.device, "root",
        "tbf", "rate", f"{link.rate_bps}bit", "burst", f"{BURST_BYTES}b", "latency", f"{QUEUE_MS}ms",
    )]  # fmt: skip


def is_shaped(interface: Interface, link: Link, character: str = "") -> bool:
    """Whether a veth end has its link's character; `character`: what netem was told last."""
    if link.long:
        return interface.qdisc == "netem" and character == " ".join(netem(link))
    if link.rate_bps is None:
        return interface.qdisc == "noqueue"
    # tc gives back rounded values: whole bytes a second, the bucket in clock ticks.
    return (
        interface.qdisc == "tbf"
        and abs((interface.rate_bps or 0) - link.rate_bps) <= max(8, link.rate_bps * 1e-3)
        and abs((interface.burst_bytes or 0) - BURST_BYTES) <= BURST_BYTES * 0.05
        and abs((interface.queue_ms or 0) - QUEUE_MS) <= 1
    )


def _in_place(interface: Interface | None, local: str, peer: str) -> bool:
    return interface is not None and interface.mtu == MTU and interface.up and interface.addresses == ((local, peer),)


def _pair(first: tuple[str, str, str], second: tuple[str, str, str]) -> Command:
    """A veth pair made in place; each end is (namespace, device, mac)."""
    return ip(
        first[0], "link", "add", "name", first[1], "address", first[2], "mtu", str(MTU), "type", "veth",
        "peer", "name", second[1], "address", second[2], "mtu", str(MTU), "netns", second[0],
    )  # fmt: skip


def _configure(netns: str, device: str, local: str, peer: str) -> list[Command]:
    # Without an IPv6 link-local address the interface is silent: counters see the copies alone.
    return [
        ip(netns, "address", "add", local, "peer", peer, "dev", device),
        ip(netns, "link", "set", "dev", device, "addrgenmode", "none"),
        ip(netns, "link", "set", "dev", device, "up"),
    ]


def check_foreign(lab: Lab | None, state: State, observed: Observed) -> None:
    """Raise LabError for anything in the way that is not ours. Nothing has been changed by then."""
    for name, item in sorted(state.hosts.items()):
        if observed.netns.get(item.netns) != OURS:
            continue
        for device, interface in sorted(observed.interfaces.get(item.netns, {}).items()):
            if device not in KERNEL_DEVICES and interface.mac != mac_address(state.id, item.netns, device):
                raise LabError(
                    f"host {name}: interface {device} in network namespace {item.netns} was not made by the lab: "
                    "move it out or remove it first"
                )
    if lab is None:
        return
    outside = observed.interfaces.get("", {})
    for name, host in sorted(lab.hosts.items()):
        if observed.netns.get(host.netns) == FOREIGN:
            raise LabError(
                f"host {name}: network namespace {host.netns} exists and was not made by the lab: "
                f"remove it (ip netns delete {host.netns}) or choose another lab prefix"
            )
        if host.device in outside and outside[host.device].mac != mac_address(state.id, "", host.device):
            raise LabError(
                f"host {name}: interface {host.device} exists and was not made by the lab: "
                "remove it or choose another lab prefix"
            )
    ours = {item.device for item in state.hosts.values()} | {host.device for host in lab.hosts.values()}
    addresses = {lab.controller_address: "lab: controller_address"}
    addresses.update({host.address: f"host {host.name}" for host in lab.hosts.values()})
    for link in lab.links.values():
        addresses.update({link.address: f"link {link.name}", link.source_address: f"link {link.name}"})
    for device, interface in sorted(outside.items()):
        for local, _peer in interface.addresses:
            if device not in ours and local in addresses:
                where = addresses[local]
                raise LabError(
                    f"{where}: address {local} is in use on interface {device} of this machine: choose another"
                )


def _tuned(old: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The three values of tcp_rmem or tcp_wmem with another maximum."""
    return (old[0], min(old[1], most), most)


def _plan_buffers(host: Host, item: HostState, observed: Observed, fresh: bool) -> list[Step]:
    """A host's TCP buffers: what its links want, or what the machine has where the lab once set another."""
    if host.tcp_buffer_bytes is None and (fresh or not item.tuned):
        return []
    wanted = observed.tcp_buffers[""]
    if host.tcp_buffer_bytes is not None:
        wanted = tuple(_tuned(values, host.tcp_buffer_bytes) for values in wanted)
    if not fresh and observed.tcp_buffers.get(host.netns) == wanted:
        return []
    words = [f"{key}={' '.join(map(str, values))}" for key, values in zip(TCP_BUFFERS, wanted)]
    command = ("ip", "netns", "exec", host.netns, "sysctl", "-q", "-w", *words)
    return [Step("tune", f"set the TCP buffers of host {host.name}", host.name, (command,))]


def check_kernel(lab: Lab, observed: Observed) -> None:
    """Raise LabError where a link asks for what this kernel does not have."""
    for name, link in sorted(lab.links.items()):
        if link.congestion_control not in (None, *observed.congestion_controls):
            raise LabError(
                f"link {name}: this kernel has no congestion_control {link.congestion_control}: "
                f"use {' or '.join(observed.congestion_controls)}, or load its module (modprobe tcp_{link.congestion_control})"
            )


def _remove_link(name: str, item: LinkState, state: State, observed: Observed) -> list[Step]:
    if observed.wires.get(name):
        return [Step("unwire", f"remove link {name}", link=name)]
    for host in (item.source, item.target):
        netns = state.hosts[host].netns if host in state.hosts else ""
        if netns and observed.netns.get(netns) == OURS and item.device in observed.interfaces.get(netns, {}):
            return [Step("run", f"remove link {name}", commands=(ip(netns, "link", "delete", "dev", item.device),))]
    return []


def _remove_host(name: str, item: HostState, lab_id: str, observed: Observed) -> list[Step]:
    steps = []
    if observed.processes.get(name):
        steps.append(Step("stop", f"end the processes of host {name}", host=name))
    outside = observed.interfaces.get("", {}).get(item.device)
    if outside is not None and outside.mac == mac_address(lab_id, "", item.device):
        steps.append(
            Step("run", f"remove the management link of host {name}",
                 commands=(ip("", "link", "delete", "dev", item.device),))
        )  # fmt: skip
    found = observed.netns.get(item.netns)
    if found == OURS:
        steps.append(
            Step("run", f"remove network namespace {item.netns}", commands=(("ip", "netns", "delete", item.netns),))
        )
    elif found == DEBRIS:
        steps.append(Step("unname", f"remove the half-made network namespace {item.netns}", host=name))
    return steps


def plan_removal(state: State, observed: Observed) -> list[Step]:
    """Steps that take everything down that the state records: processes first, so that connections
    end while their network is there and the controller's ssh sees them end."""
    check_foreign(None, state, observed)
    stops: list[Step] = []
    rest: list[Step] = []
    for name, item in sorted(state.hosts.items()):
        for step in _remove_host(name, item, state.id, observed):
            (stops if step.kind == "stop" else rest).append(step)
    links = [step for name, item in sorted(state.links.items()) for step in _remove_link(name, item, state, observed)]
    return stops + links + rest


def plan(lab: Lab, state: State, observed: Observed, config_digests: Mapping[str, str]) -> list[Step]:
    """Steps from what is observed to the lab that is wanted; none where it is in place.

    config_digests: host to the digest of the sshd configuration that is wanted.
    """
    check_foreign(lab, state, observed)
    check_kernel(lab, observed)
    steps: list[Step] = []
    for name, old in sorted(state.links.items()):
        link = lab.links.get(name)
        if link is None or (link.device, link.source, link.target) != (old.device, old.source, old.target):
            steps += _remove_link(name, old, state, observed)
    for name, item in sorted(state.hosts.items()):
        if name not in lab.hosts or lab.hosts[name].netns != item.netns:
            steps += _remove_host(name, item, state.id, observed)

    fresh: set[str] = set()
    for name, host in sorted(lab.hosts.items()):
        item = state.hosts.get(name, HostState(host.netns))
        if observed.netns.get(host.netns) != OURS:
            fresh.add(name)
            if name in state.hosts:
                steps += _remove_host(name, item, state.id, observed)
            steps.append(Step("netns", f"create network namespace {host.netns}", host=name))
        inside = {} if name in fresh else observed.interfaces.get(host.netns, {})
        if name not in fresh and "lo" in inside and not inside["lo"].up:
            steps.append(
                Step(
                    "run",
                    f"bring up the loopback of host {name}",
                    name,
                    (ip(host.netns, "link", "set", "dev", "lo", "up"),),
                )
            )
        outside = observed.interfaces.get("", {}).get(host.device)
        if name in fresh or not (
            _in_place(outside, lab.controller_address, host.address)
            and _in_place(inside.get(MANAGEMENT_DEVICE), host.address, lab.controller_address)
        ):
            commands: list[Command] = []
            if name not in fresh and outside is not None:
                commands.append(ip("", "link", "delete", "dev", host.device))
            elif MANAGEMENT_DEVICE in inside:
                commands.append(ip(host.netns, "link", "delete", "dev", MANAGEMENT_DEVICE))
            commands.append(
                _pair(
                    ("", host.device, mac_address(state.id, "", host.device)),
                    (host.netns, MANAGEMENT_DEVICE, mac_address(state.id, host.netns, MANAGEMENT_DEVICE)),
                )
            )
            commands += _configure(host.netns, MANAGEMENT_DEVICE, host.address, lab.controller_address)
            commands += _configure("", host.device, lab.controller_address, host.address)
            steps.append(Step("run", f"create the management link of host {name}", name, tuple(commands)))
        steps += _plan_buffers(host, item, observed, name in fresh)

    for _name, link in sorted(lab.links.items()):
        steps += _plan_link(lab, link, state, observed, fresh)

    for name in sorted(lab.hosts):
        item = state.hosts.get(name, HostState(lab.hosts[name].netns))
        if name in fresh or not observed.sshd.get(name):
            steps.append(Step("sshd", f"start sshd on host {name}", host=name))
        elif item.sshd_config != config_digests[name]:
            steps.append(Step("sshd", f"restart sshd on host {name} with other settings", host=name))
    return steps


def _plan_link(lab: Lab, link: Link, state: State, observed: Observed, fresh: set[str]) -> list[Step]:
    item = state.links.get(link.name, LinkState(link.device, link.source, link.target))
    wired, wire_runs = link.long and not observed.netem, observed.wires.get(link.name, False)
    good = wired == wire_runs and link.long == bool(item.character)
    good = good and (not wired or item.character == wire_digest(lab, link, state.id))
    ends: list[tuple[str, str, str, Interface | None]] = []
    for host, local, peer in link.ends():
        netns = lab.hosts[host].netns
        interface = None if host in fresh else observed.interfaces.get(netns, {}).get(link.device)
        good = good and _in_place(interface, local, peer)
        ends.append((netns, local, peer, interface))
    commands: list[Command] = []
    if good:
        steps = []
        for netns, _local, _peer, interface in ends:
            if not wired and interface and not is_shaped(interface, link, item.character):
                commands += shape(link, netns)
        if commands:
            steps.append(Step("run", f"set the rate of link {link.name}", commands=tuple(commands), link=link.name))
        commands = [
            _route(netns, link, local, peer)
            for netns, local, peer, interface in ends
            if interface and interface.congestion_control != link.congestion_control
        ]
        if commands:
            steps.append(Step("run", f"set the congestion control of link {link.name}", commands=tuple(commands)))
        return steps
    before: list[Step] = []
    if wire_runs:
        before.append(Step("unwire", f"end the wire of link {link.name}", link=link.name))
    else:
        for netns, _local, _peer, interface in ends:
            # One is enough: the other end of a pair goes with it.
            if interface is not None and not commands:
                commands.append(ip(netns, "link", "delete", "dev", link.device))
    if not wired:
        commands.append(_pair(*((end[0], link.device, mac_address(state.id, end[0], link.device)) for end in ends)))
        if link.rate_bps is not None or link.long:
            for netns, _local, _peer, _interface in ends:
                commands += shape(link, netns)
    elif commands:
        before.append(Step("run", f"remove link {link.name}", commands=tuple(commands)))
        commands = []
    for (netns, local, peer, _interface), (other, *_rest) in zip(ends, reversed(ends)):
        commands += _configure(netns, link.device, local, peer)
        if link.long:
            # To ask for the address would cost the first packet a round trip more.
            mac = mac_address(state.id, other, link.device)
            commands.append(ip(netns, "neigh", "replace", peer, "lladdr", mac, "dev", link.device, "nud", "permanent"))
        if link.congestion_control is not None:
            commands.append(_route(netns, link, local, peer))
    kind = "wire" if wired else "run"
    return [*before, Step(kind, f"create link {link.name}", commands=tuple(commands), link=link.name)]


def _route(netns: str, link: Link, local: str, peer: str) -> Command:
    """The kernel's own route to the other end, with the congestion control of connections over it."""
    control = () if link.congestion_control is None else ("congctl", link.congestion_control)
    return ip(
        netns, "route", "replace", peer, "dev", link.device, "proto", "kernel", "scope", "link", "src", local, *control
    )


def made_of(link: Link, state: State) -> str | None:
    """What a link was made of; None where it has not been made."""
    item = state.links.get(link.name)
    if item is None:
        return None
    if not link.long:
        return "veth"
    return "netem" if item.wire_pid is None else "wire"


def wire_argument(lab: Lab, link: Link, lab_id: str) -> str:
    """What the program of a wire is told."""
    spaces = [lab.hosts[host].netns for host in (link.source, link.target)]
    ends = [(netns, mac_address(lab_id, netns, link.device)) for netns in spaces]
    return json.dumps({"device": link.device, "ends": ends, "settings": link.wire_settings()._asdict()})


def wire_digest(lab: Lab, link: Link, lab_id: str) -> str:
    """What tells a wire of these settings, and of this version of the program, from another."""
    return _digest(wire_argument(lab, link, lab_id) + wire_program())


def wire_program() -> str:
    """The program's text. importlib's, not inspect's: inside Ansible's archive only the loader can read it."""
    loader = importlib.util.find_spec(_wire.__name__).loader  # type: ignore[union-attr]
    return str(loader.get_source(_wire.__name__))  # type: ignore[union-attr]
