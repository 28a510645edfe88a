# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a method from being faster on a link and a tree? Plain Python: knows nothing of Ansible, and no method by
name: it looks at programs, times and counters only."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import SSH_WINDOW_BYTES

LINK = "link"
SSH_WINDOW = "ssh-window"
CIPHER_CPU = "cipher-cpu"
COMPRESSOR_CPU = "compressor-cpu"
PER_FILE_LATENCY = "per-file-latency"
DISK = "disk"
#: Logging in and starting a listener take most of the time: the tree is too small to see more.
SET_UP = "set-up"
#: Every processor of an end is busy, with no single program to blame.
HOST_CPU = "host-cpu"
#: A program that neither encrypts nor compresses keeps a processor busy.
PROGRAM_CPU = "program-cpu"
LIMITS = (
    LINK,
    SSH_WINDOW,
    CIPHER_CPU,
    COMPRESSOR_CPU,
    PER_FILE_LATENCY,
    DISK,
    SET_UP,
    HOST_CPU,
    PROGRAM_CPU,
)

#: Share of the total from which set-up is what limits.
SET_UP_SHARE = 0.5
#: Share of the ceiling from which the link is full.
LINK_SHARE = 0.9
#: What an ssh connection has on its way at most; sftp's 64 requests of 32 KiB come to the same.
WINDOW_BYTES = SSH_WINDOW_BYTES
#: Share of a window per round trip from which the window is full; above the other one it is not a window of this size.
WINDOW_SHARE, WINDOW_EXCESS = 0.7, 1.1
#: Share of the copying time for which a program that runs on one processor must have been busy: it waits now and then,
#: for its neighbours in the pipeline and for a processor.
BUSY_SHARE = 0.75
#: What is busy for more than this may well be what limits, so that nothing else is blamed for want of a better reason.
SUSPECT_SHARE = 0.5
#: Share of what the target took that the cipher must be, by what it took at the source, to be what keeps it busy.
CIPHER_SHARE = 0.5
#: Share of all processors of an end from which it has none to spare.
HOST_SHARE = 0.9
#: Seconds of waiting for a disk for each second, and how long writing out may take as a multiple of the total.
IOWAIT_SHARE, DURABLE_FACTOR = 0.3, 1.5
#: A tree of small files: at least so many, of less than this on average.
MANY_FILES, SMALL_BYTES = 50, 1024 * 1024

