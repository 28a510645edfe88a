# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.outcome import FAILED, Outcome, attempt, plain
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import Campaign, ResultsError


class ActionModule(ActionBase):
    """Runs one step of the preparation and writes down how it ended."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _spec, args = self.validate_argument_spec(
            argument_spec={
                "campaign": {"type": "path", "required": True},
                "step": {"type": "str", "required": True},
                "key": {"type": "str", "required": True},
                "module": {"type": "str"},
                "args": {"type": "dict", "default": {}},
                "fault": {"type": "str"},
            },
            mutually_exclusive=[("module", "fault")],
            required_one_of=[("module", "fault")],
        )
        if args["fault"] is not None:
            outcome = Outcome(FAILED, args["fault"], {})
        else:
            given = {key: value for key, value in args["args"].items() if value is not None}
            outcome = attempt(self, args["module"], given, task_vars or {})
        kept = plain(outcome.result)
        result: dict[str, Any] = {
            "changed": bool(outcome.result.get("changed")),
            "status": outcome.status,
            "message": outcome.message,
            "result": kept,
        }
        try:
            Campaign(Path(args["campaign"])).note(
                args["step"],
                args["key"],
                {"status": outcome.status, "message": outcome.message, "result": kept},
            )
        except ResultsError as error:  # what the step made must be cleaned up all the same
            result["warnings"] = [str(error)]
        if outcome.interpreter:
            result["ansible_facts"] = outcome.interpreter
        return result
