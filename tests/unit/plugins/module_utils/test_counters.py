# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _counters
from ansible_collections.linkops.bulkcopy.plugins.module_utils._counters import Carried, HostCpu, Sessions, Traffic

TICK = os.sysconf("SC_CLK_TCK")


class Proc:
    """A made C(/proc)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def process(self, pid: int, name: str, parent: int, cmdline: str = "", cutime: int = 0, cstime: int = 0) -> None:
        directory = self.root / str(pid)
        (directory / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        # proc(5): pid (comm) state ppid pgrp session tty_nr tpgid flags minflt cminflt majflt cmajflt utime stime ...
        self._replace(
            directory / "stat",
            f"{pid} ({name}) S {parent} 1 1 0 -1 4194560 9 9 9 9 100 50 {cutime} {cstime} 20 0 1 0 1 1 1\n",
        )
        (directory / "cmdline").write_bytes(cmdline.replace(" ", "\0").encode())

    def children(self, pid: int, *pids: int) -> None:
        self._replace(self.root / str(pid) / "task" / str(pid) / "children", " ".join(map(str, pids)))

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        """As the kernel does: a reader never sees half of it."""
        new = path.with_name(path.name + ".new")
        new.write_text(text)
        new.replace(path)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_a_process_name_may_hold_anything(proc: Proc) -> None:
    proc.process(7, "a) S (b", 3, cutime=2 * TICK, cstime=TICK)
    status = _counters.process_stat(7, str(proc.root))
    assert status == ("a) S (b", "S", 3, 100 / TICK, 50 / TICK, 2.0, 1.0)
    assert _counters.process_stat(8, str(proc.root)) is None


@pytest.mark.parametrize(
    ("chain", "listener"),
    [
        # OpenSSH 9.2 (Debian 12), started by systemd or by hand.
        ([("sshd", "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups"), ("sshd", "sshd: root@notty")], 10),
        # OpenSSH 7.x.
        ([("sshd", "/usr/sbin/sshd -D"), ("sshd", "sshd: app [priv]"), ("sshd", "sshd: app@notty")], 10),
        # OpenSSH 10 (Debian 13).
        (
            [
                ("sshd", "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups"),
                ("sshd-session", "sshd-session: app [priv]"),
                ("sshd-session", "sshd-session: app@notty"),
            ],
            10,
        ),
        # A socket unit: every connection has its own sshd and nobody listens.
        ([("sshd", "sshd: app [priv]"), ("sshd", "sshd: app@notty")], None),
        # Another ssh server.
        ([("dropbear", "/usr/sbin/dropbear"), ("dropbear", "/usr/sbin/dropbear")], None),
    ],
)
def test_the_listener_is_the_highest_sshd(proc: Proc, chain: list[tuple[str, str]], listener: int | None) -> None:
    proc.process(1, "systemd", 0)
    parent = 1
    for number, (name, title) in enumerate(chain):
        proc.process(10 + number, name, parent, title)
        parent = 10 + number
    proc.process(30, "sh", parent)
    proc.process(31, "python3", 30)
    assert _counters.sshd_listener(31, str(proc.root)) == listener


def test_children_with_and_without_the_kernel_s_list(proc: Proc) -> None:
    proc.process(10, "sshd", 1)
    proc.process(11, "a", 10)
    proc.process(12, "b", 11)
    assert _counters.children(10, str(proc.root)) == {11}
    proc.children(10, 11, 15)
    assert _counters.children(10, str(proc.root)) == {11, 15}


def test_children_of_this_process() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in _counters.children(os.getpid())
    finally:
        child.kill()
        child.wait()


def test_host_cpu_by_hand(proc: Proc) -> None:
    (proc.root / "stat").write_text(
        f"cpu  {TICK} {TICK} {3 * TICK} {4 * TICK} {5 * TICK} 0 {TICK} {2 * TICK} 0 0\ncpu0 1\ncpu1 1\nctxt 5\n"
    )
    before = _counters.host_cpu(str(proc.root))
    assert before == HostCpu(user_s=2.0, system_s=4.0, idle_s=4.0, iowait_s=5.0, steal_s=2.0, cores=2)
    after = HostCpu(3.5, 4.0, 9.0, 5.0, 2.25, 2)
    assert _counters.host_cpu_between(before, after, True) == {
        "user_s": 1.5,
        "system_s": 0.0,
        "idle_s": 5.0,
        "iowait_s": 0.0,
        "steal_s": 0.25,
        "cores": 2,
        "shared": True,
    }
    assert _counters.host_cpu_between(None, after, True) is None
    back = _counters.host_cpu_between(before, after._replace(iowait_s=4.99), None)
    assert (back["iowait_s"], back["idle_s"], back["shared"]) == (None, 5.0, None)


NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      200       1    0    0    0     0       0          0
eth0:12345678901 5 0 0 0 0 0 0 42 1 0 0 0 0 0 0
"""
SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 77 0\n"


