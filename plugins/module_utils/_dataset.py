# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Synthetic datasets: what they hold, how they are made, and how they are kept right.

A description (parts and scale) gives a plan: every directory and file, with its size. Names, counts and sizes follow
from the description alone; the content is random. Two files beside the tree prove that it is ours and let an
interrupted run be completed:

* ``<path>.dataset.json``: the manifest, written once the tree is complete;
* ``<path>.dataset.journal``: exists while a run is at work. Its first line is the description, then comes one line for
  each finished file, so that a run killed at any moment loses only the file in progress.

This file knows nothing of Ansible.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import random
import shutil
import signal
import stat
import statistics
import subprocess
from typing import (
    Any,
    Callable,
    Iterator,
    Mapping,
    NamedTuple,
    Protocol,
    Sequence,
)

from ansible_collections.linkops.bulkcopy.plugins.module_utils._counters import flush_filesystem
from ansible_collections.linkops.bulkcopy.plugins.module_utils._tree import read_whole, sha256

SCHEMA = 1
MADE_BY = "linkops.bulkcopy.dataset"
MANIFEST_SUFFIX = ".dataset.json"
JOURNAL_SUFFIX = ".dataset.journal"
CHECKS = ("sha256", "size-mtime")

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
MAX_FILES = 2000000
MAX_DEPTH = 8

BLOCK_BYTES = 1 << 20
TEXT_CHUNK = 1 << 15
F_SETPIPE_SZ = 1031  # fcntl.F_SETPIPE_SZ exists only from Python 3.10


class DatasetError(Exception):
    """One sentence for the user: what is wrong, where, and what to do."""


def printable(path: str | bytes) -> str:
    """The path as valid UTF-8, whatever bytes it holds."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _os_error(action: str, path: str, exc: OSError) -> DatasetError:
    advice = {
        errno.ENOSPC: "free space there or choose a lower scale",
        errno.EDQUOT: "raise the quota or choose a lower scale",
        errno.EACCES: "choose a path that the user may write to",
        errno.EPERM: "choose a path that the user may write to",
        errno.EROFS: "choose a path on a writable filesystem",
    }.get(exc.errno or 0, "mend this and run again")
    return DatasetError(f"cannot {action} {printable(path)}: {exc.strerror or exc}; {advice}")


@contextlib.contextmanager
def os_errors(action: str, path: str) -> Iterator[None]:
    """Turn an OSError into one sentence with the path."""
    try:
        yield
    except OSError as exc:
        where = exc.filename if isinstance(exc.filename, (str, bytes)) else path
        raise _os_error(action, os.fsdecode(where), exc) from exc


# --------------------------------------------------------------------------------------------------------------------
# Description: parts and standard shapes


class Part(NamedTuple):
    """One kind of file in a dataset. Counts and sizes are those at scale 1."""

    name: str
    files: int
    file_bytes: int
    directories: int = 0  # leaf directories; 0: the files lie in the part's own directory
    depth: int = 1  # levels of directories below the part's own; counts only with directories
    compressible: float = 0.0  # share of each file that is text
    size_spread: float = 0.0  # sigma of the log-normal distribution of sizes; 0: all files are equal
    suffix: str = ".bin"


SHAPES: dict[str, tuple[Part, ...]] = {
    "small": (Part("files", 2000, 100000),),
    "large": (Part("files", 200, 10000000),),
    # 1.6 GB: 900 MB of videos, 300 MB of archives, 400 MB of program text (a quarter of the bytes is compressible).
    "tree": (
        Part("videos", 200, 4500000, directories=20, depth=1, suffix=".avi"),
        Part("archives", 500, 600000, directories=20, depth=2, size_spread=0.5, suffix=".jar"),
        Part("text", 40000, 10000, directories=1000, depth=3, compressible=1.0, size_spread=1.0, suffix=".m"),
    ),
    # What a method costs before the first byte.
    "empty": (),
}


def shape(name: str) -> tuple[Part, ...]:
    """The parts of a standard shape."""
    try:
        return SHAPES[name]
    except KeyError:
        known = ", ".join(sorted(SHAPES))
        raise DatasetError(f"there is no dataset shape '{name}': choose one of {known}, or describe parts") from None


def check_name(name: str, what: str) -> None:
    """Refuse what cannot be the name of a directory or file, or would print badly."""
    if not name or name in (".", "..") or "/" in name or not name.isprintable():
        raise DatasetError(f"{what} {name!r} cannot be a file name: use a plain name without '/'")
    if len(name.encode("utf-8", "surrogatepass")) > 64:
        raise DatasetError(f"{what} {name!r} is longer than 64 bytes: use a shorter one")


def check_parts(parts: Sequence[Part]) -> None:
    """Refuse parts that describe nothing sensible."""
    if not parts:
        raise DatasetError("a dataset needs at least one part: name a shape or describe parts")
    seen: set[str] = set()
    for part in parts:
        check_name(part.name, "part name")
        if part.name in seen:
            raise DatasetError(f"two parts are called '{part.name}': give each part its own name")
        seen.add(part.name)
        where = f"part '{part.name}'"
        for option, least in (("files", 1), ("file_bytes", 1), ("directories", 0)):
            value = getattr(part, option)
            if value < least:
                raise DatasetError(f"{where} has {option} {value}: it must be at least {least}")
        if not 1 <= part.depth <= MAX_DEPTH:
            raise DatasetError(f"{where} has depth {part.depth}: it must be from 1 to {MAX_DEPTH}")
        if not 0 <= part.compressible <= 1:
            raise DatasetError(f"{where} has compressible {part.compressible}: it is a share from 0 to 1")
        if not 0 <= part.size_spread <= 3:
            raise DatasetError(f"{where} has size_spread {part.size_spread}: it must be from 0 to 3")
        if part.suffix:
            check_name("f" + part.suffix, f"suffix of {where}, as in")


def description(parts: Sequence[Part], scale: float) -> dict[str, Any]:
    """What the manifest keeps of the parts and the scale."""
    return {"scale": scale, "parts": [dict(part._asdict()) for part in parts]}


# --------------------------------------------------------------------------------------------------------------------
# Plan: every file and directory


class Planned(NamedTuple):
    """One file: path relative to the tree, size, and how many of its bytes (the first ones) are text."""

    path: str
    size: int
    text_bytes: int


class Plan(NamedTuple):
    """All that a description asks for. Directories come before what they hold; the tree itself is not among them.
    C(copied): of version 2 of a tree, how many of a file's bytes (the first ones) are those of version 1."""

    description: dict[str, Any]
    files: dict[str, Planned]
    directories: list[str]
    copied: Mapping[str, int] = {}

    @property
    def bytes(self) -> int:
        return sum(planned.size for planned in self.files.values())


