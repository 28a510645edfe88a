# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenario fidelity and what is required of methods: in the plan, in the ranking and in what is shown of it."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import re
from collections import Counter
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import keeping, page, report, wording
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries

HOSTS = {"a": plans.Host("198.18.0.1", data_dir="/data"), "b": plans.Host("198.18.0.2")}
LABELS = ("scp", "rsync", "rsync -H", "tar")
PROFILE: dict[str, Any] = {
    "blocks": 2,
    "warmups": 1,
    "datasets": [{"name": "mine", "path": "/srv/mine"}],
    "methods": [{"label": label, "module": "scp"} for label in LABELS],
}
LINKS = [{"name": "one", "source": "a", "target": "b", "datasets": ["mine"]}]


def make(profile: dict[str, Any] = PROFILE, **overrides: Any) -> plans.Plan:
    return plans.make_plan(
        profile=profile,
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


# --------------------------------------------------------------------------------------------------------------------
# The plan


def test_each_method_makes_one_copy_of_the_hard_cases_in_the_first_block() -> None:
    plan = make(scenarios=["full", "fidelity"], max_blocks=6, replica=True)
    found = Counter((cell.scenario, cell.warmup, cell.block, cell.replica) for cell in plan.cells)
    hard = {key: number for key, number in found.items() if key[0] == "fidelity"}
    assert hard == {("fidelity", False, 1, 0): 4}
    assert sum(number for key, number in found.items() if key[0] == "full" and not key[1]) == 6 * 5
    (tree,) = [tree for tree in plan.trees if tree.dataset == "fidelity"]
    assert (tree.source, tree.shape, tree.path, tree.files) == ("a", "fidelity", "/data/fidelity", None)
    # a link that measures some datasets only has it all the same
    assert plans.tree_index(plan)[0]["one", "fidelity", "fidelity"] == tree
    assert plans.plan_from_dict(plan.as_dict()) == plan


def test_hard_cases_change_nothing_of_the_other_runs() -> None:
    others = {cell.run_id for cell in make().cells}
    assert {cell.run_id for cell in make(scenarios=["full", "fidelity"]).cells if cell.scenario == "full"} == others


def test_the_tree_of_hard_cases_is_not_one_of_unknown_size() -> None:
    plan = make(scenarios=["full", "fidelity"], warmups=0)
    estimated = plans.estimate(plan)
    assert estimated.unknown == ("a:mine",)
    assert (estimated.runs, estimated.sure_runs) == (4 * 2 + 4, 4 * 2 + 4)
    # it is counted as soon as its size is known
    assert plans.estimate(plan, {"a:fidelity": 1000}).bytes == 4 * 1000
    assert estimated.duration_s > plans.estimate(make(warmups=0)).duration_s


def test_a_profile_of_hard_cases_needs_no_datasets() -> None:
    profile = {key: value for key, value in PROFILE.items() if key != "datasets"}
    plan = make({**profile, "scenarios": ["fidelity"]})
    assert Counter(cell.scenario for cell in plan.cells) == {"fidelity": 4}
    with pytest.raises(plans.InputError, match="datasets must be a list with at least one entry"):
        make({**profile, "scenarios": ["full", "fidelity"]})


def test_no_dataset_may_be_called_like_it() -> None:
    found = faults(datasets=[{"name": "fidelity", "path": "/x"}])
    assert any("the name fidelity is that of a scenario" in fault for fault in found)


def test_what_is_required_is_measured() -> None:
    assert make(require=["hardlinks"]).settings.scenarios == ("full", "fidelity")
    assert make(require=[]).settings.scenarios == ("full",)
    assert make({**PROFILE, "require": ["acls", "names.space", "acls"]}).settings.require == ("acls", "names.space")
    # a variable takes the place of the profile's
    assert make({**PROFILE, "require": ["acls"]}, require=[]).settings.scenarios == ("full",)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["hardlink"], "there is no 'hardlink' that a copy could keep or lose; there are names, long_names,"),
        (["hardlink"], "(did you mean hardlinks?)"),
        (["names.spaces"], "(did you mean names.space?)"),
        ("hardlinks", "variable bulkcopy_require: require must be a list of texts, but is 'hardlinks'"),
        ([1], "must be a list of texts"),
        ({"hardlinks": True}, "must be a list of texts"),
    ],
)
def test_faults_of_what_is_required(given: Any, sentence: str) -> None:
    assert any(sentence in fault for fault in faults(require=given))
    with pytest.raises(plans.InputError, match=re.escape(sentence)):
        plans.read_require(given, "variable bulkcopy_require")


