# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What limits a method. The figures are made by hand: what each one is of the bound is counted beside it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import cpu, new_record
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils import limits
from ansible_collections.linkops.bulkcopy.plugins.plugin_utils.limits import Evidence, HostLoad, Stage, limiter

SSH = [
    "/usr/bin/ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "Compression=no",
    "--",
    "198.18.1.2",
    "exec /bin/sh -c 'tar -C /x -xpf -'",
]
TAR = ["/usr/bin/tar", "-C", "/srv/x", "-cf", "-", "--", "."]

#: 80 MB in 2.8 s over 1 Gbit/s at 0.2 ms, 0.2 s of it a login: 31 MB/s of 118, and nothing is busy.
IDLE = Evidence(
    total_s=2.8,
    setup_s=0.0,
    connect_s=0.2,
    sessions=1,
    bytes=80_000_000,
    files=4,
    wire_tx_bytes=84_000_000,
    ceiling_Bps=118e6,
    rtt_ms=0.2,
    mtu=1500,
    encrypted=True,
    streams=1,
    stages=(Stage("source", "tar", limits.OTHER, 0.1), Stage("source", "ssh", limits.ENCRYPTS, 0.3)),
    cpu_target_s=0.5,
    cpu_target_basis="sshd-children",
    host_cpu={"source": HostLoad(0.6, 0.0, 11.2, 4), "target": HostLoad(0.7, 0.0, 11.2, 4)},
    durable_s=2.9,
)
GZIP = Stage("source", "gzip", limits.COMPRESSES, 2.4)


def but(**fields: Any) -> Evidence:
    return dataclasses.replace(IDLE, **fields)


def test_nothing_stands_out() -> None:
    found, why = limiter(IDLE)
    assert found is None
    # 84e6 * 1448 / 1514 / 2.6 s = 30.9 MB/s, 26 % of 118; 0.3 of 2.6 s
    assert why == "nothing stands out: 26% of the link, ssh at the source busy for 12% of the copying time"


