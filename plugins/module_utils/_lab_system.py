# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hands: looks at the machine and carries out what ``_lab`` plans.

The order of everything here is: record the intent in the state file, make the thing, go on. A run
that is killed at any point therefore leaves nothing that a later run cannot find and prove its own.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from . import _lab
from ._lab import Lab, LabError, Observed, Process, State, Step

PROC = "/proc"
NETNS_DIR = "/run/netns"
SSHD_DIR = "/run/sshd"  # sshd's privilege separation directory on Debian
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
    "sysctl": "procps",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
}
STATE_FILE = "state.json"
NEW = ".new"
SSHD_START_S = 15.0
STOP_S = 10.0
TERM_S = 1.0
REAP_S = 2.0
POLL_S = 0.02
GONE = (
    "Cannot find device",
    "No such device",
    "Cannot find specified qdisc",
    "Cannot delete qdisc with handle of zero",
)


def need_root() -> None:
    if os.geteuid() != 0:
        raise LabError(
            "the lab needs root, for network namespaces and their sshd: run as root, "
            "or use an inventory of your own hosts, which needs none"
        )


def find_programs(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        path = shutil.which(name, path=SEARCH)
        if path is None:
            raise LabError(f"the lab needs {name}: install the package {PACKAGES[name]}")
        found[name] = path
    return found


def run(argv: Sequence[str]) -> str:
    """Output of a short command; LabError with the end of its stderr where it fails."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=_environment(), check=False)
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        raise CommandError(argv, done.returncode, text[-1] if text else "no message")
    return done.stdout.decode("utf-8", "backslashreplace")


class CommandError(LabError):
    def __init__(self, argv: Sequence[str], rc: int, stderr: str) -> None:
        super().__init__(f"the command '{' '.join(argv)}' failed with status {rc}: {stderr}")
        self.stderr = stderr


def _environment() -> dict[str, str]:
    return {"PATH": SEARCH, "LC_ALL": "C", "HOME": "/"}


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def _write(path: str, text: str, mode: int = 0o600) -> None:
    """All of it or none of it, also when killed."""
    with suppress(FileNotFoundError):
        os.unlink(path + NEW)
    descriptor = os.open(path + NEW, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.rename(path + NEW, path)


def mount_points() -> list[str]:
    points = []
    for line in (_read(os.path.join(PROC, "self", "mountinfo")) or "").splitlines():
        # Blanks in a path are octal escapes there.
        points.append(line.split()[4].encode().decode("unicode_escape"))
    return points


def _is_own_directory(path: str) -> bool:
    """A real directory (no symbolic link) of root's that nobody else may write to."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022


@contextmanager
def locked(state_dir: str) -> Iterator[None]:
    """Hold `state_dir`.lock for this run; the file goes with it."""
    path = state_dir + ".lock"
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise LabError(
                "another run works on the lab in {}{}: wait until it has ended".format(
                    state_dir, f" (process {holder})" if holder else ""
                )
            ) from None
        try:
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                break
        except FileNotFoundError:
            pass
        os.close(descriptor)  # that file went with its run; take a new one
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)


