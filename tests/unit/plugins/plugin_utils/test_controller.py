# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import controller

#: A main process that forks a worker, as ansible-playbook does; the worker writes down what it thinks of its parent.
MAIN = """
import multiprocessing, os, sys, time
from pathlib import Path
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.controller import controller, end_orphan
def work(out):
    os.setsid()
    end_orphan()
    Path(out, "before").write_text(f"{os.getpid()} {controller()['pid']}")
    for _ in range(500):
        time.sleep(0.01)
        end_orphan()
    Path(out, "after").write_text("still there")
child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
child.start()
child.join()
"""


def wait_for(path: Path) -> str:
    for _ in range(1000):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_worker_notices_that_its_playbook_was_killed(tmp_path: Path) -> None:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    main = subprocess.Popen([sys.executable, "-c", MAIN, str(tmp_path)], env=environment)
    worker, known = wait_for(tmp_path / "before").split()
    assert int(known) == main.pid
    main.send_signal(signal.SIGKILL)
    main.wait()
    for _ in range(400):
        if controller._start_ticks(int(worker)) is None:
            break
        time.sleep(0.01)
    assert controller._start_ticks(int(worker)) is None
    assert not (tmp_path / "after").exists()


def test_the_main_process_is_no_orphan() -> None:
    assert multiprocessing.parent_process() is None
    assert not controller.orphaned()
    assert controller.controller()["pid"] == os.getpid()


def test_another_process_at_work_is_told_from_one_that_has_ended(sleeper: subprocess.Popen[bytes]) -> None:
    known = {**controller.controller(), "pid": sleeper.pid, "start_ticks": controller._start_ticks(sleeper.pid)}
    assert known["start_ticks"] == int(Path(f"/proc/{sleeper.pid}/stat").read_text().split()[21])
    assert controller.still_runs(known)
    assert not controller.still_runs({**known, "start_ticks": known["start_ticks"] - 1})  # the number was used again
    assert not controller.still_runs({**known, "machine": "elsewhere"})
    sleeper.kill()  # a zombie until it is waited for
    while Path(f"/proc/{sleeper.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    assert not controller.still_runs(known)
    sleeper.wait()
    assert not controller.still_runs(known)


def test_ones_own_campaign_may_go_on() -> None:
    assert not controller.still_runs(controller.controller())
    assert not controller.still_runs(None)
