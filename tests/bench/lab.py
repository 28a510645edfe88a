# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The embedded lab for whoever checks measurements: one copy by its module, the same copy by hand, and readings of it
by other means than the collection's own."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / ".cache" / "collections"
sys.path.insert(0, str(COLLECTIONS))

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset, _lab  # noqa: E402

BIN = Path(sys.executable).parent

#: Label of a standard method: its module and arguments.
METHODS: dict[str, dict[str, Any]] = {
    method["label"]: method
    for method in yaml.safe_load((ROOT / "playbooks/vars/methods.yml").read_text())["bulkcopy_standard_methods"]
}

#: What the agent's own process has on its command line, and nothing else on the target has.
AGENT_MARK = b"bulkcopy-bootstrap"

_POLL_S = 0.003


def environment(**more: str) -> dict[str, str]:
    """Ours, as the Makefile sets it for ansible."""
    ours = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONPATH": str(COLLECTIONS),
        "LC_ALL": "C.UTF-8",
    }
    return {**os.environ, **ours, **more}


def options(description: str, programs: Sequence[str], **defaults: float) -> argparse.Namespace:
    """Arguments of a benchmark in the lab: the inventory, and a number for each of C(defaults). Ends with 1 where the
    benchmark cannot run at all."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--inventory", type=Path, default=ROOT / "inventory", help="an inventory with a lab in it")
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    found = parser.parse_args()
    found.inventory = found.inventory.resolve()
    if os.geteuid() != 0:
        sys.exit("This needs root, for the embedded lab: sudo make bench.")
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        sys.exit(f"This needs {', '.join(missing)}: tools/setup bench installs what the benchmarks need.")
    return found


class Counted(NamedTuple):
    """Bytes that a device has sent and received by its own counters, and that its traffic shaper has let through."""

    tx_bytes: int
    rx_bytes: int
    shaped_bytes: int

    def since(self, before: Counted) -> Counted:
        return Counted(*(now - then for now, then in zip(self, before, strict=True)))


class Lab:
    """A lab that is up. C(links): only these links of the inventory, each with such options of its C(lab) as replace or
    join its own (null takes one away)."""

    def __init__(self, inventory: Path, links: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.inventory = inventory
        listed = subprocess.run(
            [BIN / "ansible-inventory", "-i", inventory, "--list"],
            env=environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        known = json.loads(listed.stdout)["_meta"]["hostvars"]
        variables = next(iter(known.values()))
        self.links: dict[str, dict[str, Any]] = {link["name"]: link for link in variables["bulkcopy_links"]}
        if links is not None:
            self.links = {
                name: {**self.links[name], "lab": {**self.links[name]["lab"], **changes}}
                for name, changes in links.items()
            }
        self.state_dir = Path(variables.get("lab_state_dir", "/run/linkops-bulkcopy-lab"))
        self.data_dir = Path(variables.get("lab_data_dir", "/var/tmp/linkops-bulkcopy-lab"))

    def play(self, state: str) -> None:
        argv = [str(BIN / "ansible-playbook"), "playbooks/lab.yml", "-i", str(self.inventory)]
        argv += ["-e", json.dumps({"lab_state": state, "bulkcopy_links": list(self.links.values())})]
        done = subprocess.run(argv, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"The lab cannot be made {state}:\n{done.stdout}")

    def _host(self, link: str, end: str) -> dict[str, Any]:
        state = json.loads((self.state_dir / "state.json").read_text())
        host: dict[str, Any] = state["hosts"][self.links[link][end]]
        return host

    def enter(self, link: str, end: str) -> list[str]:
        """What stands before a command to run it on the source or the target of a link."""
        return ["ip", "netns", "exec", self._host(link, end)["netns"]]

    def listener(self, link: str) -> int:
        """The process of the target's sshd that accepts sessions."""
        pid: int = self._host(link, "target")["sshd_pid"]
        return pid

    def tree(self, link: str, shape: str, scale: float) -> Path:
        """A tree of random bytes on the source, made at first use: C(large) is 2 GB by scale, C(small) 200 MB."""
        path = self.data_dir / str(self.links[link]["source"]) / "data" / f"{shape}-{scale:g}"
        _dataset.present(str(path), _dataset.shape(shape), scale=scale)
        return path

    def dest(self, link: str) -> Path:
        return self.data_dir / str(self.links[link]["target"]) / "copy"

    def ssh(self, link: str) -> list[str]:
        """A login from the source to the target that is not a copy's, to be followed by a command."""
        given = self.links[link]
        words = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={given['ssh_known_hosts']}"]
        return [*self.enter(link, "source"), *words, "-i", given["ssh_identity_file"], f"root@{given['address']}"]

    def counted(self, link: str) -> Counted:
        """What the source's end of a link has carried, as ip -s and tc -s tell it."""
        netns = self._host(link, "source")["netns"]
        name = _lab.link_device(link)
        (device,) = json.loads(_out("ip", "-n", netns, "-s", "-j", "link", "show", "dev", name))
        shapers = json.loads(_out("tc", "-n", netns, "-s", "-j", "qdisc", "show", "dev", name))
        (shaped,) = [item["bytes"] for item in shapers if item.get("root")]
        return Counted(device["stats64"]["tx"]["bytes"], device["stats64"]["rx"]["bytes"], shaped)

    def ceiling_mbit(self, link: str, seconds: int) -> float:
        """The most that a link carries as link_info finds it with iperf3, in Mbit/s."""
        args = {key: value for key, value in self.links[link].items() if key == "address" or key.startswith("ssh_")}
        with self.module(link, "link_info", {**args, "ceiling_s": seconds}) as process:
            out = process.communicate()[0]
        return float(json.loads(out)["link"]["ceiling_Bps"]) * 8 / 1e6

    def set_rate(self, link: str, rate: str) -> None:
        """Give the source's end of a link another rate (tc's writing, V(1gbit))."""
        netns = self._host(link, "source")["netns"]
        limits = ["burst", "32kb", "latency", "50ms"]
        subprocess.run(
            ["tc", "-n", netns, "qdisc", "change", "dev", link, "root", "tbf", "rate", rate, *limits], check=True
        )

    def module_args(self, link: str, src: Path, **more: Any) -> dict[str, Any]:
        given = self.links[link]
        named = {key: value for key, value in given.items() if key == "address" or key.startswith("ssh_")}
        return {
            **named,
            "src": str(src),
            "dest": str(self.dest(link)),
            "source_name": given["source"],
            "target_name": given["target"],
            "verify": "none",
            "cache": "warm",
            **more,
        }

    @contextlib.contextmanager
    def module(self, link: str, name: str, args: Mapping[str, Any], path: Path | None = None) -> Iterator[Any]:
        """A module at work on the source of a link; C(path) is a folder of programs that come first there."""
        more = {} if path is None else {"PATH": f"{path}:{os.environ['PATH']}"}
        with subprocess.Popen(
            [*self.enter(link, "source"), sys.executable, "-m", f"ansible_collections.linkops.bulkcopy.plugins.modules.{name}"],
            env=environment(**more),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": args}).encode())
            process.stdin.close()
            process.stdin = None
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()

    def copy(self, link: str, label: str, src: Path, path: Path | None = None, **more: Any) -> dict[str, Any]:
        """The record of one copy by a standard method, whatever its status. The copy itself is not kept."""
        self.clear(link)
        method = METHODS[label]
        args = self.module_args(link, src, **method.get("args", {}), **more)
        with self.module(link, method["module"], args, path) as process:
            record = record_of(process)
        self.clear(link)
        return record

    def clear(self, link: str) -> None:
        """No copy on the target."""
        if self.dest(link).exists():
            shutil.rmtree(self.dest(link))
        self.dest(link).parent.mkdir(parents=True, exist_ok=True)

    def prepare(self, link: str) -> None:
        """What a run finds: an empty destination on a flushed filesystem."""
        self.clear(link)
        self.dest(link).mkdir()
        subprocess.run(["sync", "-f", self.dest(link)], check=True)


def record_of(process: Any) -> dict[str, Any]:
    """The record that a copy module gave, once it has ended."""
    out = process.communicate()[0].decode()
    try:
        record: dict[str, Any] = json.loads(out)["record"]
    except (ValueError, KeyError):
        raise AssertionError(f"the module gave no record: {out}") from None
    return record


def _out(*argv: str) -> str:
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout


@contextlib.contextmanager
def lab(inventory: Path, links: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[Lab]:
    """The lab of an inventory, or of some of its links, made now and taken down in any case."""
    made = Lab(inventory, links)
    if made.state_dir.exists():
        sys.exit(f"There is a lab already ({made.state_dir}): take it down with make lab-down.")
    try:
        made.play("present")
        yield made
    finally:
        made.play("absent")


# -- the same copy by hand ----------------------------------------------------------------------------------------------


class ByHand:
    """The stages of a record as somebody would type them on the source, in the folder where they ran."""

    def __init__(self, lab: Lab, link: str, record: Mapping[str, Any], src: Path, work: Path) -> None:
        self.lab = lab
        self.link = link
        self.source = [stage["argv"] for stage in record["stages"] if stage["end"] == "source"]
        self.target = [stage["argv"] for stage in record["stages"] if stage["end"] == "target"]
        self.cwd = src
        if os.path.basename(self.source[0][0]) == "scp":
            # Its operand is a link to the source with the destination's name.
            self.cwd = work
            (work / lab.dest(link).name).unlink(missing_ok=True)
            (work / lab.dest(link).name).symlink_to(src)

    @property
    def command_line(self) -> str:
        return " | ".join(shlex.join(argv) for argv in self.source)

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """While the target's stages run, if it has any; waits for their end."""
        started: list[subprocess.Popen[bytes]] = []
        if not self.target:
            yield
            return
        # A netcat that listens may end early when its input does.
        upstream, held = os.pipe()
        for number, argv in enumerate(self.target):
            last = number == len(self.target) - 1
            stage = subprocess.Popen(
                [*self.lab.enter(self.link, "target"), *argv],
                stdin=upstream,
                stdout=subprocess.DEVNULL if last else subprocess.PIPE,
            )
            if number == 0:
                os.close(upstream)
            else:
                started[-1].stdout.close()  # type: ignore[union-attr]
            started.append(stage)
            upstream = stage.stdout  # type: ignore[assignment]
        port = self.target[0][-1]
        while f":{port} " not in _out(*self.lab.enter(self.link, "target"), "ss", "-Hltn"):
            time.sleep(0.01)
        try:
            yield
            for stage in started:
                stage.wait(60)
        finally:
            os.close(held)
            for stage in started:
                stage.kill()


# -- CPU by time -v ------------------------------------------------------------------------------------------------------


def timing_programs(directory: Path) -> Path:
    """A folder of programs that a copy on the source can use: each runs the real one below /usr/bin/time -v, which
    writes to its standard error, and so into the record."""
    directory.mkdir()
    for name in ("tar", "gzip", "ssh", "scp", "rsync", "nc"):
        path = directory / name
        path.write_text(f'#!/bin/sh\nexec /usr/bin/time -v {shutil.which(name)} "$@"\n')
        path.chmod(0o755)
    return directory


def timed_s(record: Mapping[str, Any]) -> float:
    """User and system seconds of a record's stages on the source by time -v, the last word on their standard error.

    It cuts to hundredths of a second, so half a hundredth is added to each of its figures."""
    spent = 0.0
    for stage in record["stages"]:
        if stage["end"] == "source":
            said = stage["stderr"].rpartition("Command being timed")[2]
            user, system = re.findall(r"(?:User|System) time \(seconds\): ([\d.]+)", said)
            spent += float(user) + float(system) + 2 * 0.005
    return spent


# -- CPU by control groups ----------------------------------------------------------------------------------------------


class Cgroup:
    """A control group of ours. It has a nanosecond clock for all that ever ran in it, ended or not; a process that is
    started in it stays in it."""

    def __init__(self, name: str) -> None:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        first = [(point, True) for _device, point, kind, *_rest in mounts if kind == "cgroup2"]
        first += [
            (point, False) for _device, point, kind, how, *_rest in mounts if kind == "cgroup" and "cpuacct" in how
        ]
        if not first:
            raise RuntimeError("there is no cgroup file system: mount cgroup2")
        point, self._unified = first[0]
        self.root = Path(point)
        self.path = self.root / f"{name}-{os.getpid()}"
        self.path.mkdir()

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def cpu_s(self) -> float:
        """Seconds that processors spent in it since it was made."""
        if self._unified:
            return int((self.path / "cpu.stat").read_text().split()[1]) / 1e6
        return int((self.path / "cpuacct.usage").read_text()) / 1e9

    def close(self) -> None:
        for _try in range(200):
            with contextlib.suppress(OSError):
                for pid in (self.path / "cgroup.procs").read_text().split():
                    with contextlib.suppress(OSError):
                        (self.root / "cgroup.procs").write_text(pid)
                self.path.rmdir()
                return
            time.sleep(0.01)
        raise OSError(f"{self.path} is in use")


def _children(pid: int) -> list[int]:
    """Of all its threads, each of which has its own list; none where it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                found += [int(word) for word in text.split()]
    return found


def _descendants(pid: int) -> list[int]:
    return [found for child in _children(pid) for found in (child, *_descendants(child))]


def _is_agent(pid: int) -> bool:
    try:
        return (
            AGENT_MARK in Path(f"/proc/{pid}/cmdline").read_bytes()
            and b"python" in os.readlink(f"/proc/{pid}/exe").encode()
        )
    except OSError:
        return False


def agent_of(listener: int) -> tuple[int, list[int]] | None:
    """The agent's process on a target, and all of its session's; null where none runs."""
    for session in _children(listener):
        members = [session, *_descendants(session)]
        for pid in members:
            if _is_agent(pid):
                return pid, members
    return None


def sends(pid: int) -> bool:
    """Whether a tar that writes an archive runs below C(pid)."""
    for child in _descendants(pid):
        with contextlib.suppress(OSError):
            if b"-cf" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return True
    return False


#: How a program that receives a copy is started; the agent's other children only tell their version.
_RECEIVES = (b"-l", b"-d", b"-xpf")


class TargetCgroups:
    """What a copy costs its target, by control groups: C(sessions) holds the target's sshd and C(receivers) what the
    agent starts to receive. The agent's own session is put aside as soon as it is there, well before the copy begins,
    and the sessions are counted from then on."""

    def __init__(self, lab: Lab, link: str) -> None:
        self.listener = lab.listener(link)
        self.sessions, self.agent, self.receivers = (
            Cgroup(f"bulkcopy-{name}") for name in ("sessions", "agent", "receivers")
        )
        self._before: tuple[float, float] | None = None
        self._stop = threading.Event()
        self.sessions.add(self.listener)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """While a module copies."""
        self._before = None
        self._stop.clear()
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            yield
        finally:
            self._stop.set()
            watcher.join()

    def _watch(self) -> None:
        agent: int | None = None
        moved: set[int] = set()
        while not self._stop.wait(_POLL_S):
            if agent is None:
                found = agent_of(self.listener)
                if found is not None:
                    agent, members = found
                    for pid in members:
                        self.agent.add(pid)
                    self._before = self.sessions.cpu_s(), self.receivers.cpu_s()
                continue
            for pid in set(_children(agent)) - moved:
                with contextlib.suppress(OSError):  # it has ended
                    if set(_RECEIVES) & set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")):
                        self.receivers.add(pid)
                        moved.add(pid)

    def cpu_s(self) -> float:
        """What the last copy has cost, when it is over."""
        if self._before is None:
            raise AssertionError("no agent was seen on the target")
        sessions, receivers = self._before
        return self.sessions.cpu_s() - sessions + self.receivers.cpu_s() - receivers

    def close(self) -> None:
        for group in (self.sessions, self.agent, self.receivers):
            group.close()


def cpu_s(record: Mapping[str, Any], end: str) -> float:
    """User and system seconds of one end of a record; fails where there are none."""
    spent = record["cpu"][end]
    if record["status"] != "ok" or spent is None:
        raise AssertionError(f"{record['status']}: {record['message']} {record['flags']}")
    return float(spent["user_s"] + spent["system_s"])


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        yield Path(directory)
