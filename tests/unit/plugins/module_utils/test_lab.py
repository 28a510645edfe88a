# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _lab
from ansible_collections.linkops.bulkcopy.plugins.module_utils._lab import LabError

ID = "0123456789abcdef"
HOSTS: dict[str, Any] = {
    "lab-a": {"address": "198.18.0.11"},
    "lab-b": {"address": "198.18.0.12", "port": None},
    "lab-c": {"address": "198.18.0.13", "port": 2222},
    "far": {"address": "192.0.2.7"},
    "nowhere": {"address": None},
}
LINK: dict[str, Any] = {
    "name": "lan-100m",
    "source": "lab-a",
    "target": "lab-b",
    "address": "198.18.1.2",
    "ssh_user": "root",
    "lab": {"rate_mbit": 100, "source_address": "198.18.1.1"},
}
OTHER: dict[str, Any] = {"name": "two", "source": "lab-c", "target": "lab-b", "address": "198.18.2.2", "lab": {}}


def wanted(*links: Any, **settings: Any) -> _lab.Lab:
    given = {
        "hosts": HOSTS,
        "prefix": "bulkcopy-",
        "state_dir": "/run/some-lab",
        "data_dir": "/var/tmp/some-lab",
        "controller_address": "198.18.0.1",
        **settings,
    }
    return _lab.wanted_lab(list(links), **given)


# --- names ---


@pytest.mark.parametrize(
    "name", ["x", "lan-100m", "exactly15chars_", "lo", "mgmt0", "default", "a b", "ü", "a" * 200, "-x"]
)
def test_device_names_fit_and_differ(name: str) -> None:
    device = _lab.link_device(name)
    assert 0 < len(device.encode()) <= 15  # IFNAMSIZ is 16 with its NUL
    assert device not in ("lo", "mgmt0", "all", "default")
    assert not set(device) & set("/ :")


def test_short_link_names_stay_readable() -> None:
    assert _lab.link_device("lan-100m") == "lan-100m"
    assert _lab.link_device("a" * 16) != _lab.link_device("a" * 17)


def test_namespace_names() -> None:
    assert _lab.netns_name("bulkcopy-", "lab-a") == "bulkcopy-lab-a"
    odd = _lab.netns_name("bulkcopy-", "../x")
    assert odd.startswith("bulkcopy-")
    assert "/" not in odd
    assert len(_lab.management_device(odd)) <= 15


def test_mac_is_unicast_local_and_of_one_lab() -> None:
    mac = _lab.mac_address(ID, "bulkcopy-lab-a", "lan-100m")
    first = int(mac.split(":")[0], 16)
    assert first & 0b11 == 0b10
    assert len(mac) == 17
    assert mac != _lab.mac_address(ID[::-1], "bulkcopy-lab-a", "lan-100m")
    assert mac != _lab.mac_address(ID, "bulkcopy-lab-b", "lan-100m")


# --- input ---


def test_good_input() -> None:
    lab = wanted(LINK, {**OTHER, "ssh_port": "2022"})
    assert lab.links["lan-100m"].rate_bps == 100_000_000
    assert lab.links["two"].rate_bps is None
    assert lab.links["two"].source_address == "198.18.2.3"  # the other address of 198.18.2.2/31
    assert sorted(lab.hosts) == ["lab-a", "lab-b", "lab-c"]
    assert lab.hosts["lab-b"].ports == (22, 2022)
    assert lab.hosts["lab-c"].ports == (2222,)