#: What a program does that may keep a processor busy.
COMPRESSES, ENCRYPTS, OTHER = "compresses", "encrypts", "other"
COMPRESSORS = frozenset({"gzip", "pigz", "bzip2", "lbzip2", "pbzip2", "xz", "zstd", "lz4", "lzop", "brotli"})
#: Those that use every processor unless told not to, and those that may.
ALWAYS_THREADED = frozenset({"pigz", "lbzip2", "pbzip2"})
THREADED = ALWAYS_THREADED | {"xz", "zstd"}
#: More than this share of one processor takes more than one.
ONE_CORE = 1.1
#: The ssh clients, with those of their options that a value follows.
OPTIONS_WITH_VALUE = {"ssh": "BbcDEeFIiJLlmOopQRSWw", "scp": "cDFiJloPSX", "sftp": "BbcDFiJloPRSsX"}
#: These start an ssh, whose CPU time is counted with theirs.
WITH_CHILDREN = frozenset({"scp", "sftp", "rsync"})

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A process of the pipeline: C(end) (source or target), its C(program), what it does (C(work)) and its CPU seconds,
    null where they are not known."""

    end: str
    program: str
    work: str
    cpu_s: float | None


@dataclasses.dataclass(frozen=True)
class HostLoad:
    """Seconds that all processors of an end together were busy (stolen time counted, idle and iowait not), waited for a
    disk, and had in all. C(shared): the other end is the same machine; null where that is not known."""

    busy_s: float
    iowait_s: float
    capacity_s: float
    cores: int
    shared: bool | None = None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Medians over the ok runs of a method on a link and tree. Null is what is not known: no rule then looks at it."""

    total_s: float | None = None
    setup_s: float | None = None
    connect_s: float | None = None
    #: ssh logins of a copy: 0 for clear text.
    sessions: int | None = None
    bytes: int | None = None
    files: int | None = None
    wire_tx_bytes: float | None = None
    #: Goodput of the link.
    ceiling_Bps: float | None = None  # noqa: N815
    rtt_ms: float | None = None
    mtu: int | None = None
    encrypted: bool | None = None
    streams: int | None = None
    stages: tuple[Stage, ...] = ()
    cpu_target_s: float | None = None
    cpu_target_basis: str | None = None
    host_cpu: Mapping[str, HostLoad] = dataclasses.field(default_factory=dict)
    durable_s: float | None = None

    @property
    def compresses(self) -> bool:
        return any(stage.work == COMPRESSES for stage in self.stages)

    @property
    def small_files(self) -> bool:
        """Whether there are many files, and most of them small."""
        if self.files is None or self.bytes is None or self.files < MANY_FILES:
            return False
        return self.bytes / self.files < SMALL_BYTES

    @property
    def connects_s(self) -> float | None:
        """Seconds in which logins kept data from flowing. Streams log in at the same time, anything else in turn. A login
        was tried at another moment, which may have been a slow one: it did not take the time that the link needs for
        what it carried."""
        if self.sessions == 0:
            return 0.0
        if self.sessions is None or self.connect_s is None:
            return None
        tried_s = self.connect_s * math.ceil(self.sessions / max(1, self.streams or 1))
        if self.total_s is None or not self.ceiling_Bps or self.carried_bytes is None:
            return tried_s
        return max(0.0, min(tried_s, self.total_s - (self.setup_s or 0.0) - self.carried_bytes / self.ceiling_Bps))

    @property
    def copying_s(self) -> float | None:
        """Seconds in which data could flow. What is not known of logins and set-up stays in it, so that every share of it
        is rather too small than too large. Null where nothing is left."""
        if self.total_s is None:
            return None
        left = self.total_s - (self.setup_s or 0.0) - (self.connects_s or 0.0)
        return left if left > 0 else None

    @property
    def carried_bytes(self) -> float | None:
        """Bytes of TCP payload that crossed the link, had all of them gone in full frames as the ceiling's do: of the bytes
        on the wire the share that a full frame carries (beside 20 bytes of IP, 20 of TCP, 12 of its timestamps, 14 of
        Ethernet); and where nothing compresses, no fewer than the files have. A virtual device counts the headers of what
        is cut up later only once, which makes the first too small by up to 4 %."""
        known = []
        if self.wire_tx_bytes is not None and self.mtu is not None and self.mtu > 52:
            known.append(self.wire_tx_bytes * (self.mtu - 52) / (self.mtu + 14))
        if self.bytes is not None and self.stages and not self.compresses:
            known.append(self.bytes if self.wire_tx_bytes is None else min(self.bytes, self.wire_tx_bytes))
        return max(known, default=None)


def limiter(evidence: Evidence) -> tuple[str | None, str]:
    """One of L(LIMITS), or null where nothing stands out, and a short sentence with the figures.

    The first that applies: set-up, since then nothing else can be seen; the link, than which no method can do better; the
    window, which caps a stream whatever the processors do; one busy process; all processors; processes that are only
    known together; the disks; small files, where nothing else explains the time."""
    if evidence.total_s is None:
        return None, "no time was measured"
    copying_s = evidence.copying_s
    for rule in (_set_up, _link, _window, _stage, _host, _together, _disk, _small_files):
        if copying_s is None and rule is not _set_up:
            break
        found = rule(evidence, copying_s or 0.0)
        if found is not None:
            return found
    return None, _nothing(evidence, copying_s)


Found = tuple[str, str] | None


def _set_up(evidence: Evidence, _copying_s: float) -> Found:
    total_s = evidence.total_s or 0.0
    known = [seconds for seconds in (evidence.setup_s, evidence.connects_s) if seconds is not None]
    if not total_s or sum(known) <= SET_UP_SHARE * total_s:
        return None
    return SET_UP, f"logins and set-up take {sum(known):.2f} s of {total_s:.2f} s"


def _link_share(evidence: Evidence, copying_s: float) -> float | None:
    if not evidence.ceiling_Bps or evidence.carried_bytes is None:
        return None
    return evidence.carried_bytes / copying_s / evidence.ceiling_Bps


def _link(evidence: Evidence, copying_s: float) -> Found:
    share = _link_share(evidence, copying_s)
    if share is None or share < LINK_SHARE:
        return None
    ceiling = (evidence.ceiling_Bps or 0.0) / 1e6
    return LINK, f"{share * ceiling:.1f} MB/s cross it, {share:.0%} of the {ceiling:.1f} MB/s that it can carry"