@pytest.mark.parametrize(
    ("fields", "limit", "words"),
    [
        # 1.5 s of login of 2.8 s
        ({"connect_s": 1.5}, limits.SET_UP, "1.50 s of 2.80 s"),
        # two logins of 0.8 s one after the other are 1.6 s, at once 0.8 s
        ({"connect_s": 0.8, "sessions": 2}, limits.SET_UP, "1.60 s"),
        ({"connect_s": 0.8, "sessions": 2, "streams": 2}, None, ""),
        ({"sessions": 0, "encrypted": False, "setup_s": 1.5, "connect_s": 9.0}, limits.SET_UP, "1.50 s of 2.80 s"),
        # 280 MB / 2.6 s = 107.7 MB/s, 91 % of 118
        ({"bytes": 280_000_000, "wire_tx_bytes": 285_000_000}, limits.LINK, "91% of the 118.0 MB/s"),
        # 270 MB: 88 %
        ({"bytes": 270_000_000, "wire_tx_bytes": 280_000_000}, None, ""),
        # the counter alone: 300e6 * 1448 / 1514 / 2.6 = 110.4 MB/s, 94 %
        ({"wire_tx_bytes": 300_000_000}, limits.LINK, "94%"),
        # without the counter the files' bytes are the least that crossed
        ({"bytes": 280_000_000, "wire_tx_bytes": None}, limits.LINK, "91%"),
        # compressed, the files' bytes are not what crossed
        ({"bytes": 280_000_000, "stages": (dataclasses.replace(GZIP, cpu_s=1.0),)}, None, ""),
        # 2 MiB / 60 ms = 34.95 MB/s; 30.9 is 88 % of it
        ({"rtt_ms": 60.0}, limits.SSH_WINDOW, "88% of what 1 stream with 2 MiB a round trip of 60.0 ms"),
        # 44 % of what two streams can carry; of one at 80 ms 26.2 MB/s, and 30.9 shows that the window is larger
        ({"rtt_ms": 60.0, "streams": 2, "sessions": 2}, None, ""),
        ({"rtt_ms": 80.0}, None, ""),
        ({"rtt_ms": 60.0, "encrypted": False, "sessions": 0}, None, ""),
        # the window's 35 MB/s are more than a link of 36 MB/s lets through at nine tenths
        ({"rtt_ms": 60.0, "ceiling_Bps": 36e6}, None, ""),
        # 2.3 of 2.6 s: 88 %
        (
            {"stages": (Stage("source", "ssh", limits.ENCRYPTS, 2.3),)},
            limits.CIPHER_CPU,
            "ssh at the source took 2.30 s",
        ),
        # 73 %
        ({"stages": (Stage("source", "ssh", limits.ENCRYPTS, 1.9),)}, None, ""),
        ({"stages": (Stage("source", "ssh", limits.COMPRESSES, 2.3),)}, limits.COMPRESSOR_CPU, "ssh (ssh compression)"),
        ({"stages": (GZIP, *IDLE.stages)}, limits.COMPRESSOR_CPU, "gzip at the source took 2.40 s of CPU in 2.60 s"),
        # the busier of two
        (
            {"stages": (GZIP, Stage("source", "ssh", limits.ENCRYPTS, 2.5))},
            limits.CIPHER_CPU,
            "ssh at the source took 2.50 s",
        ),
        ({"stages": (Stage("target", "tar", limits.OTHER, 2.5),)}, limits.PROGRAM_CPU, "tar at the target"),
        # pigz may use four cores: 2.4 s are a quarter of what there is, 9.6 s 92 %
        ({"stages": (Stage("source", "pigz", limits.COMPRESSES, 2.4),)}, None, ""),
        ({"stages": (Stage("source", "pigz", limits.COMPRESSES, 9.6),)}, limits.COMPRESSOR_CPU, "9.60 s"),
        ({"stages": (Stage("source", "pigz", limits.COMPRESSES, 9.6),), "host_cpu": {}}, None, ""),
        # an xz with one thread, and one with two of four
        ({"stages": (Stage("source", "xz", limits.COMPRESSES, 2.5),)}, limits.COMPRESSOR_CPU, "xz"),
        ({"stages": (Stage("source", "xz", limits.COMPRESSES, 5.0),)}, None, ""),
        ({"stages": (Stage("source", "scp", limits.ENCRYPTS, 2.3),)}, limits.CIPHER_CPU, "with the ssh that it starts"),
        ({"stages": (Stage("source", "rsync", limits.OTHER, 2.3),)}, limits.PROGRAM_CPU, "rsync at the source took"),
        (
            {"cpu_target_s": 2.3, "stages": (Stage("source", "ssh", limits.ENCRYPTS, 1.9),)},
            limits.CIPHER_CPU,
            "sshd at the target, with the receiver below it, took 2.30 s of CPU in 2.60 s of copying",
        ),
        # the same cipher took 0.3 s at the source: it is the receiver that is busy, with few large files or many small
        (
            {"cpu_target_s": 2.3},
            limits.PROGRAM_CPU,
            "took 2.30 s of CPU in 2.60 s of copying, and no more than 0.30 s of it for the cipher",
        ),
        ({"cpu_target_s": 2.3, "files": 2000}, limits.PER_FILE_LATENCY, "; 1.15 ms for each of 2000 files"),
        # where the source's part is not known nothing speaks against the cipher
        (
            {"cpu_target_s": 2.3, "files": 2000, "stages": (Stage("source", "ssh", limits.ENCRYPTS, None),)},
            limits.CIPHER_CPU,
            "sshd at the target",
        ),
        ({"cpu_target_s": 2.3, "cpu_target_basis": "agent-children"}, None, ""),
        ({"cpu_target_s": 2.3, "stages": (dataclasses.replace(GZIP, cpu_s=1.0),)}, None, ""),
        # 10.1 of 11.2 s: 90 %
        (
            {"host_cpu": {"target": HostLoad(10.1, 0, 11.2, 4)}},
            limits.HOST_CPU,
            "the 4 cores of the target were 90% busy",
        ),
        (
            {"host_cpu": {"source": HostLoad(2.7, 0, 2.8, 1, True)}},
            limits.HOST_CPU,
            "1 core of the source, which is the other",
        ),
        # known only as a sum, and all cores busy: that is what is sure
        (
            {"cpu_target_s": 2.5, "host_cpu": {"target": HostLoad(10.1, 0, 11.2, 4)}},
            limits.HOST_CPU,
            "of the target",
        ),
        # one busy process is named, whatever else runs
        (
            {"stages": (GZIP,), "host_cpu": {"source": HostLoad(10.9, 0, 11.2, 4)}},
            limits.COMPRESSOR_CPU,
            "; the source's processors were all busy",
        ),
        # 0.9 of 2.8 s: 32 %
        ({"host_cpu": {"source": HostLoad(0.6, 0.9, 11.2, 4)}}, limits.DISK, "the source waited 0.90 s"),
        ({"host_cpu": {"source": HostLoad(0.6, 0.8, 11.2, 4)}}, None, ""),
        # 4.2 of 2.8 s
        ({"durable_s": 4.2}, limits.DISK, "1.5 times as long"),
        # 40 kB each in 2.6 s / 2000 = 1.3 ms
        ({"files": 2000}, limits.PER_FILE_LATENCY, "2000 files of 40.0 kB on average took 1.30 ms each"),
        # 1.6 MB each; 49 files
        ({"files": 50}, None, ""),
        ({"files": 49, "bytes": 49_000}, None, ""),
        ({"files": 2000, "stages": (GZIP,)}, limits.COMPRESSOR_CPU, "gzip"),
        # a compressor that is busy for 69 % of the time is no proof that it is the files; one of 46 % is nothing to do with it
        ({"files": 2000, "stages": (dataclasses.replace(GZIP, cpu_s=1.8),)}, None, "gzip at the source busy for 69%"),
        ({"files": 2000, "stages": (dataclasses.replace(GZIP, cpu_s=1.2),)}, limits.PER_FILE_LATENCY, "2000 files"),
        # 2.5 s / 2000
        (
            {"files": 2000, "stages": (Stage("target", "tar", limits.OTHER, 2.5),)},
            limits.PER_FILE_LATENCY,
            "tar at the target took 2.50 s of CPU in 2.60 s of copying, 1.25 ms for each of 2000 files",
        ),
        ({"files": 2000, "stages": (Stage("source", "rsync", limits.OTHER, 2.3),)}, limits.PER_FILE_LATENCY, "rsync"),
    ],
)
def test_limits(fields: dict[str, Any], limit: str | None, words: str) -> None:
    found, why = limiter(but(**fields))
    assert (found, words in why) == (limit, True), why


