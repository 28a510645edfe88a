#!/usr/bin/python
# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file only documents the action plugin of the same name, which runs on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: attempt
short_description: Runs a module for the preparation of a campaign and writes down how it ended
version_added: 0.1.0
description:
  - Runs a module on the task's host and appends its outcome to the campaign's C(prepare.jsonl).
  - It never fails for what the host or the module did, also not where the host cannot be reached, so that one bad host
    does not end a campaign. M(linkops.bulkcopy.campaign) with C(state=prepared) judges.
extends_documentation_fragment:
  - linkops.bulkcopy.attributes
attributes:
  check_mode:
    support: none
    details: The outcome is always written down; the module itself runs in check mode.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: As idempotent as the module that it runs.
options:
  campaign:
    description: The campaign's folder, as M(linkops.bulkcopy.campaign) returned it.
    type: path
    required: true
  step:
    description: The name of the step.
    type: str
    required: true
  key:
    description: What the step is about, a host, a tree or a link.
    type: str
    required: true
  module:
    description: The module to run.
    type: str
  args:
    description: Its options. Those that are null are left out.
    type: dict
    default: {}
  fault:
    description: Instead of running a module, writes down this failure.
    type: str
author:
  - linkops.bulkcopy contributors
"""

EXAMPLES = r"""
- name: Reach the source
  linkops.bulkcopy.attempt:
    campaign: "{{ plan.path }}"
    step: reach
    key: "{{ inventory_hostname }}"
    module: ansible.builtin.ping
"""

RETURN = r"""
status:
  description: V(ok), V(unreachable), or V(failed) and its kinds as in M(linkops.bulkcopy.run).
  type: str
  returned: always
message:
  description: Why it did not end V(ok).
  type: str
  returned: always
result:
  description: What the module returned.
  type: dict
  returned: always
"""
