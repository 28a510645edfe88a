# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab on this machine, under names and addresses that the embedded lab does not use."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _lab, _lab_system

PREFIX = "bctest-"
STATE_DIR = "/run/linkops-bulkcopy-labtest"
DATA_DIR = "/var/tmp/linkops-bulkcopy-labtest"
HOSTS = {"a": {"address": "198.19.200.11"}, "b": {"address": "198.19.200.12"}, "c": {"address": "198.19.200.13"}}
SLOW = {"name": "slow", "source": "a", "target": "b", "address": "198.19.201.2", "lab": {"rate_mbit": 100}}
FAST = {"name": "fast", "source": "a", "target": "b", "address": "198.19.202.2", "lab": {"rate_mbit": 1000}}
FREE = {
    "name": "a-link-with-a-long-name",
    "source": "c",
    "target": "b",
    "address": "198.19.203.2",
    "ssh_port": 2022,
    "lab": {},
}
FAR = {"name": "far", "source": "a", "target": "b", "address": "198.19.204.2", "lab": {"rate_mbit": 200, "rtt_ms": 80}}
REPOSITORY = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: network namespaces and sshd"),
    pytest.mark.skipif(
        any(shutil.which(name, path=_lab_system.SEARCH) is None for name in _lab_system.PACKAGES),
        reason="the lab needs " + ", ".join(_lab_system.PACKAGES),
    ),
]


def up(*links: dict[str, Any], check: bool = False) -> tuple[list[str], _lab_system.Machine]:
    lab = _lab.wanted_lab(links or [SLOW, FAST], HOSTS, PREFIX, STATE_DIR, DATA_DIR, "198.19.200.1")
    with _lab_system.locked(STATE_DIR):
        machine = _lab_system.Machine(STATE_DIR, DATA_DIR)
        return machine.up(lab, check), machine


def down(check: bool = False) -> list[str]:
    with _lab_system.locked(STATE_DIR):
        return _lab_system.Machine(STATE_DIR, DATA_DIR).down(check)


def shell(*argv: str, check: bool = True) -> str:
    return subprocess.run(
        argv, check=check, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    ).stdout


def ssh(address: str, *words: str, port: int = 22) -> list[str]:
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null"]
    options.append(f"UserKnownHostsFile={STATE_DIR}/known_hosts")
    argv = ["ssh", "-F", "none", "-i", f"{STATE_DIR}/id_ed25519", "-p", str(port)]
    for option in options:
        argv += ["-o", option]
    return [*argv, f"root@{address}", *words]


def names() -> set[str]:
    return {line.split()[0] for line in shell("ip", "netns").splitlines()}


def traces() -> dict[str, Any]:
    """What a lab could leave behind."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if STATE_DIR.encode() in command and entry.name != str(os.getpid()):
                processes.append(command)
    interfaces = {item["ifname"] for item in json.loads(shell("ip", "-json", "link", "show"))}
    own = {_lab.management_device(_lab.netns_name(PREFIX, host)) for host in HOSTS}
    found: dict[str, Any] = {
        "namespaces": {name for name in names() if name.startswith(PREFIX)},
        "interfaces": interfaces & own,
        "processes": processes,
        "files": [path for path in (STATE_DIR, STATE_DIR + ".lock", DATA_DIR) if os.path.lexists(path)],
    }
    if not names() - found["namespaces"]:  # else somebody else's namespaces keep it
        found["mounts"] = Path("/proc/self/mountinfo").read_text()
        found["netns directory"] = os.path.lexists("/run/netns")
    if not any("sshd" in line for line in shell("ps", "-eo", "comm").splitlines()):
        found["sshd directory"] = os.path.lexists("/run/sshd")
    return found


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    down()
    before = traces()
    assert not before["namespaces"]
    yield
    down()
    after = traces()
    for key in before.keys() & after.keys():
        assert after[key] == before[key], key


@pytest.fixture
def netns_directory(nothing_left: None) -> Iterator[None]:
    """Undo the mount that a test's own first `ip netns add` makes, which outlives its namespace."""
    there = os.path.lexists("/run/netns")
    yield
    if not there and not names():
        shell("umount", "/run/netns", check=False)
        shell("rmdir", "/run/netns", check=False)


