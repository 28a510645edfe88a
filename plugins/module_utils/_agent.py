# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import json
import os
import platform
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from typing import Any, Callable, Mapping

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _counters, _fingerprint, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._fingerprint import existing_parent, room
from ansible_collections.linkops.bulkcopy.plugins.module_utils._pipeline import (
    Parallel,
    Pipeline,
    adopt_orphans,
    stage_environment,
)
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import escape

#: In a directory whose content is ours to delete: JSON with the token of who made it.
MARKER = ".linkops-bulkcopy"
_MARKER_BYTES = 65536
#: Below a marked directory: where a measured copy goes, and where versions lie that copies bring up to date.
TREE = "tree"
BASE = "base"

#: First line on the channel; whatever the login shell prints comes before it.
GREETING = "linkops.bulkcopy agent"

#: The other end says something this often; after that long without a word it is taken for dead.
HEARTBEAT_S = 20.0
SILENCE_LIMIT_S = 120.0

#: A listener that is not there by then will not come.
_LISTEN_LIMIT_S = 5.0

#: How long a server may take for what its last client has left it to do.
_SERVED_LIMIT_S = 3.0

#: What a program may print when it is asked for its version or its options.
_ANSWER_BYTES = 65536


class Refusal(Exception):
    """Something that cannot be done here, in one sentence without the host's name."""


def which(names: list[str]) -> dict[str, str | None]:
    """Where this host has programs, the system's directories included that a login without a profile may lack."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return {name: shutil.which(name, path=path) for name in names}


def ask(argv: list[str], timeout_s: float = 10.0) -> dict[str, Any]:
    """Run a short command that only tells something: its status and the beginning of its output, standard error after
    standard output. Never raises; a program that cannot run has status null."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env=stage_environment(),
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"rc": None, "output": str(error)}
    return {"rc": done.returncode, "output": escape((done.stdout + done.stderr)[:_ANSWER_BYTES])}


def programs(wanted: Mapping[str, str | None]) -> dict[str, dict[str, str | None]]:
    """Path and version (the first line that it prints) of each program that is here; C(wanted) says how each is asked
    for its version, null for one that does not tell."""
    found: dict[str, dict[str, str | None]] = {}
    for name, path in which(list(wanted)).items():
        option = wanted[name]
        if path is None:
            continue
        answer = ask([path, option]) if option else None
        lines = answer["output"].splitlines() if answer and answer["rc"] == 0 else []
        found[name] = {"path": path, "version": next((line.strip() for line in lines if line.strip()), None)}
    return found


def fingerprint(path: str | None, address: str | None, wanted: Mapping[str, str | None]) -> dict[str, Any]:
    """C(_fingerprint.fingerprint) with our C(programs)."""
    return dict(_fingerprint.fingerprint(path, address), programs=programs(wanted))


