# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans

HOSTS = {
    "a": plans.Host("198.18.0.1", data_dir="/data"),
    "b": plans.Host("198.18.0.2"),
    "c": plans.Host("198.18.0.3", data_dir="/data/"),
    "d": plans.Host("198.18.0.4"),
}
STANDARD = [
    {"label": "scp", "module": "scp"},
    {"label": "scp -C", "module": "scp", "args": {"ssh_compression": True}},
    {"label": "tar|nc", "module": "tar_nc"},
]
PROFILE: dict[str, Any] = {
    "blocks": 3,
    "warmups": 1,
    "datasets": [{"name": "large", "scale": 0.01}, {"name": "small", "scale": 0.1}],
    "methods": ["scp", "scp -C", {"label": "mine", "module": "other.tools.copy", "args": {"x": 1}}],
}
LINKS: list[dict[str, Any]] = [
    {"name": "one", "source": "a", "target": "b", "address": "198.18.1.2", "rate_mbit": 100},
    {"name": "two", "source": "a", "target": "d", "lab": {"rate_mbit": 1000}},
    {"name": "three", "source": "c", "target": "d"},
]


def make(**changes: Any) -> plans.Plan:
    given: dict[str, Any] = {
        "profile": PROFILE,
        "profile_name": "test",
        "overrides": {},
        "links": LINKS,
        "hosts": HOSTS,
        "standard_methods": STANDARD,
        "seed": 1,
    }
    return plans.make_plan(**{**given, **changes})


def faults(**changes: Any) -> list[str]:
    with pytest.raises(plans.InputError) as caught:
        make(**changes)
    return caught.value.faults


def test_counts_every_run() -> None:
    plan = make()
    # 3 links x (1 warm-up of the smallest dataset x 3 methods + 3 blocks x 2 datasets x 3 methods)
    assert len(plan.cells) == 3 * (1 * 3 + 3 * 2 * 3) == 63
    assert [cell.number for cell in plan.cells] == list(range(1, 64))
    assert len({cell.run_id for cell in plan.cells}) == 63
    # 10 % of 200 MB are the smaller tree: 20 MB; large at 1 % is 2 files of 10 MB, the same; the first one wins
    assert {cell.dataset for cell in plan.cells if cell.warmup} == {"large"}


def test_each_block_holds_each_method_once() -> None:
    plan = make(overrides={"blocks": 4})
    groups: dict[Any, list[plans.Cell]] = {}
    for cell in plan.cells:
        groups.setdefault((cell.link, cell.dataset, cell.warmup, cell.block), []).append(cell)
    assert len(groups) == 3 * (1 + 4 * 2)
    for cells in groups.values():
        assert Counter(cell.label for cell in cells) == {"scp": 1, "scp -C": 1, "mine": 1}
        assert sorted(cell.position for cell in cells) == [1, 2, 3]


def test_blocks_are_completed_one_after_the_other() -> None:
    cells = [cell for cell in make().cells if cell.link == "one"]
    assert [cell.warmup for cell in cells] == [True] * 3 + [False] * 18
    blocks = [cell.block for cell in cells if not cell.warmup]
    assert blocks == sorted(blocks)


def test_order_depends_on_the_seed_alone() -> None:
    assert make().cells == make().cells
    assert [c.label for c in make(seed=1).cells] != [c.label for c in make(seed=2).cells]
    # the order of one link does not change when another is added
    alone = make(links=LINKS[:1])
    assert [c.label for c in alone.cells] == [c.label for c in make().cells if c.link == "one"]


def test_orders_are_spread_evenly() -> None:
    plan = make(overrides={"blocks": 600, "warmups": 0, "replica": False}, links=LINKS[:1])
    first = Counter(cell.label for cell in plan.cells if cell.position == 1)
    # 1200 draws of three: 400 each, standard deviation 16.3; five of them
    assert all(abs(count - 400) < 82 for count in first.values())


@pytest.mark.parametrize(
    ("replica", "blocks", "copies"),
    [("auto", 4, 0), ("auto", 5, 1), (True, 3, 1), (False, 9, 0), ("true", 3, 1), ("no", 9, 0)],
)
def test_replica(replica: str | bool, blocks: int, copies: int) -> None:
    plan = make(overrides={"replica": replica, "blocks": blocks}, links=LINKS[:1])
    copied = [cell for cell in plan.cells if cell.replica == 1]
    assert len(copied) == copies * blocks * 2
    assert not any(cell.warmup for cell in copied)
    assert {cell.label for cell in copied} == ({plan.replica} if copies else set())


