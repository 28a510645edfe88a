# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import getpass
import json
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible import constants as C  # noqa: N812
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.release import __version__ as ansible_version
from ansible.utils.display import Display
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import blocks, report
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.campaign_dir import COLLECTION, results_dir
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.controller import controller, still_runs
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.method_options import check_methods, programs_of
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.outcome import OK, UNREACHABLE
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import (
    SCHEMA,
    Campaign,
    ResultsError,
    Row,
    new_campaign_id,
)

VARS = COLLECTION / "playbooks" / "vars"
#: What a target must have free beyond the tree itself: directories, and blocks that are only partly filled.
SPACE_SHARE = 1.05
#: The plan's parts, as a person calls them, to say what differs on resume.
PARTS = {"settings": "settings", "links": "links", "methods": "methods", "datasets": "datasets", "seed": "seed"}

display = Display()


class RefusedError(Exception):
    """The campaign cannot go on; C(faults) has one sentence for each reason."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(self.faults))


class ActionModule(ActionBase):
    """Plans a campaign, takes stock after its preparation, and says at the end what is missing."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _spec, args = self.validate_argument_spec(
            argument_spec={
                "state": {"type": "str", "required": True, "choices": ["planned", "prepared", "finished"]},
                "campaign": {"type": "str"},
                "profile": {"type": "raw"},
                "overrides": {"type": "dict", "default": {}},
                "links": {"type": "raw"},
                "results_dir": {"type": "path"},
                "seed": {"type": "raw"},
                "max_bytes": {"type": "raw"},
                "max_minutes": {"type": "raw"},
                "switches": {"type": "dict", "default": {}},
                "predict": {"type": "raw"},
                "aborted": {"type": "str"},
                "resumable": {"type": "bool", "default": True},
            },
            required_if=[("state", "prepared", ["campaign"]), ("state", "finished", ["campaign"])],
        )
        step: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = {
            "planned": self._plan,
            "prepared": self._take_stock,
            "finished": self._finish,
        }[args["state"]]
        try:
            return step(args, task_vars or {})
        except (plans.InputError, RefusedError) as refused:
            return {"failed": True, "msg": refused_text(refused.faults)}
        except ResultsError as error:
            return {"failed": True, "msg": refused_text([str(error)])}

    # planned

    def _plan(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        results = results_dir(args["results_dir"])
        earlier = Campaign.open(results, args["campaign"]) if args["campaign"] else None
        before = earlier.load() if earlier else {}
        faults: list[str] = []
        seed = _whole(args["seed"], "bulkcopy_seed", faults)
        if before and seed is None:
            seed = int(before["seed"])
        if seed is None:
            seed = secrets.randbelow(2**31)
        max_bytes = _amount(args["max_bytes"], "bulkcopy_max_bytes", faults)
        max_minutes = _amount(args["max_minutes"], "bulkcopy_max_minutes", faults)
        for switch, value in args["switches"].items():
            _check_switch(value, switch, faults)
        try:
            plans.read_sizes(args["predict"])
        except plans.InputError as error:
            faults += error.faults
        if earlier and still_runs(before.get("controller")):
            faults.append(
                f"campaign {earlier.path.name} is still running (process {before['controller']['pid']}): let it end, or "
                "stop it first."
            )
        name = args["profile"] if args["profile"] is not None else before.get("profile", "quick")
        try:
            profile, shown = load_profile(name)
        except plans.InputError as error:
            # the rest of the input is checked all the same: its faults are reported together with this one
            faults += error.faults
            profile, shown = load_profile("quick")
        overrides = {key: value for key, value in args["overrides"].items() if value is not None}
        if before and "require" not in {**profile, **overrides}:
            # With it the scenario would go that it has added.
            overrides["require"] = before["plan"]["settings"].get("require")
        links = args["links"]
        hosts = inventory_hosts(links, task_vars)
        try:
            plan = plans.make_plan(
                profile=profile,
                profile_name=shown,
                overrides=overrides,
                links=links,
                hosts=hosts,
                standard_methods=standard_methods(),
                seed=seed,
                ssh_users=copy_users(links, task_vars),
                more_faults=check_methods,
                profiles=standard_profiles(),
            )
        except plans.InputError as error:
            raise RefusedError([*faults, *error.faults]) from None
        pseudo = {link.name: f"link_{link.name}" for link in plan.links}
        for host in pseudo.values():
            if host in (task_vars.get("groups") or {}).get("all", ()):
                faults.append(
                    f"the inventory has a host named {host}, which a link needs: rename the one or the other."
                )
        recorded = earlier.finished() if earlier else set()
        # What was decided stays so, or else a campaign that lacks one run would be measured on from there.
        stops = blocks.lasting(plan, blocks.stops_of(earlier.journal()), earlier.rows()) if earlier else {}
        finished = recorded | spare(plan, stops)
        sizes = {key: int(tree["bytes"]) for key, tree in (before.get("trees") or {}).items()}
        estimate = plans.estimate(plan, sizes, finished)
        faults += plans.refuse_above(estimate, max_bytes, max_minutes)
        if before and not faults and before.get("fingerprint") != plan.fingerprint():
            faults.append(_what_differs(earlier, before["plan"], plan))
        if faults:
            raise RefusedError(faults)
        text = plan_text(plan, shown, estimate, len(recorded), len(finished - recorded))
        for line in text:
            display.display(line)
        result: dict[str, Any] = {
            "changed": not self._task.check_mode,
            "plan": text,
            "runs": estimate.runs,
            "estimate": dataclasses.asdict(estimate),
        }
        if self._task.check_mode:
            return result
        content = {
            **before,
            "schema": SCHEMA,
            "campaign_id": before.get("campaign_id") or new_campaign_id(),
            "profile": str(name),
            "seed": seed,
            "fingerprint": plan.fingerprint(),
            "resumed": bool(before),
            "controller": controller(),
            "limits": {"max_bytes": max_bytes, "max_minutes": max_minutes},
            "estimate": dataclasses.asdict(estimate),
            "software": software(),
            "plan": plan.as_dict(),
            "prepared": None,
        }
        if earlier:
            earlier.save(content)
            earlier.restart_journal(
                {"step": blocks.STEP, "key": group.key, **stop._asdict()} for group, stop in stops.items()
            )
            earlier.point_latest()
            campaign = earlier
        else:
            campaign = Campaign.create(results, content["campaign_id"], content)
        become = {host: _become(host, task_vars) for link in plan.links for host in (link.source, link.target)}
        result.update(
            campaign_id=content["campaign_id"],
            path=str(campaign.path),
            scratch_token=secrets.token_hex(16),
            links=[
                {
                    "name": link.name,
                    "host": pseudo[link.name],
                    "source": link.source,
                    "target": link.target,
                    "become": become[link.source],
                    "info": _link_info_args(link, plan.methods, hosts[link.source].data_dir),
                    "bases": _bases(link, plan),
                    "cells": [
                        {
                            "run_id": cell.run_id,
                            "what": f"{cell.dataset} {'warm-up' if cell.warmup else 'block'} {cell.block} {cell.label}",
                        }
                        for cell in plan.cells
                        if cell.link == link.name and cell.run_id not in finished
                    ],
                }
                for link in plan.links
            ],
            sources=[
                {
                    "host": source,
                    "become": become[source],
                    "trees": [dataclasses.asdict(tree) for tree in plan.trees if tree.source == source],
                    "existing": any(tree.source == source and not _generated(tree) for tree in plan.trees),
                    "data_dir": hosts[source].data_dir,
                    "generated": [
                        {
                            "name": tree.directory,
                            "path": tree.path,
                            "scale": tree.scale,
                            **_recipe(tree, plan),
                        }
                        for tree in plan.trees
                        if tree.source == source and _generated(tree)
                    ],
                }
                for source in dict.fromkeys(link.source for link in plan.links)
            ],
            targets=[
                {"host": target, "become": become[target], "scratch_dir": hosts[target].scratch_dir}
                for target in dict.fromkeys(link.target for link in plan.links)
            ],
        )
        return result

    # prepared

    def _take_stock(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        campaign = Campaign(Path(args["campaign"]))
        content = campaign.load()
        plan = plans.plan_from_dict(content["plan"])
        journal = campaign.journal()
        prepared = take_stock(plan, journal)
        known: dict[str, Any] = dict(content.get("trees") or {})
        faults: list[str] = []
        for key, state in prepared["trees"].items():
            tree = state.get("tree")
            if not tree:
                continue
            before = known.get(key)
            if before and before.get("digest") != tree.get("digest"):
                faults.append(
                    f"the tree {tree.get('path')} on {key.split(':')[0]} is not the one that this campaign began with "
                    "(its digest differs): restore it, or begin a new campaign."
                )
            else:
                known[key] = tree
        machines = {name: str(host) for name, host in _machines(plan, journal).items()}
        machines.update(
            {
                name: host.machine
                for name, host in inventory_hosts([dataclasses.asdict(link) for link in plan.links], task_vars).items()
                if host.machine is not None
            }
        )
        plan = dataclasses.replace(plan, rounds=plans.make_rounds(plan.links, machines))
        sizes = {key: int(tree["bytes"]) for key, tree in known.items() if tree.get("bytes") is not None}
        done = campaign.finished() | spare(plan, blocks.stops_of(journal)) if content.get("resumed") else ()
        estimate = plans.estimate(plan, sizes, done)
        faults += plans.refuse_above(estimate, content["limits"]["max_bytes"], content["limits"]["max_minutes"])
        content.update(
            plan=plan.as_dict(),
            prepared=prepared,
            trees=known,
            machines=machines,
            estimate=dataclasses.asdict(estimate),
        )
        campaign.save(content)
        if faults:
            raise RefusedError(faults)
        for name, state in prepared["links"].items():
            if state["status"] != OK:
                display.display(f"link {name} cannot be measured ({state['status']}): {state['message']}")
        for key, state in prepared["trees"].items():
            reached = journal.get(("reach", key.split(":")[0])) or {}
            if state["status"] != OK and reached.get("status") == OK:
                display.display(f"tree {key} cannot be copied ({state['status']}): {state['message']}")
        for name, full in prepared["space"].items():
            for sentence in full.values():
                display.display(f"link {name}: {sentence}")
        return {
            "changed": False,
            "hosts": [f"link_{name}" for names in plan.rounds for name in names],
            "serial": [len(names) for names in plan.rounds],
            "estimate": dataclasses.asdict(estimate),
        }

    # finished

    def _finish(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        campaign = Campaign(Path(args["campaign"]))
        content = campaign.load()
        # Other output has followed the tables; this stands where a person looks last.
        for line in report.last_words({} if args["aborted"] else campaign.summary()):
            display.display(line)
        display.display(f"Results: {campaign.path}")
        faults = [args["aborted"].strip()] if args["aborted"] else []
        resumable = args["resumable"] and not args["aborted"]
        rows = {str(row["run_id"]): row for row in campaign.rows()}
        journal = campaign.journal()
        faults += summaries.missing(plans.plan_from_dict(content["plan"]), rows, blocks.stops_of(journal))
        for (step, key), outcome in journal.items():
            if step == "cleanup" and outcome["status"] != OK:
                faults.append(f"target {key}: its scratch folder was not removed: {outcome['message']}")
        if not faults:
            return {"changed": False, "msg": f"campaign {content['campaign_id']} is complete"}
        return {
            "failed": True,
            "msg": f"campaign {content['campaign_id']} is not complete:\n"
            + "\n".join(f"- {fault}" for fault in faults)
            + (f"\nTo run only what is missing: -e bulkcopy_campaign={content['campaign_id']}" if resumable else ""),
        }


def refused_text(faults: Sequence[str]) -> str:
    if len(faults) == 1:
        return f"nothing was copied: {faults[0]}"
    return f"nothing was copied, for {len(faults)} reasons:\n" + "\n".join(f"- {fault}" for fault in faults)


def read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise plans.InputError([f"cannot read {path}: {error.strerror}."]) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        detail = " ".join(str(error).split())
        raise plans.InputError([f"{path} is not valid YAML: {detail}."]) from None


def standard_methods() -> list[Mapping[str, Any]]:
    methods: list[Mapping[str, Any]] = read_yaml(VARS / "methods.yml")["bulkcopy_standard_methods"]
    return methods


def standard_profiles() -> list[str]:
    return sorted(path.stem for path in (VARS / "profiles").glob("*.yml"))


def load_profile(name: Any) -> tuple[Mapping[str, Any], str]:
    """A profile by its name in C(playbooks/vars/profiles) or by the path of a file of the user's own; and what to call
    it in messages."""
    text = str(name)
    if plans.is_profile_path(text):
        path = Path(text).expanduser()
        if not path.is_file():
            raise plans.InputError([f"the profile {path} does not exist or is not a file."])
    else:
        path = VARS / "profiles" / f"{text}.yml"
        if not path.is_file():
            known = standard_profiles()
            raise plans.InputError(
                [
                    f"there is no profile {text}; there are {', '.join(known)}{plans.suggest(text, known)}. A file of "
                    "your own is named by its path, as in bulkcopy_profile=./mine.yml."
                ]
            )
    data = read_yaml(path)
    if not isinstance(data, Mapping):
        raise plans.InputError([f"the profile {path} must be a mapping with datasets and methods."])
    return data, text


def _ends(links: Any) -> list[str]:
    """The hosts that the links name, as far as these can be read."""
    found: list[str] = []
    if isinstance(links, Sequence) and not isinstance(links, str):
        for link in links:
            if isinstance(link, Mapping):
                found += [link[end] for end in ("source", "target") if isinstance(link.get(end), str)]
    return list(dict.fromkeys(found))


def inventory_hosts(links: Any, task_vars: Mapping[str, Any]) -> dict[str, plans.Host]:
    """The inventory's hosts as the plan needs them; variables are only looked up for those that the links name."""
    default = plans.Host(address="")
    hosts = {str(name): default for name in (task_vars.get("groups") or {}).get("all", ())}
    for name in _ends(links):
        if name not in hosts:
            continue
        variables = task_vars["hostvars"][name]
        machine = variables.get("bulkcopy_machine")
        hosts[name] = plans.Host(
            address=str(variables.get("ansible_host") or name),
            machine=None if machine is None else str(machine),
            scratch_dir=str(variables.get("bulkcopy_scratch_dir") or default.scratch_dir),
            data_dir=str(variables.get("bulkcopy_data_dir") or default.data_dir),
        )
    return hosts


def copy_users(links: Any, task_vars: Mapping[str, Any]) -> dict[str, str]:
    """The copy user of each host that has one."""
    known = (task_vars.get("groups") or {}).get("all", ())
    users = {name: task_vars["hostvars"][name].get("bulkcopy_user") for name in _ends(links) if name in known}
    return {name: str(user) for name, user in users.items() if user}


def _become(host: str, task_vars: Mapping[str, Any]) -> bool:
    """Whether Ansible must become the copy user there: only where it does not log in as that user already."""
    variables = task_vars["hostvars"][host]
    user = variables.get("bulkcopy_user")
    login = variables.get("ansible_user") or C.config.get_config_value("DEFAULT_REMOTE_USER") or getpass.getuser()
    return bool(user) and user != login


def _link_info_args(link: plans.Link, methods: Sequence[plans.Method], data_dir: str) -> dict[str, Any]:
    variants: list[dict[str, Any]] = []
    for variant in map(plans.ssh_variant, methods):
        if variant not in variants:
            variants.append(variant)
    return {
        "ssh_variants": variants,
        "programs": programs_of(methods),
        "data_dir": data_dir,
        **_connection(link),
        "scratch_dir": link.scratch_dir,
    }


def _bases(link: plans.Link, plan: plans.Plan) -> list[dict[str, Any]]:
    """What puts version 1 of each tree that is updated on a link's target: the name of the step, and the module's options."""
    trees = {tree.key: tree for tree in plan.trees}
    index, _all = plans.tree_index(plan)
    common = _connection(link)
    return [
        {
            "key": f"{link.name}:{tree.base}",
            "args": {
                **common,
                "src": trees[tree.update_of].path,
                "manifest": trees[tree.update_of].manifest,
                "dest": link.scratch_dir,
                "name": tree.base,
            },
        }
        for (name, _dataset, _scenario), tree in index.items()
        if name == link.name and tree.update_of is not None
    ]


def _connection(link: plans.Link) -> dict[str, Any]:
    """The options of a module that logs in to a link's target; null leaves one to the user's ssh configuration."""
    return {
        "address": link.address,
        "ssh_port": link.ssh_port,
        "ssh_user": link.ssh_user,
        "ssh_identity_file": link.ssh_identity_file,
        "ssh_known_hosts": link.ssh_known_hosts,
        "ssh_options": list(link.ssh_options) or None,
        "target_python": link.target_python,
        "source_name": link.source,
        "target_name": link.target,
    }


def _whole(value: Any, name: str, faults: list[str]) -> int | None:
    if value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        faults.append(f"{name} must be a whole number, but is {value!r}.")
        return 0


def _amount(value: Any, name: str, faults: list[str]) -> float | None:
    """A limit; null is none."""
    if value is None:
        return None
    number = plans.to_number(value)
    if number is not None and number > 0:
        return number
    faults.append(f"{name} must be a number above 0, but is {value!r}.")
    return None


def _check_switch(value: Any, name: str, faults: list[str]) -> None:
    try:
        boolean(value)
    except TypeError:
        faults.append(f"{name} must be true or false, but is {value!r}.")


def _what_differs(earlier: Campaign | None, before: Mapping[str, Any], plan: plans.Plan) -> str:
    now = plan.as_dict()
    parts = [word for key, word in PARTS.items() if before.get(key) != now[key]] or ["order of runs"]
    name = earlier.path.name if earlier else ""
    return (
        f"campaign {name} cannot be resumed: its {' and '.join(parts)} differ from what the inventory and profile say "
        "now. Restore them, or begin a new campaign."
    )


def software() -> dict[str, Any]:
    """What measured: versions on the controller."""
    version = None
    if (COLLECTION / "galaxy.yml").is_file():
        version = (read_yaml(COLLECTION / "galaxy.yml") or {}).get("version")
    elif (COLLECTION / "MANIFEST.json").is_file():
        manifest = json.loads((COLLECTION / "MANIFEST.json").read_text(encoding="utf-8"))
        version = manifest.get("collection_info", {}).get("version")
    return {
        "linkops.bulkcopy": version,
        "ansible_core": ansible_version,
        "python": platform.python_version(),
        "controller": platform.platform(),
    }


def spare(plan: plans.Plan, stops: blocks.Stops) -> set[str]:
    """The run_ids of blocks that were found not to be needed."""
    return {cell.run_id for cell in plan.cells} - {cell.run_id for cell in blocks.needed(plan.cells, stops)}


def plan_text(
    plan: plans.Plan, profile: str, estimate: plans.Estimate, recorded: int = 0, not_needed: int = 0
) -> list[str]:
    """What will happen, for a person to read before the first copy. C(recorded) and C(not_needed): runs of a resumed
    campaign."""
    warmups = sum(cell.warmup for cell in plan.cells)
    lines = [
        f"plan: profile {profile}, {len(plan.links)} link(s), {len(plan.methods)} methods, "
        f"{_blocks_text(plan.settings)}, seed {plan.seed}",
    ]
    for number, names in enumerate(plan.rounds, 1):
        lines.append(f"round {number}: {', '.join(names)}")
    lines.append(
        f"{len(plan.cells)} runs ({warmups} warm-ups), {estimate.runs} to do"
        + (f" ({recorded} are recorded{f', {not_needed} not needed' if not_needed else ''})" if recorded else "")
        + f": about {plans.show_bytes(estimate.bytes)} and {plans.show_duration(estimate.duration_s)}"
    )
    if estimate.sure_runs < estimate.runs:
        lines[-1] += " at most"
        lines.append(
            f"{estimate.sure_runs} of them, about {plans.show_duration(estimate.sure_s)}, in any case; more blocks until "
            f"every interval is within {plan.settings.precision * 100:.3g} %"
            + (
                f" or {plans.show_duration(plan.settings.budget_minutes * 60)} of measuring have passed"
                if plan.settings.budget_minutes is not None
                else ""
            )
        )
    left_out = [dataset.name for dataset in plan.datasets if dataset.path is not None]
    if plans.UPDATE in plan.settings.scenarios and left_out:
        lines.append(f"no update of {', '.join(left_out)}: of an existing tree there is no older version")
    if plans.FIDELITY in plan.settings.scenarios:
        required = f", which must keep {', '.join(plan.settings.require)}" if plan.settings.require else ""
        lines.append(f"a tree of hard cases is copied once by each method{required}")
    if estimate.unknown:
        lines.append(f"not counted, since their size is not known yet: {', '.join(estimate.unknown)}")
    return lines


def _blocks_text(settings: plans.Settings) -> str:
    if settings.max_blocks == settings.blocks:
        return f"{settings.blocks} block(s)"
    return f"{settings.blocks} to {settings.max_blocks} blocks"


def take_stock(plan: plans.Plan, journal: Mapping[tuple[str, str], Row]) -> dict[str, dict[str, Any]]:
    """What can be measured after the preparation: a state (C(status), C(message)) for each link and each tree, with
    what was found out about it; and the datasets that a link's target has no room for."""
    links: dict[str, Any] = {}
    space: dict[str, dict[str, str]] = {}
    trees = {tree.key: _tree_state(tree, journal) for tree in plan.trees}
    index, _all = plans.tree_index(plan)
    for link in plan.links:
        state: dict[str, Any] = {"status": OK, "message": ""}
        for step, key, what in (
            ("reach", link.source, f"source {link.source}"),
            ("scratch", link.target, f"target {link.target}"),
            ("link", link.name, f"source {link.source}"),
        ):
            outcome = journal.get((step, key))
            if outcome is None:
                state.update(status="failed", message=f"{what} was not prepared")
            elif outcome["status"] != OK:
                # link_info, which did answer, says itself that it could not reach the target
                silent = outcome["status"] == UNREACHABLE and "status" not in (outcome.get("result") or {})
                word = "did not answer: " if silent else ""
                state.update(status=outcome["status"], message=f"{what}: {word}{outcome['message']}")
            if state["status"] != OK:
                break
        else:
            result = journal["link", link.name].get("result") or {}
            state.update({key: result.get(key) for key in ("link", "flags", "ssh_variants", "source", "target")})
            prepared = (journal["scratch", link.target].get("result") or {}).get("boot_id")
            reached = (result.get("target") or {}).get("boot_id")
            if prepared and reached and prepared != reached:  # a marker on a shared file system proves nothing
                state.update(
                    status="failed",
                    message=f"address {link.address} leads from {link.source} to another machine than target "
                    f"{link.target} (another kernel runs there): correct the link's address",
                )
            room = (journal["scratch", link.target].get("result") or {}).get("free") or {}
            full = {}
            for (name, _dataset, _scenario), tree in index.items():
                found = trees[tree.key].get("tree")
                if name == link.name and found:
                    # An update needs room for version 1 as well, twice: for the copy that is kept, and in what is made of it.
                    before = trees[tree.update_of].get("tree") if tree.update_of else None
                    sentence = _no_room(link, found, before, room)
                    if sentence:
                        full[tree.key] = sentence
            if full:
                space[link.name] = full
        links[link.name] = state
    bases = {
        f"{link.name}:{tree.base}": _base_state(link, tree, journal)
        for link in plan.links
        for (name, _dataset, _scenario), tree in index.items()
        if name == link.name and tree.base is not None
    }
    return {"links": links, "trees": trees, "space": space, "bases": bases}


def _generated(tree: plans.Tree) -> bool:
    return tree.shape is not None or tree.parts is not None or tree.update_of is not None


def _recipe(tree: plans.Tree, plan: plans.Plan) -> dict[str, Any]:
    """What of the dataset module's options makes this tree, beside its scale."""
    if tree.update_of is not None:
        first = next(each for each in plan.trees if each.key == tree.update_of)
        return {"update_of": first.path, "changes": dict(plan.settings.update)}
    return {"shape": tree.shape} if tree.parts is None else {"parts": tree.parts}


def _base_state(link: plans.Link, tree: plans.Tree, journal: Mapping[tuple[str, str], Row]) -> dict[str, Any]:
    """Whether version 1 lies on a link's target."""
    outcome = journal.get(("base", f"{link.name}:{tree.base}"))
    where = f"version 1 of {tree.dataset} on target {link.target}"
    if outcome is None:
        return {"status": "failed", "message": f"{where} was not put there"}
    return {"status": outcome["status"], "message": "" if outcome["status"] == OK else f"{where}: {outcome['message']}"}


def _tree_state(tree: plans.Tree, journal: Mapping[tuple[str, str], Row]) -> dict[str, Any]:
    made = journal.get(("dataset", tree.source))
    outcome = journal.get(("tree", tree.key))
    where = f"source {tree.source}, dataset {tree.dataset}"
    if _generated(tree) and made is not None and made["status"] != OK:
        return {"status": made["status"], "message": f"{where}: {made['message']}"}
    if outcome is None:
        return {"status": "failed", "message": f"{where} was not looked at"}
    if outcome["status"] != OK:
        return {"status": outcome["status"], "message": f"{where}: {outcome['message']}"}
    return {"status": OK, "message": "", "tree": (outcome.get("result") or {}).get("tree") or {}}


def _no_room(
    link: plans.Link, tree: Mapping[str, Any], before: Mapping[str, Any] | None, room: Mapping[str, Any]
) -> str:
    """The sentence that says what the target lacks for a tree, and for the version C(before) it; empty where they fit or
    the room is not known."""
    needed = [tree] if before is None else [tree, before]
    size = sum(each.get("bytes") or 0 for each in needed)
    entries = sum((each.get("files") or 0) + (each.get("directories") or 0) for each in needed)
    if room.get("bytes") is not None and size * SPACE_SHARE > room["bytes"]:
        return (
            f"target {link.target} has {plans.show_bytes(room['bytes'])} free in {link.scratch_dir}, but "
            f"{tree.get('path')} needs {plans.show_bytes(size)}: make room, or set bulkcopy_scratch_dir."
        )
    if room.get("inodes") is not None and entries > room["inodes"]:
        return (
            f"target {link.target} has {room['inodes']} inodes free in {link.scratch_dir}, but {tree.get('path')} "
            f"needs {entries}: make room, or set bulkcopy_scratch_dir."
        )
    return ""


def _machines(plan: plans.Plan, journal: Mapping[tuple[str, str], Row]) -> dict[str, str]:
    """Hosts by the boot id of the kernel they run on: two with the same share processors and disks."""
    machines: dict[str, str] = {}
    for link in plan.links:
        result = (journal.get(("link", link.name)) or {}).get("result") or {}
        for host, end in ((link.source, "source"), (link.target, "target")):
            boot_id = (result.get(end) or {}).get("boot_id")
            if boot_id:
                machines[host] = str(boot_id)
    return machines
