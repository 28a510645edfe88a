# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import method_options
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import Method

COMMON: dict[str, Any] = {name: {"type": "raw"} for name in method_options.METHOD_SIGNATURE}
OPTIONS: dict[str, Any] = {
    **COMMON,
    "ssh_options": {"type": "list", "elements": "str"},
    "compression": {"type": "str", "choices": ["none", "gzip"], "default": "none"},
    "protocol": {"type": "str", "choices": {"sftp": "new", "legacy": "old"}},
    "level": {"type": "int", "aliases": ["compression_level"]},
}


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"compression": "gzip", "level": 1},
        {"compression_level": 9},
        {"protocol": "legacy"},
        {"ssh_options": ["Ciphers=x"]},
    ],
)
def test_good_arguments(args: dict[str, Any]) -> None:
    assert method_options.check_arguments("tar_ssh", args, OPTIONS) == []


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"compresion": "gzip"}, "tar_ssh has no option compresion; it has compression, level, protocol, ssh_options"),
        ({"compression": "lzma"}, "value of compression must be one of: none, gzip, got: lzma"),
        ({"protocol": "lagacy"}, "value of protocol must be one of: sftp, legacy, got: lagacy"),
        ({"level": "fast"}, "argument 'level' is of type str and we were unable to convert to int"),
        ({"dest": "/etc"}, "the option dest is set by the campaign for all methods alike"),
        ({"compression": True}, "the option compression of tar_ssh must be a text, but is True: put it in quotes."),
    ],
)
def test_bad_arguments(args: dict[str, Any], sentence: str) -> None:
    (found,) = method_options.check_arguments("tar_ssh", args, OPTIONS)
    assert sentence in found


def test_required_options() -> None:
    options = {**OPTIONS, "argv": {"type": "list", "elements": "str", "required": True}}
    assert method_options.check_arguments("command", {}, options) == ["command needs the option argv."]
    assert method_options.check_arguments("command", {"argv": ["cp"]}, options) == []


def test_names_method_and_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_options, "known_methods", lambda: ["rsync", "scp"])
    methods = [
        Method("a", "linkops.bulkcopy.scq", {}),
        Method("b", "linkops.bulkcopy.tree_info", {}),
        Method("c", "linkops.bulkcopy.scp", {"x": 1}),
        Method("d", "linkops.bulkcopy.scp", {}),
    ]
    known = {"linkops.bulkcopy.scp": OPTIONS, "linkops.bulkcopy.tree_info": {**COMMON, "path": {}}}
    known["linkops.bulkcopy.tree_info"].pop("manifest")
    missing, wrong, option = method_options.check_methods(methods, known.get)
    assert missing == ("method 'a': the module scq is not installed; known methods are rsync, scp (did you mean scp?).")
    assert wrong.startswith("method 'b': the module tree_info is not a copy method (it lacks manifest); known")
    assert option.startswith("method 'c': scp has no option x;")


ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import importlib, json, sys
from unittest import mock
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([sys.argv[1]])
from ansible_collections.linkops.bulkcopy.plugins.action.campaign import standard_methods
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import COPY_OPTIONS
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import method_options
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.plan import Method
methods = [Method(m["label"], "linkops.bulkcopy." + m["module"], m.get("args", {})) for m in standard_methods()]
def plain(options):
    keys = {"type": "str", "elements": None, "default": None, "required": False}
    return {
        name: [option.get(key) or absent for key, absent in keys.items()] + [sorted(option.get("choices") or ())]
        for name, option in options.items()
    }
differing = []
for name in method_options.known_methods():
    module = importlib.import_module("ansible_collections.linkops.bulkcopy.plugins.modules." + name)
    with mock.patch.object(module, "run_copy") as run_copy:
        module.main()
    read = dict(COPY_OPTIONS, **run_copy.call_args[0][1])
    if plain(read) != plain(method_options.documented_options("linkops.bulkcopy." + name)):
        differing.append(name)
print(json.dumps({
    "differing": differing,
    "scratch": sorted(method_options.documented_options("linkops.bulkcopy.scratch")),
    "none": method_options.documented_options("linkops.bulkcopy.no_such_module"),
    "known": method_options.known_methods(),
    "standard": method_options.check_methods(methods),
    "mistakes": method_options.check_methods([
        Method("a", "linkops.bulkcopy.tar_ssh", {"compression": "gzip", "compression_level": "12"}),
        Method("b", "linkops.bulkcopy.scp", {"ssh_mac": "hmac-sha2-256"}),
        Method("c", "linkops.bulkcopy.command", {"encrypted": True, "source": [["cp", "{what}"]]}),
    ]),
    "programs": method_options.programs_of([
        *methods,
        Method("x", "linkops.bulkcopy.command", {"encrypted": True, "source": [["mscp", "{src}"]]}),
    ]),
}))
"""


def test_finds_documentation_as_ansible_does() -> None:
    """In a process of its own: ansible's loader and pytest's import of the collection do not go together."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / ".cache" / "collections")],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = json.loads(done.stdout)
    assert found["scratch"] == ["path", "state", "token"]
    assert found["none"] is None
    assert {"rsync", "scp", "tar_nc", "tar_ssh"} <= set(found["known"])
    assert {"scratch", "run", "campaign", "report", "attempt", "link_info", "tree_info"}.isdisjoint(found["known"])
    assert found["standard"] == []
    # What the documentation says of options is what the modules read.
    assert found["differing"] == []
    level, mac, name = found["mistakes"]
    assert level == "method 'a': compression_level 12 is not one of gzip's: choose 1 to 9."
    assert mac.startswith("method 'b': ssh_mac hmac-sha2-256 would not be used")
    assert name.startswith("method 'c': stage 1 of source has the unknown name {what} in it; known are address,")
    # How each tells its version, by its manual; scp, sftp and most netcats do not, and of mscp nobody has said how.
    told = {"ssh": "-V", "tar": "--version", "rsync": "--version", "socat": "-V", "fpsync": "-h"}
    assert told.items() <= found["programs"].items()
    assert [found["programs"][name] for name in ("scp", "sftp", "nc", "mscp")] == [None] * 4
