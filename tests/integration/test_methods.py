# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every standard method between two hosts of the lab, each compared with the source by diff."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset

from .conftest import REPOSITORY, Play

METHODS: list[dict[str, Any]] = yaml.safe_load((REPOSITORY / "playbooks/vars/methods.yml").read_text())[
    "bulkcopy_standard_methods"
]
SOURCE = Path("/var/tmp/linkops-bulkcopy-lab/lab-a/data/all shapes")
COPIES = Path("/var/tmp/linkops-bulkcopy-lab/lab-b/copies")
KEYS = "/run/linkops-bulkcopy-lab/"

#: Names that a shell, a template, a list of names or an option parser might take for something else.
HARD_NAMES = (b"two words", b"-dash", b"it's", b'"double"', b"$HOME", b"latin1_\xe9", b"{{ jinja }}", b"host:path")

#: What a row of either seed, and -O, is made of: program and the options that make the difference.
ROWS = {
    "scp": [["scp", "-r"]],
    "scp -C": [["scp", "-r", "Compression=yes"]],
    "scp -O": [["scp", "-O", "-r"]],
    "scp -OC": [["scp", "-O", "-r", "Compression=yes"]],
    "rsync -a": [["rsync", "-a"]],
    "rsync -az": [["rsync", "-az"]],
    "tar|ssh": [["tar"], ["ssh", "Compression=no"]],
    "tar|ssh -C": [["tar"], ["ssh", "Compression=yes"]],
    "tar|gzip -1|ssh": [["tar"], ["gzip", "-1"], ["ssh"]],
    "tar|gzip|ssh": [["tar"], ["gzip"], ["ssh"]],
    "tar|nc": [["nc"], ["tar"], ["tar"], ["nc"]],
    "tar|gzip|nc": [["nc"], ["gzip"], ["tar"], ["tar"], ["gzip"], ["nc"]],
    "tar|zstd|ssh": [["tar"], ["zstd"], ["ssh"]],
    "tar|lz4|ssh": [["tar"], ["lz4"], ["ssh"]],
    "tar|ssh aes128-gcm": [["tar"], ["ssh", "Ciphers=aes128-gcm@openssh.com"]],
    # One stream is enough here. Pieces of a file go before the archive in the same stream.
    "tar|ssh xauto": [["tar"], ["ssh"]],
    "tar|ssh aes128-gcm xauto": [["tar"], ["ssh", "Ciphers=aes128-gcm@openssh.com"]],
    "tar|ssh x8": [["tar|sh"], ["ssh"]] * 8,
    "tar|nc x2": [["nc"], ["tar|sh"]] * 2 + [["tar|sh"], ["nc"]] * 2,
    "rsync -a x8": [["rsync", "-a", "--from0"]] * 8,
    "tar|mbuffer -m 64M|ssh": [["tar"], ["mbuffer", "64M"], ["ssh"]],
    "tar|socat": [["socat"], ["tar"], ["tar"], ["socat"]],
    "rsync --zc=zstd": [["rsync", "-az", "--compress-choice=zstd"]],
    "rsync --zc=lz4": [["rsync", "-az", "--compress-choice=lz4"]],
    "rsync -a -W": [["rsync", "-a", "--whole-file"]],
    "rsyncd -a": [["rsync", "--daemon"], ["rsync", "-a"]],
    "sftp": [["sftp", "-b"]],
    "rclone --transfers 8": [["rclone", "copy", "--transfers=8"]],
    "fpsync -n 4": [["env", "-n", "4"]],
}
#: Without ssh for the data, in clear text.
CLEAR = {"tar|nc", "tar|nc x2", "tar|gzip|nc", "tar|socat", "rsyncd -a"}


