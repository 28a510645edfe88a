# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _pipeline
from ansible_collections.linkops.bulkcopy.plugins.module_utils._pipeline import Pipeline, ended_how, first_cause

LIMIT_S = 20.0


def run(*stages: list[str], **options: object) -> Pipeline:
    pipeline = Pipeline(stages, **options)  # type: ignore[arg-type]
    pipeline.start()
    assert pipeline.wait(LIMIT_S)
    return pipeline


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_every_status_is_kept() -> None:
    pipeline = run(["sh", "-c", "exit 3"], ["sh", "-c", "cat; exit 4"], ["cat"])
    assert [result.rc for result in pipeline.results] == [3, 4, 0]


def test_a_signal_is_reported_as_a_shell_does() -> None:
    assert run(["sh", "-c", "kill -9 $$"]).results[0].rc == 137


def test_stages_are_connected_and_their_output_is_counted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    pipeline = run(["head", "-c", "300000", "/dev/zero"], ["tee", str(out)], ["sh", "-c", "cat >/dev/null; echo x >&2"])
    assert out.stat().st_size == 300000
    counted = [result.stdout_bytes for result in pipeline.results]
    if counted[0] is None:
        pytest.skip("this kernel counts no I/O of processes")
    # tee writes everything twice; what the last stage wrote went to standard error.
    assert counted == [300000, 600000, 0 + 300000]


def test_the_end_of_a_long_stderr_is_kept() -> None:
    result = run(["sh", "-c", "seq 100000 >&2; printf 'last \\351' >&2"]).results[0]
    assert result.stderr.endswith(b"100000\nlast \xe9")
    assert len(result.stderr) == 2000
    assert result.as_record("source", 0)["stderr"].endswith("last \\xe9")