def test_traffic_by_hand(proc: Proc) -> None:
    (proc.root / "net").mkdir()
    (proc.root / "net" / "dev").write_text(NET_DEV)
    assert _counters.traffic("eth0", str(proc.root)) == Traffic(42, 12345678901, None)
    (proc.root / "net" / "snmp").write_text(SNMP)
    assert _counters.traffic("lo", str(proc.root)) == Traffic(200, 100, 77)
    assert _counters.traffic("eth9", str(proc.root)) is None
    assert _counters.traffic(None, str(proc.root)) is None


class TestMeter:
    def counters(self, proc: Proc, tx_bytes: int, rx_bytes: int, retransmits: int) -> None:
        (proc.root / "net").mkdir(exist_ok=True)
        (proc.root / "net" / "dev").write_text(f"eth0: {rx_bytes} 5 0 0 0 0 0 0 {tx_bytes} 1 0 0 0 0 0 0\n")
        (proc.root / "net" / "snmp").write_text(f"Tcp: RetransSegs\nTcp: {retransmits}\n")

    def test_it_counts_from_its_making_on(self, proc: Proc) -> None:
        self.counters(proc, 1000, 500, 7)
        meter = _counters.Meter("eth0", str(proc.root))
        self.counters(proc, 3000, 600, 9)
        carried = meter.read()
        assert carried is not None
        assert carried[:4] == ("eth0", 2000, 100, 2)
        assert carried.seconds > 0

    def test_what_cannot_be_counted_is_null(self, proc: Proc) -> None:
        assert _counters.Meter(None, str(proc.root)).read() is None
        meter = _counters.Meter("eth0", str(proc.root))
        assert meter.read() is None
        self.counters(proc, 1000, 500, 7)
        assert meter.read() is None
        # A device that was made anew.
        meter = _counters.Meter("eth0", str(proc.root))
        self.counters(proc, 10, 600, 7)
        assert meter.read() is None


def carried(tx_bytes: int, rx_bytes: int, seconds: float = 10.0, device: str = "eth0") -> Carried:
    return Carried(device, tx_bytes, rx_bytes, 0, seconds)


