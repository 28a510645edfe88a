# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.linkops.bulkcopy.plugins.action import attempt as action
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.outcome import judge
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import Campaign


def call(path: Path, outcome: Any, **args: Any) -> tuple[dict[str, Any], mock.Mock]:
    plugin = action.ActionModule(
        task=mock.MagicMock(
            args={"campaign": str(path), "step": "reach", "key": "a", **args}, check_mode=False, async_val=0
        ),
        connection=mock.MagicMock(_shell=SimpleNamespace(tmpdir=None)),
        play_context=mock.MagicMock(),
        loader=mock.MagicMock(),
        templar=mock.MagicMock(),
        shared_loader_obj=mock.MagicMock(),
    )
    effect = {"side_effect": outcome} if isinstance(outcome, Exception) else {"return_value": outcome}
    with mock.patch.object(plugin, "_execute_module", **effect) as execute:
        return plugin.run(task_vars={}), execute


@pytest.mark.parametrize(
    ("outcome", "status", "message"),
    [
        ({"changed": True, "ping": "pong"}, "ok", ""),
        ({"failed": True, "msg": "no {{ tree }}"}, "failed", "no {{ tree }}"),
        ({"failed": True, "msg": "no ssh", "status": "unsupported"}, "unsupported", "no ssh"),
        (AnsibleConnectionFailure("timed out"), "unreachable", "timed out"),
    ],
)
def test_writes_down_how_it_ended_and_never_fails(tmp_path: Path, outcome: Any, status: str, message: str) -> None:
    result, _execute = call(tmp_path, outcome, module="ansible.builtin.ping")
    assert not result.get("failed")
    assert (result["status"], result["message"]) == (status, message)
    noted = Campaign(tmp_path).journal()["reach", "a"]
    assert (noted["status"], noted["message"]) == (status, message)


def test_leaves_out_null_options_and_what_is_ansibles_own(tmp_path: Path) -> None:
    outcome = {
        "changed": False,
        "tree": {"files": 2},
        "invocation": {},
        "exception": object(),
        "_ansible_x": 1,
        "ansible_facts": {"discovered_interpreter_python": "/usr/bin/python3", "other": 1},
    }
    result, execute = call(tmp_path, outcome, module="m", args={"path": "/x", "manifest": None})
    assert execute.call_args.kwargs["module_args"] == {"path": "/x"}
    assert Campaign(tmp_path).journal()["reach", "a"]["result"] == {"changed": False, "tree": {"files": 2}}
    assert result["ansible_facts"] == {"discovered_interpreter_python": "/usr/bin/python3"}


def test_notes_a_fault_without_running_anything(tmp_path: Path) -> None:
    result, execute = call(tmp_path, {}, fault="disk full")
    assert (result["status"], result["message"]) == ("failed", "disk full")
    execute.assert_not_called()


def test_reads_a_crash_from_its_chain_of_events() -> None:
    inner = SimpleNamespace(msg="boom {{ x }}", chain=None)
    crash = SimpleNamespace(event=SimpleNamespace(msg="Module failed.", chain=SimpleNamespace(event=inner)))
    outcome = judge({"failed": True, "exception": crash})
    assert (outcome.status, outcome.message) == ("failed", "the module crashed: Module failed: boom {{ x }}")
    assert judge({"failed": True, "exception": "Traceback\nValueError: y\n"}).message == "ValueError: y"


def test_a_full_disk_does_not_hide_what_was_made(tmp_path: Path) -> None:
    (tmp_path / "prepare.jsonl").symlink_to("/dev/full")
    result, _execute = call(tmp_path, {"changed": True}, module="linkops.bulkcopy.scratch")
    assert (result["status"], result["changed"]) == ("ok", True)
    assert "No space left on device" in result["warnings"][0]
