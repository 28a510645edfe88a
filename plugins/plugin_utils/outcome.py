# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module for an action plugin and says how that ended, whatever happened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import STATUSES

#: How much of a crashed module's output a message keeps: its end, where the reason stands.
TAIL_CHARACTERS = 600
INTERPRETER_FACT = "discovered_interpreter_"

OK, FAILED, UNREACHABLE = "ok", "failed", "unreachable"


class Outcome(NamedTuple):
    """C(status) is one of a record's; C(result) what the module returned, empty where it did not."""

    status: str
    message: str
    result: Mapping[str, Any]

    @property
    def interpreter(self) -> dict[str, Any]:
        """The discovered interpreter, the only fact to hand on: without it each run would look for one again."""
        facts = self.result.get("ansible_facts") or {}
        return {key: value for key, value in facts.items() if key.startswith(INTERPRETER_FACT)}


def attempt(action: ActionBase, module: str, args: Mapping[str, Any], task_vars: dict[str, Any]) -> Outcome:
    """Runs C(module) on the task's host. Never raises for what the host or the module did."""
    try:
        result = action._execute_module(module_name=module, module_args=dict(args), task_vars=task_vars)
    except AnsibleConnectionFailure as error:
        return Outcome(UNREACHABLE, _clean(str(error)), {})
    except AnsibleError as error:
        return Outcome(FAILED, _clean(str(error)), {})
    return judge(result)


def judge(result: Mapping[str, Any]) -> Outcome:
    """How a module's result is to be read: a crash, and an answer that could not be decoded, are failures that show
    the end of what the module wrote."""
    message = _clean(str(result.get("msg") or ""))
    if result.get("unreachable"):
        return Outcome(UNREACHABLE, message or "the host did not answer", result)
    if result.get("_ansible_parsed") is False or "module_stderr" in result:
        output = _clean(str(result.get("module_stderr") or "")) or _clean(str(result.get("module_stdout") or ""))
        detail = f": {output[-TAIL_CHARACTERS:]}" if output else ""
        return Outcome(FAILED, f"the module gave no result (exit status {result.get('rc')}){detail}", result)
    if result.get("failed"):
        reason = message or _exception_text(result.get("exception")) or "the module failed and gave no reason"
        # link_info says more exactly what kind of failure it is
        return Outcome(result["status"] if result.get("status") in STATUSES else FAILED, reason, result)
    return Outcome(OK, message, result)


def plain(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a module returned as JSON-ready data, without what only Ansible itself uses."""
    kept = {
        key: value
        for key, value in result.items()
        if not key.startswith("_")
        and key not in ("ansible_facts", "invocation", "warnings", "deprecations", "exception")
    }
    data: dict[str, Any] = json.loads(json.dumps(kept, default=str))
    return data


def _exception_text(exception: Any) -> str:
    """What an unhandled exception of a module said: ansible-core keeps it as a chain of events."""
    if isinstance(exception, str):
        lines = exception.strip().splitlines()
        return lines[-1] if lines else ""
    words: list[str] = []
    event = getattr(exception, "event", None)
    while event is not None and len(words) < 5:
        words.append(str(event.msg).strip().rstrip("."))
        event = getattr(getattr(event, "chain", None), "event", None)
    return f"the module crashed: {': '.join(words)}" if words else ""


def _clean(text: str) -> str:
    return text.strip()
