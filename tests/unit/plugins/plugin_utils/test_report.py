# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import csv
import dataclasses
import io

from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import report
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries


def test_table_fits_and_says_everything(summary: summaries.Summary) -> None:
    table = report.table(summary)
    assert max(len(line) for line in table.splitlines()) <= 100
    assert "PROVISIONAL" in table
    assert "1  tar|nc" in table
    assert "a method with a ver~" in table
    assert "disqualified: 3 of 3 runs failed: scp: {{ gone }} | `x`" in table
    assert "=> use tar|ssh: as fast as the best and encrypted" in table
    assert "not measured: 3 of 3 runs unreachable: source c: did not answer: no route" in table
    assert "a setup-dominated: set-up takes over 20 %" in table


def test_every_table_fits_in_100_columns() -> None:
    method = summaries.MethodResult(
        label="x" * 60,
        module="m",
        args={},
        n=999,
        median_s=99999.999,
        ci_s=None,
        ratio_to_best=123.45,
        ratio_ci=(100.01, 150.99),
        throughput_Bps=12345.6e6,
        efficiency=None,
        cpu_s_per_GB={"source": None, "target": None},
        cpu_percent={"source": 6400.0, "target": 6400.0},
        verdict="equivalent",
        provisional=True,
        reason="",
        flags=("one", "two", "three"),
        encrypted=True,
    )
    result = summaries.Result("d", "full", 1, 1, 3, None, 12, (method,), None, "y" * 150)
    link = summaries.LinkResult("l" * 40, "s" * 40, "t" * 40, "a" * 20, None, None, None, (result,))
    table = report.table(summaries.Summary("c", "p", (link,), (), 1, 1))
    assert max(len(line) for line in table.splitlines()) <= 100


def test_csv_reads_back(summary: summaries.Summary) -> None:
    lines = list(csv.DictReader(io.StringIO(report.as_csv(summary))))
    assert len(lines) == 10
    first = lines[0]
    assert (first["link"], first["label"], first["verdict"], first["median_s"]) == ("good", "tar|nc", "best", "10.1")
    assert [line["label"] for line in lines if line["recommended"] == "True"] == ["tar|ssh"]
    assert {line["median_s"] for line in lines if line["link"] == "dead"} == {""}


def test_markdown_tables_survive_odd_characters(summary: summaries.Summary) -> None:
    text = report.markdown(dataclasses.replace(summary, profile="./my_own_profile.yml"))
    assert "Profile ./my\\_own\\_profile.yml; " in text
    assert "tar\\|nc" in text
    assert "\\{\\{ gone \\}\\} \\| \\`x\\`" in text
    head = next(line for line in text.splitlines() if line.startswith("| #"))
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == head.count("|"), line
