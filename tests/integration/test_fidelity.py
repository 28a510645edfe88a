# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A campaign on the lab that asks for methods that keep hard links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import REPOSITORY, Play

METHODS: list[Any] = [
    "scp",
    "rsync -a",
    {"label": "rsync -aH", "module": "rsync", "args": {"extra_args": ["-H"]}},
    "tar|ssh",
]


@pytest.fixture(scope="module")
def campaign(nothing_left: None, play: Play, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    directory = tmp_path_factory.mktemp("campaign")
    links = yaml.safe_load((REPOSITORY / "inventory/group_vars/all.yml").read_text())["bulkcopy_links"]
    done = play(
        "playbooks/benchmark.yml",
        bulkcopy_results_dir=str(directory),
        bulkcopy_links=links[1:2],
        bulkcopy_scenarios=["full", "fidelity"],
        bulkcopy_require=["hardlinks"],
        bulkcopy_datasets=[{"name": "small", "shape": "small", "scale": 0.05}],
        bulkcopy_methods=METHODS,
        bulkcopy_blocks=2,
        bulkcopy_warmups=0,
        bulkcopy_ceiling_s=0,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout, (directory / "latest").resolve()


def results(directory: Path) -> dict[str, Any]:
    (link,) = json.loads((directory / "summary.json").read_text())["links"]
    assert [result["scenario"] for result in link["results"]] == ["full"]
    return {"full": link["results"][0], "fidelity": link["fidelity"]}


def test_each_method_copies_the_hard_cases_once(campaign: tuple[str, Path]) -> None:
    rows = [json.loads(line) for line in (campaign[1] / "runs.jsonl").read_text().splitlines()]
    assert [(row["status"], row["scenario"]) for row in rows].count(("ok", "fidelity")) == 4
    assert len(rows) == 4 + 2 * 4
    outcomes = {
        row["method"]["label"]: {case["id"]: case["outcome"] for case in row["fidelity"]["cases"]}
        for row in rows
        if row["scenario"] == "fidelity"
    }
    # As the manual pages of the four programs have it.
    assert {label: found["hardlinks"] for label, found in outcomes.items()} == {
        "scp": "lost",
        "rsync -a": "lost",
        "rsync -aH": "kept",
        "tar|ssh": "kept",
    }
    assert {label: found["symlinks.relative"] for label, found in outcomes.items()} == {
        "scp": "followed",
        "rsync -a": "kept",
        "rsync -aH": "kept",
        "tar|ssh": "kept",
    }


def test_who_loses_hard_links_is_not_ranked(campaign: tuple[str, Path]) -> None:
    full = results(campaign[1])["full"]
    found = {method["label"]: (method["verdict"], method["reason"]) for method in full["methods"]}
    lost = ("disqualified", "does not keep hardlinks: 0 of 4 names kept, lost")
    assert (found["scp"], found["rsync -a"]) == (lost, lost)
    assert "best" in (found["rsync -aH"][0], found["tar|ssh"][0])
    assert "disqualified" not in (found["rsync -aH"][0], found["tar|ssh"][0])
    assert full["recommended"] in ("rsync -aH", "tar|ssh")
    assert "; 2 of 4 methods keep hardlinks" in full["reason"]
    assert "fidelity: what is required (hardlinks) is kept by rsync -aH, tar|ssh" in campaign[0]


def test_the_report_shows_at_a_glance_who_keeps_hard_links(campaign: tuple[str, Path]) -> None:
    lines = (campaign[1] / "report.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("### What each method keeps: "))
    cases = results(campaign[1])["fidelity"]
    assert f"{cases['cases']} hard cases, {cases['names']} names" in lines[start]
    assert cases["cases"] + len(cases["not_made"]) >= 45
    table = [[cell.strip() for cell in line.split(" | ")] for line in lines[start + 2 : start + 9]]
    column = table[0].index("hardlinks (required)")
    found = {row[0].strip("| ").replace("\\", ""): row[column] for row in table[2:]}
    assert found == {"(names in the tree)": "4", "rsync -aH": "yes", "tar|ssh": "yes", "rsync -a": "L", "scp": "L"}


def test_the_report_can_be_made_for_another_requirement(campaign: tuple[str, Path], play: Play) -> None:
    _out, directory = campaign
    before = (directory / "summary.json").read_bytes()
    given = {"bulkcopy_results_dir": str(directory.parent)}
    assert play("playbooks/report.yml", **given, bulkcopy_require=["acls"]).returncode == 0
    full = results(directory)["full"]
    assert full["recommended"] is None
    assert full["reason"].startswith("no method is left that keeps what is required (acls): ")
    refused = play("playbooks/report.yml", **given, bulkcopy_require=["acl"])
    assert refused.returncode != 0
    assert "(did you mean acls?)" in refused.stdout
    assert play("playbooks/report.yml", **given).returncode == 0
    assert (directory / "summary.json").read_bytes() == before