class TestWire:
    """A copy of 100 MB in 10 s, with 2 MB of acknowledgements, as the source sees it."""

    SOURCE = carried(100_000_000, 2_000_000)

    def test_what_was_not_counted_is_null_and_not_zero(self) -> None:
        assert _counters.wire(None, carried(1, 2)) == {
            "tx_bytes": None,
            "rx_bytes": None,
            "retransmits": None,
            "basis": None,
            "foreign_bytes": None,
            "ends": {"source": None, "target": {"device": "eth0", "tx_bytes": 1, "rx_bytes": 2}},
        }
        alone = _counters.wire(self.SOURCE._replace(retransmits=None), None)
        assert (alone["tx_bytes"], alone["rx_bytes"], alone["basis"]) == (100_000_000, 2_000_000, "device")
        assert (alone["retransmits"], alone["foreign_bytes"], alone["ends"]["target"]) == (None, None, None)

    def test_what_only_one_end_saw_is_not_the_copy_s(self) -> None:
        """30 MB from the source to a third host, 5 MB from there to the target."""
        found = _counters.wire(
            carried(130_000_000, 2_500_000), carried(2_000_000, 105_000_000, device="eth1"), [(None, None)]
        )
        assert (found["tx_bytes"], found["rx_bytes"]) == (105_000_000, 2_000_000)
        assert (found["basis"], found["foreign_bytes"]) == ("both-devices", 25_000_000)
        assert found["ends"] == {
            "source": {"device": "eth0", "tx_bytes": 130_000_000, "rx_bytes": 2_500_000},
            "target": {"device": "eth1", "tx_bytes": 2_000_000, "rx_bytes": 105_000_000},
        }

    def test_steady_traffic_between_the_two_is_taken_off(self) -> None:
        """500 kB/s one way, 20 kB/s the other, seen by both for half a second; the target also hears from others."""
        quiet = (carried(250_000, 10_000, 0.5), carried(10_000, 400_000, 0.5))
        found = _counters.wire(carried(105_000_000, 2_200_000), carried(2_200_000, 106_000_000), [quiet])
        assert (found["tx_bytes"], found["rx_bytes"]) == (100_000_000, 2_000_000)
        assert found["foreign_bytes"] == 5_000_000

    @pytest.mark.parametrize(
        "quiet",
        [
            # 90 kB/s are less than 1 % of the copy's 10 MB/s.
            (carried(90_000, 0, 1.0), carried(0, 90_000, 1.0)),
            # Only one end saw it.
            (carried(900_000, 0, 1.0), carried(0, 50_000, 1.0)),
            # No more than a silent session sends by itself, in a very short time.
            (carried(1500, 0, 0.001), carried(0, 1500, 0.001)),
            (None, carried(0, 900_000, 1.0)),
            (carried(900_000, 0, 1.0), None),
        ],
    )
    def test_what_is_little_or_seen_by_one_end_stays(self, quiet: tuple[Carried | None, Carried | None]) -> None:
        target = carried(2_000_000, 100_000_000)
        assert _counters.wire(self.SOURCE, target, [quiet])["tx_bytes"] == 100_000_000

    def test_no_more_is_taken_off_than_there_is(self) -> None:
        burst = (carried(90_000_000, 0, 0.5), carried(0, 90_000_000, 0.5))
        assert _counters.wire(self.SOURCE, carried(0, 100_000_000), [burst])["tx_bytes"] == 0

    def test_a_burst_before_the_copy_that_is_over_after_it_is_not_steady(self) -> None:
        burst = (carried(90_000_000, 0, 0.5), carried(0, 90_000_000, 0.5))
        over = (carried(0, 0, 0.2), carried(0, 0, 0.2))
        assert _counters.wire(self.SOURCE, carried(0, 100_000_000), [burst, over])["tx_bytes"] == 100_000_000
        less = (carried(200_000, 0, 0.2), carried(0, 200_000, 0.2))  # a megabyte a second, for ten seconds
        assert _counters.wire(self.SOURCE, carried(0, 100_000_000), [burst, less])["tx_bytes"] == 90_000_000

    @pytest.mark.parametrize(
        ("foreign_bytes", "retransmits", "said"),
        [
            (5_000_000, 0, False),
            (5_000_001, 0, True),
            # A hundred lost segments of 1500 bytes were seen by one end only.
            (5_150_000, 100, False),
            (5_150_001, 100, True),
            (5_150_001, None, True),
            (None, 0, False),
        ],
    )
    def test_much_that_flowed_beside_the_copy_is_said(
        self, foreign_bytes: int | None, retransmits: int | None, said: bool
    ) -> None:
        wire = {"tx_bytes": 100_000_000, "foreign_bytes": foreign_bytes, "retransmits": retransmits}
        assert _counters.shared_the_wire(wire, 1500) is said

    @pytest.mark.parametrize(("foreign_bytes", "said"), [(64_000, False), (64_001, True)])
    def test_beside_a_small_copy_little_is_not_worth_a_word(self, foreign_bytes: int, said: bool) -> None:
        wire = {"tx_bytes": 1000, "foreign_bytes": foreign_bytes, "retransmits": 0}
        assert _counters.shared_the_wire(wire, 1500) is said


def test_the_device_of_an_address_of_ours_is_the_one_that_ip_names() -> None:
    assert _counters.address_device("127.0.0.1") == "lo"
    said = subprocess.run(["ip", "-o", "addr"], stdout=subprocess.PIPE, text=True, check=True).stdout
    named = [line.split() for line in said.splitlines()]
    assert len(named) > 0
    for words in named:
        address = words[3].partition("/")[0]
        assert _counters.address_device(address) in {w[1] for w in named if w[3].partition("/")[0] == address}
    assert _counters.address_device("198.51.100.77") is None
    assert _counters.address_device("no address") is None


def test_the_device_of_a_session_is_the_one_both_ways() -> None:
    assert _counters.session_device("127.0.0.1 50000 127.0.0.1 22") == "lo"
    # What arrives at this address did not come by the device of the way back.
    assert _counters.session_device("127.0.0.1 50000 198.51.100.77 22") is None
    assert _counters.session_device("") is None
    assert _counters.session_device("::1 50000 ::1 22") == "lo"


def test_a_session_without_a_socket_asks_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_more: pytest.fail("a name was looked up"))
    assert _counters.session_device("UNKNOWN 65535 UNKNOWN 65535") is None


