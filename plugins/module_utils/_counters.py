# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
import threading
import time
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

#: Every reader takes the root of proc, so that a test can hand it a made one.
PROC = "/proc"

#: How often the sessions of sshd are looked at while a copy runs.
_SAMPLE_S = 0.05

#: The share of a core that looking may take.
_SAMPLE_SHARE = 0.005

#: How long an ended session may take to be reaped by its listener.
_REAP_LIMIT_S = 3.0

SSHD_CHILDREN = "sshd-children"
AGENT_CHILDREN = "agent-children"
RUSAGE = "rusage"

FOREIGN_SESSION = "foreign-session"
SESSIONS_UNKNOWN = "sessions-unknown"
FOREIGN_TRAFFIC = "foreign-traffic"

#: What the bytes on the wire are counted by: the source's device alone, or the devices of both ends.
DEVICE = "device"
BOTH_DEVICES = "both-devices"


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as stream:
            return stream.read()
    except OSError:
        return None


def boot_id() -> str | None:
    """What tells one running kernel from another: equal for every container and namespace on it."""
    text = _read("/proc/sys/kernel/random/boot_id")
    return text.strip() if text else None


class ProcessStat(NamedTuple):
    """Fields of C(/proc/PID/stat) (proc(5)); times in seconds."""

    name: str
    state: str
    parent: int
    user_s: float
    system_s: float
    children_user_s: float
    children_system_s: float


def process_stat(pid: int, proc: str = PROC) -> ProcessStat | None:
    """One process, or null where there is none that we may see."""
    text = _read(f"{proc}/{pid}/stat")
    if not text or ")" not in text:
        return None
    # The name is in parentheses and may itself hold spaces and parentheses.
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    tick = float(os.sysconf("SC_CLK_TCK"))
    times = [int(field) / tick for field in rest[11:15]]
    return ProcessStat(name, rest[0], int(rest[1]), *times)


def children(pid: int, proc: str = PROC) -> frozenset[int]:
    """The processes whose parent is C(pid)."""
    text = _read(f"{proc}/{pid}/task/{pid}/children")
    if text is not None:
        return frozenset(int(word) for word in text.split())
    found = set()
    for name in os.listdir(proc):
        if name.isdigit():
            status = process_stat(int(name), proc)
            if status and status.parent == pid:
                found.add(int(name))
    return frozenset(found)


def sshd_listener(pid: int, proc: str = PROC) -> int | None:
    """The sshd that accepted the session in which C(pid) runs: the highest sshd among its ancestors, if that one
    listens. Null where there is none (sshd started by a socket unit or by inetd, another ssh server)."""
    highest: int | None = None
    below = 0
    current = pid
    while current > 1:
        status = process_stat(current, proc)
        if status is None:
            break
        if status.name.startswith("sshd"):
            highest = current
            below += 1
        current = status.parent
    if highest is None or below < 2:
        return None
    title = (_read(f"{proc}/{highest}/cmdline") or "").replace("\0", " ")
    # A session's title names its user: "sshd: root@notty", "sshd-session: root [priv]".
    return highest if "[listener]" in title or title.startswith(("/", "sshd -")) else None


class HostCpu(NamedTuple):
    """Seconds that all processors of a host spent since its start, from C(/proc/stat)."""

    user_s: float
    system_s: float
    idle_s: float
    iowait_s: float
    steal_s: float
    cores: int


def host_cpu(proc: str = PROC) -> HostCpu | None:
    text = _read(f"{proc}/stat")
    if not text:
        return None
    tick = float(os.sysconf("SC_CLK_TCK"))
    lines = text.splitlines()
    fields = [int(word) / tick for word in lines[0].split()[1:]]
    fields += [0.0] * (8 - len(fields))
    user, nice, system, idle, iowait, irq, softirq, steal = fields[:8]
    cores = sum(1 for line in lines if line.startswith("cpu") and line[3:4].isdigit())
    return HostCpu(user + nice, system + irq + softirq, idle, iowait, steal, cores)


def host_cpu_between(before: HostCpu | None, after: HostCpu | None, shared: bool | None) -> Any:
    """What the whole host spent between two readings, as the record has it. Null without both readings; a field that
    went back, as proc(5) allows for iowait and as happens when a processor is taken away, is null, too."""
    if before is None or after is None:
        return None
    spent: dict[str, Any] = {}
    for field in ("user_s", "system_s", "iowait_s", "steal_s", "idle_s"):
        grown_s = round(getattr(after, field) - getattr(before, field), 6)
        spent[field] = grown_s if grown_s >= 0 else None
    spent.update(cores=after.cores, shared=shared)
    return spent


class Traffic(NamedTuple):
    """What a network device has carried, and the TCP segments that its network namespace has sent again."""

    tx_bytes: int
    rx_bytes: int
    retransmits: int | None


