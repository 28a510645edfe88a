# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import blocks, page, report
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import plan as plans
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import summary as summaries
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.campaign_dir import results_dir
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.results import (
    SUMMARY,
    Campaign,
    ResultsError,
    Row,
    write_atomically,
    write_json,
)

#: Step of the journal: the link was looked at once more, after its runs.
LINK_AGAIN = "link-again"

display = Display()


class ActionModule(ActionBase):
    """Makes the summary, the table and the report of a campaign from its rows."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _spec, args = self.validate_argument_spec(
            argument_spec={
                "campaign": {"type": "str", "default": "latest"},
                "results_dir": {"type": "path"},
                "allow_cleartext": {"type": "bool", "default": False},
                "predict": {"type": "raw"},
                "require": {"type": "raw"},
            },
        )
        try:
            return self._report(args)
        except (ResultsError, plans.InputError) as error:
            return {"failed": True, "msg": str(error)}

    def _report(self, args: dict[str, Any]) -> dict[str, Any]:
        given = args["campaign"]
        campaign = Campaign(Path(given)) if "/" in given else Campaign.open(results_dir(args["results_dir"]), given)
        content = campaign.load()
        plan = plans.plan_from_dict(content["plan"])
        require = None
        if args["require"] is not None:
            require = plans.read_require(args["require"], "variable bulkcopy_require")
        rows = campaign.rows()
        journal = campaign.journal()
        summary = summaries.summarise(
            campaign_id=content["campaign_id"],
            profile=content["profile"],
            plan=plan,
            rows=rows,
            link_facts=link_facts(content.get("prepared") or {}, journal),
            allow_cleartext=args["allow_cleartext"],
            stops=blocks.stops_of(journal),
            predict=plans.read_sizes(args["predict"]),
            software=content.get("software"),
            require=require,
        )
        table = report.table(summary)
        if not self._task.check_mode:
            write_json(campaign.path / SUMMARY, summary.as_dict())
            write_atomically(campaign.path / "summary.csv", report.as_csv(summary))
            write_atomically(campaign.path / "report.md", report.markdown(summary))
            write_atomically(campaign.path / "report.html", page.html(summary))
        display.display(table)
        # Who gives a folder knows it; the benchmark says it again at its very end.
        where = "" if "/" in given else f" Results: {campaign.path}"
        display.display(f"{summary.ok} of {summary.planned} planned runs ended ok.{where}")
        facts: dict[str, dict[str, Any]] = {}
        for link in summary.links:
            found = summaries.link_as_dict(link)
            facts.setdefault(link.source, {"links": {}})["links"][link.name] = {
                "campaign_id": summary.campaign_id,
                "verdicts": found["results"],
                "fidelity": found["fidelity"],
                "records": [row for row in rows if row["link"]["name"] == link.name],
            }
        return {
            "changed": not self._task.check_mode,
            "campaign_id": summary.campaign_id,
            "path": str(campaign.path),
            "table": table,
            "missing": list(summary.missing),
            "facts": facts,
        }


def link_facts(prepared: Mapping[str, Any], journal: Mapping[tuple[str, str], Row]) -> dict[str, dict[str, Any]]:
    """What was measured of each link before its runs, and again after them."""
    facts: dict[str, dict[str, Any]] = {}
    for name, state in (prepared.get("links") or {}).items():
        after = ((journal.get((LINK_AGAIN, name)) or {}).get("result") or {}).get("link") or {}
        facts[name] = {
            **(state.get("link") or {}),
            "flags": list(state.get("flags") or ()),
            "ceiling_end_Bps": after.get("ceiling_Bps"),
            "rtt_end_ms": after.get("rtt_ms"),
            "connect_end_s": after.get("connect_s"),
            "fingerprints": {
                end: state[end]["fingerprint"]
                for end in ("source", "target")
                if (state.get(end) or {}).get("fingerprint")
            },
        }
    return facts