def test_second_up_changes_nothing() -> None:
    first, machine = up()
    assert "create network namespace bctest-a" in first
    pids = {name: item.sshd_pid for name, item in machine.state.hosts.items()}
    text = Path(STATE_DIR, "state.json").read_text()
    second, machine = up()
    assert second == []
    assert {name: item.sshd_pid for name, item in machine.state.hosts.items()} == pids
    assert Path(STATE_DIR, "state.json").read_text() == text
    assert os.stat(STATE_DIR).st_mode & 0o777 == 0o700
    assert down() != []
    assert down() == []


def test_check_mode_makes_nothing() -> None:
    before = traces()
    foreseen, _machine = up(check=True)
    assert traces() == before
    done, _machine = up()
    assert [action for action in done if not action.startswith("write ")] == foreseen
    foreseen_end = down(check=True)
    assert up()[0] == []
    assert down() == foreseen_end


def test_logins_check_host_keys() -> None:
    up(SLOW, FREE)
    for host in ("a", "b", "c"):
        address = HOSTS[host]["address"]
        assert shell(*ssh(address, "ip", "netns", "identify")).strip() == f"bctest-{host}"
    slow = ssh("198.19.201.2", "ip", "netns", "identify")
    assert shell(*ssh(HOSTS["a"]["address"], *slow)).strip() == "bctest-b"
    free = ssh("198.19.203.2", "ip", "netns", "identify", port=2022)
    assert shell(*ssh(HOSTS["c"]["address"], *free)).strip() == "bctest-b"
    Path(STATE_DIR, "known_hosts").write_text("")
    refused = subprocess.run(ssh(HOSTS["a"]["address"], "true"), capture_output=True, text=True, check=False)
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr
    assert up(SLOW, FREE)[0] == [f"write {STATE_DIR}/known_hosts"]