@pytest.mark.parametrize(
    ("links", "settings", "sentence"),
    [
        ([], {}, "lab: the inventory lists no link: set bulkcopy_links"),
        ([7], {}, "link 1: 7 is not a mapping"),
        ([{**LINK, "name": ""}], {}, 'link 1: name is "": give a name'),
        ([{"source": "lab-a"}], {}, "link 1: name is missing"),
        ([LINK, {**OTHER, "name": "lan-100m"}], {}, "link lan-100m: the name is used twice"),
        ([{**LINK, "target": "lab-a"}], {}, "link lan-100m: source and target are both lab-a"),
        ([{**LINK, "target": "lab-z"}], {}, "link lan-100m: target lab-z is not a host of the inventory"),
        ([{**LINK, "address": "10.0.0.2"}], {}, "link lan-100m: address: 10.0.0.2 is not in 198.18.0.0/15"),
        ([{**LINK, "address": "2001:2::1"}], {}, "link lan-100m: address: 2001:2::1 is not in 198.18.0.0/15"),
        ([{**LINK, "address": "lab-b"}], {}, 'link lan-100m: address: "lab-b" is not an IP address'),
        ([{**LINK, "address": 3323068674}], {}, "link lan-100m: address: 3323068674 is not an IP address"),
        ([{**LINK, "address": None}], {}, "link lan-100m: address is missing"),
        ([LINK, {**OTHER, "address": "198.18.1.1"}], {}, "link two: address 198.18.1.1 is also that of link lan-100m"),
        ([{**LINK, "address": "198.18.0.11"}], {}, "host lab-a: address 198.18.0.11 is also that of link lan-100m"),
        ([{**LINK, "lab": {"rate_mbit": "fast"}}], {}, 'link lan-100m: rate_mbit "fast" is not a rate'),
        ([{**LINK, "lab": {"rate_mbit": 0}}], {}, "link lan-100m: rate_mbit 0 is not a rate"),
        ([{**LINK, "lab": {"rate_mbit": -5}}], {}, "link lan-100m: rate_mbit -5 is not a rate"),
        ([{**LINK, "lab": {"rate_mbit": True}}], {}, "link lan-100m: rate_mbit true is not a rate"),
        ([{**LINK, "lab": {"rate_mbit": float("nan")}}], {}, "link lan-100m: rate_mbit NaN is not a rate"),
        ([{**LINK, "lab": {"rate_mbit": 1e9}}], {}, "link lan-100m: rate_mbit 1000000000.0 is not a rate"),
        ([{**LINK, "lab": {"rtt_ms": -1}}], {}, "link lan-100m: rtt_ms -1 is not a round-trip time: give milliseconds"),
        ([{**LINK, "lab": {"rtt_ms": 5, "jitter_ms": 6}}], {}, "link lan-100m: jitter_ms 6 is more than rtt_ms (5): a"),
        ([{**LINK, "lab": {"jitter_ms": 1}}], {}, "link lan-100m: jitter_ms 1 is more than rtt_ms (0)"),
        ([{**LINK, "lab": {"loss_percent": 51}}], {}, "link lan-100m: loss_percent 51 is not a share: give percent as"),
        (
            [{**LINK, "lab": {"tcp_buffer_bytes": 1e5 + 0.5}}],
            {},
            "link lan-100m: tcp_buffer_bytes 100000.5 is not a size",
        ),
        (
            [{**LINK, "lab": {"tcp_buffer_bytes": "64M"}}],
            {},
            'link lan-100m: tcp_buffer_bytes "64M" is not a size: give',
        ),
        ([{**LINK, "lab": {"congestion_control": "a b"}}], {}, 'link lan-100m: congestion_control "a b" is not a name'),
        (
            [{**LINK, "lab": {"tcp_buffer_bytes": 100000}}, {**OTHER, "lab": {"tcp_buffer_bytes": 200000}}],
            {},
            "link two: tcp_buffer_bytes 200000 is not the 100000 of another link of host lab-b, and a host has one setting",
        ),
        ([{**LINK, "lab": {"rate": 1}}], {}, 'link lan-100m: lab option "rate" is not known'),
        ([{**LINK, "lab": 100}], {}, "link lan-100m: lab 100 is not a mapping"),
        ([{**LINK, "ssh_port": 70000}], {}, "link lan-100m: ssh_port: 70000 is not a port"),
        ([{**LINK, "source": "far"}], {}, "host far: ansible_host: 192.0.2.7 is not in 198.18.0.0/15"),
        ([{**LINK, "source": "nowhere"}], {}, "host nowhere: it has no management address"),
        ([LINK], {"prefix": "../"}, 'lab: prefix "../" cannot begin'),
        ([LINK], {"state_dir": "/run"}, 'lab: state_dir "/run" cannot be used'),
        ([LINK], {"data_dir": "/var/../etc"}, 'lab: data_dir "/var/../etc" cannot be used'),
        ([LINK], {"data_dir": "/var/tmp/a b"}, 'lab: data_dir "/var/tmp/a b" cannot be used'),
        ([LINK], {"controller_address": "127.0.0.1"}, "lab: controller_address: 127.0.0.1 is not in 198.18.0.0/15"),
        ([{**LINK, "lab": False}], {}, "link lan-100m: lab false is not a mapping"),
        ([{**LINK, "lab": None}], {}, "lab: none of the links asks for it"),
    ],
)
def test_bad_input(links: list[Any], settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LabError) as caught:
        wanted(*links, **settings)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_only_links_with_a_lab_are_the_labs() -> None:
    """Another link may lead anywhere; the lab does not even look at its addresses."""
    without = {key: value for key, value in OTHER.items() if key != "lab"}
    for strange in ({}, {"address": "192.0.2.9"}, {"source": "far"}, {"source": "nowhere"}):
        lab = wanted({**without, **strange}, LINK)
        assert list(lab.links) == ["lan-100m"]
        assert sorted(lab.hosts) == ["lab-a", "lab-b"]
    assert list(wanted({**OTHER, "lab": {}}, LINK).links) == ["two", "lan-100m"]