class Machine:
    """The lab in `state_dir` on this machine. Use it under `locked`."""

    def __init__(self, state_dir: str, data_dir: str) -> None:
        self.state_dir = state_dir
        self.data_dir = data_dir
        self.programs: dict[str, str] = {}
        self.state: State = State("", "")
        self.netem = False  # whether the kernel has it, where a link needs it
        self.recorded = False  # whether there is a state file
        self.ended: list[Process] = []
        self.left: list[str] = []  # what `down` did not touch, and why

    # --- looking ---

    def load(self) -> None:
        """Read the state file, or begin a new state; refuse a state directory that is not ours."""
        path = os.path.join(self.state_dir, STATE_FILE)
        boot_id = (_read(os.path.join(PROC, "sys/kernel/random/boot_id")) or "").strip()
        if os.path.lexists(self.state_dir):
            strange = not _is_own_directory(self.state_dir)
            if not strange and not os.path.lexists(path):
                strange = bool(set(os.listdir(self.state_dir)) - {STATE_FILE + NEW})
            if strange:
                raise LabError(
                    f"{self.state_dir} exists and was not made by the lab: remove it or choose another state directory"
                )
            text = _read(path)
            if text is not None:
                self.state = _lab.after_boot(_lab.load_state(text, path), boot_id)
                self.recorded = True
        if not self.recorded:
            self.state = State(os.urandom(8).hex(), boot_id)
        inside = namespace_of_self()
        if inside in {item.inode for item in self.state.hosts.values()}:
            raise LabError("the lab cannot be changed from inside one of its hosts: run this on the controller")

    def observe(self, lab: Lab | None) -> Observed:
        observed = Observed()
        if lab:
            controls = _read(os.path.join(PROC, "sys/net/ipv4/tcp_available_congestion_control")) or ""
            observed.congestion_controls = tuple(controls.split())
            self.netem = any(link.long for link in lab.links.values()) and has_netem()
            observed.netem = self.netem
            observed.tcp_buffers[""] = self._tcp_buffers("")
        recorded: dict[str, int | None] = {}
        if lab:
            recorded.update({host.netns: None for host in lab.hosts.values()})
        recorded.update({item.netns: item.inode for item in self.state.hosts.values()})
        observed.interfaces[""] = self._interfaces("")
        nsfs = os.stat(os.path.join(PROC, "self/ns/net")).st_dev
        for netns, inode in recorded.items():
            path = os.path.join(NETNS_DIR, netns)
            alias = None
            with suppress(OSError):
                found = os.stat(path)
                if found.st_dev == nsfs and found.st_ino == inode:
                    alias = self._alias(netns)
            observed.netns[netns] = _lab.judge_netns(path, inode, alias, self.state.id, nsfs)
            if observed.netns[netns] == _lab.OURS:
                observed.interfaces[netns] = self._interfaces(netns)
                if lab:
                    observed.tcp_buffers[netns] = self._tcp_buffers(netns)
        ours, _others = _lab.lab_processes(PROC, self.state)
        for name, item in self.state.hosts.items():
            observed.processes[name] = len(ours[name])
            observed.sshd[name] = _lab.sshd_alive(PROC, item) and observed.netns[item.netns] == _lab.OURS
        for name, link in self.state.links.items():
            observed.wires[name] = _lab.wire_alive(PROC, link)
        return observed

    def _tcp_buffers(self, netns: str) -> tuple[tuple[int, ...], ...]:
        space = ("ip", "netns", "exec", netns) if netns else ()
        lines = run((*space, "sysctl", "-n", *_lab.TCP_BUFFERS)).splitlines()
        return tuple(tuple(int(word) for word in line.split()) for line in lines)

    def _interfaces(self, netns: str) -> dict[str, _lab.Interface]:
        space = ("-netns", netns) if netns else ()
        return _lab.parse_interfaces(
            run(("ip", "-json", *space, "address", "show")),
            run(("tc", "-json", *space, "qdisc", "show")),
            run(("ip", "-json", *space, "route", "show")),
        )

    def _alias(self, netns: str) -> str | None:
        found = json.loads(run(("ip", "-json", "-details", "-netns", netns, "link", "show", "dev", "lo")))
        alias = found[0].get("ifalias")
        return str(alias) if alias is not None else None

    def others(self) -> list[Process]:
        """Processes in the lab's namespaces that the lab did not start and will not end."""
        return _lab.lab_processes(PROC, self.state)[1]

    # --- up ---

    def up(self, lab: Lab, check: bool) -> list[str]:
        """Bring the lab to what is wanted; what was (or, with `check`, would be) done, in words."""
        self.programs = find_programs(sorted(PACKAGES))
        self.load()
        observed = self.observe(lab)
        actions = []
        old_data = self.state.data_dir
        if old_data and old_data != lab.data_dir and os.path.lexists(old_data):
            actions.append(f"remove data directory {old_data}")
        if not self._check_data(lab.data_dir):
            actions.append(f"create data directory {lab.data_dir}")
        digests = dict.fromkeys(lab.hosts, "")
        keys = [path for path in self._key_paths(lab) if not os.path.exists(path)]
        actions += [f"create the key {path}" for path in keys]
        if keys and check:
            digests.update({name: item.sshd_config for name, item in self.state.hosts.items() if name in digests})
        steps = _lab.plan(lab, self.state, observed, digests)  # refuses what is foreign, before anything is made
        if check:
            if not keys:
                files = self._files(lab)
                actions += [f"write {path}" for path, (text, _mode) in sorted(files.items()) if _read(path) != text]
                steps = _lab.plan(lab, self.state, observed, self._digests(lab, files))
            return actions + [step.text for step in steps]

        self._make_state_dir()
        self.save()
        if old_data and old_data != lab.data_dir:
            self._remove_data(old_data)
        self._make_data(lab.data_dir)
        for path in keys:
            self._make_key(path)
        files = self._files(lab)
        for path, (text, mode) in sorted(files.items()):
            if _read(path) != text:
                _write(path, text, mode)
                actions.append(f"write {path}")
        steps = _lab.plan(lab, self.state, observed, self._digests(lab, files))
        for step in steps:
            actions.append(step.text)
            self._do(step, lab, files)
        stale = (set(self.state.links) - set(lab.links)) | (set(self.state.hosts) - set(lab.hosts))
        if stale:
            self.state.links = {name: item for name, item in self.state.links.items() if name in lab.links}
            self.state.hosts = {name: item for name, item in self.state.hosts.items() if name in lab.hosts}
            self.save()
        for name, host in lab.hosts.items():
            self._await_sshd(name, host)
        return actions

    def save(self) -> None:
        _write(os.path.join(self.state_dir, STATE_FILE), self.state.dump())
        self.recorded = True

    def _make_state_dir(self) -> None:
        if not os.path.isdir(self.state_dir):
            _mkdir(self.state_dir, 0o700)

    def _key_paths(self, lab: Lab) -> list[str]:
        return [lab.identity_file] + [_host_key(lab, name) for name in sorted(lab.hosts)]

    def _make_key(self, path: str) -> None:
        directory = os.path.dirname(path)
        if not os.path.isdir(directory):
            _mkdir(directory, 0o700)
        for leftover in (path + NEW, path + NEW + ".pub"):
            with suppress(FileNotFoundError):
                os.unlink(leftover)
        run(
            (
                self.programs["ssh-keygen"],
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "linkops.bulkcopy lab",
                "-f",
                path + NEW,
            )
        )
        # The private half last: where it is there, both are.
        os.rename(path + NEW + ".pub", path + ".pub")
        os.rename(path + NEW, path)

    def _files(self, lab: Lab) -> dict[str, tuple[str, int]]:
        """Every file that the lab writes, but for keys: path to (text, mode)."""
        extra = ["PerSourcePenalties no"] if self._sshd_knows("PerSourcePenalties=no") else []
        public = {name: " ".join((_read(_host_key(lab, name) + ".pub") or "").split()[:2]) for name in lab.hosts}
        files = {
            os.path.join(lab.state_dir, "authorized_keys"): (_read(lab.identity_file + ".pub") or "", 0o600),
            lab.known_hosts: (_lab.known_hosts(lab, public), 0o600),
        }
        for name in lab.hosts:
            files[_config(lab, name)] = (_lab.sshd_config(lab, name, self.state.id, extra), 0o600)
        shadow = _lab.shadow_override(_read("/etc/shadow") or "", int(time.time() // 86400))
        if shadow is not None:
            files[os.path.join(lab.state_dir, "shadow")] = (shadow, 0o600)
        if not self.netem and any(link.long for link in lab.links.values()):
            files[_wire(lab)] = (_lab.wire_program(), 0o600)
        return files

    def _digests(self, lab: Lab, files: dict[str, tuple[str, int]]) -> dict[str, str]:
        found = {}
        for name in lab.hosts:
            text = files[_config(lab, name)][0] + (_read(_host_key(lab, name) + ".pub") or "")
            found[name] = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        return found

    def _sshd_knows(self, option: str) -> bool:
        """Whether this sshd has an option; one that does not know it stops at it."""
        key = os.path.join(self.state_dir, "id_ed25519")
        done = subprocess.run(
            [self.programs["sshd"], "-T", "-f", "/dev/null", "-h", key, "-o", option],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(),
            check=False,
        )
        return b"Bad configuration option" not in done.stderr

    def _do(self, step: Step, lab: Lab | None, files: dict[str, tuple[str, int]]) -> None:
        if step.kind == "run":
            if step.link and lab:
                self._record_link(lab.links[step.link])
            for command in step.commands:
                self._run_step(command)
            if step.link and lab and lab.links[step.link].long:
                # Only now: what netem was told cannot be read back well.
                self.state.links[step.link].character = " ".join(_lab.netem(lab.links[step.link]))
                self.save()
        elif step.kind == "tune":
            self.state.hosts[step.host].tuned = True
            self.save()
            for command in step.commands:
                self._run_step(command)
        elif step.kind == "wire" and lab:
            self._start_wire(lab, lab.links[step.link])
            for command in step.commands:
                self._run_step(command)
        elif step.kind == "unwire":
            item = self.state.links[step.link]
            if item.wire_pid is not None and item.wire_start is not None:
                process = Process(item.wire_pid, item.wire_start, 0, "wire")
                self.ended.append(process)
                self._end([process], lambda found: True)
        elif step.kind == "stop":
            self._stop_host(step.host)
        elif step.kind == "unname":
            os.unlink(os.path.join(NETNS_DIR, self.state.hosts[step.host].netns))
        elif step.kind == "netns" and lab:
            self._make_netns(lab.hosts[step.host])
        elif step.kind == "sshd" and lab:
            self._start_sshd(lab, step.host, files)
        else:
            raise AssertionError(step)

    def _run_step(self, command: Sequence[str]) -> None:
        try:
            run(command)
        except CommandError as error:
            # An interface can vanish by itself after its peer or its namespace did.
            if "delete" in command and any(word in error.stderr for word in GONE):
                return
            raise

    def _make_netns(self, host: _lab.Host) -> None:
        """Make the namespace in a child that holds it, note its inode, and only then give it its name."""
        if not os.path.isdir(NETNS_DIR) and NETNS_DIR not in self.state.made_dirs:
            self.state.made_dirs.append(NETNS_DIR)
        if NETNS_DIR not in mount_points():
            self.state.made_netns_mount = True  # `ip netns` makes it one, and leaves it so
        script = 'ip link set dev lo alias "$1" && ip link set dev lo up && echo made && read -r _'
        holder = subprocess.Popen(
            [self.programs["unshare"], "--net", "sh", "-c", script, "sh", _lab.mark(self.state.id)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(),
        )  # fmt: skip
        assert holder.stdin and holder.stdout and holder.stderr
        try:
            if holder.stdout.readline() != b"made\n":
                text = holder.stderr.read().decode("utf-8", "backslashreplace").strip()
                raise LabError(f"no network namespace can be made on this machine: {text or 'no message'}")
            inode = _lab.namespace_inode(PROC, holder.pid, "net")
            self.state.hosts[host.name] = _lab.HostState(host.netns, inode, host.device)
            self.save()
            run(("ip", "netns", "attach", host.netns, str(holder.pid)))
        finally:
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()
            holder.stderr.close()

    def _record_link(self, link: _lab.Link) -> _lab.LinkState:
        item = self.state.links[link.name] = _lab.LinkState(link.device, link.source, link.target)
        self.save()
        return item

    def _start_wire(self, lab: Lab, link: _lab.Link) -> None:
        """Start the process that is a link. It makes the link's devices once its pid is in the state file; with no word
        from us it ends."""
        item = self._record_link(link)
        argument = _lab.wire_argument(lab, link, self.state.id)
        argv = [self.programs["unshare"], "--net", sys.executable or "python3", "-I", "-S", _wire(lab), argument]
        path = os.path.join(lab.state_dir, f"wire-{link.device}.log")
        with Path(path).open("wb") as log:
            child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=_environment(),
                cwd="/", start_new_session=True,
            )  # fmt: skip
        assert child.stdin and child.stdout
        process = _lab.read_process(PROC, child.pid)
        if process is not None:
            item.wire_pid, item.wire_start = child.pid, process.start
            item.character = _lab.wire_digest(lab, link, self.state.id)
            self.save()
        with suppress(BrokenPipeError):
            child.stdin.write(b"go\n")
            child.stdin.close()
        with child.stdout:
            said = child.stdout.readline()
        if said != b"up\n":
            child.wait()
            lines = (_read(path) or "").strip().splitlines()
            raise LabError(f"link {link.name} cannot be made ({lines[-1] if lines else 'no message'}): see {path}")
        child.returncode = 0  # it outlives us: no ResourceWarning, nobody waits for it

    def _start_sshd(self, lab: Lab, name: str, files: dict[str, tuple[str, int]]) -> None:
        """Start a host's sshd in a mount namespace of its own, which carries the lab's mark.

        The child waits until its pid is in the state file; with no word from us it ends.
        """
        item = self.state.hosts[name]
        if _lab.sshd_alive(PROC, item) and item.sshd_pid is not None and item.sshd_start is not None:
            self._end([Process(item.sshd_pid, item.sshd_start, 0, "sshd")], lambda process: True)
        if not os.path.isdir(SSHD_DIR):
            if SSHD_DIR not in self.state.made_dirs:
                self.state.made_dirs.append(SSHD_DIR)
                self.save()
            os.mkdir(SSHD_DIR, 0o755)
        sign = os.path.join(lab.state_dir, "mark")
        if not os.path.isdir(sign):
            _mkdir(sign, 0o700)
        shadow = os.path.join(lab.state_dir, "shadow")
        script = 'mount -t tmpfs -o size=4k,mode=0700 "$1" "$2" || exit 1\n'
        script += '[ -z "$3" ] || mount --bind "$3" /etc/shadow || exit 1\n'
        script += 'shift 3\nexec "$@"'
        argv = ["sh", "-c", 'read -r word; [ "$word" = go ] || exit 1; exec "$@" </dev/null', "sh"]
        argv += ["ip", "netns", "exec", item.netns, "sh", "-c", script, "sh"]
        argv += [_lab.mark(self.state.id), sign, shadow if shadow in files else ""]
        argv += [self.programs["sshd"], "-D", "-f", _config(lab, name), "-E", _log(lab, name)]
        environment = _environment()
        environment[_lab.ENVIRONMENT_MARK] = self.state.id
        with Path(_log(lab, name)).open("ab") as log:
            child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=environment,
                cwd="/", start_new_session=True,
            )  # fmt: skip
        assert child.stdin
        process = _lab.read_process(PROC, child.pid)
        if process is None:
            raise LabError(f"sshd of host {name} cannot be started: see {_log(lab, name)}")
        item.sshd_pid, item.sshd_start = child.pid, process.start
        item.sshd_config = self._digests(lab, files)[name]
        self.save()
        with suppress(BrokenPipeError):
            child.stdin.write(b"go\n")
            child.stdin.close()
        self._await_sshd(name, lab.hosts[name])
        child.returncode = 0  # it outlives us: no ResourceWarning, nobody waits for it

    def _await_sshd(self, name: str, host: _lab.Host) -> None:
        """Until the socket table of the host's namespace shows all its ports."""
        item = self.state.hosts[name]
        deadline = time.monotonic() + SSHD_START_S
        while True:
            process = _lab.read_process(PROC, item.sshd_pid or 0)
            alive = process is not None and process.start == item.sshd_start
            if alive and _lab.namespace_inode(PROC, item.sshd_pid or 0, "net") == item.inode:
                table = _read(os.path.join(PROC, str(item.sshd_pid), "net", "tcp")) or ""
                if set(host.ports) <= _lab.listening_ports(table):
                    return
            if not alive or time.monotonic() > deadline:
                log = os.path.join(self.state_dir, host.netns, "sshd.log")
                lines = (_read(log) or "").strip().splitlines()
                raise LabError(
                    "sshd of host {} {} ({}): see {}".format(
                        name, "does not listen" if alive else "ended", lines[-1] if lines else "no message", log
                    )
                )
            time.sleep(POLL_S)

    # --- data ---

    def _check_data(self, path: str) -> bool:
        """Whether the data directory is there; refuse one that is not ours."""
        if not os.path.lexists(path):
            return False
        text = _read(os.path.join(path, _lab.MARKER_FILE)) if _is_own_directory(path) else None
        if text is not None:
            words = text.split()
            if len(words) == 2 and words[0].startswith(_lab.MARK_PREFIX):
                if words[1] == self.state_dir:
                    return True
                raise LabError(f"data directory {path} belongs to the lab in {words[1]}: choose another")
        elif (
            self.state.data_dir == path
            and _is_own_directory(path)
            and set(os.listdir(path)) <= {_lab.MARKER_FILE + NEW}
        ):
            return False  # killed before the marker was written
        raise LabError(f"data directory {path} exists and was not made by the lab: remove it or choose another")

    def _make_data(self, path: str) -> None:
        self.state.data_dir = path
        self.save()
        if not self._check_data(path):
            if not os.path.isdir(path):
                _mkdir(path, 0o755)
            _write(os.path.join(path, _lab.MARKER_FILE), f"{_lab.mark(self.state.id)} {self.state_dir}\n")

    def _remove_data(self, path: str) -> None:
        if not os.path.lexists(path):
            return
        self._check_data(path)
        below = [point for point in mount_points() if point == path or point.startswith(path + "/")]
        if below:
            raise LabError(f"{below[0]} is a mount point in the lab's data directory: unmount it first")
        # The marker last: what a killed removal leaves is still known as ours.
        for entry in os.listdir(path):
            if entry != _lab.MARKER_FILE:
                _remove(os.path.join(path, entry))
        _remove(os.path.join(path, _lab.MARKER_FILE))
        os.rmdir(path)

    # --- down ---

    def down(self, check: bool) -> list[str]:
        """Take down all that the state file records; what was (or would be) done, in words."""
        self.load()
        actions: list[str] = []
        data = []
        for path in sorted({self.state.data_dir, self.data_dir}):
            # Also without a state file: a reboot empties /run.
            if path and os.path.lexists(path):
                try:
                    self._check_data(path)
                except LabError as error:
                    self.left.append(str(error))
                    continue
                data.append(path)
        for process in self.others():
            self.left.append(
                f"process {process.pid} ({process.name}) runs in a namespace of the lab and was not started by it"
            )
        steps: list[Step] = []
        if self.recorded:
            find_programs(["ip", "tc"])
            steps = _lab.plan_removal(self.state, self.observe(None))
        actions += [step.text for step in steps]
        actions += [f"remove data directory {path}" for path in data]
        there = os.path.lexists(self.state_dir)
        if there:
            actions.append(f"remove {self.state_dir}")
        if check:
            return actions
        for step in steps:
            self._do(step, None, {})
        for path in data:
            self._remove_data(path)
        if self.recorded:
            self._undo_directories()
        if there:
            for entry in os.listdir(self.state_dir):
                if entry != STATE_FILE:
                    _remove(os.path.join(self.state_dir, entry))
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.state_dir, STATE_FILE))
            os.rmdir(self.state_dir)
        _await_reaping(self.ended)
        return actions

    def _undo_directories(self) -> None:
        """Undo what the first `ip netns` and our first sshd made for all, unless others use it now."""
        if os.path.isdir(NETNS_DIR) and not os.listdir(NETNS_DIR):
            if self.state.made_netns_mount and NETNS_DIR in mount_points():
                run(("umount", NETNS_DIR))
            if NETNS_DIR in self.state.made_dirs and NETNS_DIR not in mount_points():
                with suppress(OSError):
                    os.rmdir(NETNS_DIR)
        if SSHD_DIR in self.state.made_dirs and not _other_sshd():
            with suppress(OSError):
                os.rmdir(SSHD_DIR)

    def _stop_host(self, name: str) -> None:
        """End all processes of ours in a host, those included that start meanwhile."""
        deadline = time.monotonic() + STOP_S
        while True:
            ours = _lab.lab_processes(PROC, self.state)[0][name]
            if not ours:
                return
            self.ended += ours
            if time.monotonic() > deadline:
                raise LabError(
                    f"process {ours[0].pid} ({ours[0].name}) of host {name} does not end: end it, then try again"
                )
            self._end(
                ours,
                lambda process: process.pid in {item.pid for item in _lab.lab_processes(PROC, self.state)[0][name]},
            )

    def _end(self, processes: Sequence[Process], still_ours: Callable[[Process], bool]) -> None:
        """SIGTERM, and after a second SIGKILL, by pid and start time."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                _signal(process, number, still_ours)
            deadline = time.monotonic() + TERM_S
            while time.monotonic() < deadline:
                if not any(_same(process) for process in processes):
                    return
                time.sleep(POLL_S)


def has_netem() -> bool:
    """Whether the kernel has netem, tried in a namespace that is gone at once."""
    argv = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment(), check=False
    )  # fmt: skip
    return done.returncode == 0


def namespace_of_self() -> int | None:
    return _lab.namespace_inode(PROC, os.getpid(), "net")


def _host_key(lab: Lab, name: str) -> str:
    return os.path.join(lab.host_dir(name), "ssh_host_ed25519_key")


def _config(lab: Lab, name: str) -> str:
    return os.path.join(lab.host_dir(name), "sshd_config")


def _wire(lab: Lab) -> str:
    return os.path.join(lab.state_dir, "wire.py")


def _log(lab: Lab, name: str) -> str:
    return os.path.join(lab.host_dir(name), "sshd.log")


def _mkdir(path: str, mode: int) -> None:
    try:
        os.mkdir(path)
        os.chmod(path, mode)  # whatever the umask
    except OSError as error:
        raise LabError(f"directory {path} cannot be made: {error.strerror}") from None


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _same(process: Process) -> bool:
    now = _lab.read_process(PROC, process.pid)
    return now is not None and now.start == process.start


def _await_reaping(processes: Sequence[Process]) -> None:
    """Some init processes take a second to collect what has ended; until then it is in `ps`."""
    deadline = time.monotonic() + REAP_S
    for item in processes:
        with suppress(ChildProcessError):
            os.waitpid(item.pid, os.WNOHANG)
    while time.monotonic() < deadline and any(os.path.exists(os.path.join(PROC, str(item.pid))) for item in processes):
        time.sleep(POLL_S)


def _signal(process: Process, number: signal.Signals, still_ours: Callable[[Process], bool]) -> None:
    """Send a signal to that very process: the pid cannot pass to another one in between."""
    try:
        descriptor = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return
    try:
        if _same(process) and still_ours(process):
            with suppress(ProcessLookupError):
                if descriptor is not None:
                    signal.pidfd_send_signal(descriptor, number)
                else:
                    os.kill(process.pid, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _other_sshd() -> bool:
    for entry in os.listdir(PROC):
        if entry.isdigit():
            process = _lab.read_process(PROC, int(entry))
            if process is not None and process.name.startswith("sshd"):
                return True
    return False


def facts(lab: Lab, state: State) -> dict[str, Any]:
    """What a playbook may want to know of a lab."""
    hosts: dict[str, Any] = {}
    for name, host in lab.hosts.items():
        item = state.hosts.get(name)
        hosts[name] = {
            "netns": host.netns,
            "address": host.address,
            "port": host.port,
            "device": host.device,
            "sshd_pid": item.sshd_pid if item else None,
        }
    links: list[dict[str, Any]] = []
    for link in lab.links.values():
        about = asdict(link)
        about.update(
            source_device=about["device"],
            target_device=about.pop("device"),
            mtu=_lab.MTU,
            rate_mbit=None if link.rate_bps is None else about["rate_bps"] / 1e6,
            tcp_buffer_bytes=lab.hosts[link.source].tcp_buffer_bytes,
            made_of=_lab.made_of(link, state),
        )
        del about["rate_bps"]
        links.append(about)
    return {"hosts": hosts, "links": links, "identity_file": lab.identity_file, "known_hosts": lab.known_hosts}