def test_blocks_that_may_be_added_are_planned_and_not_counted_as_sure() -> None:
    plan = make(overrides={"blocks": 3, "max_blocks": 5})
    # 3 links x (3 warm-ups + 5 blocks x 2 datasets x 3 methods), with the A/A copy from 5 blocks on
    assert len(plan.cells) == 3 * (3 + 5 * 2 * 4)
    found = plans.estimate(plan)
    assert (found.runs, found.sure_runs) == (3 * (3 + 5 * 2 * 4), 3 * (3 + 3 * 2 * 4))
    assert found.sure_s < found.duration_s
    # the added blocks change nothing of the sure ones
    fewer = make(overrides={"blocks": 3, "max_blocks": 3, "replica": True}).cells
    assert {cell.run_id for cell in fewer} < {
        cell.run_id for cell in make(overrides={"blocks": 3, "max_blocks": 5, "replica": True}).cells
    }


def test_who_says_how_many_blocks_means_so_many() -> None:
    profile = {**PROFILE, "blocks": 3, "max_blocks": 9}
    assert make(profile=profile).settings.max_blocks == 9
    assert make(profile=profile, overrides={"blocks": 4}).settings.max_blocks == 4
    assert make(profile=profile, overrides={"blocks": 4, "max_blocks": 6}).settings.max_blocks == 6


def test_a_time_budget_bounds_the_estimate_of_what_is_not_sure() -> None:
    without = plans.estimate(make(overrides={"blocks": 3, "max_blocks": 50}))
    with_budget = plans.estimate(make(overrides={"blocks": 3, "max_blocks": 50, "budget_minutes": 10}))
    assert without.duration_s > 600
    assert with_budget.duration_s == 600
    tight = plans.estimate(make(overrides={"blocks": 3, "max_blocks": 50, "budget_minutes": 0.1}))
    assert tight.duration_s == tight.sure_s == without.sure_s


def test_the_scenario_empty_is_one_more_tree_on_every_link() -> None:
    links = [{**LINKS[0], "datasets": ["small"]}, LINKS[2]]
    plan = make(overrides={"scenarios": ["full", "empty"]}, links=links)
    empty = [cell for cell in plan.cells if cell.scenario == "empty"]
    assert {cell.dataset for cell in empty} == {"empty"}
    assert len(empty) == 2 * 3 * 3  # links, blocks, methods
    assert not any(cell.warmup for cell in empty)  # and it is not the smallest dataset
    assert [(tree.key, tree.files, tree.bytes) for tree in plan.trees if tree.dataset == "empty"] == [
        ("a:empty", 0, 0),
        ("c:empty", 0, 0),
    ]
    assert {(cell.link, cell.dataset) for cell in plan.cells if cell.link == "one"} == {
        ("one", "small"),
        ("one", "empty"),
    }
    alone = make(overrides={"scenarios": ["empty"]}, links=links)
    assert {cell.scenario for cell in alone.cells} == {"empty"}
    assert plans.plan_from_dict(json.loads(json.dumps(plan.as_dict()))) == plan


def test_sizes_to_predict() -> None:
    assert plans.read_sizes([{"files": "5000", "bytes": 5e12}]) == (plans.Size(5000, 5_000_000_000_000),)
    assert plans.read_sizes(None) == plans.DEFAULT_SIZES
    for raw, sentence in (
        ("5 TB", "must be a list"),
        ([{"files": 1}], "entry 1 has no bytes"),
        ([{"files": 1, "bytes": "5 TB"}], "bytes must be a whole number"),
        ([{"files": 1, "bytes": 5, "size": 2}], "unknown key 'size'"),
    ):
        with pytest.raises(plans.InputError, match=sentence):
            plans.read_sizes(raw)


def test_rounds_share_no_host() -> None:
    plan = make()
    assert plan.rounds == (("one", "three"), ("two",))
    links = {link.name: link for link in plan.links}
    for names in plan.rounds:
        ends = [end for name in names for end in (links[name].source, links[name].target)]
        assert len(ends) == len(set(ends))


def test_rounds_of_hosts_on_one_machine() -> None:
    hosts = {**HOSTS, "b": HOSTS["b"]._replace(machine="m"), "c": HOSTS["c"]._replace(machine="m")}
    assert make(hosts=hosts).rounds == (("one",), ("two",), ("three",))


def test_defaults_of_a_link() -> None:
    two = make(ssh_users={"d": "copier"}).links[1]
    assert (two.address, two.ssh_user, two.rate_mbit) == ("198.18.0.4", "copier", 1000)
    assert two.scratch_dir == "/var/tmp/linkops-bulkcopy/scratch"