@pytest.mark.parametrize("zone", ["lo", "1"])
def test_a_zone_is_the_device_by_name_or_by_number(zone: str) -> None:
    assert Path("/sys/class/net/lo/ifindex").read_text() == "1\n"
    assert _counters.route_device(f"fe80::1%{zone}") == "lo"
    assert _counters.address_device(f"::1%{zone}") == "lo"
    assert _counters.address_device("::1%nosuch0") is None


def test_the_device_of_a_route_is_the_one_that_ip_names() -> None:
    assert _counters.route_device("127.0.0.1") == "lo"
    for address in ("127.9.9.9", "198.18.77.77"):
        said = subprocess.run(["ip", "route", "get", address], stdout=subprocess.PIPE, text=True, check=False).stdout
        named = re.search(r" dev (\S+)", said)
        assert _counters.route_device(address) == (named.group(1) if named else None)
    assert _counters.route_device("no.such.name.invalid") is None


def test_the_mtu_is_the_one_that_sysfs_names() -> None:
    assert _counters.device_mtu("lo") == int(Path("/sys/class/net/lo/mtu").read_text())
    assert _counters.device_mtu("nosuch0") is None


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_listener_is_found_in_the_socket_table(family: int, address: str) -> None:
    if family == socket.AF_INET6 and not Path("/proc/net/if_inet6").read_text():
        pytest.skip("no IPv6 on this machine")
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.bind((address, 0))
        port = bound.getsockname()[1]
        assert (address, port) not in _counters.listening_sockets([os.getpid()])
        bound.listen()
        assert (address, port) in _counters.listening_sockets([os.getpid()])
        assert _counters.listening_sockets([1 << 22]) == []


def test_a_round_trip_over_loopback_is_short() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        round_trip_ms = _counters.tcp_round_trip_ms("127.0.0.1", bound.getsockname()[1])
    assert round_trip_ms is not None
    assert 0 < round_trip_ms < 100
    assert _counters.tcp_round_trip_ms("127.0.0.1", 1) is None


def test_flushing_a_path_that_is_not_there(tmp_path: Path) -> None:
    _counters.flush_filesystem(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        _counters.flush_filesystem(str(tmp_path / "none"))


class TestSessions:
    """One listener, process 10; 20 is the session of the agent itself and stays."""

    def start(self, proc: Proc, expected: int | None = 1) -> Sessions:
        proc.process(10, "sshd", 1, cutime=5 * TICK, cstime=TICK)
        proc.children(10, 20)
        sessions = Sessions(10, expected, str(proc.root))
        sessions.start()
        return sessions

    def test_the_growth_is_ours(self, proc: Proc) -> None:
        sessions = self.start(proc)
        proc.children(10, 20, 21)
        sessions._look()
        proc.process(10, "sshd", 1, cutime=7 * TICK, cstime=2 * TICK)
        proc.children(10, 20)
        assert sessions.finish() == (2.0, 1.0, [])

    def test_it_waits_until_the_session_is_reaped(self, proc: Proc) -> None:
        sessions = self.start(proc)
        proc.children(10, 20, 21)

        def reap() -> None:
            proc.process(10, "sshd", 1, cutime=6 * TICK, cstime=TICK)
            proc.children(10, 20)

        threading.Timer(0.1, reap).start()
        assert sessions.finish() == (1.0, 0.0, [])

    def test_another_login_that_ends_is_noticed(self, proc: Proc) -> None:
        sessions = self.start(proc)
        for pids in ((20, 21), (20, 21, 22), (20,)):
            proc.children(10, *pids)
            sessions._look()
        assert sessions.finish() == (None, None, ["foreign-session"])

    def test_where_nobody_can_say_how_many_are_ours_there_is_no_figure(self, proc: Proc) -> None:
        sessions = self.start(proc, None)
        proc.process(10, "sshd", 1, cutime=7 * TICK, cstime=2 * TICK)
        assert sessions.finish() == (None, None, ["sessions-unknown"])

    def test_an_older_session_that_ends_is_noticed(self, proc: Proc) -> None:
        sessions = self.start(proc)
        proc.children(10)
        assert sessions.finish() == (None, None, ["foreign-session"])

    @pytest.mark.parametrize(("spent_s", "pause_s"), [(0.00002, 0.05), (0.0003, 0.06), (0.01, 2.0)])
    def test_looking_takes_half_a_percent_of_a_core_at_most(self, spent_s: float, pause_s: float) -> None:
        assert _counters.sample_pause_s(spent_s) == pytest.approx(pause_s)

    def test_without_a_listener_there_is_no_figure(self) -> None:
        sessions = Sessions(None, 1)
        sessions.start()
        assert sessions.finish() == (None, None, ["no-sshd-listener"])
