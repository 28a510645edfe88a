# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Summaries made by hand, for the tests of how they are shown."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.summary import (
    Forecast,
    LinkResult,
    MethodResult,
    Model,
    Result,
    Summary,
)

ODD = '<b>&"x"</b> | {{ 7*7 }} \x1b[31m \udc80 \u202e'


def method(label: str = "scp", ratio: float | None = 1.0, **changes: Any) -> MethodResult:
    """A method that takes 8 s times its ratio for 80 MB on a link that carries 12.5 MB/s."""
    best = ratio == 1.0
    made = MethodResult(
        label=label,
        module="scp",
        args={},
        n=12,
        median_s=None if ratio is None else 8.0 * ratio,
        ci_s=None if ratio is None else (7.9 * ratio, 8.1 * ratio),
        ratio_to_best=ratio,
        ratio_ci=None if ratio is None else (1.0, 1.0) if best else (ratio * 0.97, ratio * 1.03),
        throughput_Bps=None if ratio is None else 10e6 / ratio,
        efficiency=None if ratio is None else 0.8 / ratio,
        cpu_s_per_GB={"source": 3.0, "target": 4.0},
        cpu_percent={"source": 24.0, "target": 32.0},
        verdict="disqualified" if ratio is None else "best" if best else "slower",
        provisional=False,
        reason="3 of 3 runs failed: gone" if ratio is None else "12 complete blocks",
        flags=(),
        encrypted=True,
    )
    return dataclasses.replace(made, **changes)


def result(*methods: MethodResult, **changes: Any) -> Result:
    chosen = methods[0].label if methods and methods[0].ratio_to_best else None
    made = Result("large", "full", 2, 80_000_000, 12, None, None, methods, chosen, "fastest and encrypted")
    return dataclasses.replace(made, **changes)


def link(*results: Result, **changes: Any) -> LinkResult:
    made = LinkResult("one", "a", "b", "198.18.1.2", 12.5e6, 0.2, 0.35, results)
    return dataclasses.replace(made, **changes)


def summary(*links: LinkResult, **changes: Any) -> Summary:
    return dataclasses.replace(Summary("c1", "quick", links, (), 12, 12), **changes)


def empty(**changes: Any) -> Result:
    """Fixed costs, not in the order of time."""
    methods = (
        method("rsync -a", median_s=0.55, throughput_Bps=None, efficiency=None),
        method("broken", None),
        method("tar|nc", median_s=0.031, throughput_Bps=None, efficiency=None, encrypted=False),
    )
    return result(*methods, dataset="empty", scenario="empty", bytes=0, files=0, recommended=None, reason="", **changes)


def models() -> tuple[Model, ...]:
    """100 GB in 1000 files take 0.5 + 1000 x 0.002 + 1e11 x 8e-8 s = 8002.5 s by scp."""
    forecast = Forecast(1000, 100_000_000_000, 8002.5, (7602.0, 8403.0), 8122.5, (7702.0, 8543.0), 5000.4)
    return (
        Model("rsync -a", 5, 0.7, 0.0001, 0.0, 0.04, "", (dataclasses.replace(forecast, total_s=3.14159),)),
        Model("scp", 5, 0.5, 0.002, 8e-8, 0.021, "", (forecast,)),
        Model("tar|nc", 2, None, None, None, None, "2 trees were measured, it takes 3", ()),
    )
