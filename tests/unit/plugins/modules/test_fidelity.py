# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs on a tree of hard cases, on one machine: ssh is stood in for, everything else is real."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _fidelity
from ansible_collections.linkops.bulkcopy.plugins.modules import dataset, tar_ssh, tree_info

from ..conftest import Programs
from .conftest import Run


@pytest.fixture
def options(fake_ssh: str, tmp_path: Path) -> dict[str, Any]:
    _fidelity.present(str(tmp_path / "hard"))
    root = tmp_path / "scratch"
    root.mkdir()
    (root / ".linkops-bulkcopy").write_text(json.dumps({"token": "one"}))
    return {
        "src": str(tmp_path / "hard"),
        "dest": str(root),
        "address": "127.0.0.1",
        "target_python": sys.executable,
        "scratch": True,
        "scratch_token": "one",
        "fidelity": True,
    }


def outcomes(record: dict[str, Any]) -> dict[str, str]:
    return {case["id"]: case["outcome"] for case in record["fidelity"]["cases"]}


def test_tar_loses_what_it_is_known_to_lose(run_module: Run, options: dict[str, Any]) -> None:
    record = run_module(tar_ssh, **options)["record"]
    assert (record["status"], record["scenario"], record["verified"]) == ("ok", "fidelity", None)
    found = outcomes(record)
    not_made = {name for name, outcome in found.items() if outcome == "not-made"}
    # The column of tar in a table of what each method keeps, measured by hand with GNU tar 1.34.
    as_known = {
        "sockets": "lost",
        "sparse": "lost",
        "xattrs.user": "lost",
        "xattrs.trusted": "lost",
        "xattrs.capability": "lost",
        "acls.access": "lost",
        "acls.default": "lost",
        "mtime_ns.files": "changed",
        "mtime_ns.directories": "changed",
        "mtime_ns.symlinks": "changed",
        # GNU tar gives up on what it may not read, with status 2.
        "unreadable": "kept" if os.geteuid() == 0 else "refused",
    }
    expected = {name: as_known.get(name, "kept") for name in found}
    assert found == {**expected, **dict.fromkeys(not_made, "not-made")}
    assert os.listdir(options["dest"]) == [".linkops-bulkcopy"]


def test_tar_keeps_what_it_is_told_to_keep(run_module: Run, options: dict[str, Any]) -> None:
    record = run_module(tar_ssh, keep=["times", "acls", "xattrs", "sparse"], **options)["record"]
    assert record["method"]["label"] == "tar -S --xattrs --acls --format=posix|ssh"
    left = {name: outcome for name, outcome in outcomes(record).items() if outcome not in ("kept", "not-made")}
    assert left.pop("sockets") == "lost"
    assert left == ({} if os.geteuid() == 0 else {"unreadable": "refused"})


def test_streams_keep_what_one_stream_keeps(run_module: Run, options: dict[str, Any]) -> None:
    keep = ["acls", "xattrs", "sparse"]
    one, three = (run_module(tar_ssh, keep=keep, streams=number, **options)["record"] for number in (1, 3))
    assert three["method"]["streams"] == 3
    assert outcomes(three) == outcomes(one)


def test_a_copy_that_never_began_is_no_answer(run_module: Run, options: dict[str, Any], programs: Programs) -> None:
    programs.add("tar", "#!/bin/sh\necho broken >&2\nexit 3\n")
    record = run_module(tar_ssh, **options)["record"]
    assert (record["status"], record["fidelity"]) == ("failed", None)
    assert "broken" in record["message"]


def test_another_tree_has_no_hard_cases(run_module: Run, options: dict[str, Any], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    result = run_module(tar_ssh, **{**options, "src": str(other)})
    assert result["record"]["status"] == "failed"
    assert "is no whole tree of the dataset shape fidelity" in result["msg"]


@pytest.mark.parametrize("wrong", [{"scratch": False}, {"update": True, "base": "one"}])
def test_hard_cases_are_copied_to_scratch_only(run_module: Run, options: dict[str, Any], wrong: dict[str, Any]) -> None:
    assert run_module(tar_ssh, **{**options, **wrong})["msg"].startswith("fidelity needs scratch")


def test_the_module_makes_keeps_and_removes_the_tree(run_module: Run, tmp_path: Path) -> None:
    path = tmp_path / "hard"
    made = run_module(dataset, path=str(path), shape="fidelity")
    assert (made["changed"], made["dataset"]["created"]) == (True, made["dataset"]["files"])
    assert run_module(dataset, path=str(path), shape="fidelity")["changed"] is False
    (path / "mtime_s" / "name").touch()
    mended = run_module(dataset, path=str(path), shape="fidelity")
    assert (mended["changed"], mended["dataset"]["replaced"]) == (True, made["dataset"]["files"])
    (path / "names.space" / "mine").touch()
    assert "names.space/mine is in the way" in run_module(dataset, path=str(path), state="absent")["msg"]
    (path / "names.space" / "mine").unlink()
    assert run_module(dataset, path=str(path), state="absent")["changed"] is True
    assert list(tmp_path.iterdir()) == []


def test_the_tree_can_be_listed_whoever_may_read_it(run_module: Run, options: dict[str, Any]) -> None:
    tree = run_module(tree_info, path=options["src"])["tree"]
    assert tree["files"] > 80
    assert 0 < tree["compressibility"] < 1
