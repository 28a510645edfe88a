# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What measuring costs: the time that a campaign of the profile quick spends beside its copies, at most 1.5 s a run,
and the CPU time of the agent on the target during a long copy, at most 1 % of a core.

Usage (as root): python tests/bench/bench_overhead.py [--inventory DIR] [--scale S] [--limit-s S] [--limit-share SHARE]

The campaign is started as a user starts it, the making of the lab, of the trees and of the ceilings included; its time
less the sum of durable_s is divided by the number of runs. The agent's time is read from /proc/PID/stat while a copy
runs. Prints the figures; exits 1 when one is over its limit.
"""

from __future__ import annotations

import collections
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import lab

LINK = "lan-100m"
LABELS = ("tar|ssh", "tar|nc")


def campaign(inventory: Path, results: Path, limit_s: float) -> bool:
    argv = [str(lab.BIN / "ansible-playbook"), "playbooks/benchmark.yml", "-i", str(inventory)]
    variables = json.dumps({"bulkcopy_results_dir": str(results), "bulkcopy_profile": "quick"})
    started, began = time.monotonic(), datetime.now(UTC)
    done = subprocess.run(
        [*argv, "-e", variables],
        cwd=lab.ROOT,
        env=lab.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    wall_s = time.monotonic() - started
    if done.returncode:
        print(done.stdout)
        return False
    rows = [json.loads(line) for line in (results / "latest" / "runs.jsonl").read_text().splitlines()]
    copies_s: float = sum(row["durable_s"] for row in rows)
    spent_s = (wall_s - copies_s) / len(rows)
    prepared_s = (datetime.fromisoformat(rows[0]["started"]) - began).total_seconds()
    by_label = collections.defaultdict(list)
    for row in rows:
        by_label[row["link"]["name"], row["dataset"]["name"]].append(row["durable_s"])
    for (link, dataset), values in sorted(by_label.items()):
        print(
            f"{link} {dataset}: {len(values)} runs, durable_s {sum(values):.1f} s, median {statistics.median(values):.3f} s"
        )
    print(f"preparation: {prepared_s:.1f} s until the first run")
    print(
        f"quick: {wall_s:.1f} s for {len(rows)} runs that took {copies_s:.1f} s; {spent_s:.3f} s a run beside the copies "
        f"(limit {limit_s:g} s)",
        flush=True,
    )
    return spent_s <= limit_s


def cpu_ticks(pid: int) -> int:
    """utime and stime of proc(5), of the process itself."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def agent_share(made: lab.Lab, label: str, src: Path) -> tuple[float, float, float]:
    """CPU seconds of the agent while a copy runs, for how long that was looked at, and the copy's own time."""
    method = lab.METHODS[label]
    made.clear(LINK)
    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None
    with made.module(LINK, method["module"], made.module_args(LINK, src, **method.get("args", {}))) as process:
        while process.poll() is None:
            found = lab.agent_of(made.listener(LINK))
            # A sending tar is there from the beginning of the copy to its end.
            if found is not None and lab.sends(process.pid):
                last = time.monotonic(), cpu_ticks(found[0])
                first = first or last
            time.sleep(0.05)
        record = lab.record_of(process)
    made.clear(LINK)
    assert record["status"] == "ok", record["message"]
    assert first is not None
    assert last is not None
    return (last[1] - first[1]) / os.sysconf("SC_CLK_TCK"), last[0] - first[0], record["wall_s"]


def main() -> int:
    given = lab.options("What measuring costs.", [], scale=0.12, limit_s=1.5, limit_share=0.01)
    bad = 0
    with lab.lab(given.inventory) as made:
        src = made.tree(LINK, "large", given.scale)
        for label in LABELS:
            cpu_s, seen_s, wall_s = agent_share(made, label, src)
            share = cpu_s / seen_s
            bad += share > given.limit_share or seen_s < 0.9 * wall_s
            print(
                f"agent during {label} on {LINK}: {cpu_s:.2f} s of CPU in {seen_s:.2f} s of a copy of {wall_s:.2f} s, "
                f"{share:.2%} of a core (limit {given.limit_share:.0%})",
                flush=True,
            )
    with lab.workplace() as work:
        bad += not campaign(given.inventory, work, given.limit_s)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
