#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file only documents the action plugin of the same name, which runs on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: campaign
short_description: Plans a benchmark campaign, takes stock of its preparation, and says what is missing
version_added: 0.1.0
description:
  - With O(state=planned) it checks all input (profile, links, methods with their options, datasets), makes the whole
    plan and estimates its bytes and duration, prints it, and writes C(campaign.json). Every fault is reported, all
    together, before anything is copied.
  - With O(state=prepared) it reads what M(linkops.bulkcopy.attempt) wrote down, decides which links and trees can be
    measured, arranges the rounds of links that share no machine, and refuses a resumed campaign whose trees differ.
  - With O(state=finished) it fails when a planned run did not end V(ok) or something was left behind, and says what.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: full
    details: With O(state=planned) the plan is made and printed, and nothing is written.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: A plan is a new campaign each time, unless one is resumed.
options:
  state:
    description: Which step of the campaign this is.
    type: str
    required: true
    choices: [planned, prepared, finished]
  campaign:
    description:
      - With O(state=planned) the id of a campaign to resume, or V(latest).
      - Otherwise the campaign's folder, as the first step returned it.
    type: str
  profile:
    description: A profile's name, or the path of a file of one's own. By default V(quick), or what a resumed one had.
    type: raw
  overrides:
    description: Keys of the profile that replace its own (C(blocks), C(datasets), C(methods) and so on).
    type: dict
    default: {}
  links:
    description: The links, as in the variable C(bulkcopy_links).
    type: raw
  results_dir:
    description:
      - Where campaigns are kept. By default C(results) in the repository, or below the current directory for an
        installed collection.
    type: path
  seed:
    description: Decides the order of runs. By default a random number, which is recorded.
    type: raw
  max_bytes:
    description: A plan that would copy more is refused.
    type: raw
  max_minutes:
    description: A plan that would take longer is refused.
    type: raw
  switches:
    description:
      - Variables that must be true or false, by name. With O(state=planned) they are checked; they are read by later
        steps.
    type: dict
    default: {}
  predict:
    description: The variable C(bulkcopy_predict), to be checked with O(state=planned). M(linkops.bulkcopy.report) reads it.
    type: raw
  aborted:
    description: With O(state=finished), why the campaign ended early.
    type: str
  resumable:
    description: With O(state=finished), whether its trees are still there, so that it can be resumed.
    type: bool
    default: true
author:
  - linkops.bulkcopy contributors
"""

EXAMPLES = r"""
- name: Check the input, make the whole plan and write it down
  linkops.bulkcopy.campaign:
    state: planned
    profile: quick
    links: "{{ bulkcopy_links }}"
  register: plan
"""

RETURN = r"""
campaign_id:
  description: The name of the campaign.
  type: str
  returned: with O(state=planned), not in check mode
path:
  description: Its folder.
  type: str
  returned: with O(state=planned), not in check mode
scratch_token:
  description: A random text for the markers of this execution's scratch folders.
  type: str
  returned: with O(state=planned), not in check mode
plan:
  description: The plan as it was printed.
  type: list
  elements: str
  returned: with O(state=planned)
runs:
  description: How many runs there are to do, at most.
  type: int
  returned: with O(state=planned)
estimate:
  description: The C(runs), C(bytes) and C(duration_s) to expect at most, C(sure_runs) and C(sure_s) of what is run in any
    case, and the trees of C(unknown) size that they leave out.
  type: dict
  returned: with O(state=planned) and O(state=prepared)
links:
  description: For each link its pseudo-host, source, target, and runs to do.
  type: list
  elements: dict
  returned: with O(state=planned), not in check mode
sources:
  description: For each source its trees.
  type: list
  elements: dict
  returned: with O(state=planned), not in check mode
targets:
  description: For each target its scratch folder.
  type: list
  elements: dict
  returned: with O(state=planned), not in check mode
hosts:
  description: The pseudo-hosts in the order of their rounds.
  type: list
  elements: str
  returned: with O(state=prepared)
serial:
  description: How many of them each round has.
  type: list
  elements: int
  returned: with O(state=prepared)
"""
