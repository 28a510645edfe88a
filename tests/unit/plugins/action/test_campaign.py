# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ansible_collections.linkops.bulkcopy.plugins.action import campaign as action
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import Campaign

LINKS = [
    {"name": "one", "source": "a", "target": "b", "rate_mbit": 100},
    {"name": "two", "source": "c", "target": "d", "rate_mbit": 1000},
]
HOSTVARS: dict[str, dict[str, Any]] = {
    "a": {"ansible_host": "198.18.0.1", "bulkcopy_user": "copier", "ansible_user": "admin"},
    "b": {"ansible_host": "198.18.0.2", "bulkcopy_scratch_dir": "/scratch", "bulkcopy_user": "copier"},
    "c": {"bulkcopy_user": "admin", "ansible_user": "admin"},
    "d": {},
}


@pytest.fixture(autouse=True)
def no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are checked elsewhere; here no copy module needs to be there."""
    monkeypatch.setattr(action, "check_methods", lambda methods: [])


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(action, "display", SimpleNamespace(display=lines.append))
    return lines


def call(results: Path, check_mode: bool = False, **args: Any) -> dict[str, Any]:
    given = {"state": "planned", "links": LINKS, "results_dir": str(results), "seed": 5, **args}
    task = mock.MagicMock(args=given, check_mode=check_mode, async_val=0)
    plugin = action.ActionModule(
        task=task,
        connection=mock.MagicMock(_shell=SimpleNamespace(tmpdir=None)),
        play_context=mock.MagicMock(),
        loader=mock.MagicMock(),
        templar=mock.MagicMock(),
        shared_loader_obj=mock.MagicMock(),
    )
    result: dict[str, Any] = plugin.run(task_vars={"groups": {"all": [*HOSTVARS, "unused"]}, "hostvars": HOSTVARS})
    return result


def prepare(campaign: Campaign, **changes: Any) -> None:
    """A journal in which everything went well, but for C(changes): (step, key) joined with a blank to an outcome."""
    plan = plans.plan_from_dict(campaign.load()["plan"])
    good: dict[str, Any] = {}
    for link in plan.links:
        good[f"reach {link.source}"] = {}
        good[f"scratch {link.target}"] = {"free": {"bytes": 10**12, "inodes": 10**6}}
        good[f"link {link.name}"] = {"link": {"connect_s": 0.2}, "source": {}, "target": {}}
    for tree in plan.trees:
        good[f"tree {tree.key}"] = {
            "tree": {"path": tree.path, "files": 2, "directories": 1, "bytes": 1000, "digest": "d1"}
        }
    for what, result in good.items():
        step, key = what.split(" ", 1)
        campaign.note(step, key, {"status": "ok", "message": "", "result": result, **changes.get(what, {})})


def test_plans_and_writes_it_down(tmp_path: Path, shown: list[str]) -> None:
    result = call(tmp_path)
    assert not result.get("failed"), result
    campaign = Campaign.open(tmp_path, "latest")
    assert str(campaign.path) == result["path"]
    content = campaign.load()
    assert (content["campaign_id"], content["profile"], content["seed"]) == (result["campaign_id"], "quick", 5)
    assert result["scratch_token"] not in (campaign.path / "campaign.json").read_text()
    # quick: 2 links x (1 warm-up x 11 methods + 3 blocks x 2 datasets x 11 methods)
    assert result["runs"] == 154 == sum(len(link["cells"]) for link in result["links"])
    assert [link["host"] for link in result["links"]] == ["link_one", "link_two"]
    assert [target["scratch_dir"] for target in result["targets"]] == [
        "/scratch",
        "/var/tmp/linkops-bulkcopy/scratch",
    ]
    assert {source["host"]: source["become"] for source in result["sources"]} == {"a": True, "c": False}
    assert shown[0].startswith("plan: profile quick, 2 link(s), 11 methods, 3 block(s), seed 5")
    assert any("154 runs (22 warm-ups), 154 to do: about" in line for line in shown)


def test_quick_has_the_rows_of_both_seeds_and_sizes_by_rate(tmp_path: Path, shown: list[str]) -> None:
    call(tmp_path)
    plan = Campaign.open(tmp_path, "latest").load()["plan"]
    assert [method["label"] for method in plan["methods"]] == [
        "scp",
        "scp -C",
        "rsync -a",
        "rsync -az",
        "tar|ssh",
        "tar|ssh -C",
        "tar|gzip -1|ssh",
        "tar|gzip|ssh",
        "tar|nc",
        "tar|gzip|nc",
        "scp -O",
    ]
    sizes = {(tree["source"], tree["dataset"]): tree["bytes"] for tree in plan["trees"]}
    assert sizes["a", "small"] < sizes["c", "small"]
    assert sizes["a", "large"] < sizes["c", "large"]
    assert {cell["dataset"] for cell in plan["cells"] if cell["warmup"]} == {"small"}


@pytest.mark.parametrize(
    ("profile", "labels", "sizes"),
    [
        (
            "seed-lan",
            ["scp", "scp -C", "tar|ssh", "tar|ssh -C", "tar|gzip|ssh", "tar|nc", "tar|gzip|nc"],
            {"small": (2000, 200_000_000), "large": (200, 2_000_000_000)},
        ),
        ("seed-tree", ["scp", "scp -C", "rsync -a", "rsync -az", "tar|ssh", "tar|gzip -1|ssh"], None),
    ],
)
def test_seed_profiles_are_the_seeds(
    tmp_path: Path, shown: list[str], profile: str, labels: list[str], sizes: dict[str, tuple[int, int]] | None
) -> None:
    result = call(tmp_path, profile=profile)
    assert not result.get("failed"), result
    plan = Campaign.open(tmp_path, "latest").load()["plan"]
    assert [method["label"] for method in plan["methods"]] == labels
    if sizes:
        assert {tree["dataset"]: (tree["files"], tree["bytes"]) for tree in plan["trees"]} == sizes
    else:
        warm = {(c["link"], c["block"]) for c in plan["cells"] if c["warmup"]}
        assert warm == {("one", 1), ("one", 2), ("two", 1), ("two", 2)}


def test_check_mode_plans_and_writes_nothing(tmp_path: Path, shown: list[str]) -> None:
    result = call(tmp_path / "r", check_mode=True)
    assert (result["runs"], "path" in result) == (154, False)
    assert len(shown) >= 3
    assert not (tmp_path / "r").exists()


def test_a_profile_of_ones_own(tmp_path: Path, shown: list[str]) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text("blocks: 1\ndatasets: [{name: x, path: /x}]\nmethods: [scp]\n")
    assert call(tmp_path, profile=str(mine), overrides={"warmups": 0})["runs"] == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[1]", "must be a mapping with datasets and methods"),
        ("a: [", "is not valid YAML"),
        (None, "does not exist or is not a file"),
    ],
)
def test_a_bad_profile_file(tmp_path: Path, shown: list[str], content: str | None, sentence: str) -> None:
    mine = tmp_path / "mine.yml"
    if content is not None:
        mine.write_text(content)
    result = call(tmp_path, profile=str(mine))
    assert result["failed"] is True
    assert f"{mine}" in result["msg"]
    assert sentence in result["msg"]


def test_faults_of_all_kinds_come_together_and_nothing_is_written(tmp_path: Path, shown: list[str]) -> None:
    result = call(
        tmp_path / "r",
        profile="quik",
        seed="x",
        max_bytes="much",
        links=[*LINKS, {"name": "three", "source": "a", "target": "zz"}],
        overrides={"blocks": 0},
    )
    text = result["msg"]
    assert text.startswith("nothing was copied, for 5 reasons:\n- ")
    for part in (
        "there is no profile quik; there are fidelity, links, quick, seed-lan, seed-tree, shapes, standard, update (did you mean quick?)",
        "bulkcopy_seed must be a whole number, but is 'x'.",
        "bulkcopy_max_bytes must be a number above 0, but is 'much'.",
        "link three: its target zz is not a host of the inventory",
        "bulkcopy_blocks: blocks must be a whole number",
    ):
        assert part in text
    assert not (tmp_path / "r").exists()
    assert shown == []


def test_refuses_a_plan_above_the_limits(tmp_path: Path, shown: list[str]) -> None:
    result = call(tmp_path, max_bytes=1e6, max_minutes=1)
    assert "more than bulkcopy_max_bytes (1 MB)" in result["msg"]
    assert "more than bulkcopy_max_minutes (1)" in result["msg"]


def test_a_host_may_not_be_named_like_a_pseudo_host(
    tmp_path: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HOSTVARS, "link_one", {})
    assert "the inventory has a host named link_one" in call(tmp_path)["msg"]


def test_resume_keeps_the_seed_and_leaves_out_what_is_ok(tmp_path: Path, shown: list[str]) -> None:
    first = call(tmp_path)
    campaign = Campaign(Path(first["path"]))
    done = first["links"][0]["cells"][0]["run_id"]
    campaign.append_row({"run_id": done, "status": "ok"})
    campaign.append_row({"run_id": first["links"][0]["cells"][1]["run_id"], "status": "failed"})
    again = call(tmp_path, campaign=first["campaign_id"], seed=None)
    assert (again["campaign_id"], again["runs"]) == (first["campaign_id"], 153)
    assert done not in [cell["run_id"] for link in again["links"] for cell in link["cells"]]
    assert again["scratch_token"] != first["scratch_token"]
    assert len(list(tmp_path.glob("*/campaign.json"))) == 2  # the campaign, and latest


def test_resume_adds_no_block_where_that_was_decided(tmp_path: Path, shown: list[str]) -> None:
    few: dict[str, Any] = {"overrides": {"blocks": 2, "max_blocks": 4, "methods": ["scp", "rsync -a"], "warmups": 0}}
    first = call(tmp_path, **few)
    campaign = Campaign(Path(first["path"]))
    plan = plans.plan_from_dict(campaign.load()["plan"])
    # 2 links x 4 blocks x 2 datasets x 2 methods; one dataset of one link was ended after 3 blocks, a run of it failed
    assert first["runs"] == 32
    for cell in plan.cells:
        if (cell.link, cell.dataset) == ("one", "small") and cell.block <= 3:
            bad = (cell.block, cell.label) == (2, "scp")
            row = {"run_id": cell.run_id, "total_s": 1.0, "status": "unreachable" if bad else "ok"}
            campaign.append_row(row)
    stop = {"last": 3, "reason": "the time is used"}
    campaign.note("blocks", "one\nsmall\nfull", stop)
    campaign.note("link", "one", {"status": "ok"})
    shown.clear()
    again = call(tmp_path, campaign="latest", **few)
    assert again["runs"] == 32 - 5 - 2
    assert any("32 runs (0 warm-ups), 25 to do (5 are recorded, 2 not needed): about" in line for line in shown)
    cells = [cell for link in again["links"] for cell in link["cells"]]
    assert len(cells) == 25
    assert campaign.journal() == {("blocks", "one\nsmall\nfull"): {"step": "blocks", "key": "one\nsmall\nfull", **stop}}
    prepare(campaign)
    assert call(tmp_path, state="prepared", campaign=first["path"])["estimate"]["runs"] == 25


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"overrides": {"blocks": 4}}, "its settings differ"),
        ({"links": LINKS[:1]}, "its links differ"),
        ({"overrides": {"methods": ["scp"]}}, "its methods differ"),
        ({"overrides": {"datasets": [{"name": "small"}]}}, "its datasets differ"),
        ({"seed": 6}, "its seed differ"),
    ],
)
def test_resume_refuses_another_plan(tmp_path: Path, shown: list[str], change: dict[str, Any], sentence: str) -> None:
    call(tmp_path)
    result = call(tmp_path, campaign="latest", **change)
    assert result["failed"] is True
    assert sentence in result["msg"]


def test_resume_of_nothing(tmp_path: Path, shown: list[str]) -> None:
    assert "there is no campaign nope" in call(tmp_path, campaign="nope")["msg"]


def test_takes_stock_of_what_went_well(tmp_path: Path, shown: list[str]) -> None:
    planned = call(tmp_path)
    campaign = Campaign(Path(planned["path"]))
    prepare(campaign)
    stock = call(tmp_path, state="prepared", campaign=planned["path"])
    assert (stock["hosts"], stock["serial"]) == (["link_one", "link_two"], [2])
    prepared = campaign.load()["prepared"]
    assert {link["status"] for link in prepared["links"].values()} == {"ok"}
    assert prepared["space"] == {}


def test_keeps_why_a_link_has_no_ceiling(tmp_path: Path, shown: list[str]) -> None:
    planned = call(tmp_path)
    campaign = Campaign(Path(planned["path"]))
    seen = {"link": {"ceiling_Bps": None}, "flags": ["no-iperf3"], "source": {}, "target": {}}
    prepare(campaign, **{"link one": {"result": seen}})
    call(tmp_path, state="prepared", campaign=planned["path"])
    assert campaign.load()["prepared"]["links"]["one"]["flags"] == ["no-iperf3"]


def test_hosts_with_one_boot_id_are_measured_one_after_the_other(tmp_path: Path, shown: list[str]) -> None:
    planned = call(tmp_path)
    ends = {"link": {}, "source": {"boot_id": "x"}, "target": {"boot_id": "x"}}
    prepare(Campaign(Path(planned["path"])), **{f"link {name}": {"result": ends} for name in ("one", "two")})
    stock = call(tmp_path, state="prepared", campaign=planned["path"])
    assert stock["serial"] == [1, 1]


def test_the_inventory_may_say_that_machines_differ(
    tmp_path: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in "abcd":
        monkeypatch.setitem(HOSTVARS, host, {**HOSTVARS[host], "bulkcopy_machine": f"m-{host}"})
    planned = call(tmp_path)
    ends = {"link": {}, "source": {"boot_id": "x"}, "target": {"boot_id": "x"}}
    prepare(Campaign(Path(planned["path"])), **{f"link {name}": {"result": ends} for name in ("one", "two")})
    assert call(tmp_path, state="prepared", campaign=planned["path"])["serial"] == [2]


@pytest.mark.parametrize(
    ("step", "outcome", "status", "message"),
    [
        (
            "reach a",
            {"status": "unreachable", "message": "timed out"},
            "unreachable",
            "source a: did not answer: timed",
        ),
        ("scratch b", {"status": "failed", "message": "not ours"}, "failed", "target b: not ours"),
        ("link one", {"status": "unsupported", "message": "no ssh"}, "unsupported", "source a: no ssh"),
    ],
)
def test_one_bad_link_is_marked_and_the_other_stays(
    tmp_path: Path, shown: list[str], step: str, outcome: dict[str, str], status: str, message: str
) -> None:
    planned = call(tmp_path)
    prepare(Campaign(Path(planned["path"])), **{step: outcome})
    assert not call(tmp_path, state="prepared", campaign=planned["path"]).get("failed")
    links = Campaign(Path(planned["path"])).load()["prepared"]["links"]
    assert links["one"]["status"] == status
    assert links["one"]["message"].startswith(message)
    assert links["two"]["status"] == "ok"
    assert any(line.startswith(f"link one cannot be measured ({status})") for line in shown)


def test_too_little_room_is_told_by_dataset(tmp_path: Path, shown: list[str]) -> None:
    planned = call(tmp_path)
    campaign = Campaign(Path(planned["path"]))
    prepare(campaign, **{"scratch b": {"result": {"free": {"bytes": 1049, "inodes": 10}}}})
    call(tmp_path, state="prepared", campaign=planned["path"])
    full = campaign.load()["prepared"]["space"]
    assert set(full) == {"one"}
    assert full["one"]["a:small-x0.05"].startswith("target b has 1.05 kB free in /scratch, but ")


def test_datasets_that_could_not_be_made_mark_the_generated_trees(tmp_path: Path, shown: list[str]) -> None:
    planned = call(tmp_path)
    campaign = Campaign(Path(planned["path"]))
    prepare(campaign)
    campaign.note("dataset", "a", {"status": "failed", "message": "disk full"})
    call(tmp_path, state="prepared", campaign=planned["path"])
    trees = campaign.load()["prepared"]["trees"]
    assert {key.split(":")[0]: tree["status"] for key, tree in trees.items()} == {"a": "failed", "c": "ok"}
    assert any("source a, dataset small: disk full" in line for line in shown)


def test_resume_refuses_a_tree_that_has_changed(tmp_path: Path, shown: list[str]) -> None:
    planned = call(tmp_path)
    campaign = Campaign(Path(planned["path"]))
    prepare(campaign)
    call(tmp_path, state="prepared", campaign=planned["path"])
    call(tmp_path, campaign="latest")
    key = campaign.load()["plan"]["trees"][0]["key"]
    prepare(campaign, **{f"tree {key}": {"result": {"tree": {"path": "/p", "bytes": 1, "digest": "d2"}}}})
    result = call(tmp_path, state="prepared", campaign=planned["path"])
    assert "the tree /p on a is not the one that this campaign began with" in result["msg"]


def test_finish_says_what_is_missing(tmp_path: Path, shown: list[str]) -> None:
    planned = call(tmp_path)
    campaign = Campaign(Path(planned["path"]))
    plan = plans.plan_from_dict(campaign.load()["plan"])
    for cell in plan.cells:
        campaign.append_row({"run_id": cell.run_id, "status": "ok"})
    result = {"dataset": "d", "scenario": "full", "recommended": "tar|ssh", "methods": [{"provisional": True}]}
    nothing = {"dataset": "e", "scenario": "full", "recommended": None, "methods": [{"provisional": False}]}
    (campaign.path / "summary.json").write_text(json.dumps({"links": [{"name": "l", "results": [result, nothing]}]}))
    assert not call(tmp_path, state="finished", campaign=planned["path"]).get("failed")
    assert shown[-3:] == ["l, d: use tar|ssh (provisional)", "l, e: no recommendation", f"Results: {campaign.path}"]
    campaign.append_row({"run_id": "none of ours", "status": "failed"})
    campaign.note("cleanup", "b", {"status": "unreachable", "message": "gone"})
    result = call(tmp_path, state="finished", campaign=planned["path"])
    assert result["failed"] is True
    assert "\n- target b: its scratch folder was not removed: gone\n" in result["msg"]
    assert result["msg"].endswith(f"-e bulkcopy_campaign={planned['campaign_id']}")
    aborted = call(tmp_path, state="finished", campaign=planned["path"], aborted="stopped")
    assert "\n- stopped\n" in aborted["msg"]
    assert "bulkcopy_campaign=" not in aborted["msg"]


def test_results_lie_in_the_repository_or_below_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import campaign_dir

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(campaign_dir, "COLLECTION", tmp_path / "installed")
    assert campaign_dir.results_dir(None) == tmp_path / "results"
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "galaxy.yml").write_text("")
    assert campaign_dir.results_dir(None) == tmp_path / "installed" / "results"
    assert campaign_dir.results_dir("x") == tmp_path / "x"


def test_software_names_the_versions(tmp_path: Path) -> None:
    assert set(json.loads(json.dumps(action.software()))) == {
        "linkops.bulkcopy",
        "ansible_core",
        "python",
        "controller",
    }


@pytest.mark.parametrize("name", ["bulkcopy_lab", "bulkcopy_keep_lab", "bulkcopy_allow_cleartext"])
def test_a_switch_is_checked_before_hours_have_passed(tmp_path: Path, shown: list[str], name: str) -> None:
    result = call(tmp_path, switches={name: "maybe"})
    assert result["failed"]
    assert result["msg"] == f"nothing was copied: {name} must be true or false, but is 'maybe'."
    assert not call(tmp_path, switches={name: "yes"}).get("failed")


@pytest.mark.parametrize("value", ["inf", "nan", 0, "abc"])
def test_a_limit_is_a_finite_number(tmp_path: Path, shown: list[str], value: Any) -> None:
    result = call(tmp_path, max_bytes=value)
    assert result["msg"] == f"nothing was copied: bulkcopy_max_bytes must be a number above 0, but is {value!r}."


def test_no_limit_is_null_in_the_file(tmp_path: Path, shown: list[str]) -> None:
    call(tmp_path, max_bytes=None, max_minutes="90")
    assert Campaign.open(tmp_path, "latest").load()["limits"] == {"max_bytes": None, "max_minutes": 90.0}


def test_a_campaign_at_work_is_not_resumed(tmp_path: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = call(tmp_path)
    monkeypatch.setattr(action, "still_runs", lambda known: known["pid"] > 0)
    result = call(tmp_path, campaign="latest")
    assert result["failed"]
    assert f"campaign {first['campaign_id']} is still running (process " in result["msg"]


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"status": "unreachable", "message": "timed out", "result": {}}, "source a: did not answer: timed out"),
        # the source did answer: link_info ran there
        (
            {"status": "unreachable", "message": "a cannot reach b", "result": {"status": "unreachable"}},
            "source a: a cannot reach b",
        ),
    ],
)
def test_says_who_did_not_answer(tmp_path: Path, shown: list[str], outcome: dict[str, Any], message: str) -> None:
    campaign = Campaign(Path(call(tmp_path)["path"]))
    prepare(campaign, **{"link one": outcome})
    call(tmp_path, state="prepared", campaign=str(campaign.path))
    assert campaign.load()["prepared"]["links"]["one"]["message"] == message


def test_a_marker_on_a_shared_file_system_does_not_prove_the_target(tmp_path: Path, shown: list[str]) -> None:
    campaign = Campaign(Path(call(tmp_path)["path"]))
    prepare(
        campaign,
        **{
            "scratch b": {"result": {"free": {}, "boot_id": "11"}},
            "link one": {"result": {"link": {}, "target": {"boot_id": "22"}}},
            "scratch d": {"result": {"free": {}, "boot_id": "33"}},
            "link two": {"result": {"link": {}, "target": {"boot_id": "33"}}},
        },
    )
    call(tmp_path, state="prepared", campaign=str(campaign.path))
    states = campaign.load()["prepared"]["links"]
    assert states["one"]["status"] == "failed"
    assert "another machine than target b" in states["one"]["message"]
    assert states["two"]["status"] == "ok"


def test_the_profile_of_hard_cases_has_every_standard_method(tmp_path: Path, shown: list[str]) -> None:
    result = call(tmp_path, profile="fidelity")
    plan = Campaign.open(tmp_path, "latest").load()["plan"]
    labels = {method["label"] for method in plan["methods"]}
    assert labels > {str(method["label"]) for method in action.standard_methods()}
    assert labels >= {"rsync -aHAXS", "tar -S --xattrs --acls|ssh"}
    assert result["runs"] == 2 * len(labels)
    assert {cell["scenario"] for cell in plan["cells"]} == {"fidelity"}
    assert [source["generated"] for source in result["sources"]] == [
        [{"name": "fidelity", "path": path, "scale": 1.0, "shape": "fidelity"}]
        for path in ["/var/tmp/linkops-bulkcopy/data/fidelity"] * 2
    ]
    assert "a tree of hard cases is copied once by each method" in shown
    assert not any(line.startswith("not counted") for line in shown)


def test_what_is_required_is_said_with_the_plan(tmp_path: Path, shown: list[str]) -> None:
    few = {"methods": ["scp"], "blocks": 1, "warmups": 0}
    assert call(tmp_path, overrides={**few, "require": ["hardlinks", "acls"]})["runs"] == 2 * (2 + 1)
    assert "a tree of hard cases is copied once by each method, which must keep hardlinks, acls" in shown


def test_resume_keeps_what_is_required_or_takes_another(tmp_path: Path, shown: list[str]) -> None:
    few = {"methods": ["scp"], "blocks": 1, "warmups": 0}
    call(tmp_path, overrides={**few, "require": ["hardlinks"]})
    campaign = Campaign.open(tmp_path, "latest")
    for given, kept in (({}, ["hardlinks"]), ({"require": ["acls"]}, ["acls"]), ({}, ["acls"])):
        result = call(tmp_path, campaign="latest", overrides={**few, **given})
        assert not result.get("failed"), result
        assert campaign.load()["plan"]["settings"]["require"] == kept
    # without the scenario that was measured for it, it is another plan
    result = call(tmp_path, campaign="latest", overrides={**few, "require": []})
    assert "its settings differ" in result["msg"]
    result = call(tmp_path, campaign="latest", overrides={**few, "require": [], "scenarios": ["full", "fidelity"]})
    assert not result.get("failed"), result


def test_faults_of_what_is_required_come_with_the_others(tmp_path: Path, shown: list[str]) -> None:
    result = call(tmp_path, overrides={"require": ["hardlnks"], "blocks": 0})
    assert "variable bulkcopy_require: there is no 'hardlnks'" in result["msg"]
    assert "blocks must be a whole number" in result["msg"]
