# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries

LABELS = ("tar|nc", "tar|ssh", "a method with a very long label indeed", "scp -O", "scp")
# Seconds of each method in blocks 1 to 3; 100 MB each.
SECONDS = {
    "tar|nc": (10.0, 10.2, 10.1),
    "tar|ssh": (10.1, 10.3, 10.2),
    "a method with a very long label indeed": (20.0, 20.5, 20.2),
    "scp": (12.0, 12.4, 12.2),
}


def make_plan() -> plans.Plan:
    return plans.make_plan(
        profile={
            "blocks": 3,
            "datasets": [{"name": "mine", "path": "/srv/mine"}],
            "methods": [{"label": label, "module": "scp", "args": {}} for label in LABELS],
        },
        profile_name="test",
        overrides={},
        links=[
            {"name": "good", "source": "a", "target": "b"},
            {"name": "dead", "source": "c", "target": "b"},
        ],
        hosts={"a": plans.Host("198.18.0.1"), "b": plans.Host("198.18.0.2"), "c": plans.Host("198.18.0.3")},
        standard_methods=[],
        seed=7,
    )


def make_rows(plan: plans.Plan) -> list[dict[str, Any]]:
    rows = []
    for cell in plan.cells:
        row = new_record()
        row.update(run_id=cell.run_id, status="ok", block=cell.block, warmup=cell.warmup)
        row["link"]["name"] = cell.link
        row["dataset"].update(name="mine", files=3, bytes=100_000_000)
        row["method"].update(label=cell.label, encrypted=cell.label != "tar|nc")
        if cell.link == "dead":
            row.update(status="unreachable", message="source c: did not answer: no route\nto host")
        elif cell.label == "scp -O":
            row.update(status="failed", message="scp: {{ gone }} | `x`\nsecond line")
        elif cell.warmup:
            row["total_s"] = 999.0
        else:
            row["total_s"] = SECONDS[cell.label][cell.block - 1]
            row["cpu"]["source"] = {"user_s": 1.0, "system_s": 0.5, "percent": 15.0, "basis": "rusage"}
            row["flags"] = ["setup-dominated"] if cell.label == "scp" else []
            if cell.label == "tar|ssh":
                row["cpu"]["target"] = {"user_s": 0.2, "system_s": 0.3, "percent": 5.0, "basis": "sshd-children"}
        rows.append(row)
    return rows


@pytest.fixture
def summary() -> summaries.Summary:
    plan = make_plan()
    facts = {"good": {"rtt_ms": 0.2, "connect_s": 0.3, "ceiling_Bps": 12_000_000.0}}
    return summaries.summarise("c1", "test", plan, make_rows(plan), facts)