# --- files ---


def test_known_hosts_names_every_address() -> None:
    lab = wanted(LINK, {**OTHER, "ssh_port": 2022})
    keys = {name: f"ssh-ed25519 KEY-{name}" for name in lab.hosts}
    assert _lab.known_hosts(lab, keys).splitlines() == [
        "198.18.0.11 ssh-ed25519 KEY-lab-a",
        "198.18.0.12 ssh-ed25519 KEY-lab-b",
        "[198.18.0.12]:2022 ssh-ed25519 KEY-lab-b",
        "[198.18.0.13]:2222 ssh-ed25519 KEY-lab-c",
        "198.18.1.2 ssh-ed25519 KEY-lab-b",
        "[198.18.2.2]:2022 ssh-ed25519 KEY-lab-b",
    ]


def test_sshd_config() -> None:
    lines = _lab.sshd_config(wanted(LINK), "lab-b", ID, ["PerSourcePenalties no"]).splitlines()
    for line in (
        "Port 22",
        "UsePAM no",
        "UseDNS no",
        "PidFile none",
        "PasswordAuthentication no",
        "Subsystem sftp internal-sftp",
        "SetEnv LINKOPS_BULKCOPY_LAB=" + ID,
        "HostKey /run/some-lab/bulkcopy-lab-b/ssh_host_ed25519_key",
        "AuthorizedKeysFile /run/some-lab/authorized_keys",
        "PerSourcePenalties no",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("entry", "open_account"),
    [
        ("root:*:19000:0:99999:7:::", True),
        ("root::19000:0:99999:7:::", True),
        ("root:$y$j9T$x:19000::::::", True),
        ("root:!:19000:0:99999:7:::", False),  # what `passwd -l` and many installations leave
        ("root:!*:19000:0:99999:7:::", False),
        ("root:*:0:0:99999:7:::", False),  # must be changed at the next login
        ("root:*:19000:0:90:7:::", False),  # too old
        ("root:*:19000:0:99999:7::19500:", False),  # the account ended
        ("root:*:19000:0:99999:7::30000:", True),
        ("daemon:*:19000:0:99999:7:::", False),
    ],
)
def test_shadow(entry: str, open_account: bool) -> None:
    found = _lab.shadow_override("bin:!:1:::::\n" + entry + "\n", today=20000)
    assert (found is None) == open_account
    if found:
        assert found.startswith("root:*:")


# --- the state file ---


def state(**changes: Any) -> _lab.State:
    made = _lab.State(ID, "boot-1", data_dir="/var/tmp/some-lab")
    made.hosts = {
        "lab-a": _lab.HostState("bulkcopy-lab-a", 4001, _lab.management_device("bulkcopy-lab-a"), 500, 9000, "digest"),
        "lab-b": _lab.HostState("bulkcopy-lab-b", 4002, _lab.management_device("bulkcopy-lab-b"), 501, 9001, "digest"),
    }
    made.links = {"lan-100m": _lab.LinkState("lan-100m", "lab-a", "lab-b")}
    return replace(made, **changes)


def test_state_survives_a_round() -> None:
    assert _lab.load_state(state().dump(), "x") == state()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 99}', '{"schema": 1, "hosts": [], "links": {}}'])
def test_strange_state_files_are_refused(text: str) -> None:
    with pytest.raises(LabError, match=r"^/run/x/state\.json is not a state file"):
        _lab.load_state(text, "/run/x/state.json")


def test_reboot_voids_what_it_ended() -> None:
    assert _lab.after_boot(state(), "boot-1") == state()
    later = _lab.after_boot(state(made_dirs=["/run/sshd"], made_netns_mount=True), "boot-2")
    assert later == _lab.State(ID, "boot-2", data_dir="/var/tmp/some-lab", made_dirs=["/run/sshd"])


# --- whose is it ---


