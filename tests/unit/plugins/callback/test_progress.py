# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.callback.default import CallbackModule as Default
from ansible_collections.linkops.bulkcopy.plugins.callback import progress

RUN = {
    "link": "one",
    "dataset": "small",
    "label": "tar|ssh",
    "warmup": False,
    "block": 1,
    "blocks": 3,
    "replica": 0,
    "status": "ok",
    "message": "",
    "total_s": 2.0,
    "throughput_Bps": 5e6,
}


def result(action: str, loop: bool = False, **content: Any) -> Any:
    task = SimpleNamespace(resolved_action=action, loop=loop, _uuid="u", action=action)
    return SimpleNamespace(task=task, result=content, host=SimpleNamespace(get_name=lambda: "h"))


class Stdout:
    """Writes to the standard output as Ansible does, and as Ansible leaves it in the buffer."""

    verbosity = 0

    def display(self, text: str, **_more: Any) -> None:
        sys.stdout.write(text + "\n")


class Screen:
    verbosity = 0

    def __init__(self) -> None:
        self.lines: list[tuple[str, str | None]] = []

    def display(self, text: str, color: str | None = None, **_more: Any) -> None:
        self.lines.append((text, color))


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def callback(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> progress.CallbackModule:
    for name in ("v2_runner_on_ok", "v2_runner_on_failed", "v2_runner_item_on_ok", "v2_runner_on_skipped"):
        monkeypatch.setattr(
            Default, name, lambda self, *args, name=name: self._display.display(f"default {name}"), raising=True
        )
    made = progress.CallbackModule()
    made._display = screen
    return made


def test_one_line_a_run(callback: progress.CallbackModule, screen: Screen) -> None:
    callback.v2_runner_on_ok(result("linkops.bulkcopy.campaign", runs=2, estimate={"duration_s": 8.0}))
    callback.v2_runner_item_on_ok(result("linkops.bulkcopy.run", **RUN))
    callback.v2_runner_item_on_ok(result("linkops.bulkcopy.run", **{**RUN, "status": "failed", "message": "why"}))
    (good, plain), (bad, coloured) = screen.lines
    assert good.startswith("[1/2] ")
    assert "tar|ssh" in good
    assert good.endswith("5.0 MB/s  (4 s left)")
    assert plain is None
    assert bad.startswith("[2/2] ")
    assert bad.endswith("failed: why")
    assert coloured is not None


def test_a_file_has_each_line_at_once(
    callback: progress.CallbackModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback._display = Stdout()
    with (tmp_path / "log").open("w") as log:  # a buffer of kilobytes, as any file or pipe has
        monkeypatch.setattr(sys, "stdout", log)
        callback.v2_runner_item_on_ok(result("linkops.bulkcopy.run", **RUN))
        assert (tmp_path / "log").read_text().startswith("[1/?] ")
        log.write("PLAY\n")
        callback.v2_playbook_on_task_start(SimpleNamespace(_uuid="u"), False)
        assert (tmp_path / "log").read_text().endswith("PLAY\n")


def test_a_reader_that_has_gone_does_not_matter(
    callback: progress.CallbackModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback._display = Stdout()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        callback.v2_runner_item_on_ok(result("linkops.bulkcopy.run", **RUN))
        pipe.write("what Ansible writes and flushes itself, before each task's process")
        pipe.flush()


def test_runs_that_were_not_tried_share_a_line(callback: progress.CallbackModule, screen: Screen) -> None:
    for _run in range(3):
        callback.v2_runner_item_on_ok(
            result("linkops.bulkcopy.run", **{**RUN, "status": "unreachable", "message": "gone", "tried": False})
        )
    callback.v2_runner_item_on_ok(result("linkops.bulkcopy.run", **{**RUN, "tried": True}))
    assert [text.split()[0] for text, _color in screen.lines] == ["[1/?]", "[4/?]"]


def test_blocks_that_are_not_needed_are_said_once_and_counted_off(
    callback: progress.CallbackModule, screen: Screen
) -> None:
    callback.v2_runner_on_ok(result("linkops.bulkcopy.campaign", runs=5, estimate={"duration_s": 50.0}))
    stop = {"last": 12, "reason": "every interval is within 5 % of its estimate"}
    for _run in range(3):
        callback.v2_runner_item_on_skipped(
            result("linkops.bulkcopy.run", skipped=True, link="l", dataset="d", stop=stop)
        )
    callback.v2_runner_item_on_ok(result("linkops.bulkcopy.run", **RUN))
    assert screen.lines[0][0] == "l d: 12 blocks: every interval is within 5 % of its estimate"
    assert [text.split()[0] for text, _color in screen.lines[1:]] == ["[1/2]"]


def test_quiet_where_all_went_well(callback: progress.CallbackModule, screen: Screen) -> None:
    callback.v2_runner_on_ok(result("linkops.bulkcopy.attempt", status="ok"))
    callback.v2_runner_on_ok(result("linkops.bulkcopy.run", results=[]))
    callback.v2_runner_on_skipped(result("linkops.bulkcopy.run"))
    callback.v2_runner_item_on_skipped(result("linkops.bulkcopy.run"))
    assert screen.lines == []


def test_others_are_shown_as_the_default_shows_them(callback: progress.CallbackModule, screen: Screen) -> None:
    callback.v2_runner_on_ok(result("ansible.builtin.copy", changed=True))
    callback.v2_runner_on_failed(result("ansible.builtin.copy", msg="x"))
    assert [text for text, _color in screen.lines] == ["default v2_runner_on_ok", "default v2_runner_on_failed"]


def test_a_refusal_is_shown_once_and_as_it_is(callback: progress.CallbackModule, screen: Screen) -> None:
    callback.v2_runner_on_failed(result("linkops.bulkcopy.campaign", msg="nothing was copied: {{ x }}"))
    assert [text for text, _color in screen.lines] == ["nothing was copied: {{ x }}"]


def test_verbose_shows_everything(callback: progress.CallbackModule, screen: Screen) -> None:
    screen.verbosity = 1
    callback.v2_runner_on_ok(result("linkops.bulkcopy.attempt", status="ok"))
    assert [text for text, _color in screen.lines] == ["default v2_runner_on_ok"]


@pytest.mark.parametrize(("extra", "shown"), [({"_ansible_verbose_always": True}, True), ({}, False)])
def test_a_following_play_can_print_something(
    callback: progress.CallbackModule, monkeypatch: pytest.MonkeyPatch, extra: dict[str, bool], shown: bool
) -> None:
    """ansible.builtin.debug sets this; a task that went as it should does not."""
    options = {"display_ok_hosts": False}
    seen: list[bool] = []
    monkeypatch.setattr(callback, "set_option", options.__setitem__)
    monkeypatch.setattr(Default, "v2_runner_on_ok", lambda self, result: seen.append(options["display_ok_hosts"]))
    callback.v2_runner_on_ok(result("ansible.builtin.debug", msg="hi", **extra))
    assert seen == [shown]
    assert options["display_ok_hosts"] is False
