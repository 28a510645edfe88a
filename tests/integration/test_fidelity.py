# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each method makes of a tree of hard cases, copied by root between two hosts of the lab."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _fidelity, _tree

from .conftest import Play

HOME = Path("/var/tmp/linkops-bulkcopy-lab")
SOURCE, SCRATCH = HOME / "lab-a/data/fidelity", HOME / "lab-b/scratch"
KEYS = "/run/linkops-bulkcopy-lab/"
TOKEN = "of this test"

METHODS: list[dict[str, Any]] = [
    {"label": "scp", "module": "scp"},
    {"label": "scp -p", "module": "scp", "args": {"preserve": True}},
    {"label": "scp -Op", "module": "scp", "args": {"preserve": True, "protocol": "legacy"}},
    {"label": "sftp -p", "module": "sftp", "args": {"preserve": True}},
    {"label": "rsync -a", "module": "rsync"},
    {"label": "rsync -a -HAXS", "module": "rsync", "args": {"extra_args": ["-HAXS"]}},
    {"label": "rsync -a x3", "module": "rsync", "args": {"streams": 3}},
    {"label": "rsyncd -a", "module": "rsync_daemon"},
    {"label": "tar|ssh", "module": "tar_ssh"},
    {"label": "tar|ssh x3", "module": "tar_ssh", "args": {"streams": 3}},
    {"label": "tar -S --xattrs --acls|ssh", "module": "tar_ssh", "args": {"keep": ["sparse", "xattrs", "acls"]}},
    {
        "label": "tar -S --xattrs --acls|ssh x3",
        "module": "tar_ssh",
        "args": {"keep": ["sparse", "xattrs", "acls"], "streams": 3},
    },
    {"label": "tar|nc", "module": "tar_nc"},
    {"label": "rclone", "module": "rclone"},
    {"label": "fpsync", "module": "fpsync"},
]


def made(module: ModuleType, args: dict[str, Any]) -> Any:
    """A module's method with these options, the others as it has them by default."""
    with mock.patch.object(module, "run_copy") as run_copy:
        module.main()
    (method, spec), _keywords = run_copy.call_args
    return method({**{name: option.get("default") for name, option in spec.items()}, **args})


