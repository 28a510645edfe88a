# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""tools/setup up to the point where it would install: what it refuses, and what it says is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
# What the script itself uses; without ssh, rsync and nc, which live in the same folder of a real machine.
TOOLS = ("cat", "dirname", "grep", "id", "ln", "mkdir", "paste", "readlink", "sed", "sort")


class Clone:
    """A folder with the script, on a machine that has no more programs than TOOLS in its usual folder."""

    def __init__(self, path: Path) -> None:
        self.path = path / "clone"
        self.bin = path / "bin"
        self.bin.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)
        (self.path / "tools").mkdir(parents=True)
        for name in ("tools/setup", "requirements.txt", "requirements-dev.txt"):
            shutil.copy(REPOSITORY / name, self.path / name)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def inventory(self, name: str, *, lab: bool) -> str:
        (self.path / name / "group_vars").mkdir(parents=True)
        (self.path / name / "hosts.yml").write_text("all: {hosts: {one: {}}}\n")
        (self.path / name / "group_vars/all.yml").write_text(f"---\nbulkcopy_lab: {str(lab).lower()}\n")
        return name

    def setup(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "tools/setup", *args],
            cwd=self.path,
            env={"PATH": str(self.bin), "PYTHON": sys.executable, "NO_INSTALL": "1", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(name="clone")
def fixture_clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_no_install_names_what_is_missing_and_the_command(clone: Clone) -> None:
    done = clone.setup("bench")
    assert done.returncode == 1
    command = next(line for line in done.stderr.splitlines() if "apt-get install" in line)
    # Debian's packages of ssh, rsync and nc; others may be missing on this machine too.
    assert {"openssh-client", "rsync", "netcat-openbsd"} <= set(command.split())
    assert "--no-install-recommends" in command.split()
    assert "requirements-dev.txt" in done.stderr
    assert not (clone.path / ".venv").exists()


@pytest.mark.parametrize(("mode", "wanted"), [("bench", True), ("test", False), ("lab", False)])
def test_only_the_benchmarks_need_hyperfine(clone: Clone, mode: str, wanted: bool) -> None:
    clone.program("id", "echo 0")
    assert ("hyperfine" in clone.setup(mode).stderr) == wanted


@pytest.mark.parametrize(("mode", "wanted"), [("bench", True), ("test", True), ("lab", False)])
def test_only_tests_need_the_programs_of_every_method(clone: Clone, mode: str, wanted: bool) -> None:
    clone.program("id", "echo 0")
    said = set(clone.setup(mode).stderr.split())
    assert ({"zstd", "lz4", "socat", "mbuffer", "rclone", "fpart"} <= said) == wanted


def test_own_hosts_need_the_ssh_client_only(clone: Clone) -> None:
    done = clone.setup("benchmark", clone.inventory("mine", lab=False))
    assert "openssh-client" in done.stderr
    assert "rsync" not in done.stderr
    assert "openssh-server" not in done.stderr


def test_programs_that_are_there_are_not_asked_for(clone: Clone) -> None:
    clone.program("ssh", "exit 0")
    done = clone.setup("benchmark", "one,two")
    assert "apt-get" not in done.stderr
    assert ".venv" in done.stderr


def test_a_half_installed_package_is_missing(clone: Clone) -> None:
    clone.program("ssh", "exit 0")
    clone.program("dpkg-query", "echo half-configured")
    done = clone.setup("benchmark", "one,two")
    assert "openssh-client" in done.stderr


@pytest.mark.parametrize("mode", ["benchmark", "lab", "test"])
def test_the_lab_needs_root_before_anything_is_done(clone: Clone, mode: str) -> None:
    clone.inventory("inventory", lab=True)
    clone.program("id", "echo 1000")
    done = clone.setup(mode, NO_INSTALL="")
    assert done.returncode == 1
    assert "needs root" in done.stderr
    assert "make benchmark INVENTORY=" in done.stderr
    assert sorted(os.listdir(clone.path)) == ["inventory", "requirements-dev.txt", "requirements.txt", "tools"]


def test_an_inventory_file_beside_group_vars_can_ask_for_the_lab(clone: Clone) -> None:
    clone.inventory("inventory", lab=True)
    clone.program("id", "echo 1000")
    assert "needs root" in clone.setup("benchmark", "inventory/hosts.yml").stderr


def test_without_root_missing_packages_are_named(clone: Clone) -> None:
    clone.program("id", "echo 1000")
    clone.program("apt-get", f"touch {clone.path}/called")
    done = clone.setup("benchmark", "one,two", NO_INSTALL="0")
    assert done.returncode == 1
    assert "need root to install: openssh-client." in done.stderr
    assert not (clone.path / "called").exists()


@pytest.mark.parametrize(
    ("args", "environment", "sentence"),
    [
        (("benchmark", "nowhere"), {}, "there is no inventory nowhere: give INVENTORY=path/to/inventory."),
        (("dev",), {"PYTHON": "/bin/false"}, "PYTHON=/bin/false is not a working Python 3.11 or later."),
        (("everything",), {}, "usage: tools/setup benchmark [INVENTORY] | lab | test | bench | dev"),
    ],
)
def test_wrong_input_gets_one_sentence(
    clone: Clone, args: tuple[str, ...], environment: dict[str, str], sentence: str
) -> None:
    done = clone.setup(*args, **environment)
    assert done.returncode == 1
    assert done.stderr == f"set-up: {sentence}\n"