def _window(evidence: Evidence, copying_s: float) -> Found:
    if not evidence.encrypted or not evidence.sessions or not evidence.streams or not evidence.rtt_ms:
        return None
    # The window counts what goes into ssh: where ssh itself compresses, more than is on the wire.
    inside = any(stage.program in OPTIONS_WITH_VALUE and stage.work == COMPRESSES for stage in evidence.stages)
    carried = evidence.bytes if inside else evidence.carried_bytes
    bound = evidence.streams * WINDOW_BYTES / (evidence.rtt_ms / 1000)
    if carried is None or (evidence.ceiling_Bps and not inside and bound >= LINK_SHARE * evidence.ceiling_Bps):
        return None
    rate = carried / copying_s
    if not WINDOW_SHARE <= rate / bound <= WINDOW_EXCESS:
        return None
    streams = f"{evidence.streams} stream{'s' * (evidence.streams != 1)}"
    return SSH_WINDOW, (
        f"{rate / 1e6:.1f} MB/s, {rate / bound:.0%} of what {streams} with 2 MiB a round trip of {evidence.rtt_ms:.1f} ms "
        "can carry"
    )


def _busy(evidence: Evidence, stage: Stage, copying_s: float) -> float | None:
    """For which share of the copying time a stage was busy: of one processor, of all of them for a program that uses them
    all. Null where it is not known."""
    if stage.cpu_s is None:
        return None
    share = stage.cpu_s / copying_s
    if stage.program in THREADED and (share > ONE_CORE or stage.program in ALWAYS_THREADED):
        load = evidence.host_cpu.get(stage.end)
        return share / load.cores if load and load.cores else None
    return share


LIMIT_OF_WORK = {COMPRESSES: COMPRESSOR_CPU, ENCRYPTS: CIPHER_CPU, OTHER: PROGRAM_CPU}


def _busiest(evidence: Evidence, copying_s: float, wanted: Callable[[Stage], bool]) -> tuple[float, Stage] | None:
    shares = [(_busy(evidence, stage, copying_s), stage) for stage in evidence.stages if wanted(stage)]
    known = [(share, stage) for share, stage in shares if share is not None]
    return max(known, key=lambda item: item[0], default=None)


def _stage(evidence: Evidence, copying_s: float) -> Found:
    found = _busiest(evidence, copying_s, lambda stage: stage.program not in WITH_CHILDREN)
    if found is None or found[0] < BUSY_SHARE:
        return None
    return _limit_of(evidence, found[1]), _busy_sentence(evidence, found[1], copying_s)


def _limit_of(evidence: Evidence, stage: Stage) -> str:
    """What a busy program limits by: one that neither compresses nor encrypts is busy with the files, where these are
    many and small."""
    return PER_FILE_LATENCY if stage.work == OTHER and evidence.small_files else LIMIT_OF_WORK[stage.work]


def _busy_sentence(evidence: Evidence, stage: Stage, copying_s: float) -> str:
    below = ", with the ssh that it starts," if stage.program in WITH_CHILDREN and stage.work != OTHER else ""
    what = " (ssh compression)" if stage.program in OPTIONS_WITH_VALUE and stage.work == COMPRESSES else ""
    sentence = (
        f"{stage.program}{what} at the {stage.end}{below} took {stage.cpu_s or 0.0:.2f} s of CPU in {copying_s:.2f} s "
        "of copying"
    )
    load = evidence.host_cpu.get(stage.end)
    full = load is not None and load.capacity_s > 0 and load.busy_s >= HOST_SHARE * load.capacity_s
    if stage.work == OTHER and evidence.small_files:
        sentence += f", {1000 * (stage.cpu_s or 0.0) / (evidence.files or 1):.2f} ms for each of {evidence.files} files"
    return sentence + (f"; the {stage.end}'s processors were all busy" if full else "")


def _host(evidence: Evidence, _copying_s: float) -> Found:
    for end, load in evidence.host_cpu.items():
        if load.capacity_s > 0 and load.busy_s >= HOST_SHARE * load.capacity_s:
            who = f"the {load.cores} core{'s' * (load.cores != 1)} of the {end}"
            if load.shared:
                who += ", which is the other end too,"
            return HOST_CPU, f"{who} were {load.busy_s / load.capacity_s:.0%} busy"
    return None


