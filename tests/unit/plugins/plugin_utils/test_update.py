# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenario update in the plan, in the summary and in what is shown of it."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import page, report
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries

HOSTS = {"a": plans.Host("198.18.0.1", data_dir="/data"), "b": plans.Host("198.18.0.2")}
PROFILE: dict[str, Any] = {
    "blocks": 3,
    "warmups": 1,
    "datasets": [{"name": "small", "scale": 0.1}, {"name": "mine", "path": "/srv/mine"}],
    "methods": [{"label": label, "module": "scp"} for label in ("rsync", "tar")],
}
LINKS = [{"name": "one", "source": "a", "target": "b", "rate_mbit": 100}]


def make(**overrides: Any) -> plans.Plan:
    return plans.make_plan(
        profile=PROFILE,
        profile_name="test",
        overrides=overrides,
        links=LINKS,
        hosts=HOSTS,
        standard_methods=[],
        seed=1,
    )


def faults(**overrides: Any) -> list[str]:
    with pytest.raises(plans.InputError) as caught:
        make(**overrides)
    return caught.value.faults


def test_every_generated_tree_is_updated_and_no_existing_one() -> None:
    plan = make(scenarios=["full", "update", "empty"])
    found = Counter((cell.dataset, cell.scenario, cell.warmup) for cell in plan.cells)
    # 2 methods: a warm-up with the only tree whose size is known, and 3 blocks of each
    assert found == {
        ("small", "full", True): 2,
        ("small", "full", False): 6,
        ("mine", "full", False): 6,
        ("small", "update", False): 6,
        ("empty", "empty", False): 6,
    }
    assert len({cell.run_id for cell in plan.cells}) == len(plan.cells)


def test_version_1_is_made_before_version_2() -> None:
    for scenarios in (["update"], ["full", "update"]):
        plan = make(scenarios=scenarios, datasets=[{"name": "small", "scale": 0.1}])
        first, second = plan.trees
        assert (first.path, first.update_of) == ("/data/small-x0.1", None)
        assert second.update_of == first.key
        assert second.path != first.path
        assert second.path.startswith("/data/")
        assert {tree for key, tree in plans.tree_index(plan)[0].items() if key[2] == "update"} == {second}


def test_a_dataset_can_have_no_name_that_an_update_has() -> None:
    second = make(scenarios=["update"]).trees[-1]
    assert not plans.NAME.match(second.directory)


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        (None, (0.0025, 0.0025, 0.0025, 0.0025)),  # 1 % in all
        (0.2, (0.05, 0.05, 0.05, 0.05)),
        ("0.2", (0.05, 0.05, 0.05, 0.05)),
        ({"changed": 0.01}, (0.01, 0, 0, 0)),
        ({"changed": 0.5, "grew": 0.1, "appeared": 0.1, "vanished": 0.3}, (0.5, 0.1, 0.1, 0.3)),
    ],
)
def test_shares(given: Any, shares: tuple[float, ...]) -> None:
    settings = make(scenarios=["update"], **({} if given is None else {"update": given})).settings
    assert tuple(settings.update[kind] for kind in ("changed", "grew", "appeared", "vanished")) == pytest.approx(shares)


@pytest.mark.parametrize("given", [0, 1.5, -0.1, "much", {"changed": 0}, {"changed": 0.7, "grew": 0.7}, [0.1]])
def test_shares_that_cannot_be(given: Any) -> None:
    assert any(
        "variable bulkcopy_update: update must be the share of files that differ" in f for f in faults(update=given)
    )


def test_a_kind_of_change_that_is_not_known() -> None:
    assert any("has the unknown key 'shrank'" in fault for fault in faults(update={"shrank": 0.1}))


def test_nothing_to_update_is_refused() -> None:
    (fault,) = faults(scenarios=["update"], datasets=[{"name": "mine", "path": "/srv/mine"}])
    assert "an existing tree has no older version" in fault


def test_a_tree_too_small_for_so_many_kinds_of_change_is_refused_by_name() -> None:
    # 2 of 200 files: one changes, one grows, and there is none left to vanish
    (fault,) = faults(scenarios=["full", "update"], datasets=[{"name": "large", "shape": "large", "scale": 0.01}])
    assert fault == (
        "variable bulkcopy_datasets: dataset large on link one: an update of 2 files cannot change, lengthen and remove 3: "
        "choose lower shares, fewer kinds of change, or a larger tree."
    )
    assert make(scenarios=["update"], datasets=[{"name": "large", "scale": 0.01}], update={"changed": 0.01}).cells
    assert make(datasets=[{"name": "large", "scale": 0.01}]).cells