#: What has no label of its own, and what an end does not have: module, options, status and message.
OTHERS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "command over ssh": (
        "command",
        {
            "encrypted": True,
            "logins": 1,
            "source": [["tar", "-cf", "-", "."], ["ssh", "-F", "{ssh_config}", "{address}", "tar -C '{dest}' -xpf -"]],
        },
        "ok",
        "",
    ),
    "command at both ends": (
        "command",
        {
            "encrypted": False,
            "source": [["tar", "-cf", "-", "."], ["ncat", "--send-only", "{address}", "{port}"]],
            "target": [["ncat", "-l", "{address}", "{port}"], ["tar", "-C", "{dest}", "-xpf", "-"]],
        },
        "ok",
        "",
    ),
    "command that serves": (
        "command",
        {
            "encrypted": False,
            "source": [["tar", "-cf", "-", "."], ["socat", "-u", "STDIN", "TCP4:{address}:{port}"]],
            "target": [
                ["socat", "-u", "TCP4-LISTEN:{port},bind={address},fork", r"SYSTEM:tar -C \"{dest}\" -xpf -"],
            ],
            "target_serves": True,
        },
        "ok",
        "",
    ),
    "a cipher that the server refuses": (
        "rsync",
        {"ssh_cipher": "aes128-cbc"},
        "unsupported",
        "the ssh server of target lab-b refuses the cipher that is asked for: choose one that it offers: ",
    ),
    "a cipher that nobody has": (
        "sftp",
        {"ssh_cipher": "rot13"},
        "unsupported",
        "ssh on source lab-a has no cipher rot13: choose one that ssh -Q cipher lists there: ",
    ),
    "a program that nobody has": (
        "command",
        {"encrypted": True, "source": [["no-such-program", "{src}"]]},
        "unsupported",
        "source lab-a has no no-such-program: install it there",
    ),
    "rsync with all that it can be told": (
        "rsync",
        {
            "compress_choice": "zstd",
            "compress_level": 1,
            "whole_file": True,
            "inplace": True,
            "checksum_choice": "xxh3",
            "ssh_cipher": "aes128-ctr",
            "ssh_mac": "umac-64@openssh.com",
        },
        "ok",
        "",
    ),
}