# Sizes repeat every 50 files, taken in steps of 31 (near the golden section), so that any few neighbours are a fair
# sample and the first n files are the same at every scale.
_SIZE_CLASSES = 50
_SIZE_STEP = 31


def size_classes(mean: int, spread: float) -> list[int]:
    """50 equally likely sizes of a log-normal distribution with this mean (exactly) and sigma.

    They are its quantiles at (k + 0.5) / 50, scaled to the mean.
    """
    normal = statistics.NormalDist()
    quantiles = [math.exp(spread * normal.inv_cdf((k + 0.5) / _SIZE_CLASSES)) for k in range(_SIZE_CLASSES)]
    factor = mean * _SIZE_CLASSES / sum(quantiles)
    sizes = [max(1, round(quantile * factor)) for quantile in quantiles]
    over = sum(sizes) - mean * _SIZE_CLASSES  # by rounding
    for k in reversed(range(_SIZE_CLASSES)):
        change = min(over, sizes[k] - 1)
        sizes[k] -= change
        over -= change
    return sizes


def _fanout(directories: int, depth: int) -> int:
    fanout = 1
    while fanout**depth < directories:
        fanout += 1
    return fanout


def _leaf(number: int, fanout: int, depth: int) -> str:
    """The path of leaf directory number: its digits in base fanout, the first without bound."""
    levels = []
    for _level in range(depth - 1):
        number, digit = divmod(number, fanout)
        levels.append(digit)
    levels.append(number)
    return "/".join(f"d{digit:03d}" for digit in reversed(levels))


def file_count(part: Part, scale: float) -> int:
    """How many files of a part there are at a scale: the nearest whole number, at least one."""
    return max(1, math.floor(part.files * scale + 0.5))


