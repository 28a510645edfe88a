# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long the dataset `small` takes, against one dd of the same bytes on the same disk.

Usage: python tests/bench/bench_dataset.py [--directory DIR] [--rounds N] [--limit RATIO]

In each round both run once, in turn first and second. Both end on disk: dd with conv=fsync, the dataset with syncfs
(and the fsync of its manifest). Prints every time, both medians and their ratio; exits 1 when the ratio is over the
limit. It takes 400 MB a round.

What was written is removed only at the end: ext4 passes over inodes that were freed in the last seconds one by one, so
that making 2000 files just after 2000 were removed takes up to a second more (do not repeat this at once, either).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".cache" / "collections"))

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset  # noqa: E402


def dd(directory: Path) -> None:
    argv = ["dd", "if=/dev/urandom", f"of={directory}/dd", "bs=1000000", "count=200", "iflag=fullblock", "conv=fsync"]
    subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)


def dataset(directory: Path) -> None:
    result = _dataset.present(f"{directory}/small", _dataset.shape("small"))
    assert (result.created, result.bytes) == (2000, 200_000_000)


def timed(place: Path, work: Callable[[Path], None]) -> float:
    place.mkdir()
    os.sync()
    started = time.monotonic()
    work(place)
    return time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description="Dataset 'small' against one dd of the same bytes.")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=2.0)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"dd": [], "dataset": []}
    contenders = [("dd", dd), ("dataset", dataset)]
    with tempfile.TemporaryDirectory(prefix="bench-dataset-", dir=options.directory) as directory:
        for number in range(options.rounds):
            for name, work in contenders if number % 2 == 0 else contenders[::-1]:
                seconds[name].append(timed(Path(directory, f"{name}{number}"), work))
            last = ", ".join(f"{name} {values[-1]:.2f} s" for name, values in seconds.items())
            print(f"round {number + 1}: {last}", flush=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = medians["dataset"] / medians["dd"]
    print(
        f"200 MB, medians of {options.rounds}: one dd {medians['dd']:.2f} s, 2000 files {medians['dataset']:.2f} s, "
        f"ratio {ratio:.2f} (limit {options.limit:g})"
    )
    return 0 if ratio <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