def _together(evidence: Evidence, copying_s: float) -> Found:
    """Processes whose CPU time is only known as a sum, so that it may have been spent on several processors."""
    found = _busiest(evidence, copying_s, lambda stage: stage.program in WITH_CHILDREN)
    if found is not None and found[0] >= BUSY_SHARE:
        return _limit_of(evidence, found[1]), _busy_sentence(evidence, found[1], copying_s)
    # Where something decompresses below sshd, its part cannot be told from the cipher's.
    if evidence.cpu_target_basis != "sshd-children" or evidence.cpu_target_s is None or evidence.compresses:
        return None
    if not evidence.encrypted or evidence.cpu_target_s < BUSY_SHARE * copying_s:
        return None
    sentence = (
        f"sshd at the target, with the receiver below it, took {evidence.cpu_target_s:.2f} s of CPU in "
        f"{copying_s:.2f} s of copying"
    )
    # The same bytes pass the cipher at both ends, at about the same cost: what the target took beyond that is the
    # receiver's.
    ciphers = [stage.cpu_s for stage in evidence.stages if stage.work == ENCRYPTS]
    known = [spent_s for spent_s in ciphers if spent_s is not None]
    if known and len(known) == len(ciphers) and sum(known) < CIPHER_SHARE * evidence.cpu_target_s:
        sentence += f", and no more than {sum(known):.2f} s of it for the cipher, by the source's"
        if evidence.small_files:
            each_ms = 1000 * evidence.cpu_target_s / (evidence.files or 1)
            return PER_FILE_LATENCY, f"{sentence}; {each_ms:.2f} ms for each of {evidence.files} files"
        return PROGRAM_CPU, sentence
    return CIPHER_CPU, sentence


def _disk(evidence: Evidence, _copying_s: float) -> Found:
    total_s = evidence.total_s or 0.0
    for end, load in evidence.host_cpu.items():
        if load.iowait_s >= IOWAIT_SHARE * total_s > 0:
            return DISK, f"the {end} waited {load.iowait_s:.2f} s for its disks in {total_s:.2f} s"
    if evidence.durable_s is not None and evidence.durable_s >= DURABLE_FACTOR * total_s > 0:
        return DISK, (
            f"the target had all after {total_s:.2f} s and had written it out after {evidence.durable_s:.2f} s, "
            f"{evidence.durable_s / total_s:.1f} times as long"
        )
    return None


def _small_files(evidence: Evidence, copying_s: float) -> Found:
    if not evidence.small_files or evidence.files is None or evidence.bytes is None:
        return None
    suspect = _busiest(evidence, copying_s, lambda stage: stage.work != OTHER)
    if suspect is not None and suspect[0] > SUSPECT_SHARE:
        return None
    mean = evidence.bytes / evidence.files
    return PER_FILE_LATENCY, (
        f"{evidence.files} files of {mean / 1000:.1f} kB on average took {copying_s / evidence.files * 1000:.2f} ms each, "
        "and nothing else stands out"
    )


def _nothing(evidence: Evidence, copying_s: float | None) -> str:
    """What was looked at, as far as it was known."""
    seen = []
    if copying_s is not None:
        share = _link_share(evidence, copying_s)
        if share is not None:
            seen.append(f"{share:.0%} of the link")
        found = _busiest(evidence, copying_s, lambda stage: True)
        if found is not None:
            seen.append(f"{found[1].program} at the {found[1].end} busy for {found[0]:.0%} of the copying time")
    return "nothing stands out" + (f": {', '.join(seen)}" if seen else "; too little is known")


# -- from records --------------------------------------------------------------------------------------------------


def evidence(rows: Iterable[Row], link: Mapping[str, Any] | None = None) -> Evidence:
    """The evidence of the run records (DESIGN section 6) of one method on one link and tree; those that are not ok, and
    warm-ups, are left out. C(link): what was measured of the link (C(connect_s), C(rtt_ms), C(ceiling_Bps), C(mtu)),
    which goes before what the records say of it."""
    ok = [row for row in rows if row.get("status") == "ok" and not row.get("warmup")]

    def median(*path: str) -> float | None:
        known = [value for value in (_get(row, *path) for row in ok) if value is not None]
        return statistics.median(known) if known else None

    def of_link(key: str) -> float | None:
        given = (link or {}).get(key)
        return median("link", key) if given is None else float(given)

    def first(*path: str) -> Any:
        return next((value for value in (_get(row, *path) for row in ok) if value is not None), None)

    encrypted, streams = first("method", "encrypted"), first("method", "streams")
    mtu = of_link("mtu")
    cpu_target = [
        sum(parts) for row in ok if (parts := _numbers(_get(row, "cpu", "target"), "user_s", "system_s")) is not None
    ]
    return Evidence(
        total_s=median("total_s"),
        setup_s=median("setup_s"),
        connect_s=of_link("connect_s"),
        sessions=0 if encrypted is False else streams if encrypted else None,
        bytes=first("dataset", "bytes"),
        files=first("dataset", "files"),
        wire_tx_bytes=median("wire", "tx_bytes"),
        ceiling_Bps=of_link("ceiling_Bps"),
        rtt_ms=of_link("rtt_ms"),
        mtu=None if mtu is None else int(mtu),
        encrypted=encrypted,
        streams=streams,
        stages=_stages(ok, bool(encrypted)),
        cpu_target_s=statistics.median(cpu_target) if cpu_target else None,
        cpu_target_basis=first("cpu", "target", "basis"),
        host_cpu={end: load for end in ("source", "target") if (load := _load(ok, end)) is not None},
        durable_s=median("durable_s"),
    )