def test_a_resumed_campaign_may_require_something_else_of_what_it_measures() -> None:
    both = {"scenarios": ["full", "fidelity"]}
    assert make(**both).fingerprint() == make(**both, require=["acls"]).fingerprint()
    assert make(require=["acls"]).fingerprint() == make(require=["owners"]).fingerprint() != make().fingerprint()


def test_a_plan_from_before_there_were_requirements_is_read() -> None:
    data = make().as_dict()
    del data["settings"]["require"]
    assert plans.plan_from_dict(data) == make()


# --------------------------------------------------------------------------------------------------------------------
# What was kept, and who is ranked

#: By id: what it is, names.
CASES = {
    "names.space": ("names with spaces", 4),
    "names.newline": ("names with a line break", 3),
    "symlinks.relative": ("a link to a file", 1),
    "symlinks.dangling": ("a link that leads nowhere", 1),
    "hardlinks": ("two names of one file", 4),
    "xattrs.user": ("user's extended attributes", 2),
    "xattrs.trusted": ("trusted extended attributes", 0),
    "acls": ("ACLs of files", 2),
    "devices": ("device files", 0),
}
#: By method: what was not kept, and how many names of it were.
NOT_KEPT: dict[str, dict[str, tuple[str, int]]] = {
    "scp": {
        "names.newline": ("lost", 1),
        "symlinks.relative": ("followed", 0),
        "symlinks.dangling": ("refused", 0),
        "hardlinks": ("lost", 0),
        "xattrs.user": ("lost", 0),
        "acls": ("lost", 0),
    },
    "rsync": {"hardlinks": ("lost", 0), "xattrs.user": ("lost", 0), "acls": ("changed", 1)},
    "rsync -H": {"xattrs.user": ("lost", 0), "acls": ("lost", 0)},
    "tar": {"acls": ("lost", 0)},
}
REASONS = {"xattrs.trusted": "only root makes trusted attributes", "devices": "only root makes device files"}


def cases_of(label: str) -> list[dict[str, Any]]:
    cases = []
    for name, (what, names) in CASES.items():
        outcome, kept = NOT_KEPT[label].get(name, ("kept", names))
        detail = f"{name}/one: gone" if outcome != "kept" else ""
        if name in REASONS:
            outcome, detail = "not-made", REASONS[name]
        cases.append({"id": name, "what": what, "names": names, "kept": kept, "outcome": outcome, "detail": detail})
    return cases


#: Seconds; scp is the fastest, tar the slowest.
SECONDS = {"scp": 10.0, "rsync": 11.0, "rsync -H": 12.0, "tar": 20.0}


def rows_of(plan: plans.Plan, **bad: dict[str, Any]) -> list[dict[str, Any]]:
    """C(bad): by label, what the run on the hard cases says instead."""
    rows = []
    for cell in plan.cells:
        row = new_record()
        row.update(run_id=cell.run_id, status="ok", scenario=cell.scenario, block=cell.block)
        row["link"]["name"] = "one"
        row["method"].update(label=cell.label, encrypted=True)
        row["total_s"] = SECONDS[cell.label] * (1 + 0.001 * cell.block)
        row["dataset"].update(name=cell.dataset, files=3, bytes=100_000_000)
        if cell.scenario == "fidelity":
            row["fidelity"] = {"cases": cases_of(cell.label)}
            row.update(bad.get(cell.label, {}))
        rows.append(row)
    return rows


def summarise(
    require: list[str] | None = None, planned: list[str] | None = None, bad: dict[str, Any] | None = None
) -> summaries.Summary:
    """C(planned): what the plan requires; C(require): what whoever makes the report does."""
    plan = make(scenarios=["full", "empty", "fidelity"], warmups=0, require=planned)
    return summaries.summarise("c1", "test", plan, rows_of(plan, **(bad or {})), {}, require=require)