def test_trees_follow_the_rate_and_are_shared() -> None:
    profile = {
        **PROFILE,
        "datasets": [{"name": "large", "scale": 0.03, "scale_by_rate": [{"up_to_mbit": 100, "scale": 0.015}]}],
    }
    plan = make(profile=profile)
    assert [(t.key, t.path, t.files, t.bytes) for t in plan.trees] == [
        ("a:large-x0.015", "/data/large-x0.015", 3, 30_000_000),
        ("a:large-x0.03", "/data/large-x0.03", 6, 60_000_000),
        ("c:large-x0.03", "/data/large-x0.03", 6, 60_000_000),
    ]


def test_sizes_of_described_and_standard_trees() -> None:
    parts = [{"name": "p", "files": 10, "file_bytes": 1000}, {"name": "q", "files": 4, "file_bytes": 50}]
    datasets = [{"name": "mine", "parts": parts, "scale": 0.5}, {"name": "tree"}]
    mine, tree = make(overrides={"datasets": datasets}, links=LINKS[:1]).trees
    assert (mine.files, mine.bytes) == (5 + 2, 5 * 1000 + 2 * 50)
    # the first seed's 1.6 GB
    assert tree.bytes == pytest.approx(1.6e9, rel=0.01)


def test_scale_is_that_of_the_lowest_limit_that_reaches_the_rate() -> None:
    dataset = plans.Dataset("x", scale=9, scale_by_rate=((1000, 3), (100, 1)))
    assert [dataset.scale_for(rate) for rate in (10, 100, 101, 1000, 1001, None)] == [1, 1, 3, 3, 9, 9]


def test_estimate_by_hand() -> None:
    profile = {**PROFILE, "datasets": [{"name": "large", "scale": 0.01}], "methods": ["scp", "scp -C"], "warmups": 0}
    plan = make(profile=profile, links=[LINKS[0]])
    found = plans.estimate(plan)
    # 3 blocks x 2 methods of 20 MB at 100 Mbit/s x 0.94 = 11.75 MB/s, for both: 1.702 s and 1.5 s beside it
    assert (found.runs, found.bytes, found.unknown) == (6, 120_000_000, ())
    assert found.duration_s == pytest.approx(6 * (1.5 + 20 / 11.75))
    # on 1 Gbit/s: 117.5 MB/s plain, 25 MB/s compressed
    fast = plans.estimate(make(profile=profile, links=[LINKS[1]]))
    assert fast.duration_s == pytest.approx(3 * (1.5 + 20 / 117.5) + 3 * (1.5 + 20 / 25))
    done = [cell.run_id for cell in plan.cells[:4]]
    assert plans.estimate(plan, done=done).runs == 2


def test_estimate_adds_the_slowest_link_of_each_round() -> None:
    profile = {**PROFILE, "datasets": [{"name": "mine", "path": "/srv/mine"}], "methods": ["scp"], "warmups": 0}
    plan = make(profile=profile)
    assert plans.estimate(plan).unknown == ("a:mine", "c:mine")
    found = plans.estimate(plan, {"a:mine": 23_500_000, "c:mine": 0})
    assert found.bytes == 2 * 3 * 23_500_000
    # round 1: link one, 3 x (1.5 + 2 s); round 2: link two, 3 x (1.5 + 0.2 s)
    assert found.duration_s == pytest.approx(3 * 3.5 + 3 * 1.7)


def test_refuses_above_the_limits() -> None:
    found = plans.Estimate(10, 3_000_000_000, 7200, 10, 7200)
    assert plans.refuse_above(found, 3e9, 120) == []
    bytes_, minutes = plans.refuse_above(found, 2e9, 60)
    assert "3 GB in 10 runs" in bytes_
    assert "bulkcopy_max_bytes (2 GB)" in bytes_
    assert "2 h 0 min" in minutes


def test_plan_survives_json() -> None:
    plan = make(overrides={"blocks": 5})
    again = plans.plan_from_dict(json.loads(json.dumps(plan.as_dict())))
    assert again == plan
    assert again.fingerprint() == plan.fingerprint()


