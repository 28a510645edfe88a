# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, Any, Mapping, NamedTuple, Sequence

from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import STDERR_TAIL_BYTES, escape

#: How often a running stage's peak memory is read: often at first, so that a short stage is seen at all.
_FIRST_POLLS_S = 0.01
_LATER_POLLS_S = 0.1
_FIRST_POLLS = 20

#: How long a stage's I/O counters may take to be ours to read.
_COUNTERS_TRIES = 100
_COUNTERS_PAUSE_S = 0.0005

#: How long a killed orphan of a stage may take to be gone.
_ORPHANS_LIMIT_S = 1.0
_ORPHANS_PAUSE_S = 0.001

_PR_SET_CHILD_SUBREAPER = 36

#: Between the polite and the certain end of a stage.
_TERM_GRACE_S = 1.0

#: What a shell calls the status of a process that ended by SIGPIPE: the fault then lies further down.
SIGPIPE_RC = 128 + signal.SIGPIPE


class StageResult(NamedTuple):
    """How one stage ended. C(rc) is 128 + n after signal n. C(user_s) and C(system_s) are wait4's: the stage and all
    of its descendants that were waited for, and after C(adopt_orphans) those that it left behind. C(max_rss_bytes) is
    the largest VmHWM seen while polling (wait4's figure is the parent's where a child is short), null where the stage
    was too short to be seen. C(stdout_bytes) is what it wrote to its standard output, null where the kernel does not
    count it. Times are seconds of the monotonic clock."""

    argv: list[str]
    rc: int
    user_s: float
    system_s: float
    max_rss_bytes: int | None
    stdout_bytes: int | None
    stderr: bytes
    started: float
    ended: float

    def as_record(self, end: str, stream: int) -> dict[str, Any]:
        """What the run record has of it; C(stream) is the number, from 0, of the pipeline that it was in."""
        return {
            "end": end,
            "stream": stream,
            "argv": list(self.argv),
            "rc": self.rc,
            "wall_s": round(self.ended - self.started, 6),
            "user_s": round(self.user_s, 6),
            "system_s": round(self.system_s, 6),
            "max_rss_bytes": self.max_rss_bytes,
            "stderr": escape(self.stderr),
        }


def adopt_orphans() -> None:
    """Make what a stage leaves behind ours, so that its CPU time is told to us: ssh waits neither for its ProxyCommand
    nor for the ssh to its ProxyJump, which encrypt as much as it does. See prctl(2)."""
    # A kernel before 3.4 says no: then init is told.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))


def _orphans_times(group: int) -> tuple[float, float]:
    """User and system seconds of the children that we have adopted in a process group whose processes were killed."""
    user_s = system_s = 0.0
    deadline = time.monotonic() + _ORPHANS_LIMIT_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            pid, _status, usage = os.wait4(-group, os.WNOHANG)
            if pid == 0:
                time.sleep(_ORPHANS_PAUSE_S)
            else:
                user_s += usage.ru_utime
                system_s += usage.ru_stime
    return user_s, system_s