def traffic(device: str | None, proc: str = PROC) -> Traffic | None:
    """Counters of C(device) in our network namespace; null where it has none."""
    text = _read(f"{proc}/net/dev")
    if not text or not device:
        return None
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() == device:
            fields = rest.split()
            return Traffic(int(fields[8]), int(fields[0]), _retransmits(proc))
    return None


def _retransmits(proc: str) -> int | None:
    rows = [line.split() for line in (_read(f"{proc}/net/snmp") or "").splitlines() if line.startswith("Tcp:")]
    if len(rows) == 2 and "RetransSegs" in rows[0]:
        return int(rows[1][rows[0].index("RetransSegs")])
    return None


class Carried(NamedTuple):
    """What C(device) has carried in C(seconds), and the TCP segments that its network namespace sent again meanwhile."""

    device: str
    tx_bytes: int
    rx_bytes: int
    retransmits: int | None
    seconds: float


class Meter:
    """Counts what a device carries from the meter's making on."""

    def __init__(self, device: str | None, proc: str = PROC) -> None:
        self.device = device
        self._proc = proc
        self._began = time.monotonic()
        self._before = traffic(device, proc)

    def read(self) -> Carried | None:
        """Null where the device has no counters, or lost them meanwhile."""
        after, before = traffic(self.device, self._proc), self._before
        seconds = time.monotonic() - self._began
        if self.device is None or before is None or after is None:
            return None
        tx_bytes, rx_bytes = after.tx_bytes - before.tx_bytes, after.rx_bytes - before.rx_bytes
        if tx_bytes < 0 or rx_bytes < 0:
            return None
        sent_again = None
        if before.retransmits is not None and after.retransmits is not None:
            sent_again = after.retransmits - before.retransmits
        return Carried(self.device, tx_bytes, rx_bytes, sent_again, seconds)


#: What a session without requests sends by itself for a while: acknowledgements, ssh's keepalive, our heartbeat.
_SILENT_SESSION_BYTES = 2000

#: Steady traffic below this share of the copy's own rate is left in.
_STEADY_SHARE = 0.01


#: What the source's and the target's device carried while no copy ran.
Quiet = Tuple[Optional[Carried], Optional[Carried]]


def wire(source: Carried | None, target: Carried | None, quiet: Sequence[Quiet] = ()) -> dict[str, Any]:
    """What a copy sent over the wire, as the record has it but for C(rtt_ms), from what the devices of both ends carried
    meanwhile, and carried in C(quiet) times before and after.

    What only one end saw is not the copy's, so that of each direction the smaller count stands. What the two hosts send
    each other all the time both ends see: its least rate in the quiet times is taken off for as long as the copy took.
    Without the target's counts the source's stand as they are."""
    found: dict[str, Any] = dict.fromkeys(("tx_bytes", "rx_bytes", "retransmits", "basis", "foreign_bytes"))
    found["ends"] = {"source": _end(source), "target": _end(target)}
    if source is None:
        return found
    found.update(tx_bytes=source.tx_bytes, rx_bytes=source.rx_bytes, retransmits=source.retransmits, basis=DEVICE)
    if target is not None:
        tx_bytes, rx_bytes = min(source.tx_bytes, target.rx_bytes), min(source.rx_bytes, target.tx_bytes)
        pairs = [(here, there) for here, there in quiet if here is not None and there is not None]
        if pairs and len(pairs) == len(quiet):
            sent = [(here.tx_bytes, here.seconds) for here, _there in pairs]
            sent += [(there.rx_bytes, there.seconds) for _here, there in pairs]
            received = [(here.rx_bytes, here.seconds) for here, _there in pairs]
            received += [(there.tx_bytes, there.seconds) for _here, there in pairs]
            tx_bytes -= _steady(tx_bytes, source, sent)
            rx_bytes -= _steady(rx_bytes, source, received)
        found.update(tx_bytes=tx_bytes, rx_bytes=rx_bytes, basis=BOTH_DEVICES, foreign_bytes=source.tx_bytes - tx_bytes)
    return found


def _end(carried: Carried | None) -> dict[str, Any] | None:
    if carried is None:
        return None
    return {"device": carried.device, "tx_bytes": carried.tx_bytes, "rx_bytes": carried.rx_bytes}


def _steady(seen_bytes: int, copy: Carried, quiet: Sequence[tuple[int, float]]) -> int:
    """Bytes of steady traffic among those that both ends saw of one direction of a copy; C(quiet) is what each end saw
    in how many seconds without the copy, each time."""
    if copy.seconds <= 0 or any(count <= _SILENT_SESSION_BYTES or seconds <= 0 for count, seconds in quiet):
        return 0
    rate = min(count / seconds for count, seconds in quiet)
    return min(seen_bytes, round(rate * copy.seconds)) if rate * copy.seconds > _STEADY_SHARE * seen_bytes else 0


