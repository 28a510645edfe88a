#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file only documents the action plugin of the same name, which runs on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Makes the summary, the table and the report of a campaign
version_added: 0.1.0
description:
  - Reads C(campaign.json) and C(runs.jsonl) of a campaign, writes C(summary.json), C(summary.csv), C(report.md)
    and C(report.html) beside them, and prints a plain table, a recommendation for each link and dataset, and where the results lie.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: full
    details: The table is printed, and nothing is written.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: The files are written anew each time, with the same content.
options:
  campaign:
    description: The id of a campaign, V(latest), or a campaign's folder.
    type: str
    default: latest
  results_dir:
    description: Where campaigns are kept, as in M(linkops.bulkcopy.campaign).
    type: path
  allow_cleartext:
    description: Whether a method that does not encrypt may be recommended.
    type: bool
    default: false
  predict:
    description:
      - Trees, each with C(files) and C(bytes), of which to say how long each method would take, where runs of at least
        five shapes let that be told. By default 5 TB in files of 1 MB, and in files of 1 GB.
    type: raw
  require:
    description:
      - What methods must keep to be ranked, a list of cases or groups of cases of the scenario C(fidelity). By default what
        the campaign was planned with. A campaign that did not measure what methods keep is refused.
    type: raw
author:
  - linkops.bulkcopy contributors
"""

EXAMPLES = r"""
- name: Summarise the latest campaign
  linkops.bulkcopy.report:
"""

RETURN = r"""
campaign_id:
  description: The name of the campaign.
  type: str
  returned: always
path:
  description: Its folder.
  type: str
  returned: always
table:
  description: The table as it was printed.
  type: str
  returned: always
missing:
  description: What was planned and did not end V(ok), one sentence each.
  type: list
  elements: str
  returned: always
facts:
  description: For each source host the fact C(bulkcopy), C(links) by name with C(verdicts), C(fidelity) and
    C(records).
  type: dict
  returned: always
"""