def test_cpu_time_includes_descendants() -> None:
    burn = "import os, sys, time\nif os.fork():\n    os.wait()\nelse:\n    while time.process_time() < 0.3: pass\n"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run([sys.executable, "-c", burn]).results[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert result.user_s + result.system_s == pytest.approx(spent, abs=0.02)
    assert result.user_s + result.system_s >= 0.3


@pytest.fixture
def adopting() -> Iterator[None]:
    _pipeline.adopt_orphans()
    yield
    ctypes.CDLL(None).prctl(_pipeline._PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.usefixtures("adopting")
def test_cpu_time_includes_what_a_stage_does_not_wait_for(tmp_path: Path) -> None:
    """As ssh does not wait for its ProxyCommand, which is still there when ssh ends."""
    burn = (
        "import os, sys, time\n"
        "read, write = os.pipe()\n"
        "if os.fork():\n"
        "    os.close(write)\n"
        "    os.read(read, 1)\n"
        "else:\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    while time.process_time() < 0.3: pass\n"
        "    os.write(write, b'x')\n"
        "    time.sleep(3000)\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run([sys.executable, "-c", burn]).results[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert result.rc == 0
    assert result.user_s + result.system_s == pytest.approx(spent, abs=0.02)
    assert result.user_s + result.system_s >= 0.3
    # Neither running nor waiting to be reaped.
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_peak_memory_is_the_stage_s_own() -> None:
    code = "import time; block = bytearray(64 << 20); time.sleep(0.3)"
    peak = run([sys.executable, "-c", code]).results[0].max_rss_bytes
    assert peak is not None
    assert 64 << 20 < peak < 100 << 20


def test_peak_memory_is_seen_while_nobody_waits() -> None:
    hold = "import sys; held = bytearray(50_000_000); sys.stdin.read()"
    pipeline = Pipeline([[sys.executable, "-c", hold]], hold_stdin=True)
    pipeline.start()
    pipeline.watch()
    deadline = time.monotonic() + LIMIT_S
    while (pipeline.running[0].max_rss_bytes or 0) < 50_000_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    pipeline.kill()
    peak_bytes = pipeline.results[0].max_rss_bytes
    assert peak_bytes is not None
    assert 50_000_000 <= peak_bytes < 100_000_000


def test_messages_are_in_one_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    assert b"LC_ALL=C\n" in run(["sh", "-c", "env >&2"]).results[0].stderr
    assert b"LANGUAGE" not in run(["sh", "-c", "env >&2"]).results[0].stderr


def test_the_first_stage_reads_nothing_or_waits() -> None:
    assert run(["cat"]).results[0].rc == 0
    held = Pipeline([["sh", "-c", "read line; exit 7"]], hold_stdin=True)
    held.start()
    assert not held.wait(0.2)
    held.kill()
    assert held.results[0].rc == 143


def test_a_held_input_is_let_go_when_its_stage_ends() -> None:
    pipeline = run(["true"], ["cat"], hold_stdin=True)
    assert [result.rc for result in pipeline.results] == [0, 0]


def test_kill_ends_whole_groups(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    pipeline = Pipeline([["sh", "-c", f"sleep 300 & echo $! > {note}; trap '' TERM; wait; wait"], ["cat"]])
    pipeline.start()
    while not (note.exists() and note.read_text().strip()):
        assert not pipeline.wait(0.01)
    pipeline.kill()
    assert [result.rc for result in pipeline.results][1] in (0, 143)
    assert not alive(int(note.read_text()))
    assert not any(alive(pid) for pid in pipeline.pids)


def test_a_program_that_is_not_there_ends_those_before_it() -> None:
    pipeline = Pipeline([["sleep", "300"], ["/no/such/program"]])
    with pytest.raises(FileNotFoundError):
        pipeline.start()
    assert not any(alive(pid) for pid in pipeline.pids)


def test_no_descriptor_is_left_open() -> None:
    before = os.listdir("/proc/self/fd")
    run(["true"], ["cat"], ["cat"], hold_stdin=True)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_the_span_of_the_stages_is_that_of_the_longest() -> None:
    pipeline = Pipeline([["sleep", "0.3"], ["true"]])
    start = pipeline.start()
    reference = subprocess.Popen(["sleep", "0.3"])
    assert pipeline.wait(LIMIT_S)
    reference.wait()
    assert pipeline.ended is not None
    assert 0.3 <= pipeline.ended - start <= time.monotonic() - start


@pytest.mark.parametrize(
    ("commands", "blamed"),
    [
        ([["true"], ["cat"]], None),
        ([["yes"], ["sh", "-c", "exit 2"]], 1),
        ([["sh", "-c", "exit 5"], ["sh", "-c", "cat; exit 2"]], 0),
        ([["yes"], ["true"]], 0),
        # One that takes no SIGPIPE is a victim too.
        ([["sh", "-c", "echo abort: write error: Broken pipe >&2; exit 32"], ["sh", "-c", "exit 2"]], 1),
    ],
)
def test_the_stage_to_blame(commands: list[list[str]], blamed: int | None) -> None:
    results = run(*commands).results
    assert first_cause(results) == (None if blamed is None else results[blamed])


def test_what_a_killed_stage_leaves_behind_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    pipeline = run(["sh", "-c", f"sleep 300 & echo $! > {note}; kill -9 $$"])
    assert pipeline.results[0].rc == 137
    deadline = time.monotonic() + LIMIT_S
    while alive(int(note.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(int(note.read_text()))


def test_nothing_is_started_after_the_end() -> None:
    pipeline = Pipeline([["sleep", "300"]])
    pipeline.kill()
    with pytest.raises(OSError, match="cancel"):
        pipeline.start()
    assert pipeline.pids == []


def test_the_output_is_counted_for_a_user_who_is_not_root() -> None:
    """Only root may open the counters of a process that has ended."""
    if os.geteuid() != 0:
        pytest.skip("as another user every other test shows it")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        counted = run(["sh", "-c", "sleep 0.2; exec head -c 300000 /dev/zero"], ["cat"]).results[0].stdout_bytes
        os.write(write_end, str(counted).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        assert answer.read() == "300000"


@pytest.mark.parametrize(("rc", "words"), [(2, "ended with 2"), (137, "was ended by SIGKILL"), (255, "ended with 255")])
def test_a_status_in_words(rc: int, words: str) -> None:
    assert ended_how(rc) == words


def test_how_a_server_ends_says_nothing() -> None:
    server = Pipeline([["sh", "-c", "exit 9"]], serves=True)
    server.start()
    assert server.wait(10.0)
    assert [result.rc for result in server.results] == [9]
    assert not server.failed