def result_of(summary: summaries.Summary, scenario: str = "full") -> summaries.Result:
    return next(result for result in summary.links[0].results if result.scenario == scenario)


def verdicts(summary: summaries.Summary, scenario: str = "full") -> dict[str, tuple[str, str]]:
    return {method.label: (method.verdict, method.reason) for method in result_of(summary, scenario).methods}


def test_groups_have_the_worst_of_their_cases() -> None:
    found = keeping.groups(cases_of("scp"))
    assert list(found) == ["names", "symlinks", "hardlinks", "xattrs", "acls", "devices"]
    assert found["names"] == keeping.Group(7, 5, "lost", ("lost",))
    assert found["symlinks"] == keeping.Group(2, 0, "refused", ("followed", "refused"))
    assert found["xattrs"] == keeping.Group(2, 0, "lost", ("lost",), ("xattrs.trusted",))
    assert found["devices"] == keeping.Group(0, 0, "not-made", (), ("devices",))
    assert {name: wording.kept_cell(group) for name, group in found.items()} == {
        "names": "5/7 L",
        "symlinks": "F+R",
        "hardlinks": "L",
        "xattrs": "L -",
        "acls": "L",
        "devices": "-",
    }
    assert wording.kept_cell(keeping.groups(cases_of("tar"))["xattrs"]) == "yes -"
    assert wording.kept_cell(keeping.groups(cases_of("rsync"))["acls"]) == "1/2 C"
    assert wording.kept_cell(None) == "?"


def test_hard_cases_are_counted_and_not_ranked_by_time() -> None:
    summary = summarise()
    link = summary.links[0]
    assert [result.scenario for result in link.results] == ["full", "empty"]
    assert link.fidelity is not None
    # seven of nine cases could be made, with 4 + 3 + 1 + 1 + 4 + 2 + 2 names
    assert (link.fidelity.cases, link.fidelity.names) == (7, 17)
    assert link.fidelity.not_made == REASONS
    kept = [(method.label, *keeping.tally(method.cases)) for method in link.fidelity.methods]
    assert kept == [("tar", 6, 7), ("rsync -H", 5, 7), ("rsync", 4, 7), ("scp", 1, 7)]
    assert link.fidelity.reason == "most is kept by tar (6 of 7 cases)"
    assert (summary.planned, summary.ok, summary.missing) == (4 * 2 * 2 + 4, 20, ())
    # nothing is required: the fastest is
    assert result_of(summary).recommended == "scp"
    data = json.loads(json.dumps(summary.as_dict()))["links"][0]["fidelity"]
    (scp,) = [method for method in data["methods"] if method["label"] == "scp"]
    assert scp["cases"] == cases_of("scp")
    assert scp["groups"]["hardlinks"] == {
        "names": 4,
        "kept": 0,
        "outcome": "lost",
        "outcomes": ["lost"],
        "not_made": [],
    }


@pytest.mark.parametrize("by", ["plan", "report"])
def test_who_does_not_keep_what_is_required_is_not_ranked(by: str) -> None:
    summary = summarise(require=["hardlinks"]) if by == "report" else summarise(planned=["hardlinks"])
    reason = "does not keep hardlinks: 0 of 4 names kept, lost"
    for scenario in ("full", "empty"):
        found = verdicts(summary, scenario)
        assert found["scp"] == found["rsync"] == ("disqualified", reason)
        assert [found["rsync -H"][0], found["tar"][0]] == ["best", "slower"]
    full = result_of(summary)
    assert full.recommended == "rsync -H"
    assert full.reason == "fastest and encrypted; 2 of 4 methods keep hardlinks; provisional"
    # compared with the fastest of those that are left
    assert next(m for m in full.methods if m.label == "tar").ratio_to_best == pytest.approx(20 / 12)
    # what was measured of the others is still there
    assert next(m for m in full.methods if m.label == "scp").median_s == pytest.approx(10.015)
    fidelity = summary.links[0].fidelity
    assert fidelity is not None
    assert fidelity.required == ("hardlinks",)
    assert fidelity.reason == "what is required (hardlinks) is kept by tar, rsync -H"