def status_field_bytes(pid: int, field: bytes) -> int | None:
    """A size in C(/proc/PID/status) in bytes; null where the process or the field is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            for line in stream:
                if line.startswith(field + b":"):
                    return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return None


def _open_counters(pid: int) -> IO[bytes] | None:
    """The I/O counters of a process of ours, to be read when it is dead: only root may open them then. Null where the
    kernel has none, or where the process was dead at once."""
    # Between fork and exec the kernel shows them to root only.
    for _try in range(_COUNTERS_TRIES):
        with contextlib.suppress(OSError):
            return open(f"/proc/{pid}/io", "rb", buffering=0)
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            break
        time.sleep(_COUNTERS_PAUSE_S)
    return None


def _written_bytes(counters: IO[bytes]) -> int | None:
    try:
        for line in counters.read(4096).splitlines():
            if line.startswith(b"wchar:"):
                return int(line.split()[1])
    except (OSError, IndexError, ValueError):
        pass
    return None


class _Running:
    """One started stage and the thread that waits for it."""

    def __init__(self, argv: Sequence[str], stdin: Any, stdout: Any, cwd: str | None, env: Mapping[str, str]) -> None:
        self.argv = list(argv)
        self.stderr: IO[bytes] = tempfile.TemporaryFile(prefix="bulkcopy-")
        self.max_rss_bytes: int | None = None
        self.result: StageResult | None = None
        self.started = time.monotonic()
        # A session of its own is a process group of its own, and no terminal to ask a password on.
        self.process = subprocess.Popen(
            self.argv, stdin=stdin, stdout=stdout, stderr=self.stderr, cwd=cwd, env=dict(env), start_new_session=True
        )
        self.waiter = threading.Thread(target=self._wait, daemon=True)

    def _wait(self) -> None:
        pid = self.process.pid
        counters = _open_counters(pid)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ended = time.monotonic()
        # Not reaped yet: the dead process still has its I/O counters, and nobody else has its number.
        written = None
        if counters is not None:
            written = _written_bytes(counters)
            counters.close()
        # What it leaves behind, having been killed for example, is ours to end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _pid, status, usage = os.wait4(pid, 0)
        rc = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        self.process.returncode = rc
        orphans_user_s, orphans_system_s = _orphans_times(pid)
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - STDERR_TAIL_BYTES))
        tail = self.stderr.read()
        self.stderr.close()
        self.result = StageResult(
            self.argv,
            rc,
            usage.ru_utime + orphans_user_s,
            usage.ru_stime + orphans_system_s,
            self.max_rss_bytes,
            None if written is None else max(0, written - size),
            tail,
            self.started,
            ended,
        )

    def poll_memory(self) -> None:
        if self.result is None:
            seen = status_field_bytes(self.process.pid, b"VmHWM")
            if seen is not None:
                self.max_rss_bytes = max(seen, self.max_rss_bytes or 0)

    def signal(self, number: int) -> None:
        if self.result is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


def _pause_s(polls: int) -> float:
    """How long to wait before the next look at stages that were looked at so often."""
    return _FIRST_POLLS_S if polls < _FIRST_POLLS else _LATER_POLLS_S


class Pipeline:
    """Stages that run at once on this host, each one's standard output feeding the next one's standard input, as a
    shell's C(a | b | c) does, but with every status, time and error kept.

    The first stage reads nothing (C(/dev/null)), or, with C(hold_stdin), a pipe that stays open and silent until that
    stage has ended: a program that listens may end early when its input does. The last one's output goes nowhere.

    One that C(serves) does not end by itself, so that how it ends says nothing."""

    def __init__(
        self,
        stages: Sequence[Sequence[str]],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        hold_stdin: bool = False,
        serves: bool = False,
    ) -> None:
        if not stages:
            raise ValueError("a pipeline has at least one stage")
        self.stages = [list(argv) for argv in stages]
        self.cwd = cwd
        self.env = dict(env) if env is not None else stage_environment()
        self.hold_stdin = hold_stdin
        self.serves = serves
        self.running: list[_Running] = []
        self._held: int | None = None
        self._polls = 0
        self._killed = False
        self._starting = threading.Lock()

    def start(self) -> float:
        """Start every stage and return the instant before the first (monotonic seconds). Raises OSError when one cannot
        be started; those before it are then ended."""
        first_input: Any = subprocess.DEVNULL
        if self.hold_stdin:
            first_input, self._held = os.pipe()
        started = time.monotonic()
        upstream: Any = first_input
        try:
            for number, argv in enumerate(self.stages):
                last = number == len(self.stages) - 1
                read_end, write_end = (None, subprocess.DEVNULL) if last else os.pipe()
                try:
                    with self._starting:
                        if self._killed:
                            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
                        self.running.append(_Running(argv, upstream, write_end, self.cwd, self.env))
                except OSError:
                    if read_end is not None:
                        os.close(read_end)
                    raise
                finally:
                    # Ours must not stay open: a stage that ends has to be noticed by its neighbours.
                    for descriptor in (upstream, write_end):
                        if descriptor not in (None, subprocess.DEVNULL):
                            os.close(descriptor)
                upstream = read_end
                self.running[-1].waiter.start()
        except OSError:
            self.kill()
            raise
        return started

    @property
    def pids(self) -> list[int]:
        return [stage.process.pid for stage in self.running]

    @property
    def ended(self) -> float | None:
        """When the last stage ended (monotonic seconds), or null while one runs."""
        results = self.results
        return max(result.ended for result in results) if results and len(results) == len(self.running) else None

    def wait(self, timeout_s: float) -> bool:
        """Wait until every stage has ended, or for C(timeout_s). Whether they have."""
        deadline = time.monotonic() + timeout_s
        while True:
            alive = next((stage for stage in self.running if stage.result is None), None)
            if alive is None:
                self._release()
                return True
            for stage in self.running:
                stage.poll_memory()
            if self._held is not None and self.running[0].result is not None:
                self._release()
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            alive.waiter.join(min(_pause_s(self._polls), left))
            self._polls += 1

    def watch(self) -> None:
        """See the stages' peak memory from now on also while nobody waits for them."""

        def poll() -> None:
            polls = 0
            while self.ended is None:
                for stage in self.running:
                    stage.poll_memory()
                time.sleep(_pause_s(polls))
                polls += 1

        threading.Thread(target=poll, daemon=True).start()

    def kill(self) -> None:
        """End whatever still runs, with all that it started; nothing more is started then."""
        with self._starting:
            self._killed = True
        for number, grace_s in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _TERM_GRACE_S)):
            for stage in self.running:
                stage.signal(number)
            deadline = time.monotonic() + grace_s
            for stage in self.running:
                if stage.waiter.ident is not None:
                    stage.waiter.join(max(0.0, deadline - time.monotonic()))
            if all(stage.result is not None for stage in self.running):
                break
        self._release()

    def _release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @property
    def results(self) -> list[StageResult]:
        """The stages that have ended, in their order."""
        return [stage.result for stage in self.running if stage.result is not None]

    @property
    def failed(self) -> bool:
        """Whether every stage has ended, and one of them not with 0."""
        return not self.serves and self.ended is not None and first_cause(self.results) is not None


