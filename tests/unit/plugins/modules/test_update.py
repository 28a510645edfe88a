# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole updates on one machine: ssh is stood in for, everything else is real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _tree
from ansible_collections.linkops.bulkcopy.plugins.modules import base, tar_ssh

from ..conftest import Programs
from .conftest import Run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Version 2: one file changed, one grew, one is new, one as it was."""
    tree = tmp_path / "two"
    (tree / "sub").mkdir(parents=True)
    for name, content in (("changed", b"after."), ("sub/grew", b"before, and more"), ("new", b"x"), ("same", b"same")):
        (tree / name).write_bytes(content)
    return tree


@pytest.fixture
def older(tmp_path: Path, source: Path) -> Path:
    """Version 1, with a file that has vanished since."""
    tree = tmp_path / "one"
    shutil.copytree(source, tree)
    (tree / "new").unlink()
    for name, content in (("changed", b"before"), ("sub/grew", b"before"), ("gone", b"gone")):
        (tree / name).write_bytes(content)
    return tree


@pytest.fixture
def link(fake_ssh: str) -> dict[str, Any]:
    return {"address": "127.0.0.1", "target_python": sys.executable}


@pytest.fixture
def scratch(tmp_path: Path, link: dict[str, Any]) -> dict[str, Any]:
    root = tmp_path / "scratch"
    root.mkdir()
    (root / ".linkops-bulkcopy").write_text(json.dumps({"token": "one"}))
    return dict(link, dest=str(root), scratch_token="one")


def differing(left: Path, right: Path) -> list[str]:
    said = subprocess.run(
        ["diff", "-rq", left, right],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return said.stdout.splitlines()


def test_what_is_there_is_brought_up_to_date(run_module: Run, link: dict[str, Any], source: Path, older: Path) -> None:
    result = run_module(tar_ssh, src=str(source), dest=str(older), update=True, **link)
    record = result["record"]
    assert (record["status"], record["scenario"], record["throughput_Bps"]) == ("ok", "update", None)
    assert record["verified"]["not_kept"] == {"deletions": 1}
    assert record["verified"]["mismatches"] == []
    assert differing(source, older) == [f"Only in {older}: gone"]


def test_without_being_asked_for_nothing_is_updated(
    run_module: Run, link: dict[str, Any], source: Path, older: Path
) -> None:
    result = run_module(tar_ssh, src=str(source), dest=str(older), **link)
    assert "is not empty" in result["msg"]
    assert (older / "changed").read_bytes() == b"before"


def test_every_copy_begins_with_the_version_that_was_put_there(
    run_module: Run, scratch: dict[str, Any], source: Path, older: Path
) -> None:
    put = run_module(base, src=str(older), name="v1", **scratch)
    assert (put["changed"], put["base"]["files"], put["base"]["bytes"]) == (True, 4, 6 + 6 + 4 + 4)
    kept = Path(put["base"]["path"])
    assert differing(older, kept) == []
    for _time in range(2):
        result = run_module(tar_ssh, src=str(source), scratch=True, update=True, base="v1", **scratch)
        assert result["record"]["verified"]["not_kept"] == {"deletions": 1}
        assert sorted(os.listdir(scratch["dest"])) == [".linkops-bulkcopy", "base"]
        assert differing(older, kept) == []
    assert run_module(base, src=str(older), name="v1", **scratch)["changed"] is False
    (kept / "gone").unlink()
    assert run_module(base, check_mode=True, src=str(older), name="v1", **scratch)["changed"] is True
    assert differing(older, kept) == [f"Only in {older}: gone"]
    assert run_module(base, src=str(older), name="v1", **scratch)["changed"] is True
    assert differing(older, kept) == []


def test_nothing_goes_on_when_nobody_waits_for_it(
    scratch: dict[str, Any], older: Path, programs: Programs, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    programs.add("tar", f'#!/bin/sh\ncase "$*" in --version) exit;; *-xpf*) echo $$ > {pids};; esac\nexec sleep 600\n')
    program = (
        "import json, sys\n"
        "from ansible.module_utils.testing import patch_module_args\n"
        "from ansible_collections.linkops.bulkcopy.plugins.modules import base\n"
        "with patch_module_args(json.loads(sys.argv[1])): base.main()\n"
    )
    options = json.dumps(dict(scratch, src=str(older), name="v1"))
    with subprocess.Popen(
        [sys.executable, "-c", program, options],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as module:
        receiver = int(pids.read_text())
        assert module.stdout is not None
        module.stdout.close()
        assert module.wait(60) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(receiver, 0)


def test_a_version_goes_to_marked_directories_only(
    run_module: Run, scratch: dict[str, Any], older: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    assert (
        "not ours"
        in run_module(base, src=str(older), name="v1", **{**scratch, "dest": str(tmp_path / "theirs")})["msg"]
    )
    assert "is not one" in run_module(base, src=str(older), name="../v1", **scratch)["msg"]
    assert (
        "is not the machine" in run_module(base, src=str(older), name="v1", **{**scratch, "scratch_token": "2"})["msg"]
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scratch": True, "update": True}, "update and base belong together"),
        ({"scratch": True, "base": "v1"}, "update and base belong together"),
        ({"update": True, "base": "v1"}, "base is what a copy in a scratch directory begins with"),
        ({"scratch": True, "update": True, "base": "none"}, "target 127.0.0.1 has no version none in "),
        ({"scratch": True, "update": True, "base": ".."}, "has no version .. in "),
    ],
)
def test_what_makes_no_sense_is_refused(
    run_module: Run, scratch: dict[str, Any], source: Path, given: dict[str, Any], message: str
) -> None:
    for check_mode in (True, False):
        result = run_module(tar_ssh, check_mode=check_mode, src=str(source), **scratch, **given)
        assert result["failed"]
        assert message in result["msg"]


def test_a_directory_that_does_not_give_way_to_a_file_is_told(
    run_module: Run, link: dict[str, Any], source: Path, older: Path
) -> None:
    (older / "new").mkdir()
    (older / "new" / "full").write_bytes(b"")
    result = run_module(tar_ssh, src=str(source), dest=str(older), update=True, **link)
    assert result["record"]["status"] == "failed"
    assert "new" in result["msg"]


def test_a_file_gives_way_to_a_directory_and_a_link_is_not_followed(
    run_module: Run, link: dict[str, Any], source: Path, older: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (older / "changed").unlink()
    (older / "changed").symlink_to(outside)
    shutil.rmtree(older / "sub")
    (older / "sub").write_bytes(b"was a file")
    result = run_module(tar_ssh, src=str(source), dest=str(older), update=True, **link)
    assert result["record"]["status"] == "ok"
    assert differing(source, older) == [f"Only in {older}: gone"]
    assert not (older / "changed").is_symlink()
    assert outside.read_bytes() == b"theirs"


def test_a_target_that_holds_most_of_it_needs_no_room_for_all(
    run_module: Run, link: dict[str, Any], source: Path, older: Path
) -> None:
    os.truncate(source / "same", 1 << 43)
    given = {"src": str(source), "verify": "size-mtime", **link}
    refused = run_module(tar_ssh, check_mode=True, dest=str(older.parent / "copy"), **given)
    assert "8.8 TB" in refused["msg"]
    assert run_module(tar_ssh, check_mode=True, dest=str(older), update=True, **given)["record"]["status"] == "planned"


def test_a_version_that_the_target_has_no_room_for_is_not_put_there(
    run_module: Run, scratch: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    os.truncate(source / "same", 1 << 43)
    # Nobody waits for the checksum of 8 TiB.
    listed = _tree.scan(str(source), hash_content=False)
    known = {
        path: entry._replace(sha256="0" * 64 if entry.kind == "f" else None) for path, entry in listed.entries.items()
    }
    manifest = str(tmp_path / "manifest")
    _tree.save(_tree.Manifest(known), manifest)
    refused = run_module(base, src=str(source), name="one", manifest=manifest, **scratch)
    assert "8.8 TB: free some" in refused["msg"]
    assert sorted(os.listdir(scratch["dest"])) == [".linkops-bulkcopy"]