def _get(row: Any, *path: str) -> Any:
    for key in path:
        row = row.get(key) if isinstance(row, Mapping) else None
    return row


def _numbers(fields: Any, *names: str) -> list[float] | None:
    """The fields of these names, null unless all of them are known."""
    values = [_get(fields, name) for name in names]
    return None if None in values else [float(value) for value in values]


def _stages(rows: Sequence[Row], encrypted: bool) -> tuple[Stage, ...]:
    """The stages of the rows, each with the median of its CPU time over those that know it."""
    cpu: dict[tuple[int, str, str, str], list[float]] = {}
    for row in rows:
        for place, stage in enumerate(row.get("stages") or ()):
            argv = [str(word) for word in stage.get("argv") or ()]
            if argv:
                key = (place, str(stage.get("end")), program_of(argv), work_of(argv, encrypted))
                spent = _numbers(stage, "user_s", "system_s")
                cpu.setdefault(key, []).extend([] if spent is None else [sum(spent)])
    return tuple(
        Stage(end, program, work, statistics.median(spent) if spent else None)
        for (_place, end, program, work), spent in sorted(cpu.items())
    )


def _load(rows: Sequence[Row], end: str) -> HostLoad | None:
    names = ("user_s", "system_s", "steal_s", "iowait_s", "idle_s", "cores")
    hosts = [_get(row, "host_cpu", end) for row in rows]
    known = [numbers for host in hosts if (numbers := _numbers(host, *names)) is not None]
    if not known:
        return None
    return HostLoad(
        busy_s=statistics.median(sum(numbers[:3]) for numbers in known),
        iowait_s=statistics.median(numbers[3] for numbers in known),
        capacity_s=statistics.median(sum(numbers[:5]) for numbers in known),
        cores=int(known[0][5]),
        shared=next((host["shared"] for host in hosts if _get(host, "shared") is not None), None),
    )


def program_of(argv: Sequence[str]) -> str:
    """The program's name; that of the applet where it is BusyBox."""
    name = PurePosixPath(argv[0]).name
    return argv[1] if name == "busybox" and len(argv) > 1 else name


def work_of(argv: Sequence[str], encrypted: bool) -> str:
    """What a command does that may keep a processor busy. C(encrypted): the method's payload crosses the network
    encrypted."""
    program = program_of(argv)
    if program in COMPRESSORS:
        return COMPRESSES
    own = argv[1 : argv.index("--")] if "--" in argv else argv[1:]
    if program in OPTIONS_WITH_VALUE:
        return COMPRESSES if _ssh_compresses(argv) else ENCRYPTS
    if program == "rsync":
        packed = r"-[A-Za-z]*z[A-Za-z]*|--compress|--new-compress|--(zc|compress-choice)=(?!none$).+"
        shells = [word.split() for option, word in itertools.pairwise(own) if option in ("-e", "--rsh")]
        through = [shell for shell in shells if shell and program_of(shell) in OPTIONS_WITH_VALUE]
        if any(re.fullmatch(packed, word) for word in own) or any(map(_ssh_compresses, through)):
            return COMPRESSES
        return ENCRYPTS if encrypted else OTHER
    if program == "tar" and any(
        re.fullmatch(r"-[A-Za-z]*[zjJ][A-Za-z]*|-I.*|--(gzip|bzip2|xz|zstd|lzop)|--use-compress-program=.+", word)
        for word in own
    ):
        return COMPRESSES
    return OTHER


def _ssh_compresses(argv: Sequence[str]) -> bool:
    """Whether a command line of ssh, scp or sftp turns ssh's compression on: by C(-C), which wins, or else by the first
    setting of it. What follows the options is the far end's."""
    setting = False
    first = True
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            break
        for place, letter in enumerate(word[1:], 2):
            if letter == "C":
                return True
            if letter in OPTIONS_WITH_VALUE[program_of(argv)]:
                value = word[place:] or next(words, "")
                found = re.fullmatch(r"compression[= ]+(yes|no)", value, re.IGNORECASE) if letter == "o" else None
                if found and first:
                    setting, first = found.group(1).lower() == "yes", False
                break
    return setting