def _plan_part(part: Part, scale: float, files: dict[str, Planned], directories: list[str]) -> None:
    count = file_count(part, scale)
    shrink = min(1.0, part.files * scale)  # below one file the only file shrinks
    sizes = size_classes(part.file_bytes, part.size_spread)
    per_leaf = math.ceil(part.files / part.directories) if part.directories else 0
    fanout = _fanout(part.directories, part.depth)
    directories.append(part.name)
    known = {part.name}
    where = part.name
    for number in range(count):
        if per_leaf and number % per_leaf == 0:
            where = part.name
            for level in _leaf(number // per_leaf, fanout, part.depth).split("/"):
                where = f"{where}/{level}"
                if where not in known:
                    known.add(where)
                    directories.append(where)
        if shrink < 1:
            size = max(1, round(part.file_bytes * shrink))
        else:
            size = sizes[(number * _SIZE_STEP + _SIZE_CLASSES // 2) % _SIZE_CLASSES]
        path = f"{where}/f{number:06d}{part.suffix}"
        files[path] = Planned(path, size, round(size * part.compressible))


def make_plan(parts: Sequence[Part], scale: float = 1.0) -> Plan:
    """Every file of the description. The same parts and scale give the same plan on every host."""
    if parts:
        check_parts(parts)
    if not (math.isfinite(scale) and scale > 0):
        raise DatasetError(f"scale {scale} makes no dataset: it must be a number greater than 0")
    asked = sum(part.files * scale for part in parts)
    if asked > MAX_FILES:
        raise DatasetError(f"{asked:.0f} files are more than the {MAX_FILES} of one dataset: choose a lower scale")
    files: dict[str, Planned] = {}
    directories: list[str] = []
    for part in parts:
        _plan_part(part, scale, files, directories)
    return Plan(description(parts, scale), files, directories)


def plan_of(saved: Mapping[str, Any]) -> Plan:
    """The plan of a description that a manifest or journal holds."""
    plan = make_plan([Part(**part) for part in saved["parts"]], saved["scale"])
    return updated(plan, saved["update"]) if "update" in saved else plan


# --------------------------------------------------------------------------------------------------------------------
# Version 2 of a tree

#: What happens to files between version 1 and version 2: new content of the same size, more content at the end, a new
#: file beside another and of its size, and none.
CHANGES = ("changed", "grew", "appeared", "vanished")

#: How much a file grows by, as a share of its size; at least one byte.
_GROWTH = 0.1

#: A changed file's time is at least so much later than before, in nanoseconds: some tools look at whole seconds only.
_LATER_NS = 2 * 10**9


def check_shares(shares: Mapping[str, float]) -> None:
    """Refuse shares of the files that cannot be: they are from 0 to 1, and not all of them 0."""
    unknown = sorted(set(shares) - set(CHANGES))
    if unknown:
        raise DatasetError(f"there is no kind of change {unknown[0]!r}, only {', '.join(CHANGES)}")
    if not all(0 <= share <= 1 for share in shares.values()) or not 0 < sum(shares.values()) <= 1:
        raise DatasetError("the shares of changes must be from 0 to 1, and more than 0 and at most 1 together")


def change_counts(files: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Of so many files, how many there are of each kind of change. Raises DatasetError where the files are too few."""
    # A share of a share is not exact in binary.
    counts = {kind: math.ceil(shares.get(kind, 0) * files - 1e-9) for kind in CHANGES}
    needed = sum(counts[kind] for kind in CHANGES if kind != "appeared")
    if needed > files or not files:
        raise DatasetError(
            f"an update of {files} files cannot change, lengthen and remove {needed}: choose lower shares, fewer kinds of "
            "change, or a larger tree"
        )
    return counts


def updated(plan: Plan, update: Mapping[str, Any]) -> Plan:
    """The plan of version 2. C(update) has the C(seed), the C(shares) of the files by kind of change, where version 1 is
    (C(of)) and the digest of its manifest; the same seed chooses the same files. Of a share above 0 there is at least
    one file."""
    names = sorted(plan.files)
    chance = random.Random(json.dumps([update["seed"], "update"]))
    counts = change_counts(len(names), update["shares"])
    chosen = chance.sample(names, counts["changed"] + counts["grew"] + counts["vanished"])
    changed, rest = set(chosen[: counts["changed"]]), chosen[counts["changed"] :]
    grew, vanished = set(rest[: counts["grew"]]), set(rest[counts["grew"] :])
    files: dict[str, Planned] = {}
    copied: dict[str, int] = {}
    for name, planned in plan.files.items():
        if name in vanished:
            continue
        if name in grew:
            planned = planned._replace(size=planned.size + max(1, round(planned.size * _GROWTH)))
        if name not in changed:
            copied[name] = plan.files[name].size
        files[name] = planned
    for number in range(counts["appeared"]):
        model = plan.files[chance.choice(names)]
        name = f"{os.path.dirname(model.path)}/new{number:06d}{os.path.splitext(model.path)[1]}"
        files[name] = model._replace(path=name)
    return Plan({**plan.description, "update": dict(update)}, files, plan.directories, copied)


# --------------------------------------------------------------------------------------------------------------------
# Content: one dd, cut into files

# fmt: off
_WORDS = (
    "value", "index", "matrix", "result", "count", "option", "figure", "handle", "length", "signal", "output", "input",
    "vector", "buffer", "sample", "filter", "column", "row", "error", "model", "weight", "state", "block", "offset",
    "scale", "limit", "range", "center", "update", "title", "label", "time", "rate", "gain", "phase", "window",
    "channel", "sum", "size", "zeros", "ones", "plot", "text", "field", "name", "path", "file", "data", "order", "mode",
    "level", "step", "start", "stop", "mean", "norm", "angle", "color", "width", "depth", "image", "mask", "peak",
    "node",
)
# fmt: on
# One token for each byte value, so that random bytes become text that packs like source text.
TOKENS = tuple((form % word).encode("ascii") for word in _WORDS for form in ("%s ", "%s(", "%s = ", "%s;\n"))
_LEAST_TOKEN = min(len(token) for token in TOKENS)


def require_dd() -> None:
    """Refuse before anything is touched where there is no dd."""
    if shutil.which("dd") is None:
        raise DatasetError("this host has no dd, which makes the random bytes: install coreutils")


class ByteSource(Protocol):
    """Where random bytes come from."""

    def read_into(self, view: memoryview) -> None: ...


class RandomBytes:
    """The output of one dd that reads /dev/urandom. Use as a context manager: at its end dd is gone.

    dd may be asked for more than is taken in the end: the pipe holds it back.
    """

    def __init__(self, need_bytes: int) -> None:
        self.need_bytes = need_bytes
        blocks = max(1, -(-need_bytes // BLOCK_BYTES))
        self.argv = ["dd", "if=/dev/urandom", f"bs={BLOCK_BYTES}", f"count={blocks}", "iflag=fullblock"]
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RandomBytes:
        try:
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(os.environ, LC_ALL="C"),
                restore_signals=True,
                start_new_session=True,
            )
        except OSError as exc:
            raise DatasetError(
                f"cannot start dd, which makes the random bytes: {exc.strerror or exc}; install coreutils on this host"
            ) from exc
        assert self._child.stdout is not None
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._child.stdout, F_SETPIPE_SZ, BLOCK_BYTES)
        return self

    def read_into(self, view: memoryview) -> None:
        """Fill the view."""
        assert self._child is not None and self._child.stdout is not None
        filled = 0
        while filled < len(view):
            got = os.readv(self._child.stdout.fileno(), [view[filled:]])
            if got == 0:
                raise DatasetError(f"dd gave too few random bytes: {self._end() or 'no message'}")
            filled += got

    def _end(self) -> str:
        """Close dd, wait for it, and return what it said."""
        child, self._child = self._child, None
        if child is None:
            return ""
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        with child.stderr:
            said = child.stderr.read()
        child.wait()
        return " ".join(said.decode("utf-8", "backslashreplace").split())[-300:]

    def __exit__(self, *_exc: object) -> None:
        self._end()


class Text:
    """Text of any length: each random byte chooses one of 256 words with the punctuation around it."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._random = bytearray(TEXT_CHUNK)
        self._ready = memoryview(b"")

    def take(self, size: int) -> list[memoryview]:
        """The next size bytes, in pieces."""
        pieces = []
        while size > 0:
            if not self._ready:
                self._source.read_into(memoryview(self._random))
                self._ready = memoryview(b"".join(map(TOKENS.__getitem__, self._random)))
            piece = self._ready[:size]
            self._ready = self._ready[len(piece) :]
            pieces.append(piece)
            size -= len(piece)
        return pieces


def random_bytes_needed(files: Sequence[Planned], copied: Mapping[str, int] = {}) -> int:
    """No fewer random bytes than these files can take."""
    text = sum(planned.text_bytes for planned in files if planned.path not in copied)
    plain = sum(planned.size - max(planned.text_bytes, copied.get(planned.path, 0)) for planned in files)
    return plain + (text // _LEAST_TOKEN + 2 * TEXT_CHUNK if text else 0)


class Entry(NamedTuple):
    """What the manifest says of one finished file."""

    size: int
    text_bytes: int
    mtime_ns: int
    sha256: str


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


class First(NamedTuple):
    """Version 1 of a tree that is made: where it is, what of it is copied (C(Plan.copied)), and its manifest."""

    path: str
    copied: Mapping[str, int]
    entries: Mapping[str, Entry]


class Writer:
    """Writes planned files below a root from one source of random bytes."""

    def __init__(self, root: str, source: ByteSource, first: First | None = None) -> None:
        self._root = root
        self._source = source
        self._first = first
        self._text = Text(source)
        self._buffer = memoryview(bytearray(BLOCK_BYTES))

    def _pieces(self, planned: Planned) -> Iterator[memoryview]:
        copied = self._first.copied.get(planned.path, 0) if self._first else 0
        if copied:
            yield from self._copy(planned.path, copied)
        left = 0 if copied else planned.text_bytes
        while left > 0:
            size = min(left, BLOCK_BYTES)
            yield from self._text.take(size)
            left -= size
        left = planned.size - (copied or planned.text_bytes)
        while left > 0:
            view = self._buffer[: min(left, BLOCK_BYTES)]
            self._source.read_into(view)
            yield view
            left -= len(view)

    def _copy(self, name: str, size: int) -> Iterator[memoryview]:
        """A file of version 1, which must be what its manifest says."""
        assert self._first is not None
        path, total = os.path.join(self._first.path, name), hashlib.sha256()
        read = 0
        with os_errors("read", path):
            for piece in read_whole(os.fsencode(path)):
                total.update(piece)
                read += len(piece)
                yield memoryview(piece)
        if read != size or total.hexdigest() != self._first.entries[name].sha256:
            raise DatasetError(
                f"{printable(path)} is not what its manifest says: make {printable(self._first.path)} again"
            )

    def _time(self, planned: Planned, now_ns: int) -> int:
        """The time of a finished file: that of version 1 where all of it is from there, and later where it is not."""
        before = self._first.entries.get(planned.path) if self._first else None
        if before is None:
            return now_ns
        whole = self._first is not None and self._first.copied.get(planned.path) == planned.size
        return before.mtime_ns if whole else max(now_ns, before.mtime_ns + _LATER_NS)

    def write(self, planned: Planned) -> Entry:
        """Make one file that does not exist yet; on an error none is left."""
        path = os.path.join(self._root, planned.path)
        digest = hashlib.sha256()
        with os_errors("write", path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            try:
                try:
                    os.fchmod(descriptor, FILE_MODE)
                    for piece in self._pieces(planned):
                        digest.update(piece)
                        _write_all(descriptor, piece)
                finally:
                    os.close(descriptor)
                mtime_ns = self._time(planned, os.lstat(path).st_mtime_ns)
                os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
        return Entry(planned.size, planned.text_bytes, mtime_ns, digest.hexdigest())


# --------------------------------------------------------------------------------------------------------------------
# Manifest and journal


class State(NamedTuple):
    """What the manifest and the journal say of a tree."""

    entries: dict[str, Entry]
    names: set[str]  # every file and directory that our runs may have made
    description: dict[str, Any] | None  # of the manifest; None where there is none
    manifest: bool
    journal: bool
    descriptions: list[dict[str, Any]]  # all that the entries were made by, of the manifest and of interrupted runs

    @property
    def ours(self) -> bool:
        return self.manifest or self.journal


def _read_beside(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _os_error("read", path, exc) from exc
    with os.fdopen(descriptor, "rb") as stream, os_errors("read", path):
        return stream.read()


def _entry(saved: Mapping[str, Any]) -> tuple[str, Entry]:
    entry = Entry(int(saved["size"]), int(saved["text_bytes"]), int(saved["mtime_ns"]), str(saved["sha256"]))
    return str(saved["path"]), entry


def _line(path: str, entry: Entry) -> str:
    return json.dumps({"path": path, **entry._asdict()}, separators=(",", ":"))


def load_state(path: str) -> State:
    """Read what lies beside the tree. A line that a crash cut short counts for nothing."""
    entries: dict[str, Entry] = {}
    names: set[str] = set()
    saved_description: dict[str, Any] | None = None
    descriptions: list[dict[str, Any]] = []

    def learn(saved: Mapping[str, Any]) -> None:
        plan = plan_of(saved)
        descriptions.append(plan.description)
        names.update(plan.files)
        names.update(plan.directories)

    manifest = _read_beside(path + MANIFEST_SUFFIX)
    if manifest is not None:
        try:
            document = json.loads(manifest)
            if (document["made_by"], document["schema"]) != (MADE_BY, SCHEMA):
                raise ValueError("it was made by another program or version")
            learn(document["description"])
            entries.update(map(_entry, document["files"]))
            saved_description = document["description"]
        except (ValueError, KeyError, TypeError, DatasetError) as exc:
            raise DatasetError(
                f"the manifest {printable(path)}{MANIFEST_SUFFIX} cannot be used ({exc!s:.100}): "
                "remove it together with the tree"
            ) from exc
    journal = _read_beside(path + JOURNAL_SUFFIX)
    for line in (journal or b"").split(b"\n"):
        try:
            saved = json.loads(line)
            if "description" in saved:
                learn(saved["description"])
            else:
                entries.update([_entry(saved)])
        except (ValueError, KeyError, TypeError, DatasetError):
            continue
    names.update(entries)
    return State(entries, names, saved_description, manifest is not None, journal is not None, descriptions)


def write_beside(path: str, text: str) -> None:
    """Replace a file atomically; it is on disk when this returns."""
    temporary = path + ".tmp"
    with os_errors("write", path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            os.fchmod(descriptor, FILE_MODE)
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
        os.rename(temporary, path)
        _fsync_directory(os.path.dirname(path))


def _fsync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_manifest(path: str, plan: Plan, entries: Mapping[str, Entry]) -> None:
    """Write the manifest of a complete tree: one file a line."""
    head = json.dumps({"schema": SCHEMA, "made_by": MADE_BY, "description": plan.description})
    lines = ",\n".join(_line(name, entries[name]) for name in plan.files)
    write_beside(path + MANIFEST_SUFFIX, f'{head[:-1]}, "files": [\n{lines}\n]}}\n')


class Journal:
    """The record of a run in progress. Only one run at a time can hold it."""

    def __init__(self, path: str, plan: Plan) -> None:
        self._path = path + JOURNAL_SUFFIX
        head = json.dumps({"description": plan.description}) + "\n"
        with os_errors("write", self._path):
            if not os.path.lexists(self._path):
                write_beside(self._path, head)
                head = ""
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                os.close(self._descriptor)
                raise DatasetError(
                    f"another run is making the dataset {printable(path)}: wait until it has ended"
                ) from exc
            if head:
                self._append("\n" + head)  # the last run may have ended within a line

    def _append(self, text: str) -> None:
        _write_all(self._descriptor, memoryview(text.encode("utf-8")))

    def add(self, path: str, entry: Entry) -> None:
        with os_errors("write", self._path):
            self._append(_line(path, entry) + "\n")

    def close(self) -> None:
        os.close(self._descriptor)

    def remove(self) -> None:
        with os_errors("remove", self._path):
            os.unlink(self._path)
            _fsync_directory(os.path.dirname(self._path))


# --------------------------------------------------------------------------------------------------------------------
# What is there, and what is to be done


class Found(NamedTuple):
    """The tree as it is on disk; symbolic links are not followed. The tree itself is not among the directories."""

    root: os.stat_result | None
    files: dict[str, os.stat_result]
    directories: dict[str, os.stat_result]


def look(path: str) -> Found:
    """Every entry below path; refuses a path that is no directory, and mount points within the tree."""
    found = Found(None, {}, {})
    try:
        root = os.lstat(path)
    except FileNotFoundError:
        return found
    except OSError as exc:
        raise _os_error("read", path, exc) from exc
    if stat.S_ISLNK(root.st_mode):
        raise DatasetError(f"{printable(path)} is a symbolic link: give the path of the directory itself")
    if not stat.S_ISDIR(root.st_mode):
        raise DatasetError(f"{printable(path)} exists and is no directory: choose another path")
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os_errors("read", os.path.join(path, below)), os.scandir(os.path.join(path, below)) as listing:
            for item in listing:
                name = f"{below}/{item.name}" if below else item.name
                status = item.stat(follow_symlinks=False)
                if not item.is_dir(follow_symlinks=False):
                    found.files[name] = status
                    continue
                if status.st_dev != root.st_dev:
                    raise DatasetError(
                        f"{printable(os.path.join(path, name))} is a mount point within the dataset: unmount it"
                    )
                found.directories[name] = status
                waiting.append(name)
    return found._replace(root=root)


def check_path(path: str) -> str:
    """The path without needless slashes; refuses what no dataset may use."""
    if "\0" in path or not os.path.isabs(path):
        raise DatasetError(f"dataset path '{printable(path)}' is not absolute: begin it with '/'")
    if ".." in path.split("/"):
        raise DatasetError(f"dataset path {printable(path)} holds '..': write it without")
    clean = "/" + os.path.normpath(path).lstrip("/")
    if clean == "/":
        raise DatasetError("dataset path / is the whole filesystem: choose a directory of its own")
    parent = os.path.dirname(clean)
    while parent != "/":
        if any(os.path.lexists(parent + suffix) for suffix in (MANIFEST_SUFFIX, JOURNAL_SUFFIX)):
            raise DatasetError(
                f"dataset path {printable(clean)} lies within the dataset {printable(parent)}: choose another path"
            )
        parent = os.path.dirname(parent)
    return clean


class Work(NamedTuple):
    """What must be done to make the tree what the plan says."""

    make: list[Planned]
    replaced: set[str]  # those of make that take the place of a file we knew
    remove_files: list[str]
    remove_directories: list[str]  # deepest first
    make_directories: list[str]
    modes: list[tuple[str, int]]
    stale: bool  # the manifest is missing, of another description, or a run was interrupted

    @property
    def needed(self) -> bool:
        return bool(
            self.make
            or self.remove_files
            or self.remove_directories
            or self.make_directories
            or self.modes
            or self.stale
        )


def sha256_of(path: str) -> str | None:
    """The digest of a regular file, or None where it cannot be read."""
    try:
        return sha256(os.fsencode(path))
    except OSError:
        return None


def _is_whole(path: str, entry: Entry, status: os.stat_result, by_content: bool) -> bool:
    if not stat.S_ISREG(status.st_mode) or status.st_size != entry.size:
        return False
    if not by_content and status.st_mtime_ns == entry.mtime_ns:
        return True
    return sha256_of(path) == entry.sha256


def _check_ownership(path: str, state: State, found: Found) -> None:
    """A tree with entries that we never made is ours only if a file that we made is there, unchanged."""
    if not state.ours:
        if found.files or found.directories:
            raise DatasetError(
                f"{printable(path)} is not empty and was not made by this module (no {os.path.basename(path)}"
                f"{MANIFEST_SUFFIX} beside it): choose another path or remove it"
            )
        return
    if all(name in state.names for names in (found.files, found.directories) for name in names):
        return
    for name, entry in state.entries.items():
        status = found.files.get(name)
        if status is not None and (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns):
            return
    raise DatasetError(
        f"{printable(path)} holds nothing that its manifest {os.path.basename(path)}{MANIFEST_SUFFIX} lists: "
        "another directory took its place, so move it away or remove the manifest"
    )


def assess(path: str, plan: Plan, state: State, found: Found, check: str = "sha256") -> Work:
    """Compare the tree with the plan and the manifest."""
    _check_ownership(path, state, found)
    # After an interrupted run (which may have been a crash of the host) only the content tells.
    by_content = check == "sha256" or state.journal
    wanted = set(plan.directories)
    make: list[Planned] = []
    replaced: set[str] = set()
    modes: list[tuple[str, int]] = []
    for name, planned in plan.files.items():
        entry, status = state.entries.get(name), found.files.get(name)
        same = entry is not None and (entry.size, entry.text_bytes) == (planned.size, planned.text_bytes)
        if entry and same and status and _is_whole(os.path.join(path, name), entry, status, by_content):
            if stat.S_IMODE(status.st_mode) != FILE_MODE:
                modes.append((name, FILE_MODE))
            continue
        make.append(planned)
        if entry is not None and (status is not None or name in found.directories):
            replaced.add(name)
    if found.root is not None:
        present = [("", found.root)]
        present += [(name, status) for name, status in found.directories.items() if name in wanted]
        modes += [(name, DIRECTORY_MODE) for name, status in present if stat.S_IMODE(status.st_mode) != DIRECTORY_MODE]
    return Work(
        make=make,
        replaced=replaced,
        remove_files=sorted(name for name in found.files if name not in plan.files),
        remove_directories=sorted((name for name in found.directories if name not in wanted), reverse=True),
        make_directories=[name for name in plan.directories if name not in found.directories],
        modes=modes,
        stale=state.journal or state.description != plan.description,
    )


def nearest_directory(path: str) -> str:
    """The path itself or the nearest parent that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path):
        raise DatasetError(f"{printable(path)} is no directory: choose another path for the dataset")
    return path


def require_space(
    path: str,
    work: Work,
    found: Found,
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
) -> None:
    """Refuse what the filesystem cannot hold: whole blocks and inodes, less what is removed first."""
    where = nearest_directory(path)
    with os_errors("read", where):
        filesystem = statvfs(where)
    block = filesystem.f_frsize or filesystem.f_bsize or 4096
    files = len(work.make)
    directories = len(work.make_directories)
    beside = files * 600 + 2 * block  # journal, manifest, directory entries
    need = sum(-(-planned.size // block) * block for planned in work.make) + directories * block + beside
    freed = [found.files[name] for name in work.remove_files]
    freed += [found.files[planned.path] for planned in work.make if planned.path in found.files]
    freed += [found.directories[name] for name in work.remove_directories]
    need -= sum(status.st_blocks * 512 for status in freed if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1)
    free = filesystem.f_bavail * block
    if files and need > free:
        raise DatasetError(
            f"the dataset {printable(path)} needs {need} bytes and the filesystem of {printable(where)} has {free} "
            "bytes free: free space there or choose a lower scale"
        )
    inodes = files + directories + 3 - len(freed)
    if files and filesystem.f_files and inodes > filesystem.f_favail:  # f_files is 0 where inodes are not limited
        raise DatasetError(
            f"the dataset {printable(path)} needs {inodes} inodes and the filesystem of {printable(where)} has "
            f"{filesystem.f_favail} free: free inodes there or choose a lower scale"
        )


# --------------------------------------------------------------------------------------------------------------------
# Doing it


class Result(NamedTuple):
    """What was done, or would be done."""

    changed: bool
    files: int
    directories: int
    bytes: int
    created: int
    replaced: int
    removed: int


def _make_directory(path: str) -> None:
    os.mkdir(path, DIRECTORY_MODE)
    os.chmod(path, DIRECTORY_MODE)  # whatever the umask says


def _make_parents(path: str) -> None:
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        _make_directory(directory)


def _remove(path: str, files: Sequence[str], directories: Sequence[str]) -> None:
    with os_errors("remove", path):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in directories:
            os.rmdir(os.path.join(path, name))


def _keep_directory_times(path: str, plan: Plan, first: First) -> None:
    """Give the directories in which no name appeared or vanished the time that they have in version 1."""
    touched = {os.path.dirname(name) for name in set(plan.files) ^ set(first.entries)}
    for name in set(plan.directories) - touched:
        time_ns = os.lstat(os.path.join(first.path, name)).st_mtime_ns
        os.utime(os.path.join(path, name), ns=(time_ns, time_ns))


def _apply(path: str, plan: Plan, state: State, found: Found, work: Work, first: First | None) -> None:
    with os_errors("make", path):
        _make_parents(os.path.dirname(path))
    journal = Journal(path, plan)
    try:
        with os_errors("make", path):
            if found.root is None:
                _make_directory(path)
            for name, mode in work.modes:
                os.chmod(os.path.join(path, name), mode)
        stale = [planned.path for planned in work.make if planned.path in found.files]
        _remove(path, work.remove_files + stale, work.remove_directories)
        with os_errors("make", path):
            for name in work.make_directories:
                _make_directory(os.path.join(path, name))
        entries = dict(state.entries)
        if work.make:
            with RandomBytes(random_bytes_needed(work.make, plan.copied)) as source:
                writer = Writer(path, source, first)
                for planned in work.make:
                    entry = writer.write(planned)
                    journal.add(planned.path, entry)
                    entries[planned.path] = entry
        with os_errors("write", path):
            if first is not None:
                _keep_directory_times(path, plan, first)
            flush_filesystem(path)
        save_manifest(path, plan, entries)
        journal.remove()
    finally:
        journal.close()


def present(
    path: str,
    parts: Sequence[Part],
    scale: float = 1.0,
    check: str = "sha256",
    dry_run: bool = False,
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
) -> Result:
    """Make the tree at path what the description says, and keep what is right already.

    Raises DatasetError where this cannot be; then nothing that was whole has been lost.
    """
    return _present(check_path(path), make_plan(parts, scale), None, check, dry_run, statvfs)


def present_update(
    path: str,
    first: str,
    shares: Mapping[str, float],
    seed: int,
    check: str = "sha256",
    dry_run: bool = False,
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
) -> Result:
    """Make version 2 of the dataset at C(first) at path, and keep what is right already. C(shares): how many of the files
    differ, by kind (C(CHANGES)). Raises as C(present)."""
    check_shares(shares)
    path, first = check_path(path), check_path(first)
    if path == first:
        raise DatasetError(f"{printable(path)} cannot be an update of itself: choose another path")
    before = load_state(first)
    if before.description is None or before.journal or "update" in before.description:
        raise DatasetError(f"{printable(first)} is no complete dataset of its own: make it first")
    digest = hashlib.sha256(json.dumps(sorted((name, each.sha256) for name, each in before.entries.items())).encode())
    update = {"of": first, "digest": digest.hexdigest(), "seed": seed, "shares": dict(shares)}
    plan = updated(plan_of(before.description), update)
    return _present(path, plan, First(first, plan.copied, before.entries), check, dry_run, statvfs)


def _present(
    path: str,
    plan: Plan,
    first: First | None,
    check: str,
    dry_run: bool,
    statvfs: Callable[[str], os.statvfs_result],
) -> Result:
    found = look(path)
    state = load_state(path)
    if first is not None and any(made_by != plan.description for made_by in state.descriptions):
        # What was made of another version 1 looks the same and is not.
        state = state._replace(entries={})
    work = assess(path, plan, state, found, check)
    require_space(path, work, found, statvfs)
    if work.make:
        require_dd()
    if work.needed and not dry_run:
        _apply(path, plan, state, found, work, first)
    return Result(
        changed=work.needed,
        files=len(plan.files),
        directories=len(plan.directories),
        bytes=plan.bytes,
        created=len(work.make) - len(work.replaced),
        replaced=len(work.replaced),
        removed=len(work.remove_files) + len(work.remove_directories),
    )


def absent(path: str, dry_run: bool = False) -> Result:
    """Remove the tree at path with its manifest; refuses where anything in it was not made by us."""
    path = check_path(path)
    found = look(path)
    state = load_state(path)
    if not state.ours and found.root is None:
        return Result(False, 0, 0, 0, 0, 0, 0)
    if not state.ours:
        raise DatasetError(
            f"{printable(path)} was not made by this module (no {os.path.basename(path)}{MANIFEST_SUFFIX} beside it): "
            "it is left alone, so remove it by hand"
        )
    strangers = sorted(name for names in (found.files, found.directories) for name in names if name not in state.names)
    if strangers:
        raise DatasetError(
            f"{printable(os.path.join(path, strangers[0]))} was not made by this module (nor {len(strangers) - 1} "
            "others in this dataset): nothing was removed, so move it away first"
        )
    directories = sorted(found.directories, reverse=True)
    if not dry_run:
        _remove(path, sorted(found.files), directories)
        with os_errors("remove", path):
            if found.root is not None:
                os.rmdir(path)
            for suffix in (MANIFEST_SUFFIX, JOURNAL_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + suffix)
    return Result(True, 0, 0, 0, 0, 0, len(found.files) + len(directories))