class Parallel:
    """Pipelines that run side by side, each one a stream of one copy. When one has failed the others are ended: what
    they carry is no copy any more.

    At most C(at_once) are started at one moment, and the next ones C(pause_s) later: a server may refuse who knocks
    while too many others have not said yet who they are."""

    def __init__(self, pipelines: Sequence[Pipeline], at_once: int | None = None, pause_s: float = 0.0) -> None:
        if not pipelines:
            raise ValueError("there is at least one pipeline")
        self.pipelines = list(pipelines)
        self._at_once = at_once or len(self.pipelines)
        self._pause_s = pause_s
        self._polls = 0
        self._killed = threading.Event()

    def start(self) -> float:
        """Start them and return the instant before the first (monotonic seconds). Raises OSError when a stage cannot be
        started; all the others are then ended."""
        started = time.monotonic()
        try:
            for number, pipeline in enumerate(self.pipelines):
                if number and number % self._at_once == 0:
                    self._killed.wait(self._pause_s)
                pipeline.start()
        except OSError:
            self.kill()
            raise
        return started

    @property
    def pids(self) -> list[int]:
        return [pid for pipeline in self.pipelines for pid in pipeline.pids]

    @property
    def ended(self) -> float | None:
        """When the last stage of all ended (monotonic seconds), or null while one runs."""
        ends = [pipeline.ended for pipeline in self.pipelines]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None

    @property
    def first_failed(self) -> int | None:
        """The number, from 0, of the pipeline that failed first; null where none did."""
        failed = [(pipeline.ended or 0.0, number) for number, pipeline in enumerate(self.pipelines) if pipeline.failed]
        return min(failed)[1] if failed else None

    def wait(self, timeout_s: float) -> bool:
        """Wait until every pipeline has ended, or for C(timeout_s). Whether they have, by themselves or because one had
        failed."""
        deadline = time.monotonic() + timeout_s
        while True:
            alive = [pipeline for pipeline in self.pipelines if not pipeline.wait(0.0)]
            if not alive:
                return True
            if self.first_failed is not None:
                for pipeline in alive:
                    pipeline.kill()
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            alive[0].wait(min(_pause_s(self._polls), left))
            self._polls += 1

    def watch(self) -> None:
        """See the stages' peak memory from now on also while nobody waits for them."""
        for pipeline in self.pipelines:
            pipeline.watch()

    def kill(self) -> None:
        """End whatever still runs, with all that it started; nothing more is started then."""
        self._killed.set()
        enders = [threading.Thread(target=pipeline.kill) for pipeline in self.pipelines]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()

    @property
    def results(self) -> list[StageResult]:
        """The stages that have ended, stream after stream."""
        return [result for pipeline in self.pipelines for result in pipeline.results]


def stage_environment() -> dict[str, str]:
    """The environment of every stage: ours, with messages in the one language that we read."""
    env = dict(os.environ)
    env.pop("LANGUAGE", None)
    env["LC_ALL"] = "C"
    return env


def first_cause(results: Sequence[StageResult]) -> StageResult | None:
    """The stage to blame for a failed pipeline: one that lost its reader is a victim, so the fault is further down if
    anything there failed. Null when every stage ended with 0."""
    failed = [result for result in results if result.rc != 0]
    for result in failed:
        # pigz and others take no signal and say it themselves.
        if result.rc != SIGPIPE_RC and b"Broken pipe" not in result.stderr:
            return result
    return failed[0] if failed else None


def ended_how(rc: int) -> str:
    """A status in words: C(ended with 2), C(was ended by SIGKILL)."""
    if rc > 128:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(rc - 128).name}"
    return f"ended with {rc}"
