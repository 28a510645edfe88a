# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import report, wording
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries

from . import samples

README = Path(__file__).parents[4] / "README.md"


def lines_of(*links: summaries.LinkResult) -> list[str]:
    table = report.table(samples.summary(*links))
    assert max(map(wording.columns, table.splitlines())) <= 100
    return table.splitlines()


def test_table_fits_and_says_everything(summary: summaries.Summary) -> None:
    table = report.table(summary)
    assert max(len(line) for line in table.splitlines()) <= 100
    assert "PROVISIONAL" in table
    assert "1  tar|nc" in table
    assert "disqualified: 3 of 3 runs failed: scp: {{ gone }} | `x`" in table
    assert "=> use tar|ssh: as fast as the best and encrypted" in table
    assert "not measured: 3 of 3 runs unreachable: source c: did not answer: no route" in table
    assert "a setup-dominated: connecting takes over 20 %" in table


def test_a_line_of_the_table() -> None:
    lines = lines_of(
        samples.link(
            samples.result(
                samples.method(),
                samples.method("tar|gzip|ssh", 1.25, limiter="compressor-cpu", flags=("outliers",)),
            )
        )
    )
    # 80 MB in 8 s and in 10 s are 10 and 8 MB/s, of 12.5 MB/s 80 and 64 %.
    first = next(line for line in lines if " scp " in line)
    assert " ".join(first.split()) == "1 scp 8.000 10.0 80 1.00 24/32 yes best -"
    second = next(line for line in lines if "gzip" in line)
    assert " ".join(second.split()) == "2 tar|gzip|ssh 10.000 8.0 64 1.25 (1.21-1.29) 24/32 yes slower compressor a"


def test_a_label_that_is_cut_stands_below_in_full() -> None:
    labels = ["tar|zstd -19 --long=27 --threads=8|ssh -c aes128-gcm x1", "tar|zstd -19 --long=27 --threads=8|ssh x2"]
    flags = ("one", "two", "three")
    methods = [
        samples.method(label, 2.0, limiter="per-file-latency", verdict="unresolved", flags=flags[i:])
        for i, label in enumerate(labels)
    ]
    lines = lines_of(samples.link(samples.result(*methods)))
    assert [line for line in lines if line.startswith("  1: ")] == [f"  1: {labels[0]}"]
    assert [line for line in lines if line.startswith("  2: ")] == [f"  2: {labels[1]}"]


def test_every_table_fits_in_100_columns() -> None:
    method = samples.method(
        "x" * 60,
        123.45,
        n=999,
        median_s=99999.999,
        ratio_ci=(100.01, 150.99),
        throughput_Bps=12345.6e6,
        efficiency=None,
        cpu_percent={"source": 6400.0, "target": 6400.0},
        verdict="equivalent",
        provisional=True,
        reason="",
        limiter="a-limiter-with-a-long-name",
        limiter_reason="z" * 150,
    )
    other = dataclasses.replace(method, label="日" * 30, flags=("one", "two", "three"))
    result = samples.result(method, other, reason="y" * 150, stopped="s" * 120, flags=("drift",), drift=0.5)
    lines_of(samples.link(result, name="l" * 40, source="s" * 40, target="t" * 40, flags=("ceiling-changed",)))


def test_table_says_what_to_know_of_the_measurement() -> None:
    methods = (
        samples.method(outliers=(3, 7), limiter="link", limiter_reason="99 % of it"),
        samples.method("x", 2.0, n=9),
    )
    result = samples.result(
        *methods,
        noise_floor=0.021,
        drift=0.12,
        drift_ci=(0.03, 0.214),
        flags=("drift",),
        stopped="every interval is narrower than 5 %",
    )
    link = samples.link(result, ceiling_end_Bps=10.4e6, rtt_end_ms=0.31, flags=("ceiling-changed",))
    lines = lines_of(link)
    assert (
        lines[1] == "== one: a -> b (198.18.1.2), ceiling 12.5 MB/s (10.4 after), rtt 0.20 ms (0.31 after), ssh login"
    )
    assert lines[3].startswith(
        "  ceiling-changed: the link's ceiling, before the first run and after the last, differs by"
    )
    assert "  noise floor 2.1 %: by that two runs of one method in a block differ" in lines
    assert f"  drift: {wording.FLAGS['drift']}" in lines
    assert "  drift of the times from the first block to the last +12 % (+3.0 % to +21 %)" in lines
    assert "  scp: 2 runs far off the others: blocks 3, 7" in lines
    assert "  no more blocks: every interval is narrower than 5 %" in lines
    assert "  scp is limited by link: 99 % of it" in lines
    assert "  12 runs each, fewer of x (9)" in lines
    markdown = report.markdown(samples.summary(link)).splitlines()
    assert "- drift of the times from the first block to the last +12 % (+3.0 % to +21 %)" in markdown
    assert "- scp: 2 runs far off the others: blocks 3, 7" in markdown


def test_fixed_costs_are_sorted_and_recommend_nothing() -> None:
    link = samples.link(samples.empty(), samples.result(samples.method()))
    lines = lines_of(link)
    start = lines.index("fixed cost of each method (an empty tree), 12 blocks")
    assert [line.split()[0] for line in lines[start + 1 : start + 4]] == ["tar|nc", "rsync", "broken"]
    assert lines[start + 1].split() == ["tar|nc", "0.031", "s"]
    assert sum(line.startswith("=>") for line in lines) == 1
    markdown = report.markdown(samples.summary(link))
    assert markdown.count("**") == 2
    assert "| tar\\|nc | 12 | 0.031 |\n| rsync -a | 12 | 0.550 |\n| broken | 12 | disqualified: " in markdown
    assert report.last_words(samples.summary(link).as_dict()) == ["one, large: use scp"]


