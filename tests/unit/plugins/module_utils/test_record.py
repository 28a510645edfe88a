# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _record


@pytest.mark.parametrize(
    ("given", "shown"),
    [(b"plain", "plain"), (b"latin1_\xe9", "latin1_\\xe9"), ("é".encode(), "é"), (b"{{ x }}", "{{ x }}")],
)
def test_bytes_become_valid_text(given: bytes, shown: str) -> None:
    assert _record.escape(given) == shown
    assert _record.escape(given).encode("utf-8")


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (5e15, "5000.0 TB")]
)
def test_sizes_for_sentences(count: float, shown: str) -> None:
    assert _record.human_bytes(count) == shown


def test_cpu_is_a_share_of_one_core() -> None:
    assert _record.cpu(1.0, 0.5, 3.0, "rusage") == {"user_s": 1.0, "system_s": 0.5, "percent": 50.0, "basis": "rusage"}
    assert _record.cpu(1.0, 0.5, 0.0, "rusage")["percent"] is None


@pytest.mark.parametrize(("size", "flags"), [(1000, ["setup-dominated"]), (None, ["setup-dominated"]), (0, [])])
def test_setup_that_dominates_is_flagged_but_for_an_empty_tree(size: int | None, flags: list[str]) -> None:
    record = _record.new_record()
    record["link"]["connect_s"], record["total_s"], record["dataset"]["bytes"] = 0.3, 1.0, size
    _record.mark_setup_dominated(record)
    assert record["flags"] == flags


FULL: dict[str, Any] = {
    "dataset": {"bytes": 1000, "linked_bytes": 0, "compressibility": 1.0},
    "scenario": "full",
    "status": "ok",
}


@pytest.mark.parametrize(
    ("ceiling", "throughput", "sent", "flags"),
    [
        (100, 103, 1000, []),
        (100, 104, 1000, ["above-ceiling"]),
        (None, 104, 1000, []),
        (100, None, None, []),
        (100, 90, 999, ["wire-too-small"]),
        (100, 200, 10, ["above-ceiling", "wire-too-small"]),
    ],
)
def test_what_physics_does_not_allow_is_flagged(
    ceiling: int | None, throughput: int | None, sent: int | None, flags: list[str]
) -> None:
    record = {**_record.new_record(), **FULL}
    record["link"]["ceiling_Bps"], record["throughput_Bps"], record["wire"]["tx_bytes"] = ceiling, throughput, sent
    _record.mark_impossible(record)
    assert record["flags"] == flags


def test_what_was_taken_off_for_other_traffic_is_not_missing() -> None:
    """It is an estimate; the devices' own counts are not."""
    record = {**_record.new_record(), **FULL}
    record["wire"].update(
        tx_bytes=900,
        ends={
            "source": {"device": "eth0", "tx_bytes": 1500, "rx_bytes": 0},
            "target": {"device": "eth0", "tx_bytes": 0, "rx_bytes": 1001},
        },
    )
    _record.mark_impossible(record)
    assert record["flags"] == []
    record["wire"]["ends"]["target"]["rx_bytes"] = 999
    _record.mark_impossible(record)
    assert record["flags"] == ["wire-too-small"]


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": {"bytes": 1000, "linked_bytes": 0, "compressibility": 0.5}},
        {"dataset": {"bytes": 1000, "linked_bytes": 0, "compressibility": None}},
        {"dataset": {"bytes": 0, "linked_bytes": None, "compressibility": None}},
        {"scenario": "update"},
    ],
)
def test_what_compresses_may_seem_faster_than_the_link(change: dict[str, Any]) -> None:
    record = {**_record.new_record(), **FULL, **change}
    record["link"]["ceiling_Bps"], record["throughput_Bps"], record["wire"]["tx_bytes"] = 100, 200, 10
    _record.mark_impossible(record)
    assert record["flags"] == []


@pytest.mark.parametrize(
    ("linked", "throughput", "sent", "flags"),
    [
        # A file of 500 bytes with two names: tar sends it once, in half of the time.
        (500, 200, 510, []),
        (500, 206, 500, []),
        (500, 207, 499, ["above-ceiling", "wire-too-small"]),
        (None, 104, 999, ["above-ceiling", "wire-too-small"]),
    ],
)
def test_a_hard_link_is_not_sent_as_content_again(
    linked: int | None, throughput: int, sent: int, flags: list[str]
) -> None:
    record = {**_record.new_record(), **FULL, "dataset": {**FULL["dataset"], "linked_bytes": linked}}
    record["link"]["ceiling_Bps"], record["throughput_Bps"], record["wire"]["tx_bytes"] = 100, throughput, sent
    _record.mark_impossible(record)
    assert record["flags"] == flags
