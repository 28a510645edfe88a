# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which ansible-playbook runs a campaign, and whether it still does. Action plugins run in processes that it forks, one
for all runs of a link, and which a kill of ansible-playbook does not end. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

import multiprocessing
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def orphaned() -> bool:
    """Whether the ansible-playbook that forked this process has ended."""
    parent = multiprocessing.parent_process()
    return parent is not None and parent.pid != os.getppid()


def end_orphan() -> None:
    """Ends this process where its ansible-playbook has ended: nobody reads its results, and it would hang in the end."""
    if orphaned():
        os._exit(1)


def controller() -> dict[str, Any]:
    """The ansible-playbook that this process belongs to, for C(still_runs) to recognise."""
    parent = multiprocessing.parent_process()
    pid = os.getpid() if parent is None or parent.pid is None else parent.pid
    return {"machine": platform.node(), "pid": pid, "start_ticks": _start_ticks(pid)}


def still_runs(known: Mapping[str, Any] | None) -> bool:
    """Whether what C(controller) described is another process than ours and alive, as far as this machine can tell."""
    if not known or known.get("machine") != platform.node() or known.get("start_ticks") is None:
        return False
    return known != controller() and _start_ticks(int(known["pid"])) == known["start_ticks"]


def _start_ticks(pid: int) -> int | None:
    """When a process began, field 22 of proc(5) stat: with it a number that is used again is not taken for the old one.
    Null where there is no such process or no proc."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *fields = status.rpartition(b")")[2].split()
    return None if state in (b"Z", b"X") else int(fields[18])