def test_last_words_tell_scenarios_apart() -> None:
    update = samples.result(samples.method(provisional=True), scenario="update")
    words = report.last_words(samples.summary(samples.link(samples.result(samples.method()), update)).as_dict())
    assert words == ["one, large: use scp", "one, large (update): use scp (provisional)"]


def test_models_and_forecasts() -> None:
    link = samples.link(samples.result(samples.method()), models=samples.models())
    lines = lines_of(link)
    rows = [" ".join(line.split()) for line in lines]
    # 1 / 8e-8 s is 12.5 MB/s; no rate where a byte costs nothing.
    assert "scp 0.500 2 12.5 2.1 % 5" in rows
    assert "rsync -a 0.700 0.1 - 4.0 % 5" in rows
    assert "  tar|nc: no model: 2 trees were measured, it takes 3" in lines
    start = lines.index("what 100 GB in 1000 files would take (extrapolated 5000 times)")
    # 8002.5 s are 2 h and 802 s; the shortest comes first.
    assert [row.split()[0] for row in rows[start + 2 : start + 4]] == ["rsync", "scp"]
    assert lines[start + 2].split()[2:4] == ["3.1", "s"]
    assert "scp       2 h 13 min (2 h 6 min - 2 h 20 min)  2 h 15 min (2 h 8 min - 2 h 22 min)" in lines[start + 3]
    markdown = report.markdown(samples.summary(link))
    assert "| scp | 0.500 | 2 | 12.5 | 2.1 % | 5 |" in markdown
    assert "### What 100 GB in 1000 files would take (extrapolated 5000 times)" in markdown


def test_every_flag_of_the_readme_has_a_meaning() -> None:
    listed = {
        flag
        for line in README.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and line.count("|") == 3
        for flag in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", line.split("|")[1])
    }
    assert {"shared-filesystem", "not-flushed", "lost-mode"} <= listed
    assert listed - set(wording.FLAGS) == set()


@pytest.mark.parametrize(
    ("value_s", "expected"), [(0.0, "0 s"), (0.316, "0.32 s"), (9.44, "9.4 s"), (9.6, "10 s"), (7505.0, "2 h 5 min")]
)
def test_short_durations_keep_two_digits(value_s: float, expected: str) -> None:
    assert wording.duration(value_s) == expected


def test_nothing_steers_the_terminal() -> None:
    lines = lines_of(samples.link(samples.result(samples.method(samples.ODD)), name=samples.ODD))
    assert all(line.isprintable() for line in lines)
    assert "\\x1b[31m \\udc80 \\u202e" in " ".join(lines)


def test_csv_reads_back(summary: summaries.Summary) -> None:
    lines = list(csv.DictReader(io.StringIO(report.as_csv(summary))))
    assert len(lines) == 10
    first = lines[0]
    assert (first["link"], first["label"], first["verdict"], first["median_s"]) == ("good", "tar|nc", "best", "10.1")
    assert [line["label"] for line in lines if line["recommended"] == "True"] == ["tar|ssh"]
    assert {line["median_s"] for line in lines if line["link"] == "dead"} == {""}


def test_csv_holds_what_qualifies_the_figures() -> None:
    method = samples.method(durable_s=8.25, limiter="link", limiter_reason="99 % of it, all told", outliers=(3, 7))
    result = samples.result(method, noise_floor=0.02, drift=0.1, drift_ci=(-0.1, 0.3), flags=("drift",), stopped="cap")
    link = samples.link(result, ceiling_end_Bps=11e6, rtt_end_ms=0.25, flags=("ceiling-changed",))
    (line,) = csv.DictReader(io.StringIO(report.as_csv(samples.summary(link))))
    expected = {
        "durable_s": "8.25",
        "limiter": "link",
        "limiter_reason": "99 % of it, all told",
        "outlier_blocks": "3 7",
        "blocks": "12",
        "noise_floor": "0.02",
        "drift": "0.1",
        "drift_low": "-0.1",
        "drift_high": "0.3",
        "result_flags": "drift",
        "stopped": "cap",
        "ceiling_Bps": "12500000.0",
        "ceiling_end_Bps": "11000000.0",
        "rtt_ms": "0.2",
        "rtt_end_ms": "0.25",
        "link_flags": "ceiling-changed",
    }
    assert {key: line[key] for key in expected} == expected


def test_markdown_tables_survive_odd_characters(summary: summaries.Summary) -> None:
    text = report.markdown(dataclasses.replace(summary, profile="./my_own_profile.yml"))
    assert "Profile ./my\\_own\\_profile.yml; " in text
    assert "tar\\|nc" in text
    assert "\\{\\{ gone \\}\\} \\| \\`x\\`" in text
    head = next(line for line in text.splitlines() if line.startswith("| #"))
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == head.count("|"), line


def test_a_campaign_without_results() -> None:
    assert report.table(samples.summary()).strip() == ""
    assert "not measured: no run was planned" in lines_of(samples.link())
    assert "Not measured: no run was planned." in report.markdown(samples.summary(samples.link()))