def fake_process(proc: Path, pid: int, net: int, start: int = 1, name: str = "sleep", environ: bytes = b"",
                 mounts: str = "", status: str = "S") -> None:  # fmt: skip
    directory = proc / str(pid)
    (directory / "ns").mkdir(parents=True)
    (directory / "ns" / "net").symlink_to(f"net:[{net}]")
    # proc(5): the name is in brackets and may hold blanks and brackets; the start time is field 22.
    fields = [status, "1"] + ["0"] * 17 + [str(start)] + ["0"] * 5
    (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (directory / "environ").write_bytes(environ)
    (directory / "mountinfo").write_text(mounts)


MARK = f"77 60 0:50 / /run/some-lab/mark rw,relatime - tmpfs linkops-bulkcopy-lab:{ID} rw,size=4k\n"


def test_only_our_processes_are_ours(tmp_path: Path) -> None:
    ours = f"LINKOPS_BULKCOPY_LAB={ID}".encode()
    fake_process(tmp_path, 500, 4001, 9000, "sshd")  # the recorded sshd
    fake_process(tmp_path, 501, 4002, 1234, "sshd")  # its pid, used again by another process
    fake_process(tmp_path, 600, 4001, environ=b"A=1\0" + ours + b"\0B=2\0", name="a (b) c")
    fake_process(tmp_path, 601, 4001, mounts="1 0 0:1 / / rw - ext4 /dev/vda rw\n" + MARK)
    fake_process(tmp_path, 602, 4001, environ=ours + b"0\0")  # another lab's mark
    fake_process(tmp_path, 603, 4001)  # somebody's `ip netns exec`
    fake_process(tmp_path, 604, 1, environ=ours + b"\0")  # marked, but in no namespace of ours
    fake_process(tmp_path, 605, 4002, environ=ours + b"\0", status="Z")
    fake_process(tmp_path, 606, 4002, environ=ours + b"\0")
    (tmp_path / "self").mkdir()
    found, others = _lab.lab_processes(str(tmp_path), state())
    assert {name: [process.pid for process in items] for name, items in found.items()} == {
        "lab-a": [500, 600, 601],
        "lab-b": [606],
    }
    assert [process.pid for process in others] == [501, 602, 603]


def test_sshd_is_alive_only_as_recorded(tmp_path: Path) -> None:
    item = state().hosts["lab-a"]
    assert not _lab.sshd_alive(str(tmp_path), item)
    fake_process(tmp_path, 500, 4001, 9000, "sshd")
    assert _lab.sshd_alive(str(tmp_path), item)
    assert not _lab.sshd_alive(str(tmp_path), replace(item, sshd_start=8999))
    assert not _lab.sshd_alive(str(tmp_path), replace(item, inode=4444))
    assert not _lab.sshd_alive(str(tmp_path), _lab.HostState("x"))


def test_whose_namespace(tmp_path: Path) -> None:
    space = tmp_path / "space"
    device = os.stat(tmp_path).st_dev
    mark = _lab.mark(ID)
    assert _lab.judge_netns(str(space), 1, None, ID, device) == _lab.ABSENT
    space.touch()
    inode = space.stat().st_ino
    assert _lab.judge_netns(str(space), inode, mark, ID, device) == _lab.OURS
    assert _lab.judge_netns(str(space), inode, mark + "0", ID, device) == _lab.FOREIGN
    assert _lab.judge_netns(str(space), inode, None, ID, device) == _lab.FOREIGN
    assert _lab.judge_netns(str(space), inode + 1, mark, ID, device) == _lab.FOREIGN
    assert _lab.judge_netns(str(space), None, mark, ID, device) == _lab.FOREIGN
    # Not a namespace: an empty file that `ip netns` left when it was killed, if we asked for it.
    assert _lab.judge_netns(str(space), inode + 1, None, ID, device + 1) == _lab.DEBRIS
    assert _lab.judge_netns(str(space), None, None, ID, device + 1) == _lab.FOREIGN
    space.write_text("x")
    assert _lab.judge_netns(str(space), inode + 1, None, ID, device + 1) == _lab.FOREIGN


def test_listening_ports() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n"
        "   1: 0C0012C6:07E6 010012C6:D431 01 00000000:00000000 02:000A0000 00000000     0        0 2 2 0\n"
    )
    assert _lab.listening_ports(table) == {22}


# --- what ip and tc say ---