def test_a_single_case_can_be_required() -> None:
    assert result_of(summarise(require=["names.space"])).recommended == "scp"
    found = verdicts(summarise(require=["names.newline"]))
    assert found["scp"] == ("disqualified", "does not keep names.newline: 1 of 3 names kept, lost")
    assert verdicts(summarise(require=["names"]))["scp"][1] == "does not keep names: 5 of 7 names kept, lost"


def test_what_could_not_be_made_is_not_taken_for_kept() -> None:
    found = verdicts(summarise(require=["devices"]))
    assert set(found.values()) == {
        ("disqualified", "devices could not be measured: only root makes device files"),
    }
    # a part of it was kept by tar, and of the rest nobody knows
    found = verdicts(summarise(require=["xattrs"]))
    assert found["tar"][1] == "xattrs could not be measured: xattrs.trusted, only root makes trusted attributes"
    assert found["scp"][1] == "does not keep xattrs: 0 of 2 names kept, lost"
    assert result_of(summarise(require=["xattrs.user"])).recommended == "tar"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"status": "failed", "message": "gone\nand more", "fidelity": None}, "failed: gone"),
        ({"status": "unsupported", "message": "no program", "fidelity": None}, "unsupported: no program"),
        ({"fidelity": None}, "linkops.bulkcopy.scp does not say what it kept"),
        ({"fidelity": {"cases": cases_of("tar")[:1]}}, "there is no such case in its record"),
    ],
)
def test_a_run_that_told_nothing_disqualifies(row: dict[str, Any], reason: str) -> None:
    summary = summarise(require=["hardlinks"], bad={"tar": row})
    assert verdicts(summary)["tar"] == ("disqualified", f"hardlinks could not be measured: {reason}")
    assert result_of(summary).recommended == "rsync -H"


def test_a_run_that_was_not_made_disqualifies() -> None:
    plan = make(require=["hardlinks"], warmups=0)
    rows = [row for row in rows_of(plan) if (row["method"]["label"], row["scenario"]) != ("tar", "fidelity")]
    summary = summaries.summarise("c1", "test", plan, rows, {})
    assert verdicts(summary)["tar"][1] == "hardlinks could not be measured: its run was not made"
    assert summary.missing == ("link one, fidelity, tar: 1 run not run",)


def test_where_nobody_is_left_each_is_told_why() -> None:
    summary = summarise(require=["hardlinks", "acls"])
    full = result_of(summary)
    assert full.recommended is None
    assert full.reason == (
        "no method is left that keeps what is required (hardlinks, acls): scp: does not keep hardlinks: 0 of 4 names "
        "kept, lost; does not keep acls: 0 of 2 names kept, lost; rsync: does not keep hardlinks: 0 of 4 names kept, "
        "lost; does not keep acls: 1 of 2 names kept, changed; rsync -H, tar: does not keep acls: 0 of 2 names kept, lost"
    )
    assert summary.links[0].fidelity is not None
    assert summary.links[0].fidelity.reason == "no method keeps what is required (hardlinks, acls)"
    for text in (report.table(summary), report.markdown(summary), page.html(summary)):
        assert "no method is left that keeps" in " ".join(text.split())


def test_a_method_that_failed_and_keeps_nothing_has_both_reasons() -> None:
    plan = make(require=["hardlinks"], warmups=0)
    rows = rows_of(plan)
    bad = next(r for r in rows if (r["method"]["label"], r["scenario"], r["block"]) == ("scp", "full", 2))
    bad.update(status="failed", message="gone")
    found = verdicts(summaries.summarise("c1", "test", plan, rows, {}))
    assert found["scp"][1] == "1 of 2 runs failed: gone; does not keep hardlinks: 0 of 4 names kept, lost"


