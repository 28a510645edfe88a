# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a campaign is. Plain Python: knows nothing of Ansible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import show_duration

#: Runs after which the pace seen replaces the plan's estimate.
PACE_RUNS = 5


class Progress:
    """Counts runs. C(planned) and C(estimate_s) are null where they are not known; times come from one monotonic
    clock, in seconds."""

    def __init__(self, planned: int | None, estimate_s: float | None, now: float) -> None:
        self.planned = planned
        self.estimate_s = estimate_s
        self.done = 0
        self._first = now
        self._now = now

    def step(self, now: float) -> None:
        """One run has ended."""
        self.done += 1
        self._now = now
        if self.done == 1:  # the preparation came before: the pace counts from here
            self._first = now

    def leave_out(self) -> None:
        """One planned run is not needed."""
        if self.planned is not None:
            self.planned -= 1

    def left_s(self) -> float | None:
        """About how long the rest takes: by the pace of the runs so far, at the beginning by the plan."""
        if self.planned is None:
            return None
        rest = max(0, self.planned - self.done)
        if self.done > PACE_RUNS:
            return rest * (self._now - self._first) / (self.done - 1)
        if self.estimate_s is None or self.planned == 0:
            return None
        return rest * self.estimate_s / self.planned


def line(run: Mapping[str, Any], progress: Progress) -> str:
    """One run as one line, from what the action C(run) returned."""
    count = f"[{progress.done}/{progress.planned if progress.planned is not None else '?'}]"
    block = f"{'warm-up' if run['warmup'] else 'block'} {run['block']}/{run['blocks']}"
    label = f"{run['label']}{' (again)' if run.get('replica') else ''}"
    text = f"{count:<9} {run['link']} {run['dataset']} {block:<11} {label:<15} "
    if run["status"] == "ok" and run.get("kept"):
        text += f"kept {run['kept']}"
    elif run["status"] == "ok":
        speed = run.get("throughput_Bps")
        text += f"{run['total_s']:8.3f} s" if run.get("total_s") is not None else "       ? s"
        text += f" {speed / 1e6:7.1f} MB/s" if speed is not None else ""
    else:
        message = " ".join(str(run.get("message") or "").split())
        text += f"{run['status']}: {message if len(message) <= 200 else message[:197] + '...'}"
    left = progress.left_s()
    return text + (f"  ({show_duration(left)} left)" if left is not None and progress.done != progress.planned else "")