# As iproute2 6.1 printed them for the end of a link of 100 Mbit/s.
ADDRESSES = """[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK"],"mtu":65536,"qdisc":"noop","operstate":"DOWN",
"link_type":"loopback","address":"00:00:00:00:00:00","addr_info":[]},
{"ifindex":2,"link_index":2,"ifname":"lan-100m","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,
"qdisc":"tbf","operstate":"UP","link_type":"ether","address":"02:11:22:33:44:55","link_netnsid":0,
"addr_info":[{"family":"inet","local":"198.18.1.1","address":"198.18.1.2","prefixlen":32,"scope":"global"},
{"family":"inet6","local":"fe80::1","prefixlen":64}]}]"""
QDISCS = """[{"kind":"tbf","handle":"8001:","dev":"lan-100m","root":true,"refcnt":3,
"options":{"rate":12500000,"burst":32762,"lat":50000}}]"""


def test_reading_interfaces() -> None:
    found = _lab.parse_interfaces(ADDRESSES, QDISCS)
    assert not found["lo"].up
    end = found["lan-100m"]
    assert (end.mac, end.mtu, end.up) == ("02:11:22:33:44:55", 1500, True)
    assert end.addresses == (("198.18.1.1", "198.18.1.2"),)
    assert (end.qdisc, end.rate_bps, end.queue_ms) == ("tbf", 100_000_000, 50)
    link = wanted(LINK).links["lan-100m"]
    assert _lab.is_shaped(end, link)
    assert not _lab.is_shaped(end, replace(link, rate_bps=101_000_000))
    assert not _lab.is_shaped(end, replace(link, rate_bps=None))
    assert not _lab.is_shaped(replace(end, burst_bytes=1_500_000), link)


# --- plans ---


def interface(lab_id: str, netns: str, device: str, local: str, peer: str, rate: int | None = None) -> _lab.Interface:
    shaped: dict[str, Any] = {"qdisc": "tbf", "rate_bps": rate, "burst_bytes": 32762, "queue_ms": 50.0} if rate else {}
    mac = _lab.mac_address(lab_id, netns, device)
    return _lab.Interface(device, mac, 1500, True, ((local, peer),), **shaped)


def in_place() -> _lab.Observed:
    """The machine with the lab of LINK on it."""
    outside: dict[str, _lab.Interface] = {"eth0": _lab.Interface("eth0", "52:54:00:00:00:01", 1500, True)}
    inside: dict[str, dict[str, _lab.Interface]] = {"": outside}
    for host, address in (("lab-a", "198.18.0.11"), ("lab-b", "198.18.0.12")):
        netns = "bulkcopy-" + host
        device = _lab.management_device(netns)
        outside[device] = interface(ID, "", device, "198.18.0.1", address)
        near, far = ("198.18.1.1", "198.18.1.2") if host == "lab-a" else ("198.18.1.2", "198.18.1.1")
        inside[netns] = {
            "lo": _lab.Interface("lo", "00:00:00:00:00:00", 65536, True),
            "mgmt0": interface(ID, netns, "mgmt0", address, "198.18.0.1"),
            "lan-100m": interface(ID, netns, "lan-100m", near, far, 100_000_000),
        }
    return _lab.Observed(
        netns={"bulkcopy-lab-a": _lab.OURS, "bulkcopy-lab-b": _lab.OURS},
        interfaces=inside,
        sshd={"lab-a": True, "lab-b": True},
        processes={"lab-a": 1, "lab-b": 3},
    )


DIGESTS = {"lab-a": "digest", "lab-b": "digest"}


def texts(steps: list[_lab.Step]) -> list[str]:
    return [step.text for step in steps]


def test_plan_of_what_is_in_place_is_empty() -> None:
    assert _lab.plan(wanted(LINK), state(), in_place(), DIGESTS) == []


