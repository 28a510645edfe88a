# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: stdout
short_description: Shows a benchmark campaign as it goes, one line a run
version_added: 0.1.0
description:
  - The default output, less what went as it should, and with one line for each run that
    P(linkops.bulkcopy.run#module) made. A line has the link, the dataset, the block, the method, how the run ended,
    its time and throughput, how many runs are done of how many, and about how long the rest will take.
  - Runs that were not tried, all for one reason, share one line.
  - Failures, changes and unreachable hosts are shown as the default output shows them.
  - It writes plain lines, with or without a terminal, and into a pipe or a file too each one when it happens.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout in the configuration (C(stdout_callback = linkops.bulkcopy.progress))
author:
  - linkops.bulkcopy contributors
"""

import os  # noqa: E402  Ansible wants the documentation first
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from ansible import constants as C  # noqa: E402, N812
from ansible.playbook.task_include import TaskInclude  # noqa: E402
from ansible.plugins.callback.default import CallbackModule as Default  # noqa: E402
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.progress import Progress, line  # noqa: E402

RUN = "linkops.bulkcopy.run"
CAMPAIGN = "linkops.bulkcopy.campaign"
#: These steps print what they have to say themselves.
QUIET = (RUN, CAMPAIGN, "linkops.bulkcopy.attempt", "linkops.bulkcopy.report")


def _flush() -> None:
    """Ansible leaves its output in a buffer, which without a terminal holds more than fifty runs."""
    try:
        sys.stdout.flush()
    except OSError:  # the reader of a pipe has gone; the campaign goes on without, and takes its lab down
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class CallbackModule(Default):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "linkops.bulkcopy.progress"

    def __init__(self) -> None:
        super().__init__()
        self._progress: Progress | None = None
        self._said: set[tuple[str, str, str]] = set()

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        verbose = self._display.verbosity > 0
        self.set_option("display_ok_hosts", verbose)
        self.set_option("display_skipped_hosts", verbose)

    def _quiet(self, result: Any) -> bool:
        return self._display.verbosity == 0 and result.task.resolved_action in QUIET

    def _show(self, show: Callable[[Any], None], result: Any) -> None:
        """Shows what went as it should only where it asks for that, as the debug module does in a following play."""
        asks = self._display.verbosity == 0 and result.result.get("_ansible_verbose_always")
        if asks:
            self.set_option("display_ok_hosts", True)
        show(result)
        if asks:
            self.set_option("display_ok_hosts", False)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        _flush()
        if self._display.verbosity > 0:
            super().v2_playbook_on_task_start(task, is_conditional)
        else:  # remember the name; the banner is printed when there is something below it
            self._last_task_name = None
            self._task_type_cache[task._uuid] = "TASK"

    def v2_playbook_on_no_hosts_matched(self) -> None:
        if self._display.verbosity > 0:
            super().v2_playbook_on_no_hosts_matched()

    def v2_playbook_on_include(self, included_file: Any) -> None:
        if self._display.verbosity > 0:
            super().v2_playbook_on_include(included_file)

    def v2_runner_on_ok(self, result: Any) -> None:
        if result.task.resolved_action == CAMPAIGN and "runs" in result.result:
            self._progress = Progress(
                result.result["runs"], float(result.result["estimate"]["duration_s"]), time.monotonic()
            )
        included = isinstance(result.task, TaskInclude) and self._display.verbosity == 0
        if not self._quiet(result) and not included:
            self._show(super().v2_runner_on_ok, result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if self._quiet(result) and not result.task.loop and result.result.get("msg"):
            # a sentence for a person, shown once and as it is
            self._display.display(str(result.result["msg"]), color=C.COLOR_ERROR, stderr=True)
        else:
            super().v2_runner_on_failed(result, ignore_errors)

    def v2_runner_on_skipped(self, result: Any) -> None:
        if not self._quiet(result):
            super().v2_runner_on_skipped(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        if result.task.resolved_action == RUN and "status" in result.result:
            if self._progress is None:
                self._progress = Progress(None, None, time.monotonic())
            self._progress.step(time.monotonic())
            run = result.result
            if not run.get("tried", True):  # said once for all runs that it holds for
                reason = (run["link"], run["status"], run["message"])
                if reason in self._said:
                    return
                self._said.add(reason)
            bad = run["status"] not in ("ok", "planned")
            self._display.display(line(run, self._progress), color=C.COLOR_ERROR if bad else None)
            _flush()
        elif not self._quiet(result):
            self._show(super().v2_runner_item_on_ok, result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        if result.task.resolved_action == RUN and "stop" in result.result:
            self._leave_out(result.result)
        if not self._quiet(result):
            super().v2_runner_item_on_skipped(result)

    def _leave_out(self, run: Any) -> None:
        """A run that is not needed; the reason is said once for all runs that it holds for."""
        if self._progress is not None:
            self._progress.leave_out()
        reason = (run["link"], run["dataset"], run["stop"]["reason"])
        if reason not in self._said:
            self._said.add(reason)
            self._display.display(
                f"{run['link']} {run['dataset']}: {run['stop']['last']} blocks: {run['stop']['reason']}"
            )