@pytest.fixture(scope="module")
def records(lab: None, play: Play, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The record of each method, by label."""
    directory = tmp_path_factory.mktemp("fidelity")
    _fidelity.present(str(SOURCE))
    SCRATCH.mkdir(parents=True)
    (SCRATCH / ".linkops-bulkcopy").write_text(json.dumps({"token": TOKEN}))
    tasks: list[dict[str, Any]] = [
        {
            "name": f"Copy with {method['label']}",
            f"linkops.bulkcopy.{method['module']}": {
                "src": str(SOURCE),
                "dest": str(SCRATCH),
                "scratch": True,
                "scratch_token": TOKEN,
                "fidelity": True,
                "address": "198.18.2.2",
                "ssh_user": "root",
                "ssh_identity_file": KEYS + "id_ed25519",
                "ssh_known_hosts": KEYS + "known_hosts",
                "source_name": "lab-a",
                "target_name": "lab-b",
                **method.get("args", {}),
            },
            "register": f"copy_{number}",
            "ignore_errors": True,
        }
        for number, method in enumerate(METHODS)
    ]
    results = ", ".join(f"copy_{number}" for number in range(len(METHODS)))
    tasks.append(
        {
            "name": "Keep the records",
            "ansible.builtin.copy": {
                "content": "{{ [" + results + "] | to_json }}",
                "dest": str(directory / "results.json"),
                "mode": "0600",
            },
            "delegate_to": "localhost",
        }
    )
    (directory / "tasks.yml").write_text(json.dumps([{"hosts": "lab-a", "gather_facts": False, "tasks": tasks}]))
    done = play(directory / "tasks.yml")
    assert done.returncode == 0, done.stdout
    results_of = json.loads((directory / "results.json").read_text())
    return {result["record"]["method"]["label"]: result["record"] for result in results_of}


#: What is known of scp: the links and special files that it meets, and what it drops.
SCP = {
    "symlinks.relative": "followed",
    "symlinks.absolute": "followed",
    "symlinks.dangling": "refused",
    "symlinks.loop": "refused",
    "mtime_ns.symlinks": "refused",
    "hardlinks": "lost",
    "sparse": "lost",
    "fifos": "lost",
    "sockets": "lost",
    "devices": "lost",
    "setid.files": "lost",
    "setid.directories": "lost",
    "owners": "lost",
    "mtime_ns.files": "changed",
    "mtime_ns.directories": "changed",
    "mtime_old.before_1970": "changed",
}
ATTRIBUTES = dict.fromkeys(
    ["xattrs.user", "xattrs.trusted", "xattrs.capability", "acls.access", "acls.default"], "lost"
)
TIMES = ["mtime_s", "mtime_ns.files", "mtime_ns.directories", "mtime_old.before_1970", "mtime_old.after_2038"]
# scp over SFTP looks at what a directory holds without following, and then finds a link that is no file.
SCP_P = {**SCP, **ATTRIBUTES, "symlinks.directory": "refused", "symlinks.up": "refused"}
# The old protocol says of special files by its status that it left them out, and follows links to directories.
SCP_O = {
    **SCP,
    **ATTRIBUTES,
    **dict.fromkeys(["fifos", "sockets", "devices"], "refused"),
    "symlinks.directory": "followed",
    "symlinks.up": "followed",
    "names.newline": "changed",
}
RSYNC_A = {**ATTRIBUTES, "hardlinks": "lost", "sparse": "lost"}
SECONDS = dict.fromkeys(["mtime_ns.files", "mtime_ns.directories", "mtime_ns.symlinks"], "changed")
TAR = {**ATTRIBUTES, **SECONDS, "sockets": "lost", "sparse": "lost"}
#: Of each method, what it does not keep.
EXPECTED: dict[str, dict[str, str]] = {
    "scp": {**SCP_P, **dict.fromkeys([*TIMES, "directory_mtimes"], "lost"), "modes.files": "changed"},
    "scp -p": SCP_P,
    "scp -Op": SCP_O,
    "rsync -a": RSYNC_A,
    "rsync -a -HAXS": {},
    "rsync -a x3": RSYNC_A,
    "rsyncd -a": RSYNC_A,
    "tar|ssh": TAR,
    # Directories get their times from the agent.
    "tar|ssh x3": {name: outcome for name, outcome in TAR.items() if name != "mtime_ns.directories"},
    "tar -S --xattrs --acls|ssh": {"sockets": "lost"},
    "tar -S --xattrs --acls|ssh x3": {"sockets": "lost"},
    "tar|nc": TAR,
    "fpsync": RSYNC_A,
}


def test_every_method_ends_with_all_cases_judged(records: dict[str, Any]) -> None:
    assert list(records) == [method["label"] for method in METHODS]
    made = [case.id for case in _fidelity.cases_of(str(SOURCE))]
    for record in records.values():
        assert (record["status"], record["scenario"]) == ("ok", "fidelity")
        assert [case["id"] for case in record["fidelity"]["cases"]] == made
    assert os.listdir(SCRATCH) == [".linkops-bulkcopy"]
    # Copying has changed nothing.
    assert _fidelity.present(str(SOURCE)).changed is False


@pytest.mark.parametrize("label", EXPECTED)
def test_what_is_not_kept_is_what_is_known(records: dict[str, Any], label: str) -> None:
    cases = records[label]["fidelity"]["cases"]
    left = {case["id"]: case["outcome"] for case in cases if case["outcome"] not in ("kept", "not-made")}
    assert left == EXPECTED[label]


@pytest.mark.parametrize("method", METHODS, ids=[method["label"] for method in METHODS])
def test_a_method_declares_what_is_measured(records: dict[str, Any], method: dict[str, Any]) -> None:
    measured = _fidelity.losses(records[method["label"]]["fidelity"]["cases"])
    module = importlib.import_module(f"ansible_collections.linkops.bulkcopy.plugins.modules.{method['module']}")
    declared = made(module, method.get("args", {})).losses() - {_tree.DELETIONS}
    if method["module"] == "fpsync":
        # It loses a directory's time only where a later part writes into it, and this tree is one part.
        measured |= {_tree.MTIME}
    assert measured == declared
    assert not [flag for flag in records[method["label"]]["flags"] if flag.startswith("lost-")]