def test_fingerprint_sees_what_is_measured_and_nothing_else() -> None:
    plan = make()
    assert dataclasses.replace(plan, rounds=(("one",), ("two",), ("three",))).fingerprint() == plan.fingerprint()
    for changes in (
        {"seed": 2},
        {"overrides": {"blocks": 4}},
        {"overrides": {"verify": "none"}},
        {"links": [{**LINKS[0], "address": "198.18.9.9"}, *LINKS[1:]]},
    ):
        assert make(**changes).fingerprint() != plan.fingerprint()


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ({"target": "bb"}, "link one: its target bb is not a host of the inventory"),
        ({"target": "a"}, "link one: its source and its target are both a: name two different hosts."),
        ({"source": None}, "link one has no source: add it."),
        ({"name": None}, "bulkcopy_links entry 1 has no name: add it."),
        ({"name": "a b"}, "the name 'a b' must begin with a letter or digit"),
        ({"ssh_port": "x"}, "link one: ssh_port must be a whole number from 1 to 65535, but is 'x'."),
        ({"ssh_port": 70000}, "link one: ssh_port must be a whole number from 1 to 65535, but is 70000."),
        ({"rate_mbit": 0}, "link one: rate_mbit must be a number above 0, but is 0."),
        ({"adress": "x"}, "bulkcopy_links entry 1 has the unknown key 'adress'"),
        ({"ssh_user": 7}, "link one: ssh_user must be a text, but is 7: put it in quotes."),
        ({"ssh_options": ["Compression yes"]}, "the ssh option 'Compression yes' must look like Key=value."),
        ({"address": "198.18.1.2 "}, "link one: address must be a host name or an IP address, but is '198.18.1.2 '."),
        ({"address": "-oProxyCommand=x"}, "link one: address must be a host name or an IP address"),
        ({"address": "root@dc2"}, "link one: address must be a host name or an IP address"),
        ({"ssh_options": "A=b"}, "link one: ssh_options must be a list of texts"),
        (
            {"datasets": ["smal"]},
            "link one: the dataset smal is not in profile test; it has large, small (did you mean",
        ),
    ],
)
def test_faults_of_a_link(link: dict[str, Any], sentence: str) -> None:
    (found,) = faults(links=[{**LINKS[0], **link}])
    assert sentence in found


@pytest.mark.parametrize("address", ["dc2-a", "host_1.example.org", "198.18.1.2", "2001:db8::5", "fe80::1%eth0"])
def test_addresses_of_a_link(address: str) -> None:
    assert make(links=[{**LINKS[0], "address": address}]).links[0].address == address


@pytest.mark.parametrize("path", ["x/y", "", "/", "//", "/..", "['/a']"])
def test_folders_of_a_host(path: str) -> None:
    assert faults(hosts={**HOSTS, "a": HOSTS["a"]._replace(data_dir=path)}, links=LINKS[:1]) == [
        f"host a: bulkcopy_data_dir must be an absolute path below /, but is {path!r}."
    ]
    assert faults(hosts={**HOSTS, "d": HOSTS["d"]._replace(scratch_dir=path)}) == [
        f"host d: bulkcopy_scratch_dir must be an absolute path below /, but is {path!r}."
    ]