def test_only_clear_text_is_left() -> None:
    plan = make(require=["xattrs.user"], warmups=0)
    rows = rows_of(plan)
    for row in rows:
        row["method"]["encrypted"] = row["method"]["label"] != "tar"
    full = result_of(summaries.summarise("c1", "test", plan, rows, {}))
    assert full.recommended is None
    assert full.reason == (
        "only clear text is left, tar fastest: set bulkcopy_allow_cleartext: true to accept it; "
        "1 of 4 methods keeps xattrs.user"
    )


def test_a_dead_link_is_told_once() -> None:
    plan = make(require=["hardlinks"], warmups=0)
    rows = rows_of(plan)
    for row in rows:
        row.update(status="unreachable", message="no route", fidelity=None)
    summary = summaries.summarise("c1", "test", plan, rows, {})
    assert result_of(summary).reason == "no method was measured"
    assert "not measured: 2 of 2 runs unreachable: no route" in report.table(summary)
    assert "hard case" not in report.table(summary)


def test_what_was_not_measured_cannot_be_required() -> None:
    plan = make(warmups=0)
    with pytest.raises(plans.InputError, match="campaign c1 did not measure what methods keep"):
        summaries.summarise("c1", "test", plan, rows_of(plan), {}, require=["hardlinks"])
    assert summaries.summarise("c1", "test", plan, rows_of(plan), {}, require=[]).links[0].fidelity is None


def test_a_report_may_lift_what_the_plan_requires() -> None:
    assert result_of(summarise(require=[], planned=["hardlinks"])).recommended == "scp"


def test_no_prediction_for_who_is_not_ranked() -> None:
    datasets = [{"name": f"d{number}", "path": f"/x/{number}"} for number in range(5)]
    links = [{key: value for key, value in LINKS[0].items() if key != "datasets"}]
    plan = plans.make_plan(
        profile={**PROFILE, "datasets": datasets, "warmups": 0, "require": ["hardlinks"]},
        profile_name="test",
        overrides={},
        links=links,
        hosts=HOSTS,
        standard_methods=[],
        seed=1,
    )
    rows = rows_of(plan)
    for number, row in enumerate(rows):
        row["dataset"].update(compressibility=1.0, files=number)
    models = {model.label: model for model in summaries.summarise("c", "t", plan, rows, {}).links[0].models}
    assert models["scp"].reason == "does not keep hardlinks: 0 of 4 names kept, lost"


# --------------------------------------------------------------------------------------------------------------------
# What is shown


def test_the_table_of_the_report_has_a_line_a_method_and_a_column_a_group() -> None:
    lines = report.markdown(summarise(require=["hardlinks"])).splitlines()
    start = lines.index("### What each method keeps: 7 hard cases, 17 names, one copy each; 2 cases could not be made")
    assert lines[start + 2 : start + 9] == [
        "| method | names | symlinks | hardlinks (required) | xattrs | acls | devices | cases kept |",
        "|---|---|---|---|---|---|---|---|",
        "| (names in the tree) | 7 | 2 | 4 | 2 | 2 | 0 |  |",
        "| tar | yes | yes | yes | yes - | L | - | 6 of 7 |",
        "| rsync -H | yes | yes | yes | L - | L | - | 5 of 7 |",
        "| rsync | yes | yes | L | L - | 1/2 C | - | 4 of 7 |",
        "| scp | 5/7 L | F+R | L | L - | L | - | 1 of 7 |",
    ]
    text = "\n".join(lines)
    assert "- devices could not be made: only root makes device files" in text
    assert "- rsync, scp: does not keep hardlinks: 0 of 4 names kept, lost" in text
    assert "**What is required (hardlinks) is kept by tar, rsync -H.**" in text
    assert "| hardlinks | two names of one file | lost | rsync, scp | hardlinks/one: gone |" in text
    assert (
        "| names.newline | names with a line break | lost, 1 of 3 names kept | scp | names.newline/one: gone |" in text
    )
    assert "| xattrs.user | user's extended attributes | lost | all but tar | xattrs.user/one: gone |" in text
    # a legend for every sign
    assert all(f"{sign}: " in wording.SIGNS_LEGEND for sign in wording.SIGNS.values())