def iperf3(address: str, *words: str) -> dict[str, Any]:
    """What iperf3 says at the end of a test from host a to host b."""
    server = subprocess.Popen(
        ["ip", "netns", "exec", "bctest-b", "iperf3", "-s", "-1", "-B", address], stdout=subprocess.DEVNULL
    )
    try:
        table = Path(f"/proc/{server.pid}/net/tcp")
        deadline = time.monotonic() + 10
        while 5201 not in _lab.listening_ports(table.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        said = json.loads(shell("ip", "netns", "exec", "bctest-a", "iperf3", "-c", address, "--json", *words))
    finally:
        server.kill()
        server.wait()
    end: dict[str, Any] = said["end"]
    return end


def pings(*words: str) -> tuple[int, int, list[float]]:
    """How many packets went over the link `far` and came back, and the round trips of the latter in ms."""
    said = shell("ip", "netns", "exec", "bctest-a", "ping", "-n", *words, FAR["address"], check=False)
    sent, back = re.findall(r"(\d+) packets transmitted, (\d+) received", said)[0]
    return int(sent), int(back), [float(time) for time in re.findall(r"time=([\d.]+) ms", said)]


def far(**options: Any) -> dict[str, Any]:
    return {**FAR, "lab": options}


needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
needs_ping = pytest.mark.skipif(shutil.which("ping") is None, reason="ping is not installed")


@needs_iperf3
@pytest.mark.parametrize(
    ("address", "reverse", "least", "most"),
    # A full frame of 1514 bytes carries 1448 bytes of data: 95.6 % of the rate.
    [("198.19.201.2", False, 90, 97), ("198.19.201.2", True, 90, 97), ("198.19.202.2", False, 500, 970)],
)
def test_rate(address: str, reverse: bool, least: float, most: float) -> None:
    up()
    end = iperf3(address, "-t", "3", *(["-R"] if reverse else []))
    assert least <= end["sum_received"]["bits_per_second"] / 1e6 <= most


@needs_iperf3
@pytest.mark.parametrize("words", [[], ["-R"], ["-P", "4"]])
def test_rate_of_a_long_link(words: list[str]) -> None:
    up(far(rate_mbit=200, rtt_ms=10, tcp_buffer_bytes=16_000_000))
    end = iperf3("198.19.204.2", "-O", "1", "-t", "3", *words)
    assert end["sum_received"]["bits_per_second"] / 1e6 == pytest.approx(200 * 1448 / 1514, rel=0.05)


@needs_ping
@pytest.mark.parametrize("rtt_ms", [1, 10, 80])
def test_round_trip_of_a_long_link(rtt_ms: float) -> None:
    up(far(rate_mbit=1000, rtt_ms=rtt_ms))
    sent, back, times = pings("-c", "20", "-i", "0.02")
    assert (sent, back) == (20, 20)
    assert rtt_ms <= statistics.median(times) <= rtt_ms * 1.05 + 1
    # The first one as well: nothing has to be looked up before.
    assert times[0] <= rtt_ms * 1.05 + 2


@needs_ping
def test_jitter_of_a_long_link() -> None:
    up(far(rtt_ms=40, jitter_ms=10))
    _sent, _back, times = pings("-c", "150", "-i", "0.02")
    assert min(times) >= 30
    # Two even distributions 10 ms wide: their sum deviates by 10 / sqrt(6) ms; 99.9 % of samples of 150 within a fifth.
    assert statistics.stdev(times) == pytest.approx(10 / 6**0.5, rel=0.2)
    assert statistics.median(times) == pytest.approx(40, abs=40 * 0.05 + 1)


@needs_ping
def test_loss_of_a_long_link() -> None:
    up(far(rtt_ms=2, loss_percent=5))
    sent, back, _times = pings("-q", "-c", "3000", "-i", "0.001")
    assert sent == 3000
    # Each way 5 %: 9.75 % do not come back. 99.9 % of the binomial distribution: 3.29 standard deviations of 16.2.
    assert abs(sent - back - 292.5) < 3.29 * 16.2


@needs_iperf3
def test_loss_within_segments() -> None:
    """TCP hands over many packets at once; it must send again the share of packets that was to be lost, and no more."""
    up(far(rate_mbit=400, rtt_ms=1, loss_percent=1, congestion_control="cubic"))
    segments = "bctest-a", "/proc/net/snmp"
    before = tcp_counters(*segments)
    iperf3("198.19.204.2", "-t", "3", "-P", "8")
    out, again = (now - then for now, then in zip(tcp_counters(*segments), before, strict=True))
    assert out > 20_000, (out, again)
    deviation = (out * 0.01 * 0.99) ** 0.5
    # A segment is sent again without need now and then: when a repetition is lost, or an acknowledgement is late.
    assert out * 0.01 - 3.29 * deviation < again < out * 0.0105 + 3.29 * deviation
    assert tcp_counters("bctest-b", "/proc/net/snmp", "InCsumErrors") == [0]


def tcp_counters(netns: str, path: str, *names: str) -> list[int]:
    rows = [line.split() for line in shell("ip", "netns", "exec", netns, "cat", path).splitlines() if "Tcp:" in line]
    return [int(rows[1][rows[0].index(name)]) for name in names or ("OutSegs", "RetransSegs")]


@needs_iperf3
def test_tcp_settings_of_a_link() -> None:
    up(SLOW, far(rtt_ms=2, tcp_buffer_bytes=300_000, congestion_control="reno"))
    for netns in ("bctest-a", "bctest-b"):
        for name in ("tcp_rmem", "tcp_wmem"):
            said = shell("ip", "netns", "exec", netns, "cat", f"/proc/sys/net/ipv4/{name}")
            assert said.split()[2] == "300000"
    end = iperf3("198.19.204.2", "-t", "1")
    assert (end["sender_tcp_congestion"], end["receiver_tcp_congestion"]) == ("reno", "reno")
    own = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    assert iperf3("198.19.201.2", "-t", "1")["sender_tcp_congestion"] == own
    up(SLOW, far(rtt_ms=2))
    for name in ("tcp_rmem", "tcp_wmem"):
        path = f"/proc/sys/net/ipv4/{name}"
        assert shell("ip", "netns", "exec", "bctest-a", "cat", path) == Path(path).read_text()
    assert iperf3("198.19.204.2", "-t", "1")["sender_tcp_congestion"] == own


def test_long_links_converge() -> None:
    tuned = far(rate_mbit=200, rtt_ms=80, tcp_buffer_bytes=1_000_000, congestion_control="reno")
    first, _machine = up(SLOW, tuned)
    assert "create link far" in first
    assert up(SLOW, tuned)[0] == []
    assert up(SLOW, tuned, check=True)[0] == []
    for options in (
        {"rate_mbit": 100, "rtt_ms": 80},
        {"rtt_ms": 80},
        {"rate_mbit": 100},
        {"rtt_ms": 3, "jitter_ms": 1},
    ):
        assert up(SLOW, far(**options))[0] != []
        assert up(SLOW, far(**options))[0] == []
    assert up(SLOW)[0][-1] == "remove link far"
    assert not [command for command in traces()["processes"] if b"wire.py" in command]


@pytest.mark.skipif(_lab_system.has_netem(), reason="the kernel has netem, so no process carries the link")
def test_a_wire_that_ended_is_made_again() -> None:
    _actions, machine = up(FAR)
    pid = machine.state.links["far"].wire_pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert up(FAR)[0] == ["create link far"]
    shell("ip", "-netns", "bctest-b", "link", "delete", "dev", "far")
    assert "create link far" in up(FAR)[0]
    assert up(FAR)[0] == []
    assert sum(b"wire.py" in command for command in traces()["processes"]) == 1


def test_long_link_killed_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is made, and while it is removed, in a lab that is up."""
    monkeypatch.setattr(_lab_system, "REAP_S", 0.0)
    up(SLOW)
    for first, then in ((SLOW,), (SLOW, FAR)), ((SLOW, FAR), (SLOW,)):
        effect, unfinished = 0, True
        while unfinished:
            effect += 3  # all of them would take a minute
            up(*first)
            unfinished = killed(lambda then=then: up(*then), effect)  # type: ignore[misc]
            up(*then)
            assert up(*then)[0] == [], effect
        assert effect > 3


def test_other_links_converge() -> None:
    _actions, machine = up(SLOW, FAST)
    pid = machine.state.hosts["a"].sshd_pid
    faster = {**SLOW, "lab": {"rate_mbit": 250}}
    assert up(faster, FAST)[0] == ["set the rate of link slow"]
    assert up({**SLOW, "lab": {}}, FAST)[0] == ["set the rate of link slow"]
    actions, machine = up(FAST, FREE)
    assert "remove link slow" in actions
    assert "create link a-link-with-a-long-name" in actions
    assert "create network namespace bctest-c" in actions
    assert machine.state.hosts["a"].sshd_pid == pid
    actions, machine = up(FREE)
    assert "remove network namespace bctest-a" in actions
    assert names() >= {"bctest-b", "bctest-c"}
    assert "bctest-a" not in names()
    assert up(FREE)[0] == []
    elsewhere = {**FREE, "address": "198.19.203.9"}
    actions, _machine = up(elsewhere)
    assert actions == [f"write {STATE_DIR}/known_hosts", "create link a-link-with-a-long-name"]


@pytest.mark.parametrize("rate", [0.01, 0.3, 2.5, 10000])
def test_any_rate_is_recognised_again(rate: float) -> None:
    up({**SLOW, "lab": {"rate_mbit": rate}})
    assert up({**SLOW, "lab": {"rate_mbit": rate}})[0] == []


def killed(action: Callable[[], Any], effect: int) -> bool:
    """Do it in a child that ends, without any tidying, at its nth effect on the system.

    True where it was killed, False where it had fewer effects.
    """
    child = os.fork()
    if child == 0:
        count = 0
        run = _lab_system.run

        def counted(function: Any) -> Any:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                nonlocal count
                # Looking has no effect.
                count += not (function is run and {"-json", "-n"} & set(args[0]))
                if count == effect:
                    os._exit(9)
                return function(*args, **kwargs)

            return wrapper

        try:
            for owner, name in (
                (_lab_system, "run"),
                (_lab_system, "_write"),
                (_lab_system, "_mkdir"),
                (_lab_system, "_remove"),
                (_lab_system, "_signal"),
                (os, "rename"),
                (os, "unlink"),
                (os, "rmdir"),
                (subprocess, "Popen"),
                (_lab_system.Machine, "_await_sshd"),
            ):
                setattr(owner, name, counted(getattr(owner, name)))
            action()
            os._exit(0)
        finally:
            os._exit(1)
    _pid, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), code
    return code == 9


def test_killed_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lab_system, "REAP_S", 0.0)  # what has ended but is not collected has no command line
    before = traces()
    effect = 0
    while True:
        effect += 1
        unfinished = killed(lambda: up(SLOW), effect)
        if effect % 3 == 0 or not unfinished:
            up(SLOW)
            assert up(SLOW)[0] == [], effect
        down()
        after = traces()
        for key in before.keys() & after.keys():
            assert after[key] == before[key], (effect, key)
        if not unfinished:
            break
    assert effect > 40


def test_removal_killed_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lab_system, "REAP_S", 0.0)
    before = traces()
    effect = 0
    while True:
        effect += 1
        up(SLOW)
        Path(DATA_DIR, "a").mkdir()
        unfinished = killed(down, effect)
        if effect % 3 == 0:
            up(SLOW)
            assert up(SLOW)[0] == [], effect
        down()
        after = traces()
        for key in before.keys() & after.keys():
            assert after[key] == before[key], (effect, key)
        if not unfinished:
            break
    assert effect > 15


def test_dead_sshd_and_what_it_left() -> None:
    _actions, machine = up(SLOW)
    item = machine.state.hosts["a"]
    # A session whose child has thrown its environment away, and one process that is not the lab's.
    session = subprocess.Popen(ssh(HOSTS["a"]["address"], "exec", "env", "-i", "sleep", "300"))
    stranger = subprocess.Popen(["ip", "netns", "exec", "bctest-a", "sleep", "300"])
    try:
        deadline = time.monotonic() + 10
        while len(_lab.lab_processes("/proc", machine.state)[0]["a"]) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert item.sshd_pid
        os.kill(item.sshd_pid, signal.SIGKILL)
        actions, machine = up(SLOW)
        assert actions == ["start sshd on host a"]
        assert shell(*ssh(HOSTS["a"]["address"], "echo", "here")) == "here\n"
        assert session.poll() is None
        assert [process.pid for process in machine.others()] == [stranger.pid]
        assert "end the processes of host a" in down()
        assert session.wait(10) == 255
        assert stranger.poll() is None
    finally:
        for process in (session, stranger):
            process.kill()
            process.wait()


def test_missing_interfaces_are_made_again() -> None:
    up()
    shell("ip", "-netns", "bctest-b", "link", "delete", "dev", "slow")
    assert up()[0] == ["create link slow"]
    shell("ip", "-netns", "bctest-b", "address", "flush", "dev", "slow")
    assert up()[0] == ["create link slow"]
    shell("tc", "-netns", "bctest-a", "qdisc", "delete", "dev", "fast", "root")
    assert up()[0] == ["set the rate of link fast"]
    shell("ip", "link", "delete", "dev", _lab.management_device("bctest-a"))
    assert up()[0] == ["create the management link of host a"]
    shell("ip", "-netns", "bctest-a", "link", "set", "dev", "lo", "down")
    assert up()[0] == ["bring up the loopback of host a"]
    assert up()[0] == []


def test_namespace_deleted_by_hand() -> None:
    up(SLOW)
    shell("ip", "netns", "delete", "bctest-a")
    actions, _machine = up(SLOW)
    assert "create network namespace bctest-a" in actions
    assert up(SLOW)[0] == []
    shell("ip", "netns", "delete", "bctest-b")


@pytest.mark.usefixtures("netns_directory")
def test_namespace_of_others_is_left_alone() -> None:
    shell("ip", "netns", "add", "bctest-b")
    try:
        with pytest.raises(_lab.LabError, match="network namespace bctest-b exists and was not made by the lab"):
            up()
        assert not os.path.lexists(STATE_DIR)
        assert names() & {"bctest-a", "bctest-b"} == {"bctest-b"}
        assert down() == []
        assert "bctest-b" in names()
    finally:
        shell("ip", "netns", "delete", "bctest-b")


@pytest.mark.usefixtures("netns_directory")
def test_namespace_of_others_with_a_recorded_name() -> None:
    up(SLOW)
    shell("ip", "netns", "delete", "bctest-b")
    shell("ip", "netns", "add", "bctest-b")
    try:
        with pytest.raises(_lab.LabError, match="bctest-b exists and was not made by the lab"):
            up(SLOW)
        down()
        assert "bctest-b" in names()
    finally:
        shell("ip", "netns", "delete", "bctest-b")


def test_interface_of_others_is_left_alone() -> None:
    up(SLOW)
    shell("ip", "-netns", "bctest-a", "link", "add", "theirs", "type", "veth", "peer", "name", "theirs2")
    try:
        for attempt in (lambda: up(SLOW), down):
            with pytest.raises(_lab.LabError, match="interface theirs in network namespace bctest-a"):
                attempt()
        assert "theirs" in shell("ip", "-netns", "bctest-a", "link", "show")
    finally:
        shell("ip", "-netns", "bctest-a", "link", "delete", "dev", "theirs")


def test_address_in_use_on_the_machine() -> None:
    device = "bctest-x0"
    shell("ip", "link", "add", "name", device, "type", "veth", "peer", "name", "bctest-x1")
    try:
        shell("ip", "address", "add", "198.19.201.2/32", "dev", device)
        with pytest.raises(_lab.LabError, match=r"link slow: address 198\.19\.201\.2 is in use on interface bctest-x0"):
            up()
        assert not os.path.lexists(STATE_DIR)
    finally:
        shell("ip", "link", "delete", "dev", device)


def test_state_file_of_an_earlier_boot() -> None:
    up(SLOW)
    state = json.loads(Path(STATE_DIR, "state.json").read_text())
    down()
    state["boot_id"] = "00000000-0000-0000-0000-000000000000"
    Path(STATE_DIR).mkdir(mode=0o700)
    Path(STATE_DIR, "state.json").write_text(json.dumps(state))
    Path(DATA_DIR).mkdir()
    Path(DATA_DIR, _lab.MARKER_FILE).write_text(f"{_lab.mark(state['id'])} {STATE_DIR}\n")
    actions, _machine = up(SLOW)
    assert "create network namespace bctest-a" in actions
    assert up(SLOW)[0] == []


def test_reboot_that_emptied_run() -> None:
    """Without a state file the marked data directory is still known as the lab's."""
    Path(DATA_DIR).mkdir()
    Path(DATA_DIR, _lab.MARKER_FILE).write_text(f"{_lab.mark('0123456789abcdef')} {STATE_DIR}\n")
    Path(DATA_DIR, "a").mkdir()
    assert down() == [f"remove data directory {DATA_DIR}"]
    assert not Path(DATA_DIR).exists()


def test_directories_of_others_are_left_alone() -> None:
    for path in (DATA_DIR, STATE_DIR):
        Path(path).mkdir(mode=0o700)
        precious = Path(path, "precious")
        precious.write_text("x")
        try:
            with pytest.raises(_lab.LabError, match=f"{path} exists and was not made by the lab"):
                up()
            if path == STATE_DIR:
                with pytest.raises(_lab.LabError, match=f"{path} exists and was not made by the lab"):
                    down()
            else:
                assert down() == []
            assert precious.read_text() == "x"
        finally:
            shutil.rmtree(path)


def test_data_directory_with_a_mount_in_it() -> None:
    up(SLOW)
    inner = Path(DATA_DIR, "a")
    inner.mkdir()
    shell("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(inner))
    try:
        (inner / "kept").write_text("x")
        with pytest.raises(_lab.LabError, match=f"{inner} is a mount point"):
            down()
        assert (inner / "kept").read_text() == "x"
    finally:
        shell("umount", str(inner))


def test_one_run_at_a_time() -> None:
    with _lab_system.locked(STATE_DIR), pytest.raises(_lab.LabError, match=f"another run.*process {os.getpid()}"):
        up()
    assert not os.path.lexists(STATE_DIR)


def test_locked_root_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where root's password is locked (the default of Ubuntu), the lab's hosts see an open account."""
    own = Path("/etc/shadow").read_text()
    real = _lab.shadow_override
    monkeypatch.setattr(_lab, "shadow_override", lambda text, today: real("root:!:19000:0:99999:7:::\n", today))
    up(SLOW)
    assert shell(*ssh(HOSTS["b"]["address"], "cat", "/etc/shadow")) == "root:*:19000::::::\n"
    assert Path("/etc/shadow").read_text() == own
    assert up(SLOW)[0] == []


def test_through_ansible(tmp_path: Path) -> None:
    """The role and the connection, as a playbook with an inventory of its own uses them."""
    inventory = {
        "all": {
            "vars": {"bulkcopy_lab": True, "bulkcopy_links": [SLOW]},
            "children": {
                "lab": {
                    "hosts": {host: {"ansible_host": HOSTS[host]["address"]} for host in ("a", "b")},
                    "vars": {
                        "ansible_user": "root",
                        "ansible_python_interpreter": "/usr/bin/python3",
                        "ansible_ssh_private_key_file": f"{STATE_DIR}/id_ed25519",
                        "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={STATE_DIR}/known_hosts "
                        "-o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null -o ControlPath=none",
                    },
                }
            },
        }
    }
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    settings = {
        "lab_prefix": PREFIX,
        "lab_state_dir": STATE_DIR,
        "lab_data_dir": DATA_DIR,
        "lab_controller_address": "198.19.200.1",
    }
    play: list[dict[str, Any]] = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "roles": [{"role": "linkops.bulkcopy.lab", **settings}],
            "post_tasks": [{"ansible.builtin.assert": {"that": "lab_made is changed"}}],
        },
        {"hosts": "lab", "gather_facts": False, "tasks": [{"ansible.builtin.ping": {}}]},
        {
            "hosts": "localhost",
            "gather_facts": False,
            "roles": [{"role": "linkops.bulkcopy.lab", **settings}],
            "post_tasks": [
                {"ansible.builtin.assert": {"that": "lab_made is not changed"}},
                {
                    "ansible.builtin.include_role": {"name": "linkops.bulkcopy.lab"},
                    "vars": {**settings, "lab_state": "absent"},
                },
            ],
        },
    ]
    (tmp_path / "play.json").write_text(json.dumps(play))
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [str(program), "-i", str(tmp_path / "hosts.json"), str(tmp_path / "play.json")],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not os.path.lexists(STATE_DIR)
