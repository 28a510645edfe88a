# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import (
    PLANNED,
    mark_impossible,
    mark_setup_dominated,
    new_record,
)
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import blocks, keeping
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.controller import end_orphan
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.outcome import FAILED, OK, UNREACHABLE, Outcome, attempt
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import Campaign, ResultsError

#: Runs of a link that are given up at once after its source did not answer, before it is tried once more.
UNREACHABLE_PAUSE = 10


class ActionModule(ActionBase):
    """Executes one planned run and turns whatever comes of it into exactly one row."""

    TRANSFERS_FILES = False
    #: By (campaign, link): failed connections, and runs given up since. All runs of a link share one process.
    _silent: ClassVar[dict[tuple[str, str], list[int]]] = {}
    #: The campaign as read from disk: it does not change while it is measured.
    _read: ClassVar[dict[str, tuple[dict[str, Any], plans.Plan]]] = {}
    #: Why a row of a campaign could not be written. What cannot be recorded is not run.
    _unwritable: ClassVar[dict[str, str]] = {}
    #: By (campaign, link): when its first run began, in seconds of the monotonic clock, less what earlier executions took.
    _began: ClassVar[dict[tuple[str, str], float]] = {}
    #: By campaign and group: for which block it was decided last, and how.
    _decided: ClassVar[dict[tuple[str, blocks.Group], tuple[int, blocks.Stop | None]]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _spec, args = self.validate_argument_spec(
            argument_spec={
                "campaign": {"type": "path", "required": True},
                "run_id": {"type": "str", "required": True},
                "scratch_token": {"type": "str", "no_log": False},
            },
        )
        campaign = Campaign(Path(args["campaign"]))
        if args["campaign"] not in self._read:
            content = campaign.load()
            self._read[args["campaign"]] = (content, plans.plan_from_dict(content["plan"]))
        content, plan = self._read[args["campaign"]]
        cell = next((cell for cell in plan.cells if cell.run_id == args["run_id"]), None)
        if cell is None:
            return {"failed": True, "msg": f"the plan of {args['campaign']} has no run {args['run_id']}."}
        if content.get("resumed") and cell.run_id in campaign.finished():
            return {"changed": False, "skipped": True, "msg": "recorded as ok already", "run_id": cell.run_id}
        end_orphan()
        if (args["campaign"], cell.link) not in self._began:
            earlier_s = blocks.measured_s(plan, cell.link, campaign.rows()) if content.get("resumed") else 0.0
            self._began[args["campaign"], cell.link] = time.monotonic() - earlier_s
        stop = None if self._task.check_mode else self._stop(args["campaign"], campaign, plan, cell)
        if stop is not None:
            return {
                "changed": False,
                "skipped": True,
                "msg": f"not needed: {stop.reason}",
                "run_id": cell.run_id,
                "link": cell.link,
                "dataset": cell.dataset,
                "stop": stop._asdict(),
            }
        job = Job(content, plan, cell)
        unwritable = self._unwritable.get(args["campaign"])
        if unwritable:
            outcome: Outcome | None = Outcome(FAILED, f"not tried: {unwritable}", {})
        else:
            outcome = job.obstacle() or self._give_up(args["campaign"], cell.link)
        began = time.monotonic()
        tried = outcome is None
        if outcome is None:
            outcome = attempt(self, job.method.module, job.module_args(args["scratch_token"]), task_vars or {})
            self._remember(args["campaign"], cell.link, outcome)
        row = job.row(outcome)
        if not self._task.check_mode and not unwritable:
            try:
                campaign.append_row(row)
            except ResultsError as error:
                self._unwritable[args["campaign"]] = str(error)
                row.update(status=FAILED, message=f"its record is lost: {error}")
        result: dict[str, Any] = {
            "changed": outcome.status == OK,
            "run_id": cell.run_id,
            "link": cell.link,
            "dataset": cell.dataset,
            "label": cell.label,
            "warmup": cell.warmup,
            "block": cell.block,
            "blocks": _blocks_of(plan, cell),
            "replica": cell.replica,
            "status": row["status"],
            "message": row["message"],
            "total_s": row["total_s"],
            "throughput_Bps": row["throughput_Bps"],
            "kept": _kept(row),
            "tried": tried,
            "elapsed_s": round(time.monotonic() - began, 3),
        }
        if self._task.check_mode:
            result["argv"] = [stage.get("argv") for stage in row["stages"]]
        if row["status"] not in (OK, PLANNED):
            # the default output shows a result that is not a failed task only where it is told to
            result["_ansible_verbose_always"] = True
        if outcome.interpreter:
            result["ansible_facts"] = outcome.interpreter
        return result

    def _stop(self, key: str, campaign: Campaign, plan: plans.Plan, cell: plans.Cell) -> blocks.Stop | None:
        """Why this cell's block is not run; null where it is. It is decided once, at the first cell of a block that need
        not be."""
        if cell.warmup or cell.block <= plan.settings.blocks:
            return None
        group = blocks.group_of(cell)
        block, stop = self._decided.get((key, group), (0, None))
        if stop is None and block != cell.block:
            measuring_s = time.monotonic() - self._began[key, cell.link]
            stop = blocks.decide(plan, group, cell.block, campaign.rows(), measuring_s)
            self._decided[key, group] = (cell.block, stop)
            if stop is not None:
                try:
                    campaign.note(blocks.STEP, group.key, stop._asdict())
                except ResultsError as error:
                    self._unwritable[key] = str(error)
        return stop

    def _give_up(self, campaign: str, link: str) -> Outcome | None:
        """After a connection that failed the next runs do not wait for one each; one of them tries once more."""
        state = self._silent.get((campaign, link))
        if state is None:
            return None
        failures, given_up = state
        if failures == 1 and given_up >= UNREACHABLE_PAUSE:
            return None
        state[1] += 1
        return Outcome(UNREACHABLE, "not tried: the source did not answer an earlier run of this link", {})

    def _remember(self, campaign: str, link: str, outcome: Outcome) -> None:
        key = (campaign, link)
        if outcome.status != UNREACHABLE:
            self._silent.pop(key, None)
        else:
            self._silent.setdefault(key, [0, 0])[0] += 1


def _kept(row: Mapping[str, Any]) -> str | None:
    """How many hard cases were kept; null where it was not about that."""
    if not row.get("fidelity"):
        return None
    kept, made = keeping.tally(row["fidelity"]["cases"])
    return f"{kept} of {made} cases"


def _blocks_of(plan: plans.Plan, cell: plans.Cell) -> int:
    """In how many blocks a run like this one is, at most."""
    if cell.warmup:
        return plan.settings.warmups
    return 1 if cell.scenario == plans.FIDELITY else plan.settings.max_blocks


class Job:
    """One cell of the plan with all that belongs to it."""

    def __init__(self, content: Mapping[str, Any], plan: plans.Plan, cell: plans.Cell) -> None:
        index, _trees = plans.tree_index(plan)
        self.campaign_id = str(content["campaign_id"])
        self.plan = plan
        self.cell = cell
        self.link = next(link for link in plan.links if link.name == cell.link)
        self.method = next(method for method in plan.methods if method.label == cell.label)
        self.tree = index[cell.link, cell.dataset, cell.scenario]
        prepared = content.get("prepared") or {}
        self.link_state: Mapping[str, Any] = (prepared.get("links") or {}).get(cell.link) or {}
        self.tree_state: Mapping[str, Any] = (prepared.get("trees") or {}).get(self.tree.key) or {}
        self.space: Mapping[str, str] = (prepared.get("space") or {}).get(cell.link) or {}
        self.base_state: Mapping[str, Any] = (prepared.get("bases") or {}).get(f"{cell.link}:{self.tree.base}") or {}

    def obstacle(self) -> Outcome | None:
        """Why this run need not be tried: its link, its tree or the room for it could not be prepared."""
        for state in (self.link_state, self.tree_state):
            if state and state.get("status") != OK:
                return Outcome(str(state["status"]), str(state.get("message") or ""), {})
        if self.tree.key in self.space:
            return Outcome("failed", self.space[self.tree.key], {})
        if self.base_state and self.base_state.get("status") != OK:
            return Outcome(str(self.base_state["status"]), str(self.base_state.get("message") or ""), {})
        return None

    def module_args(self, scratch_token: str | None) -> dict[str, Any]:
        """The options of the copy module for this run."""
        link, settings, measured = self.link, self.plan.settings, self.link_state.get("link") or {}
        given: dict[str, Any] = {
            "src": self.tree.path,
            "dest": link.scratch_dir,
            "address": link.address,
            "ssh_port": link.ssh_port,
            "ssh_user": link.ssh_user,
            "ssh_identity_file": link.ssh_identity_file,
            "ssh_known_hosts": link.ssh_known_hosts,
            "target_python": link.target_python,
            "source_name": link.source,
            "target_name": link.target,
            "scratch": True,
            "scratch_token": scratch_token,
            "label": self.cell.label,
            "timeout_s": settings.timeout_s,
            "verify": settings.verify,
            "cache": settings.cache,
            "manifest": self.tree.manifest,
            "link_Bps": measured.get("ceiling_Bps"),
            "link_stream_Bps": (measured.get("streams_Bps") or {}).get("1"),
        }
        if self.tree.base is not None:
            given.update(update=True, base=self.tree.base)
        if self.cell.scenario == plans.FIDELITY:
            given.update(fidelity=True)
        args = {key: value for key, value in given.items() if value is not None}
        args.update(self.method.args)
        # ssh takes the first value of an option: the method's own comes before the link's
        options = [*self.method.args.get("ssh_options", ()), *link.ssh_options]
        if options:
            args["ssh_options"] = options
        return args

    def row(self, outcome: Outcome) -> dict[str, Any]:
        """The record of this run: the module's where it gave one, with what only the campaign knows laid over it."""
        record = new_record()
        given = outcome.result.get("record")
        if isinstance(given, Mapping):
            record.update(given)
            if outcome.status != OK and record["status"] == OK:
                record["status"] = outcome.status
        else:
            record["status"] = outcome.status if outcome.status != OK else "failed"
            record["message"] = outcome.message
            if outcome.status == OK:
                record["message"] = f"{self.method.module} returned no record of its run"
        if not record.get("message"):
            record["message"] = outcome.message
        cell, link, tree = self.cell, self.link, self.tree_state.get("tree") or {}
        record.update(
            run_id=cell.run_id,
            campaign_id=self.campaign_id,
            warmup=cell.warmup,
            block=cell.block,
            position=cell.position,
            replica=cell.replica,
            seed=self.plan.seed,
            scenario=cell.scenario,
        )
        measured = self.link_state.get("link") or {}
        record["link"] = {
            "name": link.name,
            "source": link.source,
            "target": link.target,
            "address": link.address,
            **{key: measured.get(key) for key in ("device", "mtu", "rtt_ms", "connect_s", "ceiling_Bps")},
        }
        record["dataset"] = {
            **record["dataset"],
            **{key: tree[key] for key in record["dataset"] if tree.get(key) is not None},
            "name": cell.dataset,
        }
        record["method"] = {
            **record["method"],
            "label": cell.label,
            "module": self.method.module,
            "args": dict(self.method.args),
        }
        if record["method"].get("encrypted") and not record["method"].get("ssh"):
            record["method"]["ssh"] = self._ssh()
        record["flags"] = list(record["flags"])
        if cell.scenario != plans.FIDELITY:  # its time is no measure of the method
            mark_setup_dominated(record)
        if cell.scenario == plans.FULL:
            mark_impossible(record)
        return record

    def _ssh(self) -> dict[str, Any] | None:
        """What ssh negotiates on this link with the method's own settings, seen once."""
        wanted = plans.ssh_variant(self.method)
        for seen in self.link_state.get("ssh_variants") or ():
            if seen["negotiated"]["cipher"] and {key: seen[key] for key in wanted} == wanted:
                return dict(seen["negotiated"])
        return None