def test_what_is_not_known_crashes_no_rule_and_counts_as_nothing() -> None:
    assert limiter(Evidence()) == (None, "no time was measured")
    assert limiter(Evidence(total_s=2.0)) == (None, "nothing stands out; too little is known")
    for field in dataclasses.fields(Evidence):
        if field.name not in ("stages", "host_cpu", "total_s"):
            assert limiter(but(**{field.name: None}))[0] is None, field.name
    unknown = Stage("source", "gzip", limits.COMPRESSES, None)
    assert limiter(but(stages=(unknown,)))[0] is None
    # A login of unknown length stays in the time: 280 MB / 2.8 s are 85 % of the link, not 91.
    assert limiter(but(connect_s=None, bytes=280_000_000, wire_tx_bytes=295_000_000))[0] is None


@pytest.mark.parametrize(
    ("argv", "encrypted", "work"),
    [
        (SSH, True, limits.ENCRYPTS),
        (["ssh", "-o", "Compression=yes", "--", "b", "tar"], True, limits.COMPRESSES),
        (["ssh", "-oCompression=no", "-o", "Compression=yes", "b"], True, limits.ENCRYPTS),
        (["ssh", "-aC", "b"], True, limits.COMPRESSES),
        (["ssh", "-i", "-C", "b", "tar", "-C", "/x"], True, limits.ENCRYPTS),
        (["scp", "-rpC", "x", "b:"], True, limits.COMPRESSES),
        (["scp", "-P", "22", "-O", "-C", "x", "b:"], True, limits.COMPRESSES),
        (["scp", "-s", "-r", "-o", "Compression=yes", "--", "./x", "b:/"], True, limits.COMPRESSES),
        (["rsync", "-a", "-s", "-e", "/usr/bin/ssh -o Compression=no", "--", "./", "b:/"], True, limits.ENCRYPTS),
        (["rsync", "-a", "-s", "-e", "/usr/bin/ssh -o Compression=yes", "--", "./", "b:/"], True, limits.COMPRESSES),
        (["rsync", "-az", "-s", "-e", "ssh", "--", "./", "b:/"], True, limits.COMPRESSES),
        (["rsync", "-a", "--zc=zstd", "./", "b:/"], True, limits.COMPRESSES),
        (["rsync", "-a", "--zc=none", "./", "b::m/"], False, limits.OTHER),
        (["/usr/bin/gzip", "-1", "-c"], False, limits.COMPRESSES),
        (["/bin/busybox", "gzip", "-c"], False, limits.COMPRESSES),
        (["/bin/busybox", "nc", "-l"], False, limits.OTHER),
        (TAR, True, limits.OTHER),
        (["tar", "-czf", "-", "."], True, limits.COMPRESSES),
        (["tar", "--use-compress-program=zstd", "-xpf", "-"], True, limits.COMPRESSES),
    ],
)
def test_work_of(argv: list[str], encrypted: bool, work: str) -> None:
    assert limits.work_of(argv, encrypted) == work


