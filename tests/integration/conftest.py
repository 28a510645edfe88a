# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _lab

REPOSITORY = Path(__file__).parents[2]

#: A whole playbook on the lab ends well within this.
LIMIT_S = 600

Play = Callable[..., subprocess.CompletedProcess[str]]


def _machine() -> dict[str, list[str]]:
    """What a run could leave behind on this machine."""

    def lines(*argv: str) -> list[str]:
        return sorted(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())

    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            # a lab's, by the mount that all below its sshd have: logins to this machine come and go meanwhile
            command = (folder / "cmdline").read_bytes()
            if _lab.MARK_PREFIX.encode() in (folder / "mountinfo").read_bytes() or b"/wire.py\0" in command:
                processes.append(command.replace(b"\0", b" ").decode("utf-8", "replace"))
    return {
        "namespaces": lines("ip", "netns"),
        "interfaces": lines("ip", "-o", "link", "show", "type", "veth"),
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "processes": sorted(processes),
        "lab": [
            str(path)
            for path in (Path("/run/linkops-bulkcopy-lab"), Path("/var/tmp/linkops-bulkcopy-lab"))
            if path.exists()
        ],
    }


@pytest.fixture(scope="module")
def nothing_left() -> Iterator[None]:
    """The machine is as it was when everything is over."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("the lab needs root, iproute2 and openssh-server")
    before = _machine()
    yield
    assert _machine() == before


def start(playbook: Path | str, *, inventory: Path | str = "inventory", **variables: Any) -> subprocess.Popen[str]:
    """Start a playbook as a user would, with the inventory of the repository unless told otherwise."""
    program = Path(sys.executable).parent / "ansible-playbook"
    return subprocess.Popen(
        [str(program), str(playbook), "-i", str(inventory), "-e", json.dumps(variables)],
        cwd=REPOSITORY,
        env=dict(os.environ, ANSIBLE_CONFIG=str(REPOSITORY / "ansible.cfg"), ANSIBLE_NOCOLOR="1", LC_ALL="C.UTF-8"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def play() -> Play:
    """Run a playbook to its end; takes what C(start) takes."""

    def run(playbook: Path | str, **given: Any) -> subprocess.CompletedProcess[str]:
        with start(playbook, **given) as process:
            try:
                out, _none = process.communicate(timeout=LIMIT_S)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out)

    return run


@pytest.fixture(scope="module")
def lab(nothing_left: None, play: Play) -> Iterator[None]:
    """The embedded lab, for as long as a file of tests takes."""
    made = play("playbooks/lab.yml")
    assert made.returncode == 0, made.stdout
    yield
    gone = play("playbooks/lab.yml", lab_state="absent")
    assert gone.returncode == 0, gone.stdout
