# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.progress import Progress, line

RUN: dict[str, Any] = {
    "link": "lan-1g",
    "dataset": "small",
    "label": "tar|ssh",
    "warmup": False,
    "block": 2,
    "blocks": 3,
    "replica": 0,
    "status": "ok",
    "message": "",
    "total_s": 1.25,
    "throughput_Bps": 16_000_000.0,
}


def test_a_line() -> None:
    progress = Progress(10, 50.0, 100.0)
    progress.step(160.0)
    assert line(RUN, progress).split() == (
        ["[1/10]", "lan-1g", "small", "block", "2/3", "tar|ssh", "1.250", "s", "16.0", "MB/s", "(45", "s", "left)"]
    )


def test_a_failed_run_shows_why_on_one_line() -> None:
    text = line({**RUN, "status": "failed", "message": "a\nb {{ c }}"}, Progress(None, None, 0.0))
    assert "failed: a b {{ c }}" in text
    assert "\n" not in text
    assert text.startswith("[0/?]")


def test_pace_replaces_the_estimate() -> None:
    progress = Progress(11, 1100.0, 0.0)
    assert progress.left_s() == pytest.approx(1100)
    for second in (500, 502, 504, 506, 508, 510):  # the preparation took 500 s; then 2 s a run
        progress.step(float(second))
    assert progress.left_s() == pytest.approx(10)


def test_says_nothing_is_left_at_the_end() -> None:
    progress = Progress(1, 5.0, 0.0)
    progress.step(1.0)
    assert "left" not in line(RUN, progress)


def test_a_copy_of_hard_cases_shows_what_was_kept() -> None:
    text = line({**RUN, "dataset": "fidelity", "kept": "38 of 45 cases"}, Progress(1, None, 0.0))
    assert text.endswith(" kept 38 of 45 cases")
    assert "MB/s" not in text
