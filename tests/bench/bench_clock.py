# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time of a copy as a module has it against hyperfine's of the same command line, on the embedded lab's link of
100 Mbit/s: medians within 3 %.

Usage (as root): python tests/bench/bench_clock.py [--inventory DIR] [--rounds N] [--scale S] [--limit SHARE]

In each round both run once, in turn first and second, into an empty directory on a flushed filesystem. Prints every
time, the medians and their difference; exits 1 when one is over the limit.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import lab

LINK = "lan-100m"
LABELS = ("tar|ssh", "scp", "rsync -a", "tar|nc")


def hyperfine(by_hand: lab.ByHand, output: Path) -> float:
    """Seconds of one execution."""
    by_hand.lab.prepare(LINK)
    with by_hand.receiving():
        subprocess.run(
            [
                *by_hand.lab.enter(LINK, "source"),
                *("hyperfine", "--runs", "1", "--warmup", "0", "--style", "none", "--export-json", output),
                by_hand.command_line,
            ],
            cwd=by_hand.cwd,
            env=lab.environment(LC_ALL="C"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return float(json.loads(output.read_text())["results"][0]["times"][0])


def main() -> int:
    given = lab.options("A module's clock against hyperfine.", ["hyperfine"], rounds=5, scale=0.02, limit=0.03)
    bad = 0
    with lab.lab(given.inventory) as made, lab.workplace() as work:
        src = made.tree(LINK, "large", given.scale)
        for label in LABELS:
            # Not measured: it warms the cache and tells the command line.
            record = made.copy(LINK, label, src)
            seconds: dict[str, list[float]] = {"module": [], "hyperfine": []}
            for number in range(given.rounds):
                for name in sorted(seconds, reverse=number % 2 == 1):
                    if name == "module":
                        record = made.copy(LINK, label, src)
                        assert record["status"] == "ok", record["message"]
                        seconds[name].append(record["wall_s"])
                    else:
                        # The port of a listener is another one each time.
                        seconds[name].append(hyperfine(lab.ByHand(made, LINK, record, src, work), work / "times"))
            medians = {name: statistics.median(values) for name, values in seconds.items()}
            share = medians["module"] / medians["hyperfine"] - 1
            bad += abs(share) > given.limit
            print(f"{label} on {LINK}, {record['dataset']['bytes'] / 1e6:g} MB")
            for name, values in seconds.items():
                told = " ".join(f"{value:.3f}" for value in values)
                print(f"  {name:10} {told}  median {medians[name]:.3f} s")
            print(f"  difference {share:+.2%} (limit {given.limit:.0%})", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