def test_no_links_shows_an_example_of_five_lines() -> None:
    nothing: list[Any] = [None, [], {}]
    for links in nothing:
        (found,) = faults(links=links)
        assert found.startswith("the inventory has no bulkcopy_links")
        assert found.endswith(plans.LINK_EXAMPLE)
    assert len(plans.LINK_EXAMPLE.splitlines()) == 5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"blocks": 0}, "variable bulkcopy_blocks: blocks must be a whole number from 1 to 1000, but is 0."),
        ({"blocks": 2.5}, "blocks must be a whole number"),
        ({"blocks": True}, "blocks must be a whole number"),
        ({"verify": "md5"}, "verify must be one of sha256, size-mtime, none, but is 'md5'"),
        ({"timeout_s": "nan"}, "timeout_s must be a number above 0"),
        ({"replica": "maybe"}, "replica must be auto, true or false"),
        ({"datasets": []}, "datasets must be a list with at least one entry"),
        ({"datasets": [{"shape": "small"}]}, "variable bulkcopy_datasets, dataset 1 has no name: add it."),
        ({"datasets": [{"name": "empty"}]}, "the name empty is that of a scenario"),
        (
            {"scenarios": ["full", "emtpy"]},
            "no scenario 'emtpy'; there are full, update, empty, fidelity (did you mean empty?)",
        ),
        ({"blocks": 3, "max_blocks": 2}, "max_blocks must be a whole number from 3 to 1000"),
        ({"precision": 0}, "precision must be a number above 0"),
        ({"precision": "5"}, "precision must be a share below 1 (0.05 is 5 %), but is 5."),
        ({"replica": 0}, "replica must be auto, true or false, but is 0."),
        ({"budget_minutes": 5}, "only ends blocks that are added: set bulkcopy_max_blocks above 3"),
        ({"budget_minutes": "soon"}, "budget_minutes must be a number above 0"),
        ({"datasets": [{"name": "x"}]}, "dataset x: give a shape (small, large, tree, empty)"),
        ({"datasets": [{"name": "x", "shape": "smal"}]}, "the shape 'smal' is unknown; known are small, large, tree"),
        ({"datasets": [{"name": "x", "path": "y"}]}, "the path 'y' must be absolute"),
        ({"datasets": [{"name": "x", "path": "/y", "shape": "small"}]}, "give a shape, or parts, or the path"),
        ({"datasets": [{"name": "x", "parts": "y"}]}, "dataset x: parts must be a list of mappings with name, files"),
        ({"datasets": [{"name": "x", "parts": [{"name": "p", "files": 0, "file_bytes": 1}]}]}, "files 0: it must be"),
        ({"datasets": [{"name": "x", "parts": [{"name": "p", "files": "9", "file_bytes": 1}]}]}, "without quotes"),
        ({"datasets": [{"name": "small"}, {"name": "small"}]}, "two datasets are named small"),
        ({"datasets": [{"name": "small", "scale": -1}]}, "scale must be a number above 0, but is -1."),
        ({"datasets": [{"name": "small", "scale": 1e9}]}, "choose a lower scale"),
        ({"datasets": [{"name": "small", "scale_by_rate": 5}]}, "scale_by_rate must be a list of up_to_mbit and scale"),
        ({"datasets": [{"name": "small", "scale_by_rate": {"up_to_mbit": 5}}]}, "scale_by_rate must be a list"),
        ({"datasets": [{"name": "x", "parts": "y"}]}, "but there is 'y'."),
        ({"methods": ["scq"]}, "no standard method labelled 'scq' (did you mean scp?)"),
        ({"methods": ["scp", "scp"]}, "two methods are labelled 'scp': rename one."),
        ({"methods": [{"module": "scp"}]}, "method 1 has no label: add it."),
        ({"methods": [{"label": "x", "module": "scp", "args": []}]}, ""),
        ({"methods": [{"label": "x", "module": "scp", "args": "-a"}]}, "args must be a mapping"),
        ({"methods": [{"label": "x\n", "module": "scp"}]}, "must be printable"),
    ],
)
def test_faults_of_a_profile(changes: dict[str, Any], sentence: str) -> None:
    if not sentence:
        make(overrides=changes)
        return
    found = faults(overrides=changes)
    assert any(sentence in one for one in found), found


def test_unknown_profile_key() -> None:
    (found,) = faults(profile={**PROFILE, "block": 3})
    assert "profile test has the unknown key 'block'" in found
    assert found.endswith("(did you mean blocks?).")


def test_all_faults_come_together_with_the_callers() -> None:
    found = faults(
        links=[{**LINKS[0], "target": "x"}],
        overrides={"blocks": 0},
        more_faults=lambda methods: [f"{len(methods)} methods are odd."],
    )
    assert len(found) == 3
    assert found[-1] == "3 methods are odd."


def test_shows_sizes_and_times() -> None:
    assert [plans.show_bytes(n) for n in (7, 1500, 2e9, 5e15)] == ["7 B", "1.5 kB", "2 GB", "5 PB"]
    assert [plans.show_bytes(n) for n in (999, 999_499, 999_500, 999_999_999)] == ["999 B", "999 kB", "1 MB", "1 GB"]
    assert plans.show_bytes(3e18) == "3000 PB"
    assert [plans.show_duration(n) for n in (59, 61, 7320)] == ["59 s", "1 min 1 s", "2 h 2 min"]


def test_links_of_other_profiles_are_not_measured() -> None:
    first, *others = LINKS
    only = [{**first, "profiles": ["far", "./mine.yml"], "datasets": ["of-far"]}, *others]
    known = ("far", "test")
    names = [link["name"] for link in LINKS]
    assert [link.name for link in make(links=only, profiles=known).links] == names[1:]
    only[0]["datasets"] = []
    assert [link.name for link in make(links=only, profiles=known, profile_name="far").links] == names
    assert [link.name for link in make(links=only, profiles=known, profile_name="./mine.yml").links] == names


def test_profiles_of_links_are_checked() -> None:
    link = {**LINKS[0], "profiles": ["fat"]}
    assert faults(links=[link, *LINKS[1:]], profiles=("far", "test")) == [
        f"link {link['name']}: there is no profile fat, which its profiles name; there are far, test (did you mean far?). "
        "A file of your own is named by its path."
    ]
    assert faults(links=[{**link, "profiles": ["far"]}], profiles=("far", "test")) == [
        "profile test measures none of bulkcopy_links: add it to the profiles of one of them."
    ]