def test_a_resumed_campaign_must_have_the_same_shares() -> None:
    assert make(update=0.01).fingerprint() == make().fingerprint() != make(update=0.02).fingerprint()


def test_a_plan_is_read_back_as_it_was() -> None:
    plan = make(scenarios=["full", "update"], update={"changed": 0.02})
    again = plans.plan_from_dict(plan.as_dict())
    assert again == plan
    assert plans.tree_index(again)[0] == plans.tree_index(plan)[0]


def test_an_update_is_counted_with_at_most_the_whole_tree() -> None:
    # 200 files of 100 KiB at 10 %
    plan = make(scenarios=["full", "update"], datasets=[{"name": "small", "scale": 0.1}], warmups=0)
    size = plans.estimate(plan).bytes / plans.estimate(plan).runs
    assert (plans.estimate(plan).runs, size) == (2 * 2 * 3, plan.trees[0].bytes)


# --------------------------------------------------------------------------------------------------------------------
# What is shown


#: By scenario and method: seconds, bytes sent.
RUNS = {
    ("full", "rsync"): (10.0, 105_000_000),
    ("full", "tar"): (9.0, 104_000_000),
    ("update", "rsync"): (1.0, 1_500_000),
    ("update", "tar"): (9.0, 104_500_000),
}


@pytest.fixture
def summary() -> summaries.Summary:
    """100 MB on a link of 12 MB/s: what it takes to send all, and to bring it up to date."""
    plan = make(scenarios=["full", "update"], datasets=[{"name": "small", "scale": 0.1}], warmups=0)
    rows = []
    for cell in plan.cells:
        row = new_record()
        seconds, sent = RUNS[cell.scenario, cell.label]
        row.update(run_id=cell.run_id, status="ok", scenario=cell.scenario, block=cell.block)
        row["total_s"] = seconds * (1 + 0.01 * cell.block)
        row["dataset"].update(name="small", files=200, bytes=100_000_000, compressibility=1.0)
        row["method"].update(label=cell.label, encrypted=True, streams=1)
        row["wire"]["tx_bytes"] = sent
        row["verified"] = {"method": "sha256", "files": 200, "mismatches": [], "not_kept": {}}
        if (cell.scenario, cell.label) == ("update", "tar"):
            row["verified"]["not_kept"] = {"deletions": 2}
        rows.append(row)
    return summaries.summarise("c1", "test", plan, rows, {"one": {"ceiling_Bps": 12e6, "connect_s": 0.1}})


def test_an_update_is_ranked_by_time_and_has_no_rate(summary: summaries.Summary) -> None:
    full, update = summary.links[0].results
    assert (full.scenario, update.scenario) == ("full", "update")
    assert [(method.label, method.verdict) for method in update.methods] == [("rsync", "best"), ("tar", "slower")]
    assert update.recommended == "rsync"
    # 100 MB in a second would be eight times what the link carries
    assert {(m.throughput_Bps, m.efficiency, m.limiter) for m in update.methods} == {(None, None, None)}
    assert update.methods[1].ratio_to_best == pytest.approx(9.0)
    assert full.methods[0].throughput_Bps == pytest.approx(100e6 / (9.0 * 1.02))


def test_what_was_sent_and_what_is_left_is_kept(summary: summaries.Summary) -> None:
    update = summary.as_dict()["links"][0]["results"][1]
    assert [(m["sent_bytes"], m["not_kept"]) for m in update["methods"]] == [
        (1_500_000, {}),
        (104_500_000, {"deletions": 2}),
    ]
    lines = list(csv.DictReader(io.StringIO(report.as_csv(summary))))
    found = {(line["scenario"], line["label"]): (line["sent_bytes"], line["not_kept"]) for line in lines}
    assert found["update", "tar"] == ("104500000", "deletions:2")
    assert found["update", "rsync"] == ("1500000", "")


def test_no_prediction_comes_from_updates(summary: summaries.Summary) -> None:
    # one tree was copied whole; an update is no second one
    assert {model.shapes for model in summary.links[0].models} <= {1}


def test_the_reports_show_it(summary: summaries.Summary) -> None:
    for text in (report.table(summary), report.markdown(summary), page.html(summary)):
        flat = " ".join(text.split())
        assert "1.5 MB" in flat
        assert "104 MB" in flat or "105 MB" in flat
        assert "update" in flat
    assert "names that had vanished from the source are still on the target with tar (2)" in " ".join(
        report.markdown(summary).split()
    )
