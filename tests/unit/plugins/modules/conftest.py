# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _copy, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import CopyMethod, Host, Job
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ssh

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run_module(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a module's C(main) with options and return its result."""

    def run(module: ModuleType, *, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        out = io.StringIO()
        # The unit test's standard output has no reader to lose.
        for name in ("die_with_controller",):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda _end_all: None)
        monkeypatch.setattr(_copy, "die_with_controller", lambda _end_all: None)
        # No test here looks at steady traffic.
        monkeypatch.setattr(_copy, "_QUIET_S", 0.0)
        with patch_module_args(dict(options, _ansible_check_mode=check_mode)), monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            with pytest.raises(SystemExit):
                module.main()
        result: dict[str, Any] = json.loads(out.getvalue().strip().splitlines()[-1])
        return result

    return run


def host(
    end: str,
    missing: tuple[str, ...] = (),
    answers: dict[str, str] | None = None,
    written: dict[str, str] | None = None,
) -> Host:
    """An end that has every program in /bin except C(missing), answers as told, and keeps its private files, by their
    names, in C(written)."""

    def write(name: str, text: str) -> str:
        if written is not None:
            written[name] = text
        return f"/private/{name}"

    def ask(argv: list[str]) -> dict[str, Any]:
        return {"rc": 0, "output": (answers or {}).get(" ".join(argv), "")}

    def which(names: list[str]) -> dict[str, str | None]:
        return {name: None if name in missing else f"/bin/{name}" for name in names}

    return Host(
        end,
        "dc1-a" if end == "source" else "dc2-a",
        which,
        ask,
        {"ssh": "-V", "tar": "--version"}.get,
        write,
    )


def made(method_class: Any, **options: Any) -> Any:
    """A method with these options, the others as its module has them by default."""
    module = sys.modules[method_class.__module__]
    with mock.patch.object(module, "run_copy") as run_copy:
        module.main()
    (_class, spec), _keywords = run_copy.call_args
    unknown = set(options) - set(spec)
    assert not unknown
    return method_class({**{name: option.get("default") for name, option in spec.items()}, **options})


@pytest.fixture
def job_for(tmp_path: Path) -> Callable[..., Job]:
    """What a method is asked in the argv tables: /data to dc2-a:/srv/copy, port 4000."""

    def make(method: CopyMethod, address: str = "198.18.1.2", **hosts: Host) -> Job:
        openssh = {"/bin/ssh -V": "OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.19"}
        return Job(
            method.params,
            "/data",
            "/srv/copy",
            Ssh(address).with_options(method.params),
            hosts.get("source", host("source", answers=openssh)),
            hosts.get("target", host("target")),
            str(tmp_path),
            free_ports=lambda count: list(range(4000, 4000 + count)),
            list_source=lambda _more: _tree.scan("/data", False),
            round_trip_s=lambda: 0.08,
            cores=2,
            peer="198.18.1.1",
        )

    return make
