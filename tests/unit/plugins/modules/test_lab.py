# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module's edge: options, refusals, and that defaults are the same everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.linkops.bulkcopy.plugins.modules import lab

ROOT = Path(__file__).parents[4]
LINK = {"name": "x", "source": "a", "target": "b", "address": "198.19.201.2", "lab": {"rate_mbit": 5}}
HOSTS = {"a": {"address": "198.19.200.11"}, "b": {"address": "198.19.200.12"}}


MODULE = "ansible_collections.linkops.bulkcopy.plugins.modules.lab"


def run_module(*prefix: str, **options: Any) -> dict[str, Any]:
    """Run the module as a program of its own; `prefix` is a command to run it with."""
    argv = [*prefix, sys.executable, "-m", MODULE]
    given = json.dumps({"ANSIBLE_MODULE_ARGS": options})
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".cache/collections")}
    done = subprocess.run(argv, input=given, capture_output=True, text=True, env=environment, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_bad_link_is_refused_with_one_sentence() -> None:
    result = run_module(links=[{**LINK, "lab": {"rate_mbit": "fast"}}], hosts=HOSTS, state_dir="/run/none/such")
    assert result["failed"]
    assert result["msg"].startswith('link x: rate_mbit "fast" is not a rate: give Mbit/s')


def test_without_root() -> None:
    prefix = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if prefix:
        argv = [*prefix, sys.executable, "-c", f"import {MODULE}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / ".cache/collections")}
        if subprocess.run(argv, capture_output=True, env=environment, check=False).returncode:
            pytest.skip("nobody may not read this clone, or not run its Python")
    for options in ({"links": [LINK], "hosts": HOSTS}, {"state": "absent"}):
        result = run_module(*prefix, **options)
        assert result["failed"]
        assert result["msg"] == (
            "the lab needs root, for network namespaces and their sshd: run as root, "
            "or use an inventory of your own hosts, which needs none"
        )


def test_defaults_are_the_same_everywhere() -> None:
    documented = yaml.safe_load(lab.DOCUMENTATION)["options"]
    specified = yaml.safe_load((ROOT / "roles/lab/meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    defaults = yaml.safe_load((ROOT / "roles/lab/defaults/main.yml").read_text())
    assert {name: item["default"] for name, item in specified["options"].items()} == defaults
    for name in ("state", "controller_address", "prefix", "state_dir", "data_dir"):
        assert documented[name]["default"] == defaults["lab_" + name]


def test_inventory_uses_the_labs_own_files() -> None:
    defaults = yaml.safe_load((ROOT / "roles/lab/defaults/main.yml").read_text())
    group = yaml.safe_load((ROOT / "inventory/hosts.yml").read_text())["all"]["children"]["lab"]
    variables = yaml.safe_load((ROOT / "inventory/group_vars/all.yml").read_text())
    key, known = defaults["lab_state_dir"] + "/id_ed25519", defaults["lab_state_dir"] + "/known_hosts"
    assert group["vars"]["ansible_ssh_private_key_file"] == key
    assert f"UserKnownHostsFile={known}" in group["vars"]["ansible_ssh_common_args"]
    assert variables["bulkcopy_lab"] is True
    for link in variables["bulkcopy_links"]:
        assert (link["ssh_identity_file"], link["ssh_known_hosts"]) == (key, known)
    for name in ("bulkcopy_data_dir", "bulkcopy_scratch_dir"):
        assert group["vars"][name].startswith(defaults["lab_data_dir"] + "/{{ inventory_hostname }}/")