def test_the_terminal_has_a_line_for_methods_that_keep_the_same() -> None:
    text = report.table(summarise(bad={"scp": {"fidelity": {"cases": cases_of("rsync")}}}))
    assert max(map(len, text.splitlines())) <= 100
    assert "what each method keeps: 7 hard cases, 17 names, one copy each; 2 cases could not be made" in text
    assert "  tar: 6 of 7; not acls L\n" in text
    assert "  scp, rsync: 4 of 7; not hardlinks L, xattrs L -, acls 1/2 C\n" in text
    assert "=> most is kept by tar (6 of 7 cases)" in text


def test_the_last_words_say_who_keeps_what_is_required() -> None:
    lines = report.last_words(json.loads(json.dumps(summarise(require=["hardlinks"]).as_dict())))
    assert lines == [
        "one, mine: use rsync -H (provisional)",
        "one, fidelity: what is required (hardlinks) is kept by tar, rsync -H",
    ]


def test_the_page_shows_the_same_table() -> None:
    text = page.html(summarise(require=["hardlinks"], bad={"tar": {"status": "failed", "message": "<gone>"}}))
    body = html.unescape(re.sub(r"<[^>]*>", " ", text))
    flat = " ".join(body.split())
    assert "names in the tree 7 2 4 2 2 0 rsync -H yes yes yes L - L - 5 of 7" in flat
    assert "scp 5/7 L F+R L L - L - 1 of 7 tar ? ? ? ? ? ? ?" in flat
    assert "tar: not measured: failed: <gone>" in flat
    assert "what is kept What is required (hardlinks) is kept by rsync -H" in flat
    assert '<th scope="col" class="required"><span>hardlinks</span></th>' in text
    assert '<td class="lost">5/7 L</td><td class="lost">F+R</td>' in text
    assert '<td class="good">yes</td>' in text
    assert '<td class="changed">1/2 C</td><td class="soft">-</td>' in text


def test_a_campaign_of_hard_cases_only_is_shown() -> None:
    plan = make(scenarios=["fidelity"])
    summary = summaries.summarise("c1", "test", plan, rows_of(plan), {})
    assert summary.links[0].results == ()
    assert "not measured" not in report.table(summary)
    assert "Not measured" not in report.markdown(summary)
    text = page.html(summary)
    assert "Not measured" not in text
    assert "only the fixed cost" not in text
    assert report.last_words(summary.as_dict()) == ["one, fidelity: most is kept by tar (6 of 7 cases)"]
    nothing = summaries.summarise("c1", "test", plan, [], {})
    assert "not measured: its run was not made" in report.table(nothing)


def test_the_file_for_programs_has_a_line_for_each_copy_of_the_hard_cases() -> None:
    lines = list(csv.DictReader(io.StringIO(report.as_csv(summarise(require=["hardlinks"])))))
    assert len(lines) == 3 * 4
    (scp,) = [line for line in lines if (line["scenario"], line["label"]) == ("fidelity", "scp")]
    assert (scp["dataset"], scp["n"], scp["median_s"], scp["verdict"]) == ("fidelity", "1", "", "disqualified")
    assert scp["reason"] == "does not keep hardlinks: 0 of 4 names kept, lost"
    assert scp["fidelity"].split()[:3] == [
        "names.space:kept:4/4",
        "names.newline:lost:1/3",
        "symlinks.relative:followed:0/1",
    ]
    assert len(scp["fidelity"].split()) == len(CASES)


def test_odd_labels_and_names_break_nothing() -> None:
    odd = '<i>|{{ 7*7 }}"\x1b[31m'
    summary = summarise()
    fidelity = summary.links[0].fidelity
    assert fidelity is not None
    first = dataclasses.replace(
        fidelity.methods[-1],
        label=odd,
        cases=tuple({**case, "detail": odd} for case in fidelity.methods[-1].cases),
    )
    link = dataclasses.replace(summary.links[0], fidelity=dataclasses.replace(fidelity, methods=(first,)))
    summary = dataclasses.replace(summary, links=(link,))
    assert "\x1b" not in report.table(summary) + report.markdown(summary) + page.html(summary)
    assert "<i>" not in page.html(summary)
    assert "|{{" not in report.markdown(summary)