def host_facts() -> dict[str, Any]:
    """Who and where we are."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {
        "hostname": socket.gethostname(),
        "user": user,
        "uid": uid,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "boot_id": _counters.boot_id(),
    }


def write_private(directory: str, name: str, text: str) -> str:
    """Write a file that only we can read into a directory of ours; its path. Raises OSError."""
    path = os.path.join(directory, name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(os.fsencode(text))
    return path


def _cpu_since(before: os.times_result) -> dict[str, float]:
    now = os.times()
    return {"user_s": now.user - before.user, "system_s": now.system - before.system}


def read_marker(root: str) -> dict[str, Any] | None:
    """The marker of a scratch root; null where there is none, or none that is ours to trust."""
    try:
        # Neither a link nor a device is opened.
        descriptor = os.open(os.path.join(root, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
            return None
        try:
            marker = json.loads(stream.read(_MARKER_BYTES).decode("utf-8"))
        except ValueError:
            return None
    return marker if isinstance(marker, dict) and isinstance(marker.get("token"), str) and marker["token"] else None


def remove_tree(path: str) -> None:
    """Delete a tree; a directory without write permission in it is given that first. Raises OSError."""

    def retry(function: Callable[..., Any], name: str, _error: Any) -> None:
        os.chmod(os.path.dirname(name), stat.S_IRWXU)
        if function in (os.open, os.scandir, os.listdir, os.lstat):
            os.chmod(name, stat.S_IRWXU)
            remove_tree(name)
        else:
            function(name)

    if os.path.lexists(path):
        shutil.rmtree(path, onerror=retry)


class Agent:
    """The far end of a run. It answers one request a line, in order; it keeps what it started, and ends it when the
    channel closes or falls silent."""

    def __init__(self) -> None:
        self.receivers: Parallel | None = None
        self.private_dir: str | None = None
        self.sessions: _counters.Sessions | None = None
        self.host_before: _counters.HostCpu | None = None
        self.own_before_s = 0.0
        self.manifest: _tree.Manifest | None = None
        self.laid_out = _tree.Manifest({})
        self.listener = _counters.sshd_listener(os.getpid())
        self.device = _counters.session_device(os.environ.get("SSH_CONNECTION", ""))
        self.meter = _counters.Meter(self.device)

    def hello(self) -> dict[str, Any]:
        connection = os.environ.get("SSH_CONNECTION", "").split()
        return dict(host_facts(), peer=connection[0] if connection else None, cores=_fingerprint.usable_cores())

    def which(self, names: list[str]) -> dict[str, str | None]:
        return which(names)

    def ask(self, argv: list[str]) -> dict[str, Any]:
        return ask(argv)

    def private_file(self, file: str, text: str) -> dict[str, Any]:
        """Write a file that only this user can read; its path comes back. It is there as long as we are."""
        if self.private_dir is None:
            self.private_dir = tempfile.mkdtemp(prefix="bulkcopy-")
        return {"path": write_private(self.private_dir, file, text)}

    def examine(self, dest: str, scratch: bool, token: str | None, update: bool = False) -> dict[str, Any]:
        """Look at a destination without changing anything, and refuse one that is not for us. One that is not empty is,
        where it is to be brought up to date (C(update))."""
        if scratch:
            if not os.path.isdir(dest):
                raise Refusal(f"has no scratch directory {dest}: create it with its marker file first")
            marker = read_marker(dest)
            if marker is None:
                raise Refusal(f"has a directory {dest} without our marker file {MARKER}: it is not ours to use")
            if token is not None and marker["token"] != token:
                raise Refusal(
                    f"is not the machine (or the user) that was prepared: the marker in {dest} has another token; "
                    "check the link's address, and that no other campaign uses this directory"
                )
            # Another run's leavings are not for this one's account.
            remove_later = os.path.lexists(os.path.join(dest, TREE))
            place = dest
        else:
            remove_later = False
            if os.path.lexists(dest):
                if not os.path.isdir(dest):
                    raise Refusal(f"has {dest}, which is not a directory: choose another destination")
                if os.listdir(dest) and not update:
                    raise Refusal(f"has a destination {dest} that is not empty: choose an empty or absent directory")
            place = existing_parent(dest)
        # Asked first: a read-only filesystem lets nobody write, whatever the owner.
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            raise Refusal(f"has {place} on a read-only filesystem: choose another destination")
        if not os.access(place, os.W_OK | os.X_OK):
            raise Refusal(
                "does not let user {} write in {}: change its owner or choose another destination".format(
                    host_facts()["user"], place
                )
            )
        status = os.stat(place)
        return {
            "real": os.path.realpath(dest),
            "place": os.path.realpath(place),
            "device": status.st_dev,
            "inode": status.st_ino,
            "leavings": remove_later,
            "bases": os.listdir(os.path.join(dest, BASE))
            if scratch and os.path.isdir(os.path.join(dest, BASE))
            else [],
            "room": room(dest),
        }

    def prepare(self, dest: str, scratch: bool, base: str | None = None, update: bool = False) -> dict[str, Any]:
        """Make the destination: created, and empty or a copy of C(base); its path comes back. With C(update) it may hold
        what it holds."""
        tree = os.path.join(dest, TREE) if scratch else dest
        if scratch:
            remove_tree(tree)
        if base is not None:
            _tree.duplicate(os.path.join(dest, BASE, base), tree)
        os.makedirs(tree, mode=0o755, exist_ok=True)
        if not update and os.listdir(tree):
            raise Refusal(f"has a destination {tree} that is not empty")
        self.manifest = None
        return {"tree": tree, "room": room(tree)}

    def make_base(self, dest: str, base: str) -> dict[str, Any]:
        """Make room in a scratch root for a version that copies will be made of; its path comes back."""
        if read_marker(dest) is None:
            raise Refusal(f"has no marker in {dest}: nothing is made there")
        tree = os.path.join(dest, BASE, base)
        remove_tree(tree)
        os.makedirs(tree, mode=0o755)
        return {"tree": tree}

    def flush(self, dest: str) -> dict[str, Any]:
        _counters.flush_filesystem(dest)
        return {}

    def drop_page_cache(self, dest: str) -> dict[str, Any]:
        return {"dropped": _counters.drop_page_cache(dest)}

    def free_ports(self, address: str, count: int) -> dict[str, Any]:
        """TCP ports that nobody listens on at one of our addresses."""
        try:
            family, kind, _protocol, _name, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
            with contextlib.ExitStack() as stack:
                # All at once, so that none is found twice.
                probes = [stack.enter_context(socket.socket(family, kind)) for _number in range(count)]
                for probe in probes:
                    probe.bind(place)
                return {"ports": [probe.getsockname()[1] for probe in probes]}
        except OSError as error:
            raise Refusal(f"cannot listen on {address}: {error.strerror or error}") from error

    def ping(self) -> dict[str, Any]:
        return {}

    def carried(self) -> dict[str, Any]:
        """What the session's device has carried since the last C(carried) or C(begin); null where it is not known."""
        carried, self.meter = self.meter.read(), _counters.Meter(self.device)
        return {"carried": carried and carried._asdict()}

    def begin(self, expected_sessions: int | None) -> dict[str, Any]:
        """Start counting what a copy costs this host."""
        self.own_before_s = time.process_time()
        self.meter = _counters.Meter(self.device)
        self.host_before = _counters.host_cpu()
        self.sessions = _counters.Sessions(self.listener, expected_sessions)
        self.sessions.start()
        return {}

    def start(self, streams: list[dict[str, Any]], address: str) -> dict[str, Any]:
        """Start the receiving C(stages) of each stream, and wait until one of them listens on C(address) and the
        stream's C(port). Those that C(serve) end when C(wait) is asked for."""
        pipelines = [
            Pipeline(stream["stages"], hold_stdin=True, serves=stream.get("serves", False)) for stream in streams
        ]
        self.receivers = receivers = Parallel(pipelines)
        try:
            receivers.start()
        except OSError as error:
            raise Refusal(f"cannot start {streams[0]['stages'][0][0]}: {error.strerror or error}") from error
        deadline = time.monotonic() + _LISTEN_LIMIT_S
        for pipeline, stream in zip(pipelines, streams):
            self._await_listener(pipeline, address, stream["port"], deadline)
        # We are asked to wait for them when the copy is over.
        receivers.watch()
        return {}

    def _await_listener(self, pipeline: Pipeline, address: str, port: int, deadline: float) -> None:
        wanted = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][4][:2]
        sockets: list[Any] = []
        while True:
            sockets = _counters.listening_sockets(pipeline.pids)
            if sockets or pipeline.running[0].result is not None or time.monotonic() > deadline:
                break
            time.sleep(0.002)
        if [tuple(wanted)] != sockets:
            self.end_all()
            said = b" ".join(result.stderr for result in pipeline.results).strip()
            found = f"listens on {sockets}" if sockets else "does not listen"
            raise Refusal(
                "started {}, which {} instead of on {} port {}: {}".format(
                    pipeline.stages[0][0], found, address, port, escape(said) or "it says nothing"
                )
            )

    def wait(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the receiving stages; those that run longer are ended, and so are servers that have nothing left to
        do. C(ended_ago_s) is how long ago the last one ended, since this host's clock means nothing elsewhere, null where
        that was before we were asked; C(first_failed) is the number of the stream that failed first, null where none
        did."""
        receivers = self.receivers
        if receivers is None:
            return {"finished": True, "stages": [], "ended_ago_s": None, "first_failed": None}
        deadline = time.monotonic() + timeout_s
        ends = [self._end_server(pipeline, deadline) for pipeline in receivers.pipelines if pipeline.serves]
        finished = receivers.wait(max(0.0, deadline - time.monotonic()))
        if not finished:
            receivers.kill()
        ends += [pipeline.ended for pipeline in receivers.pipelines if not pipeline.serves]
        ended = max((end for end in ends if end is not None), default=None)
        return {
            "finished": finished,
            "stages": [
                dict(result.as_record("target", number), stdout_bytes=result.stdout_bytes, serves=pipeline.serves)
                for number, pipeline in enumerate(receivers.pipelines)
                for result in pipeline.results
            ],
            "ended_ago_s": None if ended is None else time.monotonic() - ended,
            "first_failed": receivers.first_failed,
        }

    def _end_server(self, pipeline: Pipeline, deadline: float) -> float | None:
        """End a server whose clients have gone, when the processes that it has started for them have, too; when that was,
        null where none was left."""
        left: float | None = None
        deadline = min(deadline, time.monotonic() + _SERVED_LIMIT_S)
        while any(_counters.children(pid) for pid in pipeline.pids) and time.monotonic() < deadline:
            time.sleep(0.002)
            left = time.monotonic()
        pipeline.kill()
        return left

    def lay_out(self, tree: str, packed: str) -> dict[str, Any]:
        """Make the directories and files of a packed manifest below C(tree), and tell what that took of our CPU time.
        Programs that make one directory at the same moment trip over each other: GNU tar then does not find the place of
        its file."""
        before = os.times()
        self.laid_out = _tree.unpack(packed)
        _tree.lay_out(tree, self.laid_out)
        return _cpu_since(before)

    def settle(self, tree: str) -> dict[str, Any]:
        """Give the names that were laid out below C(tree) the mode, owner and time that they have in the manifest, and
        tell what that took of our CPU time."""
        before = os.times()
        _tree.settle(tree, self.laid_out)
        return _cpu_since(before)

    def finish(self, flush: str | None) -> dict[str, Any]:
        """Stop counting: what the session's device carried, the CPU time of the ssh sessions that ended, and our own
        (C(own_s)), all since C(begin), and both host readings. The filesystem of C(flush) is written out at once, not
        only when the sessions have gone; C(flushed_ago_s) is how long ago that was done, and null where it was not asked
        for or not possible."""
        carried = self.meter.read()
        host_after = _counters.host_cpu()
        own_s = time.process_time() - self.own_before_s
        flushed: float | None = None

        def write_out() -> None:
            nonlocal flushed
            if flush is not None:
                with contextlib.suppress(OSError):
                    _counters.flush_filesystem(flush)
                    flushed = time.monotonic()

        # At the same time: a login during a long flush is not one during the copy.
        flusher = threading.Thread(target=write_out)
        flusher.start()
        reading = self.sessions.finish() if self.sessions else _counters.SessionsReading(None, None, [])
        self.sessions = None
        flusher.join()
        return {
            "sessions": reading._asdict(),
            "host_cpu": _counters.host_cpu_between(self.host_before, host_after, None),
            "carried": carried and carried._asdict(),
            "own_s": own_s,
            "flushed_ago_s": None if flushed is None else time.monotonic() - flushed,
        }

    def fingerprint(self, path: str | None, wanted: dict[str, str | None]) -> dict[str, Any]:
        """This host, with the filesystem of C(path), the device on the way back to the peer, and C(programs)."""
        return fingerprint(path, self.hello()["peer"], wanted)

    def room(self, dest: str) -> dict[str, Any]:
        return room(dest)

    def scan(self, tree: str, hash_content: bool, more: bool = False) -> dict[str, Any]:
        """List the copy; the digests tell at once whether it is the same. With C(more) it has C(_tree.Entry.more)."""
        self.manifest = _tree.scan(tree, hash_content, more=more)
        return {
            "digest": self.manifest.digest,
            "meta_digest": self.manifest.meta_digest,
            "unreadable": len(self.manifest.unreadable),
            "files": self.manifest.files,
        }

    def manifest_rows(self) -> dict[str, Any]:
        """The whole list of the last C(scan)."""
        return {"packed": self.manifest.pack() if self.manifest else _tree.Manifest({}).pack()}

    def remove(self, dest: str) -> dict[str, Any]:
        """Delete a scratch root's copy."""
        if read_marker(dest) is None:
            raise Refusal(f"has no marker in {dest}: nothing is deleted there")
        remove_tree(os.path.join(dest, TREE))
        return {}

    def end_all(self) -> None:
        if self.receivers is not None:
            self.receivers.kill()
        if self.private_dir is not None:
            shutil.rmtree(self.private_dir, ignore_errors=True)


_REQUESTS = [
    "hello",
    "which",
    "ask",
    "private_file",
    "examine",
    "prepare",
    "make_base",
    "flush",
    "drop_page_cache",
    "free_ports",
    "ping",
    "carried",
    "begin",
    "start",
    "wait",
    "lay_out",
    "settle",
    "finish",
    "fingerprint",
    "room",
    "scan",
    "manifest_rows",
    "remove",
]


def serve() -> None:
    """Read requests from standard input and answer on standard output until it closes."""
    requests = sys.stdin.buffer
    # What we start must not be able to write among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    adopt_orphans()
    agent = Agent()
    last_word = [time.monotonic()]
    pending: list[dict[str, Any]] = []
    arrived = threading.Condition()

    def leave() -> None:
        agent.end_all()
        os._exit(0)

    def listen() -> None:
        try:
            for line in requests:
                last_word[0] = time.monotonic()
                request = json.loads(line.decode("ascii"))
                if request:
                    with arrived:
                        pending.append(request)
                        arrived.notify()
        finally:
            # Also where the channel broke within a line.
            leave()

    def watch() -> None:
        while True:
            time.sleep(HEARTBEAT_S / 4)
            if time.monotonic() - last_word[0] > SILENCE_LIMIT_S:
                leave()

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message).encode("ascii") + b"\n")
        answers.flush()

    def work() -> None:
        while True:
            with arrived:
                while not pending:
                    arrived.wait()
                request = pending.pop(0)
            try:
                if request["request"] not in _REQUESTS:
                    raise Refusal("knows no request {}".format(request["request"]))
                message = {"answer": getattr(agent, request["request"])(**request["arguments"])}
            except Refusal as refusal:
                message = {"refusal": str(refusal)}
            except OSError as error:
                where = "" if error.filename is None else f" ({escape(os.fsencode(error.filename))})"
                message = {"refusal": "cannot {}: {}{}".format(request["request"], error.strerror or error, where)}
            except Exception:
                message = {"refusal": "failed at {}: {}".format(request["request"], traceback.format_exc(limit=3))}
            answer(message)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit())
    try:
        answers.write(GREETING.encode("ascii") + b"\n")
        answers.flush()
        for task in (listen, watch):
            threading.Thread(target=task, daemon=True).start()
        work()
    finally:
        # By a signal, or because nobody reads the answers.
        leave()