def test_plan_from_nothing() -> None:
    steps = _lab.plan(wanted(LINK), _lab.State(ID, "boot-1"), _lab.Observed(interfaces={"": {}}), DIGESTS)
    assert texts(steps) == [
        "create network namespace bulkcopy-lab-a",
        "create the management link of host lab-a",
        "create network namespace bulkcopy-lab-b",
        "create the management link of host lab-b",
        "create link lan-100m",
        "start sshd on host lab-a",
        "start sshd on host lab-b",
    ]
    near = _lab.mac_address(ID, "bulkcopy-lab-a", "lan-100m")
    far = _lab.mac_address(ID, "bulkcopy-lab-b", "lan-100m")
    rate = "root tbf rate 100000000bit burst 32768b latency 50ms"
    assert steps[4].link == "lan-100m"
    assert [" ".join(command) for command in steps[4].commands] == [
        f"ip -netns bulkcopy-lab-a link add name lan-100m address {near} mtu 1500 type veth "
        f"peer name lan-100m address {far} mtu 1500 netns bulkcopy-lab-b",
        f"tc -netns bulkcopy-lab-a qdisc replace dev lan-100m {rate}",
        f"tc -netns bulkcopy-lab-b qdisc replace dev lan-100m {rate}",
        "ip -netns bulkcopy-lab-a address add 198.18.1.1 peer 198.18.1.2 dev lan-100m",
        "ip -netns bulkcopy-lab-a link set dev lan-100m addrgenmode none",
        "ip -netns bulkcopy-lab-a link set dev lan-100m up",
        "ip -netns bulkcopy-lab-b address add 198.18.1.2 peer 198.18.1.1 dev lan-100m",
        "ip -netns bulkcopy-lab-b link set dev lan-100m addrgenmode none",
        "ip -netns bulkcopy-lab-b link set dev lan-100m up",
    ]


def test_plan_without_a_rate_shapes_nothing() -> None:
    free = {**LINK, "lab": {"source_address": "198.18.1.1"}}
    steps = _lab.plan(wanted(free), _lab.State(ID, "boot-1"), _lab.Observed(interfaces={"": {}}), DIGESTS)
    assert not [command for step in steps for command in step.commands if command[0] == "tc"]
    steps = _lab.plan(wanted(free), state(), in_place(), DIGESTS)
    assert [" ".join(command) for command in steps[0].commands] == [
        "tc -netns bulkcopy-lab-a qdisc delete dev lan-100m root",
        "tc -netns bulkcopy-lab-b qdisc delete dev lan-100m root",
    ]


FAR: dict[str, Any] = {
    **LINK,
    "lab": {**LINK["lab"], "rtt_ms": 80, "jitter_ms": 4, "loss_percent": 0.1},
}
TUNED: dict[str, Any] = {**LINK, "lab": {**LINK["lab"], "tcp_buffer_bytes": 100_000, "congestion_control": "cubic"}}
CUBIC_ROUTE = "route replace {} dev lan-100m proto kernel scope link src {} congctl cubic"


def test_character_of_a_long_link() -> None:
    link = wanted(FAR).links["lan-100m"]
    # 100 Mbit/s for 80 ms are 1 MB: so much is under way, and so much waits at most.
    assert link.wire_settings() == (100_000_000, 1_000_000, 0.04, 0.002, 0.001)
    # netem counts packets of 1500 bytes: those that wait (1 MB), those under way (42 ms: 525 kB), and some to spare
    assert " ".join(_lab.netem(link)) == ("limit 2017 delay 40ms 2ms loss random 0.1% rate 100000000bit")
    assert replace(link, rate_bps=1_000_000).queue_bytes == 32 * 1024
    assert replace(link, rate_bps=10_000_000_000, rtt_ms=200).queue_bytes == 32 * 1024**2
    assert replace(link, rtt_ms=0).queue_bytes == 125_000  # 10 ms


def test_plan_for_a_long_link() -> None:
    lab, made, observed = wanted(FAR), state(), in_place()
    observed.netem = True
    steps = _lab.plan(lab, made, observed, DIGESTS)
    words = "replace dev lan-100m root netem limit 2017 delay 40ms 2ms loss random 0.1% rate 100000000bit"
    assert texts(steps) == ["create link lan-100m"]
    assert f"tc -netns bulkcopy-lab-b qdisc {words}".split() in [list(command) for command in steps[0].commands]
    made.links["lan-100m"].character = " ".join(_lab.netem(lab.links["lan-100m"]))
    for netns in ("bulkcopy-lab-a", "bulkcopy-lab-b"):
        ends = observed.interfaces[netns]
        ends["lan-100m"] = replace(ends["lan-100m"], qdisc="netem")
    assert _lab.plan(lab, made, observed, DIGESTS) == []
    # Another kernel, without netem: the pair gives way to a wire.
    observed.netem = False
    steps = _lab.plan(lab, made, observed, DIGESTS)
    assert [(step.kind, step.text) for step in steps] == [
        ("run", "remove link lan-100m"),
        ("wire", "create link lan-100m"),
    ]
    made.links["lan-100m"].character = _lab.wire_digest(lab, lab.links["lan-100m"], ID)
    observed.wires["lan-100m"] = True
    assert _lab.plan(lab, made, observed, DIGESTS) == []
    faster = {**FAR, "lab": {**FAR["lab"], "rate_mbit": 200}}
    assert [(step.kind, step.text) for step in _lab.plan(wanted(faster), made, observed, DIGESTS)] == [
        ("unwire", "end the wire of link lan-100m"),
        ("wire", "create link lan-100m"),
    ]
    observed.wires["lan-100m"] = False
    assert texts(_lab.plan(lab, made, observed, DIGESTS))[-1] == "create link lan-100m"
    observed.wires["lan-100m"] = True
    assert [step.kind for step in _lab.plan_removal(made, observed) if step.link] == ["unwire"]


