# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role dataset, run by ansible-playbook on this host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = [
    {"name": "little", "shape": "small", "scale": 0.01},
    {"name": "soft ware", "shape": "tree", "scale": 0.002},
    {"name": "own", "parts": [{"name": "p", "files": 5, "file_bytes": 1234, "directories": 2}], "scale": 2},
]


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """play(): what the role registered, with `failed` and `msg` where it did not get so far."""
    playbook = tmp_path / "play.yml"
    outcome = tmp_path / "outcome.json"

    def save(what: str) -> dict[str, Any]:
        copy = {"content": "{{ " + what + " | to_json }}", "dest": str(outcome), "mode": "0644"}
        return {"name": "Save", "ansible.builtin.copy": copy, "check_mode": False}

    tasks = [
        {
            "name": "Run the role and save its outcome",
            "block": [
                {"name": "Make", "ansible.builtin.import_role": {"name": "linkops.bulkcopy.dataset"}},
                save("dataset_results"),
            ],
            "rescue": [save("ansible_failed_result")],
        }
    ]
    playbook.write_text(json.dumps([{"name": "Play", "hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        "ANSIBLE_REMOTE_TEMP": str(tmp_path / "remote"),
    }

    def call(*more: str, **variables: Any) -> dict[str, Any]:
        variables = {"bulkcopy_data_dir": str(tmp_path / "data"), "dataset_list": LIST, **variables}
        variables.update(ansible_connection="local", ansible_python_interpreter=sys.executable)
        argv = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", str(playbook)]
        outcome.unlink(missing_ok=True)
        done = subprocess.run(
            [*argv, "-e", json.dumps(variables), *more], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(outcome.read_text())
        return result

    return call


def numbers(outcome: dict[str, Any], name: str) -> list[int]:
    return [result["dataset"][name] for result in outcome["results"]]


def test_role(play: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    outcome = play("--check")
    # 1 of 100 of 2000; 0.4, 1 and 80 files of the tree; 2 times 5
    assert (outcome["changed"], numbers(outcome, "files"), data.exists()) == (True, [20, 82, 10], False)

    outcome = play()
    assert outcome["changed"] is True
    for result, item in zip(outcome["results"], LIST, strict=True):
        facts = result["dataset"]
        assert facts["path"] == str(data / str(item["name"]))
        # What find says of the tree.
        find = ["find", facts["path"], "-type", "f", "-printf", "%s\n"]
        sizes = subprocess.run(find, check=True, capture_output=True, text=True).stdout.split()
        assert (len(sizes), sum(map(int, sizes))) == (facts["files"], facts["bytes"])

    assert play()["changed"] is False

    (data / "own/p/d000/f000001.bin").write_bytes(b"damaged")
    assert numbers(play(), "replaced") == [0, 0, 1]

    outcome = play(dataset_state="absent")
    assert (outcome["changed"], list(data.iterdir())) == (True, [])
    assert play(dataset_state="absent")["changed"] is False


def test_role_refuses_bad_input(play: Any, tmp_path: Path) -> None:
    outcome = play(dataset_list=[LIST[0], LIST[0]])
    assert "one name to two datasets (little, little)" in outcome["msg"]
    outcome = play(dataset_list=[{"name": "x", "shape": "huge"}])
    assert "small, large, tree" in json.dumps(outcome)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").write_bytes(b"!")
    outcome = play(dataset_list=[{**LIST[0], "path": str(foreign)}])
    assert "was not made by this module" in outcome["results"][0]["msg"]
    assert not (tmp_path / "data").exists()