def shared_the_wire(wire: Mapping[str, Any], mtu: int | None) -> bool:
    """Whether so much else flowed that it may have slowed a copy down: more than 64 kB and 5 % of what the copy sent.
    Segments that were lost on the way were also seen by one end only; and a device that is handed merged segments counts
    one header for many, so that it sees up to 4.6 % less (66 bytes for 1448)."""
    if wire["foreign_bytes"] is None:
        return False
    lost_bytes = (wire["retransmits"] or 0) * (mtu or 0)
    most: float = max(_FOREIGN_LEAST_BYTES, _FOREIGN_SHARE * wire["tx_bytes"]) + lost_bytes
    return bool(wire["foreign_bytes"] > most)


_FOREIGN_LEAST_BYTES = 64_000
_FOREIGN_SHARE = 0.05


def rtnetlink(kind: int, body: bytes, dump: bool = False) -> list[tuple[int, bytes]]:
    """Ask the kernel by rtnetlink(7): the type and the content of each message of its answer. Raises OSError."""
    header = struct.pack("=IHHII", 16 + len(body), kind, 0x301 if dump else 1, 1, 0)  # NLM_F_DUMP, NLM_F_REQUEST
    found: list[tuple[int, bytes]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.settimeout(2.0)
        link.sendto(header + body, (0, 0))
        while True:
            answer, position = link.recv(1 << 18), 0
            while position + 16 <= len(answer):
                size, message = struct.unpack_from("=IH", answer, position)
                if message == 3:  # NLMSG_DONE
                    return found
                if message == 2 or size < 16:  # NLMSG_ERROR
                    raise OSError("rtnetlink refuses")
                found.append((message, answer[position + 16 : position + size]))
                position += (size + 3) & ~3
            if not dump:
                return found


def rtnetlink_attributes(message: bytes, position: int) -> dict[int, bytes]:
    """The attributes behind the fixed part of a message, which is C(position) bytes long."""
    found = {}
    while position + 4 <= len(message):
        size, name = struct.unpack_from("=HH", message, position)
        if size < 4:
            break
        found[name] = message[position + 4 : position + size]
        position += (size + 3) & ~3
    return found


def route_device(address: str) -> str | None:
    """The network device of the route to C(address) (a name or an address), asked of the kernel. Null where there is no
    route or no such name."""
    try:
        info = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
        if len(info[4]) == 4 and info[4][3]:
            # The zone, by name or by number.
            return socket.if_indextoname(info[4][3])
        packed = ipaddress.ip_address(info[4][0]).packed
        attribute = struct.pack("=HH", 4 + len(packed), 1) + packed  # RTA_DST
        message = struct.pack("=BBBBBBBBI", info[0], len(packed) * 8, 0, 0, 0, 0, 0, 0, 0) + attribute
        for kind, answer in rtnetlink(26, message):  # RTM_GETROUTE
            device = rtnetlink_attributes(answer, 12).get(4)  # RTA_OIF
            if kind == 24 and device:  # RTM_NEWROUTE
                return socket.if_indextoname(struct.unpack("=I", device)[0])
    except (OSError, ValueError, struct.error):
        pass
    return None


def address_device(address: str) -> str | None:
    """The network device that has C(address), an address of ours; the one of its zone, if it has any. Null where none
    has, or it is not an address."""
    try:
        host, _percent, zone = address.partition("%")
        packed = ipaddress.ip_address(host).packed
        for kind, message in rtnetlink(22, bytes(8), dump=True):  # RTM_GETADDR
            attributes = rtnetlink_attributes(message, 8)
            # IFA_LOCAL where it has a peer, else IFA_ADDRESS.
            if kind == 20 and attributes.get(2, attributes.get(1)) == packed:  # RTM_NEWADDR
                index = struct.unpack_from("=I", message, 4)[0]
                # A bridge and its port may have the same link-local address.
                if zone in ("", str(index), socket.if_indextoname(index)):
                    return socket.if_indextoname(index)
    except (OSError, ValueError, struct.error):
        pass
    return None


def session_device(connection: str) -> str | None:
    """The device by which what arrives over an ssh session came, and by which the answers go: C(connection) is
    C(SSH_CONNECTION) (client address and port, server address and port). Null without a session, and where the two are
    not one device: then neither counts a copy whole."""
    words = connection.split()
    # sshd writes UNKNOWN where its input is no socket: that is not a name to ask for.
    device = address_device(words[2]) if len(words) == 4 else None
    return device if device is not None and device == route_device(words[0]) else None


def device_mtu(device: str | None) -> int | None:
    """The device's MTU in bytes, from netdevice(7), which is right in every network namespace."""
    if not device:
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16sI12x", device.encode(), 0)
            return int(struct.unpack_from("16sI", fcntl.ioctl(any_socket, 0x8921, request))[1])  # SIOCGIFMTU
    except OSError:
        return None


def tcp_round_trip_ms(address: str, port: int, timeout_s: float = 10.0) -> float | None:
    """The round-trip time that the kernel measured while opening a TCP connection (C(tcpi_rtt) of tcp(7)), in
    milliseconds. Null where it cannot be opened."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            return int(struct.unpack_from("=I", info, 68)[0]) / 1000.0
    except (OSError, struct.error):
        return None


_LISTEN = "0A"


def listening_sockets(pids: list[int], proc: str = PROC) -> list[tuple[str, int]]:
    """The TCP sockets on which one of C(pids) listens, as (address, port), read from the socket table: a probe connection
    would use up a listener that takes only one."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"{proc}/{pid}/fd"):
                with contextlib.suppress(OSError):
                    name = os.readlink(f"{proc}/{pid}/fd/{descriptor}")
                    if name.startswith("socket:["):
                        inodes.add(name[len("socket:[") : -1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in (_read(f"{proc}/net/{table}") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN and fields[9] in inodes:
                host, _colon, port = fields[1].partition(":")
                # The kernel prints each 32-bit word of the address in the host's byte order.
                words = [int(host[start : start + 8], 16) for start in range(0, len(host), 8)]
                packed = b"".join(struct.pack("=I", word) for word in words)
                found.append((str(ipaddress.ip_address(packed)), int(port, 16)))
    return found


def flush_filesystem(path: str) -> None:
    """Write out what the filesystem of C(path) holds in memory, and wait for it: syncfs(2). Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def drop_page_cache(path: str) -> bool:
    """Write out the filesystem of C(path), then make the kernel forget all clean pages. False where we may not."""
    try:
        flush_filesystem(path)
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as stream:
            stream.write("3\n")
    except OSError:
        return False
    return True


def sample_pause_s(spent_s: float) -> float:
    """How long to pause after a look at the sessions that took C(spent_s) of a core. A kernel without a list of children
    (before 3.5, or built so) has every process of the host read."""
    return max(_SAMPLE_S, spent_s / _SAMPLE_SHARE)


class SessionsReading(NamedTuple):
    """CPU seconds of the ssh sessions that ended while sampling, and the flags that say why there are none."""

    user_s: float | None
    system_s: float | None
    flags: list[str]


class Sessions:
    """Watches the sessions of an sshd listener during one copy and tells what ours have cost: the growth of the
    listener's C(cutime) and C(cstime), which holds each ended session with all that ran in it.

    C(expected) sessions are ours. When any other one ended meanwhile its cost cannot be told from ours; then there is no
    reading, and a flag says so. Nor is there one where nobody can say how many are ours (null)."""

    def __init__(self, listener: int | None, expected: int | None, proc: str = PROC) -> None:
        self.listener = listener
        self.expected = expected
        self.proc = proc
        self._seen: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._standing: frozenset[int] = frozenset()
        self._before: ProcessStat | None = None

    def start(self) -> None:
        if self.listener is not None:
            self._standing = children(self.listener, self.proc)
            self._before = process_stat(self.listener, self.proc)
            self._thread.start()

    def _sample(self) -> None:
        pause_s = _SAMPLE_S
        while not self._stop.wait(pause_s):
            began = time.thread_time()
            self._look()
            pause_s = sample_pause_s(time.thread_time() - began)

    def _look(self) -> frozenset[int]:
        now = children(self.listener or 0, self.proc)
        self._seen |= now - self._standing
        return now

    def finish(self) -> SessionsReading:
        """Wait until our sessions have been reaped and read what they cost."""
        if self.listener is None or self._before is None:
            self._stop.set()
            return SessionsReading(None, None, ["no-sshd-listener"])
        deadline = time.monotonic() + _REAP_LIMIT_S
        now = self._look()
        while now - self._standing and time.monotonic() < deadline:
            time.sleep(0.002)
            now = self._look()
        self._stop.set()
        self._thread.join()
        after = process_stat(self.listener, self.proc)
        if after is None:
            return SessionsReading(None, None, ["no-sshd-listener"])
        if self.expected is None:
            return SessionsReading(None, None, [SESSIONS_UNKNOWN])
        if now - self._standing:
            return SessionsReading(None, None, ["session-not-ended"])
        if self._standing - now or len(self._seen) > self.expected:
            return SessionsReading(None, None, [FOREIGN_SESSION])
        return SessionsReading(
            after.children_user_s - self._before.children_user_s,
            after.children_system_s - self._before.children_system_s,
            [],
        )