def test_plan_for_tcp_settings() -> None:
    lab, made, observed = wanted(TUNED), state(), in_place()
    with pytest.raises(
        LabError, match="link lan-100m: this kernel has no congestion_control cubic: use reno or bbr, or"
    ):
        _lab.plan(lab, made, replace(observed, congestion_controls=("reno", "bbr")), DIGESTS)
    machine = ((4096, 131072, 6291456), (4096, 16384, 4194304))
    observed.congestion_controls = ("reno", "cubic")
    observed.tcp_buffers = dict.fromkeys(("", "bulkcopy-lab-a", "bulkcopy-lab-b"), machine)
    steps = _lab.plan(lab, made, observed, DIGESTS)
    assert texts(steps) == [
        "set the TCP buffers of host lab-a",
        "set the TCP buffers of host lab-b",
        "set the congestion control of link lan-100m",
    ]
    assert steps[0].commands[0][4:] == (
        "sysctl", "-q", "-w", "net.ipv4.tcp_rmem=4096 100000 100000", "net.ipv4.tcp_wmem=4096 16384 100000"
    )  # fmt: skip
    assert [" ".join(command[3:]) for command in steps[2].commands] == [
        CUBIC_ROUTE.format("198.18.1.2", "198.18.1.1"),
        CUBIC_ROUTE.format("198.18.1.1", "198.18.1.2"),
    ]
    for netns in ("bulkcopy-lab-a", "bulkcopy-lab-b"):
        observed.tcp_buffers[netns] = ((4096, 100000, 100000), (4096, 16384, 100000))
        ends = observed.interfaces[netns]
        ends["lan-100m"] = replace(ends["lan-100m"], congestion_control="cubic")
    assert _lab.plan(lab, made, observed, DIGESTS) == []
    # No longer asked for: as the machine has it, where it was the lab that set it.
    assert texts(_lab.plan(wanted(LINK), made, observed, DIGESTS)) == ["set the congestion control of link lan-100m"]
    made.hosts["lab-a"].tuned = True
    step = _lab.plan(wanted(LINK), made, observed, DIGESTS)[0]
    assert step.commands[0][7:] == ("net.ipv4.tcp_rmem=4096 131072 6291456", "net.ipv4.tcp_wmem=4096 16384 4194304")


def test_reading_routes() -> None:
    routes = """[{"dst":"198.18.1.2","dev":"lan-100m","protocol":"kernel","scope":"link","prefsrc":"198.18.1.1",
    "flags":[],"metrics":[{"congestion":"cubic"}]}]"""  # as iproute2 6.1 printed it
    assert _lab.parse_interfaces(ADDRESSES, QDISCS, routes)["lan-100m"].congestion_control == "cubic"


def test_plan_for_one_wrong_rate() -> None:
    observed = in_place()
    ends = observed.interfaces["bulkcopy-lab-b"]
    ends["lan-100m"] = replace(ends["lan-100m"], qdisc="noqueue", rate_bps=None)
    (step,) = _lab.plan(wanted(LINK), state(), observed, DIGESTS)
    assert step.text == "set the rate of link lan-100m"
    assert [command[2] for command in step.commands] == ["bulkcopy-lab-b"]


def test_plan_for_half_a_link() -> None:
    observed = in_place()
    del observed.interfaces["bulkcopy-lab-a"]["lan-100m"]
    (step,) = _lab.plan(wanted(LINK), state(), observed, DIGESTS)
    assert step.text == "create link lan-100m"
    assert step.commands[0] == ("ip", "-netns", "bulkcopy-lab-b", "link", "delete", "dev", "lan-100m")


def test_plan_for_a_dead_sshd_and_other_settings() -> None:
    observed = in_place()
    observed.sshd["lab-a"] = False
    steps = _lab.plan(wanted(LINK), state(), observed, {"lab-a": "digest", "lab-b": "another"})
    assert texts(steps) == ["start sshd on host lab-a", "restart sshd on host lab-b with other settings"]