def row(total_s: float, stages: list[tuple[str, list[str], float]], **fields: Any) -> dict[str, Any]:
    """An ok record; C(fields) are put over it, those of a mapping into it."""
    record = new_record()
    record.update(status="ok", scenario="full", setup_s=0.0, wall_s=total_s, total_s=total_s, durable_s=total_s + 0.1)
    record["stages"] = [
        {"end": end, "argv": argv, "rc": 0, "user_s": 0.75 * spent, "system_s": 0.25 * spent, "stderr": ""}
        for end, argv, spent in stages
    ]
    record["method"].update(encrypted=True, streams=1)
    for key, value in fields.items():
        if isinstance(value, dict):
            record[key].update(value)
        else:
            record[key] = value
    return record


SLOW = {"ceiling_Bps": 11_950_000, "rtt_ms": 0.3, "connect_s": 0.2, "mtu": 1500}
LARGE = {"files": 1, "bytes": 20_000_000}


def test_clear_text_on_a_slow_link_fills_it() -> None:
    nc = ["/usr/bin/nc", "-n", "-N", "198.18.1.2", "4000"]
    rows = [
        row(
            total_s,
            [("target", ["/usr/bin/nc", "-l"], 0.04), ("source", TAR, 0.02), ("source", nc, 0.03)],
            setup_s=0.004,
            dataset=LARGE,
            link=SLOW,
            method={"encrypted": False},
            wire={"tx_bytes": 20_950_000, "basis": "device"},
        )
        for total_s in (1.686, 1.690, 1.680)
    ]
    found, why = limiter(limits.evidence(rows))
    # max(20e6, 20.95e6 * 1448 / 1514) / (1.686 - 0.004) = 11.91 MB/s
    assert (found, why) == (limits.LINK, "11.9 MB/s cross it, 100% of the 11.9 MB/s that it can carry")


