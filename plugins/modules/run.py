#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file only documents the action plugin of the same name, which runs on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: run
short_description: Executes one planned run of a campaign and records its outcome
version_added: 0.1.0
description:
  - Runs the copy module of one planned run on the host that the task is delegated to, and appends exactly one row to
    the campaign's C(runs.jsonl), whatever the outcome is. An unreachable host, a module that crashed and an answer that
    cannot be decoded make a row too.
  - It never fails for what a host, a link or a method did, so that one bad link does not end a campaign.
  - Where the preparation found that a link or a tree cannot be measured, the row says so and nothing is tried.
  - After the source of a link did not answer, the next runs of that link are recorded as V(unreachable) at once; one of
    them tries once more.
  - In a resumed campaign a run that is recorded as V(ok) is skipped.
  - A run of a block that is not needed, since intervals are narrow enough or the time is used, is skipped. That is
    decided at the first run of each block that may be added, and written down in C(prepare.jsonl).
  - A run whose row cannot be written, to a full disk for example, is shown as V(failed), and the link's further runs
    are not tried.
  - After a C(kill -9) of ansible-playbook, or when its terminal has gone, what it left running makes no further run.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: full
    details: The copy module runs in check mode, and no row is written.
  diff_mode:
    support: none
  idempotent:
    support: N/A
    details: A run is a measurement; it is made again each time, except in a resumed campaign.
options:
  campaign:
    description: The campaign's folder, as M(linkops.bulkcopy.campaign) returned it.
    type: path
    required: true
  run_id:
    description: Which run of the plan.
    type: str
    required: true
  scratch_token:
    description: The token in the marker of the target's scratch folder.
    type: str
author:
  - linkops.bulkcopy contributors
"""

EXAMPLES = r"""
- name: Measure the runs of a link
  linkops.bulkcopy.run:
    campaign: "{{ plan.path }}"
    run_id: "{{ item.run_id }}"
    scratch_token: "{{ plan.scratch_token }}"
  delegate_to: "{{ bulkcopy_link.source }}"
  loop: "{{ bulkcopy_link.cells }}"
"""

RETURN = r"""
run_id:
  description: The run.
  type: str
  returned: always
link:
  description: The name of its link.
  type: str
  returned: when it was not skipped, or is not needed
dataset:
  description: The name of its dataset.
  type: str
  returned: when it was not skipped, or is not needed
stop:
  description: The C(last) block that was needed, and the C(reason).
  type: dict
  returned: when it is not needed
label:
  description: Its method.
  type: str
  returned: when it was not skipped
warmup:
  description: Whether it was a warm-up.
  type: bool
  returned: when it was not skipped
block:
  description: Its block, from 1; warm-ups count apart.
  type: int
  returned: when it was not skipped
blocks:
  description: How many such blocks there are, at most.
  type: int
  returned: when it was not skipped
replica:
  description: V(1) for the A/A copy of a method.
  type: int
  returned: when it was not skipped
status:
  description: How it ended, one of V(ok), V(corrupt), V(failed), V(timeout), V(unsupported) and V(unreachable).
  type: str
  returned: when it was not skipped
message:
  description: Why it did not end V(ok).
  type: str
  returned: when it was not skipped
total_s:
  description: Seconds from the start of the set-up to the end of the copy.
  type: float
  returned: when it was measured
throughput_Bps:
  description: Payload bytes a second.
  type: float
  returned: when it was measured
kept:
  description: In the scenario C(fidelity), how many cases were kept.
  type: str
  returned: when it was not skipped
tried:
  description: Whether anything was run. It is not where the preparation or an earlier run found that it cannot work.
  type: bool
  returned: when it was not skipped
elapsed_s:
  description: Seconds that the whole run took, preparation and verification included.
  type: float
  returned: when it was not skipped
argv:
  description: The commands of each stage.
  type: list
  elements: list
  returned: in check mode
"""