def test_plan_for_a_namespace_that_went() -> None:
    observed = in_place()
    observed.netns["bulkcopy-lab-a"] = _lab.ABSENT
    del observed.interfaces["bulkcopy-lab-a"]
    steps = _lab.plan(wanted(LINK), state(), observed, DIGESTS)
    assert texts(steps) == [
        "end the processes of host lab-a",
        "remove the management link of host lab-a",
        "create network namespace bulkcopy-lab-a",
        "create the management link of host lab-a",
        "create link lan-100m",
        "start sshd on host lab-a",
    ]


def test_plan_for_other_links() -> None:
    steps = _lab.plan(wanted(OTHER), state(), in_place(), {"lab-b": "digest", "lab-c": "digest"})
    assert texts(steps) == [
        "remove link lan-100m",
        "end the processes of host lab-a",
        "remove the management link of host lab-a",
        "remove network namespace bulkcopy-lab-a",
        "create network namespace bulkcopy-lab-c",
        "create the management link of host lab-c",
        "create link two",
        "start sshd on host lab-c",
    ]


def test_removal_ends_processes_while_their_network_is_there() -> None:
    assert texts(_lab.plan_removal(state(), in_place())) == [
        "end the processes of host lab-a",
        "end the processes of host lab-b",
        "remove link lan-100m",
        "remove the management link of host lab-a",
        "remove network namespace bulkcopy-lab-a",
        "remove the management link of host lab-b",
        "remove network namespace bulkcopy-lab-b",
    ]
    assert _lab.plan_removal(state(), _lab.Observed(interfaces={"": {}})) == []


def test_removal_leaves_what_others_made() -> None:
    observed = in_place()
    observed.netns["bulkcopy-lab-a"] = _lab.FOREIGN
    device = _lab.management_device("bulkcopy-lab-b")
    outside = observed.interfaces[""]
    outside[device] = replace(outside[device], mac="02:00:00:00:00:01")
    words = {word for step in _lab.plan_removal(state(), observed) for command in step.commands for word in command}
    assert "bulkcopy-lab-a" not in words
    assert device not in words
    assert "bulkcopy-lab-b" in words


def test_half_made_namespace_is_replaced() -> None:
    observed = in_place()
    observed.netns["bulkcopy-lab-b"] = _lab.DEBRIS
    del observed.interfaces["bulkcopy-lab-b"]
    steps = _lab.plan(wanted(LINK), state(), observed, DIGESTS)
    assert "remove the half-made network namespace bulkcopy-lab-b" in texts(steps)


@pytest.mark.parametrize("removal", [False, True])
def test_interface_of_others_in_our_namespace(removal: bool) -> None:
    observed = in_place()
    observed.interfaces["bulkcopy-lab-a"]["theirs"] = _lab.Interface("theirs", "02:00:00:00:00:01", 1500, True)
    with pytest.raises(LabError, match="host lab-a: interface theirs in network namespace bulkcopy-lab-a was not made"):
        _lab.plan_removal(state(), observed) if removal else _lab.plan(wanted(LINK), state(), observed, DIGESTS)


def test_tunnels_of_the_kernel_are_no_obstacle() -> None:
    observed = in_place()
    observed.interfaces["bulkcopy-lab-a"]["tunl0"] = _lab.Interface("tunl0", "0.0.0.0", 1480, False)
    assert _lab.plan(wanted(LINK), state(), observed, DIGESTS) == []


def test_foreign_things_in_the_way() -> None:
    observed = in_place()
    observed.netns["bulkcopy-lab-b"] = _lab.FOREIGN
    with pytest.raises(LabError, match="host lab-b: network namespace bulkcopy-lab-b exists and was not made"):
        _lab.plan(wanted(LINK), state(), observed, DIGESTS)
    observed = in_place()
    device = _lab.management_device("bulkcopy-lab-b")
    outside = observed.interfaces[""]
    outside[device] = replace(outside[device], mac="02:00:00:00:00:01")
    with pytest.raises(LabError, match=f"host lab-b: interface {device} exists and was not made"):
        _lab.plan(wanted(LINK), state(), observed, DIGESTS)
    observed = in_place()
    outside = observed.interfaces[""]
    outside["eth0"] = replace(outside["eth0"], addresses=(("198.18.0.1", "198.18.0.1"),))
    with pytest.raises(LabError, match=r"lab: controller_address: address 198\.18\.0\.1 is in use on interface eth0"):
        _lab.plan(wanted(LINK), state(), observed, DIGESTS)