def test_a_login_is_not_the_links() -> None:
    scp = ["/usr/bin/scp", "-r", "-o", "Compression=no", "--", "./x", "198.18.1.2:/y/"]
    rows = [row(1.888, [("source", scp, 0.2)], dataset=LARGE, link=SLOW, wire={"tx_bytes": 21_100_000})]
    assert limiter(limits.evidence(rows))[0] == limits.LINK
    # 20 MB in 1.888 s alone would be 89 %
    assert limiter(limits.evidence(rows, {"connect_s": None}))[0] == limits.LINK
    del rows[0]["link"]["connect_s"]
    assert limiter(limits.evidence(rows))[0] is None


def test_a_login_that_was_tried_at_a_slow_moment_takes_no_time_that_the_link_needs() -> None:
    scp = ["/usr/bin/scp", "-r", "-o", "Compression=no", "--", "./x", "198.18.1.2:/y/"]
    rows = [row(1.931, [("source", scp, 0.2)], dataset=LARGE, link=SLOW, wire={"tx_bytes": 20_904_113})]
    found, why = limiter(limits.evidence(rows, {"connect_s": 0.6}))
    # 20 MB take 1.674 s of the link's time, which leaves a quarter of a second for the login, not 0.6 s
    assert (found, why) == (limits.LINK, "11.9 MB/s cross it, 100% of the 11.9 MB/s that it can carry")


def test_a_compressor_on_a_fast_link() -> None:
    gzip = ["/usr/bin/gzip", "-c"]
    rows = [
        row(
            total_s,
            [("source", TAR, 0.1), ("source", gzip, spent), ("source", SSH, 0.3)],
            dataset={"files": 4, "bytes": 80_000_000},
            link={"ceiling_Bps": 118_000_000, "rtt_ms": 0.2, "connect_s": 0.2, "mtu": 1500},
            wire={"tx_bytes": 60_000_000},
            cpu={"target": cpu(0.6, 0.3, 2.8, "sshd-children")},
        )
        for total_s, spent in ((2.80, 2.40), (2.79, 2.38), (2.83, 2.45))
    ]
    # Neither a warm-up nor a failed run counts.
    rows += [row(9.0, [("source", TAR, 9.0)], warmup=True), row(9.0, [("source", TAR, 9.0)], status="failed")]
    seen = limits.evidence(rows)
    assert [(stage.program, stage.work, stage.cpu_s) for stage in seen.stages] == [
        ("tar", limits.OTHER, pytest.approx(0.1)),
        ("gzip", limits.COMPRESSES, pytest.approx(2.40)),
        ("ssh", limits.ENCRYPTS, pytest.approx(0.3)),
    ]
    assert (seen.total_s, seen.cpu_target_s, seen.cpu_target_basis) == (2.80, pytest.approx(0.9), "sshd-children")
    assert limiter(seen) == (
        limits.COMPRESSOR_CPU,
        "gzip at the source took 2.40 s of CPU in 2.60 s of copying",
    )


def test_host_counters_of_records() -> None:
    host = {"user_s": 1.0, "system_s": 0.7, "steal_s": 0.2, "iowait_s": 0.0, "idle_s": 0.1, "cores": 2, "shared": True}
    seen = limits.evidence([row(1.0, [("source", TAR, 0.5)], host_cpu={"source": host})])
    assert seen.host_cpu == {"source": HostLoad(pytest.approx(1.9), 0.0, pytest.approx(2.0), 2, True)}
    assert limiter(seen)[0] == limits.HOST_CPU


def test_records_without_figures_give_no_evidence() -> None:
    assert limits.evidence([]) == Evidence()
    bare = limits.evidence([dict(new_record(), status="ok")])
    assert bare == Evidence()
    assert limiter(limits.evidence([{"status": "ok", "total_s": 2.0, "stages": [{"end": "source"}]}]))[0] is None
