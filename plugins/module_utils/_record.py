# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
from typing import Any

SCHEMA = 1

#: How a run can end; it ends in exactly one of them. C(planned) is check mode's and never becomes a row.
STATUSES = ("ok", "corrupt", "failed", "timeout", "unsupported", "unreachable")
PLANNED = "planned"

#: Longest piece of a program's stderr that a record keeps: its end, where the reason stands.
STDERR_TAIL_BYTES = 2000


def escape(text: bytes) -> str:
    """Bytes of a name or of a program's output as valid UTF-8 text; a stray byte C(0xe9) becomes the four characters
    C(\\xe9). An invalid byte in a module's result would cost the whole result."""
    return text.decode("utf-8", "backslashreplace")


def utc_now() -> str:
    """The present as RFC 3339 in UTC, to the millisecond."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cpu(user_s: float, system_s: float, wall_s: float | None, basis: str) -> dict[str, Any]:
    """CPU time of one end, in seconds, and as C(percent) of one core over C(wall_s) (100 is one core); null
    where that is not known."""
    percent = 100.0 * (user_s + system_s) / wall_s if wall_s else None
    return {
        "user_s": round(user_s, 6),
        "system_s": round(system_s, 6),
        "percent": None if percent is None else round(percent, 2),
        "basis": basis,
    }


def new_record() -> dict[str, Any]:
    """A run record with every key that there is. What is not known yet is null; nothing is 0 that was not measured."""
    end: dict[str, dict[str, Any] | None] = {"source": None, "target": None}
    stages: list[dict[str, Any]] = []
    flags: list[str] = []
    return {
        "schema": SCHEMA,
        "run_id": None,
        "campaign_id": None,
        "started": utc_now(),
        "status": "failed",
        "warmup": False,
        "block": None,
        "position": None,
        "replica": 0,
        "seed": None,
        "flags": flags,
        "message": "",
        "link": {
            "name": None,
            "source": None,
            "target": None,
            "address": None,
            "device": None,
            "mtu": None,
            "rtt_ms": None,
            "connect_s": None,
            "ceiling_Bps": None,
        },
        "dataset": {
            "name": None,
            "files": None,
            "directories": None,
            "bytes": None,
            "linked_bytes": None,
            "compressibility": None,
            "compressibility_basis": None,
            "digest": None,
        },
        "method": {
            "label": None,
            "module": None,
            "args": {},
            "encrypted": None,
            "streams": None,
            "versions": {},
            "paths": {},
            "ssh": None,
        },
        "scenario": None,
        "stages": stages,
        "setup_s": None,
        "wall_s": None,
        "total_s": None,
        "durable_s": None,
        "throughput_Bps": None,
        "cpu": dict(end),
        "host_cpu": dict(end),
        "measuring": {"agent_s": None, "module_s": None},
        "wire": {
            "tx_bytes": None,
            "rx_bytes": None,
            "retransmits": None,
            "basis": None,
            "foreign_bytes": None,
            "rtt_ms": {"before": None, "after": None},
            "ends": dict(end),
        },
        "verified": None,
        "fidelity": None,
        "cache": {"requested": None, "achieved": None, "resident": None},
    }


#: Above this share of the total a connection's set-up is what was measured.
SETUP_SHARE = 0.2
SETUP_DOMINATED = "setup-dominated"


def add_flag(record: dict[str, Any], flag: str) -> None:
    if flag not in record["flags"]:
        record["flags"].append(flag)


def mark_setup_dominated(record: dict[str, Any]) -> None:
    """Flag a run whose time says nothing of larger copies: setting up took more than C(SETUP_SHARE) of it.

    A method that logs in within the clock has the login in its total; one in clear text has only its own set-up there. An
    empty tree is copied to see just that."""
    if record["dataset"]["bytes"] == 0:
        return
    setup_s = record["setup_s"] if record["method"]["encrypted"] is False else record["link"]["connect_s"]
    total_s = record["total_s"]
    if setup_s is not None and total_s and setup_s > SETUP_SHARE * total_s:
        add_flag(record, SETUP_DOMINATED)


#: Goodput above the link's own by more than this cannot be; nor can data that does not compress be sent in fewer bytes.
ABOVE_CEILING = "above-ceiling"
ABOVE_CEILING_SHARE = 0.03
WIRE_TOO_SMALL = "wire-too-small"
#: Compressed size by size from which data counts as incompressible.
INCOMPRESSIBLE = 0.98


def mark_impossible(record: dict[str, Any]) -> None:
    """Flag figures of a full copy of incompressible data that physics does not allow: then one of them is wrong, or not
    everything was copied."""
    dataset = record["dataset"]
    if record["scenario"] != "full" or not dataset["bytes"] or (dataset["compressibility"] or 0) < INCOMPRESSIBLE:
        return
    # Further names of a file need not be sent as content again, and tar and rsync -H do not.
    content_bytes = dataset["bytes"] - (dataset["linked_bytes"] or 0)
    ceiling, throughput = record["link"]["ceiling_Bps"], record["throughput_Bps"]
    if ceiling and throughput and throughput * content_bytes > (1 + ABOVE_CEILING_SHARE) * ceiling * dataset["bytes"]:
        add_flag(record, ABOVE_CEILING)
    # What was taken off for steady traffic is an estimate; what either end counted in all is not.
    ends = (record["wire"]["ends"]["source"], "tx_bytes"), (record["wire"]["ends"]["target"], "rx_bytes")
    sent = min([end[field] for end, field in ends if end], default=record["wire"]["tx_bytes"])
    if record["status"] == "ok" and sent is not None and sent < content_bytes:
        add_flag(record, WIRE_TOO_SMALL)


def human_bytes(count: float) -> str:
    """A number of bytes for a sentence, in decimal units: C(1500000) is C(1.5 MB)."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000.0
    return f"{count:.1f} TB"