@pytest.fixture(scope="module")
def records(lab: None, play: Play, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One copy by each method, kept; the records by label."""
    directory = tmp_path_factory.mktemp("rows")
    _dataset.present(str(SOURCE), _dataset.shape("tree"), scale=0.005)
    for name in HARD_NAMES:
        Path(os.fsdecode(os.path.join(os.fsencode(SOURCE), name))).write_bytes(name)
    (SOURCE / "empty directory").mkdir()
    tasks: list[dict[str, Any]] = []
    others = [
        {"label": label, "module": module, "args": {"label": label, **args}}
        for label, (module, args, _status, _message) in OTHERS.items()
    ]
    for number, method in enumerate([*METHODS, *others]):
        tasks.append(
            {
                "name": f"Copy with {method['label']}",
                f"linkops.bulkcopy.{method['module']}": {
                    "src": str(SOURCE),
                    "dest": str(COPIES / f"copy {number}"),
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
        )
    results = ", ".join(f"copy_{number}" for number in range(len(METHODS) + len(others)))
    tasks += [
        {
            "name": "Keep the records",
            "ansible.builtin.copy": {
                "content": "{{ [" + results + "] | map(attribute='record') | to_json }}",
                "dest": str(directory / "records.json"),
                "mode": "0600",
            },
            "delegate_to": "localhost",
        },
        {
            "name": "Keep the fact of the last one",
            "ansible.builtin.copy": {
                "content": "{{ ansible_facts['bulkcopy'] | to_json }}",
                "dest": str(directory / "fact.json"),
                "mode": "0600",
            },
            "delegate_to": "localhost",
        },
    ]
    (directory / "rows.yml").write_text(json.dumps([{"hosts": "lab-a", "gather_facts": False, "tasks": tasks}]))
    played = play(directory / "rows.yml")
    assert played.returncode == 0, played.stdout
    found = json.loads((directory / "records.json").read_text())
    assert json.loads((directory / "fact.json").read_text()) == found[-1]
    return {record["method"]["label"]: record for record in found}


def test_labels_are_those_of_the_methods_themselves(records: dict[str, Any]) -> None:
    assert list(records) == [method["label"] for method in METHODS] + list(OTHERS)
    assert set(records) == set(ROWS) | set(OTHERS)


@pytest.mark.parametrize(("number", "label"), list(enumerate(OTHERS, len(METHODS))))
def test_others_end_as_they_should(records: dict[str, Any], number: int, label: str) -> None:
    _module, _args, status, message = OTHERS[label]
    record = records[label]
    assert (record["status"], record["message"][: len(message) or None]) == (status, message)
    copy = COPIES / f"copy {number}"
    if status == "ok":
        compared = subprocess.run(["diff", "-r", "--no-dereference", SOURCE, copy], check=False)
        assert compared.returncode == 0
    else:
        assert record["stages"] == []
        assert not copy.exists()


@pytest.mark.parametrize(("number", "label"), [(number, method["label"]) for number, method in enumerate(METHODS)])
class TestEachMethod:
    def test_the_copy_is_the_source(self, records: dict[str, Any], number: int, label: str) -> None:
        compared = subprocess.run(
            ["diff", "-r", "--no-dereference", SOURCE, COPIES / f"copy {number}"], stdout=subprocess.PIPE, check=False
        )
        assert (compared.returncode, compared.stdout) == (0, b"")

    def test_it_says_so(self, records: dict[str, Any], number: int, label: str) -> None:
        record = records[label]
        files = sum(len(names) for _path, _directories, names in os.walk(SOURCE))
        size = sum(
            os.lstat(os.path.join(path, name)).st_size
            for path, _directories, names in os.walk(SOURCE)
            for name in names
        )
        assert (record["status"], record["message"]) == ("ok", "")
        assert (record["dataset"]["files"], record["dataset"]["bytes"]) == (files, size)
        assert record["verified"]["method"] == "sha256"
        assert record["verified"]["files"] == files
        assert record["verified"]["mismatches"] == []

    def test_it_ran_what_the_row_says(self, records: dict[str, Any], number: int, label: str) -> None:
        stages = records[label]["stages"]
        assert len(stages) == len(ROWS[label])
        for stage, (program, *options) in zip(stages, ROWS[label], strict=True):
            assert re.fullmatch(program, os.path.basename(stage["argv"][0]))
            assert set(options) <= set(stage["argv"])
            # A daemon is told to end.
            assert stage["rc"] == 0 or "--daemon" in stage["argv"]

    def test_both_ends_have_a_cpu_figure_with_its_basis(self, records: dict[str, Any], number: int, label: str) -> None:
        record = records[label]
        over_ssh = label not in CLEAR
        assert record["method"]["encrypted"] is over_ssh
        assert record["cpu"]["source"]["basis"] == "rusage"
        assert ("sessions-unknown" in record["flags"]) is label.startswith(("rclone", "fpsync"))
        if over_ssh and {"foreign-session", "sessions-unknown"} & set(record["flags"]):
            assert record["cpu"]["target"] is None
        else:
            assert record["cpu"]["target"]["basis"] == ("sshd-children" if over_ssh else "agent-children")
            assert record["cpu"]["target"]["user_s"] + record["cpu"]["target"]["system_s"] > 0
        assert record["host_cpu"]["source"]["shared"] is True

    def test_the_bytes_crossed_the_link(self, records: dict[str, Any], number: int, label: str) -> None:
        record = records[label]
        assert record["link"]["device"] == "lan-1g"
        compressed = re.search("z|C", label) is not None
        least = 0.5 if compressed else 1.0
        wire = record["wire"]
        assert wire["basis"] == "both-devices"
        assert record["dataset"]["bytes"] * least < wire["tx_bytes"] < record["dataset"]["bytes"] * 1.5
        # Nothing else crosses the link of a lab but our own session's last words.
        assert 0 <= wire["foreign_bytes"] < 64_000
        assert not {"foreign-traffic", "one-end-counted"} & set(record["flags"])
        assert wire["ends"]["source"]["device"] == wire["ends"]["target"]["device"] == "lan-1g"
        assert wire["ends"]["target"]["rx_bytes"] >= wire["tx_bytes"]
        assert 0 < wire["rtt_ms"]["before"] < 1000
        assert 0 < wire["rtt_ms"]["after"] < 1000


def test_nothing_of_ours_runs_on_the_target_afterwards(records: dict[str, Any]) -> None:
    said = subprocess.run(
        ["ip", "netns", "exec", "bulkcopy-lab-b", "ss", "-Hltn"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    ports = {line.split()[3].rpartition(":")[2] for line in said.splitlines()}
    assert ports == {"22"}
