# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """How the source logs in to the target."""

    DOCUMENTATION = r"""
options:
  address:
    description:
      - Name or address of the target on the data network. The data goes there, and so does the ssh session that prepares
        and verifies the copy.
    type: str
    required: true
  ssh_port:
    description:
      - Port of the target's ssh server. By default what the source's ssh configuration says.
    type: int
  ssh_user:
    description:
      - User to log in as on the target. By default what the source's ssh configuration says.
    type: str
  ssh_identity_file:
    description:
      - Private key on the source. When set, no other key is tried.
    type: path
  ssh_known_hosts:
    description:
      - File on the source with the host keys to trust instead of the user's own.
    type: path
  ssh_options:
    description:
      - More settings for ssh as in C(ssh_config), each as C(Key=value). They override the collection's own.
    type: list
    elements: str
    default: []
  target_python:
    description:
      - Python 3.8 or later on the target. Nothing is installed there; a small program is sent for the time of the copy.
    type: str
    default: python3
  source_name:
    description:
      - What to call the source in messages and in the record. By default its host name.
    type: str
  target_name:
    description:
      - What to call the target in messages and in the record. By default O(address).
    type: str
  scratch_token:
    description:
      - The token that the marker file C(.linkops-bulkcopy) of the scratch directory must hold. Where somebody else has
        put it there, it proves that O(address) leads to the machine that was meant.
    type: str
requirements:
  - Python 3.8 or later on both hosts
  - an ssh client on the source and an ssh server on the target, with a key that needs no passphrase
"""
