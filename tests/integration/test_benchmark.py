# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole campaigns on the embedded lab, as a user starts them."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import REPOSITORY, Play, start

SEED_ROWS = {"scp", "scp -C", "rsync -a", "rsync -az", "tar|ssh", "tar|ssh -C", "tar|gzip -1|ssh", "tar|gzip|ssh"}
SEED_ROWS |= {"tar|nc", "tar|gzip|nc"}

#: What lan-100m carries of payload at most: 100 Mbit/s less Ethernet, IPv4 and TCP headers with timestamps (1448 bytes
#: of payload in a frame of 1514, as the traffic shaper counts it).
CEILING_BPS = 100e6 / 8 * 1448 / 1514

TINY = [{"name": "small", "shape": "small", "scale": 0.01}, {"name": "large", "shape": "large", "scale": 0.02}]


def rows_of(directory: Path, torn: bool = False) -> list[dict[str, Any]]:
    """C(torn): the last line may be cut."""
    lines = (directory / "runs.jsonl").read_text().splitlines()
    return [json.loads(line) for line in (lines[:-1] if torn else lines)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def campaign(nothing_left: None, play: Play, results: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The quick profile's methods on both links and two datasets, one block."""
    played = play(
        "playbooks/benchmark.yml",
        bulkcopy_results_dir=str(results),
        bulkcopy_datasets=TINY,
        bulkcopy_blocks=1,
        bulkcopy_seed=7,
    )
    return played, (results / "latest").resolve()


def test_a_campaign_ends_well(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    played, _directory = campaign
    assert played.returncode == 0, played.stdout


def test_the_summary_has_every_link_dataset_and_seed_row(
    campaign: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    summary = json.loads((campaign[1] / "summary.json").read_text())
    assert [link["name"] for link in summary["links"]] == ["lan-100m", "lan-1g"]
    for link in summary["links"]:
        assert [result["dataset"] for result in link["results"]] == ["small", "large"]
        for result in link["results"]:
            labels = {method["label"] for method in result["methods"]}
            assert labels == SEED_ROWS | {"scp -O"}
            assert all(method["n"] == 1 for method in result["methods"])
            assert result["recommended"] in labels - {"tar|nc", "tar|gzip|nc"}
            assert result["reason"]


def test_every_run_is_a_verified_row(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    rows = rows_of(campaign[1])
    measured = [row for row in rows if not row["warmup"]]
    assert len(measured) == 2 * 2 * 11
    for row in rows:
        assert (row["status"], row["message"]) == ("ok", "")
        assert row["verified"]["method"] == "sha256"
        assert row["verified"]["files"] == row["dataset"]["files"] > 0
        assert row["verified"]["mismatches"] == []
    assert len({row["run_id"] for row in rows}) == len(rows)


def test_no_uncompressed_method_beats_the_link(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    rows = [row for row in rows_of(campaign[1]) if row["link"]["name"] == "lan-100m"]
    for row in rows:
        if "gzip" not in row["method"]["label"] and "C" not in row["method"]["label"]:
            assert row["throughput_Bps"] < CEILING_BPS * 1.03
    large = [row for row in rows if (row["method"]["label"], row["dataset"]["name"]) == ("tar|nc", "large")]
    assert [row["throughput_Bps"] > 0.9 * CEILING_BPS for row in large] == [True]


def test_the_ceiling_is_that_of_the_lab(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    summary = json.loads((campaign[1] / "summary.json").read_text())
    slow = summary["links"][0]
    assert 90e6 / 8 <= slow["ceiling_Bps"] <= 97e6 / 8
    for row in rows_of(campaign[1]):
        assert not {"above-ceiling", "wire-too-small"} & set(row["flags"])
    for method in slow["results"][1]["methods"]:
        assert method["efficiency"] == pytest.approx(method["throughput_Bps"] / slow["ceiling_Bps"], rel=1e-4)


def test_the_ceiling_is_measured_again_at_the_end(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    for link in json.loads((campaign[1] / "summary.json").read_text())["links"]:
        assert link["ceiling_end_Bps"] == pytest.approx(link["ceiling_Bps"], rel=0.5)
        assert link["rtt_end_ms"] > 0
        changed = max(link["ceiling_end_Bps"], link["ceiling_Bps"]) > 1.1 * min(
            link["ceiling_end_Bps"], link["ceiling_Bps"]
        )
        assert link["flags"] == (["ceiling-changed"] if changed else [])


def test_every_method_is_told_what_limits_it(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    slow = json.loads((campaign[1] / "summary.json").read_text())["links"][0]
    by_label = {method["label"]: method for method in slow["results"][1]["methods"]}
    assert by_label["tar|nc"]["limiter"] == "link"
    for link in json.loads((campaign[1] / "summary.json").read_text())["links"]:
        for result in link["results"]:
            assert all(method["limiter_reason"] for method in result["methods"])


def test_rows_say_what_the_measuring_met(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    for row in rows_of(campaign[1]):
        assert row["cache"] == {"requested": "warm", "achieved": "warm", "resident": 1.0}
        assert row["wire"]["basis"] == "both-devices"
        assert row["wire"]["ends"]["source"]["device"] == row["wire"]["ends"]["target"]["device"] == row["link"]["name"]
        assert row["wire"]["rtt_ms"]["before"] > 0
        assert row["wire"]["rtt_ms"]["after"] > 0
        assert row["dataset"]["compressibility"] == pytest.approx(1.0, abs=0.01)
        if row["method"]["encrypted"]:
            compressed = row["method"]["args"].get("ssh_compression", False)
            assert row["method"]["ssh"]["cipher"]
            assert row["method"]["ssh"]["compression"] == ("zlib@openssh.com" if compressed else "none")


def test_the_hosts_have_a_fingerprint(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    links = json.loads((campaign[1] / "campaign.json").read_text())["prepared"]["links"]
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for name, link in links.items():
        for end in ("source", "target"):
            found = link[end]["fingerprint"]
            assert found["kernel"] == os.uname().release
            assert found["cpu"]["cores"] == os.cpu_count()
            assert found["nic"]["device"] == name
            assert found["nic"]["qdisc"] == "tbf"
            assert found["filesystem"]["type"]
            assert boot_id not in json.dumps(found)
    assert "### The hosts of this link" in (campaign[1] / "report.md").read_text()
    assert os.uname().release in (campaign[1] / "report.html").read_text()


def test_the_csv_and_the_report_say_the_same(campaign: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    summary = json.loads((campaign[1] / "summary.json").read_text())
    expected = {
        (link["name"], result["dataset"], method["label"]): method["median_s"]
        for link in summary["links"]
        for result in link["results"]
        for method in result["methods"]
    }
    with (campaign[1] / "summary.csv").open(newline="") as stream:
        table = {(row["link"], row["dataset"], row["label"]): float(row["median_s"]) for row in csv.DictReader(stream)}
    assert table == pytest.approx(expected)
    report = (campaign[1] / "report.md").read_text()
    for link, dataset, label in expected:
        assert link in report
        assert dataset in report
        assert label in report.replace("\\|", "|")
    assert "provisional" in report.lower()


def test_the_terminal_shows_the_plan_the_table_and_the_path(
    campaign: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    out = campaign[0].stdout
    assert re.search(r"\d+ runs .*about .*B and ", out)
    for words in ("== lan-100m", "== lan-1g", "PROVISIONAL", "=> use ", str(campaign[1])):
        assert words in out
    assert "\x1b[" not in out


def test_the_report_can_be_made_again(
    campaign: tuple[subprocess.CompletedProcess[str], Path], play: Play, results: Path
) -> None:
    before = (campaign[1] / "summary.json").read_bytes()
    (campaign[1] / "summary.json").unlink()
    played = play("playbooks/report.yml", bulkcopy_results_dir=str(results))
    assert played.returncode == 0, played.stdout
    assert (campaign[1] / "summary.json").read_bytes() == before


def test_a_complete_campaign_is_not_measured_again(
    campaign: tuple[subprocess.CompletedProcess[str], Path], play: Play, results: Path
) -> None:
    before = (campaign[1] / "runs.jsonl").read_bytes()
    played = play(
        "playbooks/benchmark.yml",
        bulkcopy_results_dir=str(results),
        bulkcopy_datasets=TINY,
        bulkcopy_blocks=1,
        bulkcopy_campaign=campaign[1].name,
    )
    assert (campaign[1] / "runs.jsonl").read_bytes() == before, played.stdout


def test_a_campaign_whose_trees_are_gone_is_not_resumed(
    campaign: tuple[subprocess.CompletedProcess[str], Path], play: Play, results: Path
) -> None:
    """The lab's data went with the lab, so the trees are made anew, and their random content is another one."""
    cut = results / "cut"
    shutil.copytree(campaign[1], cut)
    whole = (cut / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "runs.jsonl").write_bytes(b"".join(whole[:-2]) + whole[-2][:100])
    played = play(
        "playbooks/benchmark.yml",
        bulkcopy_results_dir=str(results),
        bulkcopy_datasets=TINY,
        bulkcopy_blocks=1,
        bulkcopy_campaign="cut",
    )
    assert played.returncode != 0
    assert "is not the one that this campaign began with" in played.stdout
    assert len(rows_of(cut, torn=True)) == len(whole) - 2


@pytest.mark.parametrize("scenario", ["full", "update"])
def test_a_killed_campaign_goes_on_where_it_stopped(
    nothing_left: None, play: Play, tmp_path: Path, scenario: str
) -> None:
    """After kill -9 nothing is measured any more; the resumed campaign runs the rest, once and in the planned order."""
    variables: dict[str, Any] = {
        "bulkcopy_results_dir": str(tmp_path),
        "bulkcopy_datasets": TINY[:1],
        "bulkcopy_methods": ["tar|ssh", "tar|nc"],
        "bulkcopy_scenarios": [scenario],
        "bulkcopy_blocks": 4,
        "bulkcopy_warmups": 0,
    }
    runs = tmp_path / "latest" / "runs.jsonl"
    with start("playbooks/benchmark.yml", **variables) as process:
        assert process.stdout is not None
        while not (runs.exists() and len(runs.read_bytes().splitlines()) >= 3):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        process.kill()
    time.sleep(3)  # the run that was under way may end
    before = rows_of(runs.parent)
    time.sleep(3)
    assert rows_of(runs.parent) == before
    played = play("playbooks/benchmark.yml", bulkcopy_campaign="latest", **variables)
    assert played.returncode == 0, played.stdout
    done = rows_of(runs.parent)
    assert done[: len(before)] == before
    planned = json.loads((runs.parent / "campaign.json").read_text())["plan"]["cells"]
    assert [row["run_id"] for row in done if row["status"] == "ok"] == [cell["run_id"] for cell in planned]


@pytest.mark.parametrize(
    ("precision", "scenarios", "blocks", "why"),
    [
        (0.99, ["full"], 3, "every interval is within 99 %"),
        (1e-9, ["full", "empty"], 4, "the cap of 4 blocks is reached"),
    ],
)
def test_blocks_are_added_only_while_intervals_are_wide(
    nothing_left: None, play: Play, tmp_path: Path, precision: float, scenarios: list[str], blocks: int, why: str
) -> None:
    """A precision that any three blocks of a slow link have, and one that none have."""
    links = yaml.safe_load((REPOSITORY / "inventory/group_vars/all.yml").read_text())["bulkcopy_links"]
    played = play(
        "playbooks/benchmark.yml",
        bulkcopy_results_dir=str(tmp_path),
        bulkcopy_links=links[:1],
        bulkcopy_datasets=[{"name": "large", "scale": 0.005}],
        bulkcopy_methods=["tar|ssh", "tar|nc"],
        bulkcopy_blocks=3,
        bulkcopy_max_blocks=4,
        bulkcopy_precision=precision,
        bulkcopy_scenarios=scenarios,
        bulkcopy_warmups=0,
        bulkcopy_ceiling_s=0,
    )
    assert played.returncode == 0, played.stdout
    rows = rows_of(tmp_path / "latest")
    assert len(rows) == len(scenarios) * 2 * blocks
    assert {row["status"] for row in rows} == {"ok"}
    (link,) = json.loads((tmp_path / "latest/summary.json").read_text())["links"]
    assert link["ceiling_Bps"] is None
    full, *empty = link["results"]
    assert full["stopped"].startswith(why)
    assert ("lan-100m large: 3 blocks: every interval is within 99 %" in played.stdout) is (blocks == 3)
    for result in empty:
        assert (result["scenario"], result["recommended"]) == ("empty", None)
        by_label = {method["label"]: method["median_s"] for method in result["methods"]}
        assert 0 < by_label["tar|nc"] < by_label["tar|ssh"]
    assert {method["n"] for result in link["results"] for method in result["methods"]} == {blocks}


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A copy of the repository's inventory for a test to change."""
    shutil.copytree(REPOSITORY / "inventory", tmp_path / "inventory")
    return tmp_path / "inventory"


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_dead_host_does_not_stop_the_others(
    nothing_left: None, play: Play, inventory: Path, tmp_path: Path, end: str
) -> None:
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    hosts["all"]["children"]["lab"]["hosts"]["dead"] = {"ansible_host": "198.18.0.99"}
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
    variables = yaml.safe_load((inventory / "group_vars/all.yml").read_text())
    first = variables["bulkcopy_links"][0]
    dead = dict(first, name="dead-link", **{end: "dead"})
    del dead["lab"]
    variables["bulkcopy_links"] = [dead, first]
    (inventory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
    played = play(
        "playbooks/benchmark.yml",
        inventory=inventory,
        bulkcopy_results_dir=str(tmp_path / "results"),
        bulkcopy_datasets=TINY[:1],
        bulkcopy_methods=["tar|ssh", "tar|nc"],
        bulkcopy_blocks=2,
        bulkcopy_warmups=0,
    )
    assert played.returncode != 0
    rows = rows_of(tmp_path / "results" / "latest")
    assert sorted((row["link"]["name"], row["status"]) for row in rows) == (
        [("dead-link", "unreachable")] * 4 + [("lan-100m", "ok")] * 4
    )
    summary = json.loads((tmp_path / "results/latest/summary.json").read_text())
    assert {link["name"] for link in summary["links"]} == {"dead-link", "lan-100m"}
    assert "dead-link" in "".join(played.stdout.splitlines()[-20:])
    assert "unreachable" in (tmp_path / "results/latest/report.md").read_text()


def test_a_method_that_fails_is_a_row_with_its_words(nothing_left: None, play: Play, tmp_path: Path) -> None:
    played = play(
        "playbooks/benchmark.yml",
        bulkcopy_results_dir=str(tmp_path),
        bulkcopy_datasets=TINY[:1],
        bulkcopy_methods=["tar|ssh", {"label": "rsync broken", "module": "rsync", "args": {"extra_args": ["--bogus"]}}],
        bulkcopy_blocks=2,
        bulkcopy_warmups=0,
    )
    rows = rows_of(tmp_path / "latest")
    by_label = {
        label: [row for row in rows if row["method"]["label"] == label] for label in ("tar|ssh", "rsync broken")
    }
    assert [row["status"] for row in by_label["tar|ssh"]] == ["ok"] * 4
    assert [row["status"] for row in by_label["rsync broken"]] == ["failed"] * 4
    for row in by_label["rsync broken"]:
        assert "--bogus: unknown option" in row["stages"][0]["stderr"]
        assert "--bogus: unknown option" in row["message"]
    assert played.returncode != 0
    assert "--bogus: unknown option" in (tmp_path / "latest/report.md").read_text()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"bulkcopy_profile": "quikc"}, ["quikc", "quick"]),
        ({"bulkcopy_methods": ["tar|ssh", "scp -X"]}, ["scp -X"]),
        ({"bulkcopy_methods": [{"label": "x", "module": "rsnyc"}]}, ["rsnyc", "rsync"]),
        ({"bulkcopy_methods": [{"label": "x", "module": "tar_ssh", "args": {"compresion": "gzip"}}]}, ["compresion"]),
        ({"bulkcopy_methods": [{"label": "x", "module": "tar_ssh", "args": {"compression": "rar"}}]}, ["rar", "gzip"]),
        (
            {"bulkcopy_links": [{"name": "l", "source": "lab-a", "target": "lab-z", "address": "198.18.1.2"}]},
            ["lab-z", "inventory"],
        ),
        (
            {"bulkcopy_links": [{"name": "l", "source": "lab-a", "target": "lab-a", "address": "198.18.1.2"}]},
            ["lab-a", "source"],
        ),
        ({"bulkcopy_links": []}, ["bulkcopy_links"]),
        ({"bulkcopy_datasets": [{"name": "d", "shape": "tiny"}]}, ["tiny"]),
        ({"bulkcopy_campaign": "19700101-000000-0000"}, ["19700101-000000-0000"]),
        ({"bulkcopy_max_bytes": 1000}, ["bulkcopy_max_bytes"]),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_made(
    nothing_left: None, play: Play, tmp_path: Path, variables: dict[str, Any], words: list[str]
) -> None:
    played = play("playbooks/benchmark.yml", bulkcopy_results_dir=str(tmp_path / "results"), **variables)
    assert played.returncode != 0
    for word in words:
        assert word in played.stdout
    assert "Traceback" not in played.stdout
    assert "Make the lab]" not in played.stdout
    assert not list(tmp_path.glob("results/*/runs.jsonl"))
