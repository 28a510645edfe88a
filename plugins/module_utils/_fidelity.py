# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tree of hard cases, and what a copy made of each.

Every case has a directory of its own, called by its id, so that a case can be copied by itself. What cannot be made on a
filesystem or by a user is a case without names, with the reason. Beside the tree lies C(<path>.dataset.json) with the
cases and with a manifest that has all attributes. This file knows nothing of Ansible.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import shutil
import socket
import stat
import struct
import threading
import time
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from ansible_collections.linkops.bulkcopy.plugins.module_utils import _dataset, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._counters import flush_filesystem
from ansible_collections.linkops.bulkcopy.plugins.module_utils._dataset import DatasetError, printable
from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import escape

#: The dataset shape that makes the tree.
SHAPE = "fidelity"

KEPT = "kept"
CHANGED = "changed"
FOLLOWED = "followed"
LOST = "lost"
REFUSED = "refused"
NOT_MADE = "not-made"
#: What became of a case, from the best to the worst: of names that differ in it the worst counts.
OUTCOMES = (KEPT, CHANGED, FOLLOWED, REFUSED, LOST)

#: The id of the file that grows.
GROWING = "growing"
_GROWING_BYTES = 4 << 20
_GROWN_MOST_BYTES = 16 << 20
_LINE_BYTES = 64

#: 2001-02-03 04:05:06 UTC, and with a fraction that takes every digit.
_TIME_S = 981173106
_TIME_NS = _TIME_S * 10**9 + 123456789
#: 1965-01-01 and 2040-01-01: before the epoch, and beyond what 32 bits with a sign hold.
_OLD_S = -157766400
_LATE_S = 2208988800

#: A time so near to the present is that of the copying.
_PRESENT_S = 86400.0


class Case(NamedTuple):
    """One hard case: its id (C(group) or C(group.finer)), what it is, the names that it is judged by (relative to the
    tree), and why it could not be made, empty where it was."""

    id: str
    what: str
    names: list[bytes]
    reason: str = ""

    @property
    def group(self) -> str:
        return self.id.split(".")[0]


# --------------------------------------------------------------------------------------------------------------------
# Making the tree

#: What a case makes in its directory, whose absolute path it is given: the names to judge it by, relative to it.
Maker = Callable[[bytes], Sequence[bytes]]


def _content(name: bytes, size: int = 1000) -> bytes:
    """Bytes that follow from the name, and do not compress."""
    blocks = (hashlib.sha256(b"%d " % number + name).digest() for number in range(-(-size // 32)))
    return b"".join(blocks)[:size]


def _file(directory: bytes, name: bytes, content: bytes | None = None) -> bytes:
    full = os.path.join(directory, name)
    os.makedirs(os.path.dirname(full), 0o755, exist_ok=True)
    with open(full, "wb") as stream:
        stream.write(_content(name) if content is None else content)
    os.chmod(full, 0o644)
    return full


def _names(*names: bytes) -> Maker:
    def make(directory: bytes) -> Sequence[bytes]:
        for name in names:
            _file(directory, name)
        return names

    return make


def _empty_files(directory: bytes) -> Sequence[bytes]:
    names = (b"empty", b"below/empty too")
    for name in names:
        _file(directory, name, b"")
    return names


def _empty_directories(directory: bytes) -> Sequence[bytes]:
    os.makedirs(os.path.join(directory, b"below/empty"))
    os.mkdir(os.path.join(directory, b"empty"))
    return (b"empty", b"below/empty")


def _symlink(text: bytes, absolute: bool = False) -> Maker:
    def make(directory: bytes) -> Sequence[bytes]:
        _file(directory, b"below/file")
        os.symlink(os.path.join(directory, text) if absolute else text, os.path.join(directory, b"link"))
        return (b"link",)

    return make


def _symlink_loop(directory: bytes) -> Sequence[bytes]:
    os.symlink(b"b", os.path.join(directory, b"a"))
    os.symlink(b"a", os.path.join(directory, b"b"))
    return (b"a", b"b")


def _symlink_up(directory: bytes) -> Sequence[bytes]:
    # Alone with one file: who follows it meets the same few names until the kernel ends it, after 40 links.
    _file(directory, b"below/file", b"")
    os.symlink(b"..", os.path.join(directory, b"below/up"))
    return (b"below/up",)


def _hardlinks(directory: bytes) -> Sequence[bytes]:
    names = (b"one", b"two", b"below/three", b"below/four")
    for name in names[::2]:
        _file(directory, name)
    os.link(os.path.join(directory, b"one"), os.path.join(directory, b"two"))
    os.link(os.path.join(directory, b"below/three"), os.path.join(directory, b"below/four"))
    return names


def _sparse(directory: bytes) -> Sequence[bytes]:
    full = _file(directory, b"hole", _content(b"begin", 65536))
    with open(full, "r+b") as stream:
        stream.truncate(8 << 20)
        stream.seek(0, os.SEEK_END)
        stream.write(_content(b"end", 65536))
    if os.lstat(full).st_blocks * 512 > 4 << 20:
        raise _NotMade("this filesystem has no holes in files")
    return (b"hole",)


def _fifos(directory: bytes) -> Sequence[bytes]:
    os.mkfifo(os.path.join(directory, b"fifo"), 0o644)
    return (b"fifo",)


def _sockets(directory: bytes) -> Sequence[bytes]:
    # The address of a socket may be no longer than 107 bytes.
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{place}/socket")
    finally:
        os.close(place)
    return (b"socket",)


def _devices(directory: bytes) -> Sequence[bytes]:
    _root_only("device files")
    os.mknod(os.path.join(directory, b"null"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod(os.path.join(directory, b"loop"), stat.S_IFBLK | 0o600, os.makedev(7, 0))
    return (b"null", b"loop")


def _with_modes(files: Sequence[int] = (), directories: Sequence[int] = ()) -> Maker:
    def make(directory: bytes) -> Sequence[bytes]:
        names = []
        for mode in files:
            names.append(b"file %o" % mode)
            os.chmod(_file(directory, names[-1]), mode)
        for mode in directories:
            names.append(b"directory %o" % mode)
            os.chmod(os.path.dirname(_file(directory, names[-1] + b"/file")), mode)
        for name, mode in zip(names, (*files, *directories)):
            if stat.S_IMODE(os.lstat(os.path.join(directory, name)).st_mode) != mode:
                raise _NotMade(f"this user or filesystem cannot have mode {mode:04o}")
        return names

    return make


def _owners(directory: bytes) -> Sequence[bytes]:
    _root_only("files of other owners")
    names = (b"file", b"below", b"link")
    _file(directory, b"file")
    _file(directory, b"below/file")
    os.symlink(b"file", os.path.join(directory, b"link"))
    for number, name in enumerate(names):
        # Nobody's names: numbers are what has to arrive.
        os.lchown(os.path.join(directory, name), 61001 + number, 61011 + number)
    return names


def _with_time(kind: str, time_ns: int) -> Maker:
    def make(directory: bytes) -> Sequence[bytes]:
        full, name = os.path.join(directory, b"name"), b"name"
        if kind == "d":
            _file(directory, b"name/file")
        elif kind == "l":
            os.symlink(b"nowhere", full)
        else:
            _file(directory, name)
        os.utime(full, ns=(time_ns, time_ns), follow_symlinks=False)
        if os.lstat(full).st_mtime_ns != time_ns:
            raise _NotMade("this filesystem does not keep such a time")
        return (name,)

    return make


def _with_xattr(name: str, value: bytes, directories: bool = True) -> Maker:
    def make(directory: bytes) -> Sequence[bytes]:
        names = [b"file", *([b"below"] if directories else [])]
        _file(directory, b"file")
        _file(directory, b"below/file")
        for each in names:
            os.setxattr(os.path.join(directory, each), name, value, follow_symlinks=False)
        return names

    return make


def _acl(*entries: tuple[int, int, int]) -> bytes:
    """An ACL as Linux has it in an extended attribute (linux/posix_acl_xattr.h): version 2, then tag, permissions and id
    of each entry, little-endian."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


_NO_ID = 0xFFFFFFFF
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
#: The owner writes; a user and a group that nobody is here read.
_ACCESS = _acl(
    (_USER_OBJ, 6, _NO_ID),
    (_USER, 4, 61001),
    (_GROUP_OBJ, 4, _NO_ID),
    (_GROUP, 4, 61011),
    (_MASK, 4, _NO_ID),
    (_OTHER, 0, _NO_ID),
)
_DEFAULT = _acl(
    (_USER_OBJ, 7, _NO_ID), (_USER, 5, 61001), (_GROUP_OBJ, 5, _NO_ID), (_MASK, 5, _NO_ID), (_OTHER, 0, _NO_ID)
)
#: CAP_NET_BIND_SERVICE, permitted and effective, as linux/capability.h has it (revision 2).
_CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)


def _with_acls(name: str, value: bytes, kind: str) -> Maker:
    def make(directory: bytes) -> Sequence[bytes]:
        full = _file(directory, b"file" if kind == "f" else b"below/file")
        os.setxattr(full if kind == "f" else os.path.dirname(full), name, value)
        return (b"file",) if kind == "f" else (b"below",)

    return make


def _as_root(what: str, make: Maker) -> Maker:
    def made(directory: bytes) -> Sequence[bytes]:
        _root_only(what)
        return make(directory)

    return made


def _growing(directory: bytes) -> Sequence[bytes]:
    _file(directory, b"log", _lines(0, _GROWING_BYTES))
    return (b"log",)


def _lines(begin: int, end: int) -> bytes:
    """What the growing file holds from one multiple of 64 bytes to another: numbered lines."""
    return b"".join(b"%063d\n" % number for number in range(begin // _LINE_BYTES, end // _LINE_BYTES))


class _NotMade(Exception):
    """A case that cannot be made here, with the reason."""


def _root_only(what: str) -> None:
    if os.geteuid() != 0:
        raise _NotMade(f"only root makes {what}")


#: Paths of 121 and 301 bytes.
_LONG = b"/".join([b"d" * 39] * 2 + [b"f" * 24])
_LONGER = b"/".join([b"d" * 59] * 4 + [b"f" * 44])

_CASES: tuple[tuple[str, str, Maker], ...] = (
    ("names.space", "names with spaces", _names(b"two words", b" before", b"behind ", b"one/two words/file")),
    ("names.quotes", "names with quotes", _names(b"it's", b'"double"', b"`back`")),
    ("names.newline", "names with a line break", _names(b"two\nlines", b"end\n", b"tab\there", b"return\rhere")),
    ("names.dash", "names that look like options", _names(b"-dash", b"--", b"--help", b"-rf/file")),
    ("names.colon", "names with a colon", _names(b"host:path", b"C:", b":", b"a:b/file")),
    ("names.backslash", "names with a backslash", _names(b"back\\slash", b"\\n", b"end\\", b"\\141")),
    ("names.glob", "names with glob characters", _names(b"*", b"?", b"[a-z]", b"{a,b}", b"a*b/file")),
    (
        "names.shell",
        "names with ~, #, $ and the like",
        _names(b"~", b"~root", b"#", b"$HOME", b"a;b", b"a&b", b"!", b"%"),
    ),
    ("names.bytes", "names that are not UTF-8", _names(b"latin1_\xe9", b"\xff\xfe", b"\xe9/file")),
    ("names.dots", "names that begin with dots", _names(b".hidden", b"...", b"..below/file")),
    ("long_names", "names of 255 bytes", _names(b"n" * 255, b"d" * 255 + b"/file")),
    ("long_paths.100", "paths of more than 100 bytes", _names(_LONG)),
    ("long_paths.255", "paths of more than 255 bytes", _names(_LONGER)),
    ("empty_files", "files of no bytes", _empty_files),
    ("empty_directories", "directories with nothing in them", _empty_directories),
    ("symlinks.relative", "a link to a file", _symlink(b"below/file")),
    ("symlinks.absolute", "a link to a file by its absolute path", _symlink(b"below/file", absolute=True)),
    ("symlinks.dangling", "a link that leads nowhere", _symlink(b"nowhere")),
    ("symlinks.loop", "two links that lead to each other", _symlink_loop),
    ("symlinks.directory", "a link to a directory", _symlink(b"below")),
    ("symlinks.up", "a link to the directory above it", _symlink_up),
    ("hardlinks", "two names of one file", _hardlinks),
    ("sparse", "a hole in a file", _sparse),
    ("fifos", "a FIFO", _fifos),
    ("sockets", "a socket", _sockets),
    ("devices", "device files", _devices),
    ("modes.files", "modes of files", _with_modes((0o600, 0o755, 0o666, 0o444))),
    ("modes.directories", "modes of directories, one of them read-only", _with_modes((), (0o700, 0o777, 0o555))),
    ("setid.files", "set-id and sticky bits of files", _with_modes((0o4755, 0o2755, 0o6750, 0o1644))),
    ("setid.directories", "set-id and sticky bits of directories", _with_modes((), (0o2755, 0o1777))),
    ("unreadable", "files that their owner may not read", _with_modes((0o000, 0o200))),
    ("owners", "owners and groups by number", _owners),
    ("mtime_s", "the time of a file, to the second", _with_time("f", _TIME_S * 10**9)),
    ("mtime_ns.files", "the time of a file, to the nanosecond", _with_time("f", _TIME_NS)),
    ("mtime_ns.directories", "the time of a directory, to the nanosecond", _with_time("d", _TIME_NS)),
    ("mtime_ns.symlinks", "the time of a symbolic link, to the nanosecond", _with_time("l", _TIME_NS)),
    ("mtime_old.before_1970", "a time before 1970", _with_time("f", _OLD_S * 10**9)),
    ("mtime_old.after_2038", "a time after 2038", _with_time("f", _LATE_S * 10**9)),
    ("directory_mtimes", "the time of a directory, to the second", _with_time("d", _TIME_S * 10**9)),
    ("xattrs.user", "user's extended attributes", _with_xattr("user.linkops", b"a value\0of bytes\xff")),
    (
        "xattrs.trusted",
        "trusted extended attributes",
        _as_root("trusted attributes", _with_xattr("trusted.linkops", b"a value")),
    ),
    (
        "xattrs.capability",
        "a file's capabilities",
        _as_root("files with capabilities", _with_xattr(_tree.CAPABILITY, _CAPABILITY, directories=False)),
    ),
    ("acls.access", "ACLs of files", _with_acls(_tree.ACLS[0], _ACCESS, "f")),
    ("acls.default", "default ACLs of directories", _with_acls(_tree.ACLS[1], _DEFAULT, "d")),
    (GROWING, "a file that grows while it is read", _growing),
)

#: The ids of all cases, and the groups that they belong to.
IDS = tuple(name for name, _what, _make in _CASES)
GROUPS = tuple(dict.fromkeys(name.split(".")[0] for name in IDS))


def _make_case(top: bytes, name: str, what: str, make: Maker) -> Case:
    directory = os.path.join(top, name.encode("ascii"))
    os.mkdir(directory, 0o755)
    os.chmod(directory, 0o755)
    try:
        names = make(directory)
    except (_NotMade, OSError) as problem:
        _empty(directory)
        reason = str(problem) if isinstance(problem, _NotMade) else problem.strerror or str(problem)
        return Case(name, what, [], reason)
    return Case(name, what, [os.path.join(name.encode("ascii"), each) for each in names])


def _age(top: bytes, cases: Sequence[Case]) -> None:
    """Give every name a time long ago, except those that are about another one."""
    own = {name for case in cases if "mtime" in case.group for name in case.names}
    for path in sorted(_tree.scan(top, hash_content=False).entries, reverse=True):
        if path not in own:
            os.utime(os.path.join(top, path), (_TIME_S, _TIME_S), follow_symlinks=False)
    os.utime(top, (_TIME_S, _TIME_S))


def _empty(directory: bytes) -> None:
    """Remove what is in one of our directories, whatever its modes."""
    for above, directories, _files in os.walk(directory):
        for name in directories:
            full = os.path.join(above, name)
            if not os.path.islink(full):
                os.chmod(full, 0o700)
    for name in os.listdir(directory):
        full = os.path.join(directory, name)
        if os.path.isdir(full) and not os.path.islink(full):
            shutil.rmtree(full)
        else:
            os.unlink(full)


# --------------------------------------------------------------------------------------------------------------------
# Keeping it


class _Saved(NamedTuple):
    """What lies beside a tree; the manifest is null where the tree was never finished."""

    cases: list[Case]
    manifest: _tree.Manifest | None


def _read_saved(path: str) -> _Saved | None:
    """What was saved of a tree at C(path); null where nothing is there, or another dataset's. Raises DatasetError."""
    place = path + _dataset.MANIFEST_SUFFIX
    try:
        with open(place, encoding="utf-8") as stream:
            document = json.load(stream)
        if document["description"] != {"shape": SHAPE}:
            return None
        cases = [
            Case(case["id"], case["what"], list(map(_tree.to_bytes, case["names"])), case["reason"])
            for case in document["cases"]
        ]
        return _Saved(cases, None if document["manifest"] is None else _tree.unpack(document["manifest"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"the manifest {printable(place)} cannot be used ({error!s:.100}): remove it together with the tree"
        ) from error


def _save(path: str, cases: Sequence[Case], manifest: _tree.Manifest | None) -> None:
    document = {
        "schema": _dataset.SCHEMA,
        "made_by": _dataset.MADE_BY,
        "description": {"shape": SHAPE},
        "cases": [dict(case._asdict(), names=list(map(_tree.to_text, case.names))) for case in cases],
        "manifest": manifest and manifest.pack(),
    }
    _dataset.write_beside(path + _dataset.MANIFEST_SUFFIX, json.dumps(document) + "\n")


def _alike(left: _tree.Manifest, right: _tree.Manifest) -> bool:
    def plain(manifest: _tree.Manifest) -> dict[bytes, _tree.Entry]:
        entries = {}
        for path, entry in manifest.entries.items():
            # What is allocated for a file changes when it is written out.
            more = entry.more and entry.more._replace(allocated=0)
            entries[path] = entry._replace(signature=(0, 0, 0), more=more)
        return entries

    return plain(left) == plain(right)


def is_made(path: str) -> bool:
    """Whether the tree at C(path) is one of these."""
    with contextlib.suppress(DatasetError):
        return _read_saved(path.rstrip("/")) is not None
    return False


def cases_of(src: str) -> list[Case]:
    """The cases of the tree at C(src). Raises DatasetError where it is no such tree, or not a whole one."""
    saved = _read_saved(src)
    if saved is None or saved.manifest is None:
        raise DatasetError(
            f"{printable(src)} is no whole tree of the dataset shape {SHAPE}: make it with linkops.bulkcopy.dataset"
        )
    return saved.cases


def _refuse_strangers(path: str, saved: _Saved | None) -> None:
    """What is in our tree and not ours must not be removed with it."""
    if not os.path.lexists(path):
        return
    if os.path.islink(path) or not os.path.isdir(path):
        raise DatasetError(f"{printable(path)} exists and is no directory: choose another path")
    ours = {name for name, _what, _make in _CASES} if saved else set()
    strangers = sorted(set(os.listdir(path)) - ours)
    if saved and saved.manifest and not strangers:
        found = _tree.scan(path, hash_content=False)
        strangers = [os.fsdecode(name) for name in sorted(set(found.entries) - set(saved.manifest.entries))]
    if strangers:
        raise DatasetError(
            f"{printable(os.path.join(path, strangers[0]))} is in the way and was not made by this module: choose another "
            "path or move it away"
        )


def present(path: str, dry_run: bool = False) -> _dataset.Result:
    """Make the tree at C(path), and make it anew where anything in it differs from what it was. Raises DatasetError."""
    path = _dataset.check_path(path)
    saved = _read_saved(path)
    if saved is None and os.path.lexists(path + _dataset.MANIFEST_SUFFIX):
        raise DatasetError(f"{printable(path)} is another dataset: choose another path or remove that one first")
    _refuse_strangers(path, saved)
    there = os.path.isdir(path)
    old = saved.manifest if saved else None
    if old is not None and there and _alike(old, _tree.scan(path, more=True)):
        return _result(old, False, 0, 0)
    if dry_run:
        count = len(_CASES) if old is None else old.files
        return _dataset.Result(True, count, 0, 0, 0 if there else count, count if there else 0, 0)
    top = os.fsencode(path)
    with _dataset.os_errors("make", path):
        os.makedirs(path, 0o755, exist_ok=True)
        os.chmod(path, 0o755)
        _save(path, [], None)
        umask = os.umask(0o022)
        try:
            _empty(top)
            cases = [_make_case(top, *case) for case in _CASES]
        finally:
            os.umask(umask)
        _age(top, cases)
        flush_filesystem(path)
        manifest = _tree.scan(path, more=True)
        _save(path, cases, manifest)
    replaced = manifest.files if old is not None and there else 0
    return _result(manifest, True, manifest.files - replaced, replaced)


def _result(manifest: _tree.Manifest, changed: bool, created: int, replaced: int) -> _dataset.Result:
    return _dataset.Result(changed, manifest.files, manifest.directories, manifest.bytes, created, replaced, 0)


def absent(path: str, dry_run: bool = False) -> _dataset.Result:
    """Remove the tree at C(path) and what lies beside it. Raises DatasetError where something in it is not ours."""
    saved = _read_saved(path)
    _refuse_strangers(path, saved)
    removed = 0
    with _dataset.os_errors("remove", path):
        if os.path.isdir(path):
            removed = len(_tree.scan(path, hash_content=False).entries)
            if not dry_run:
                _empty(os.fsencode(path))
                os.rmdir(path)
        if not dry_run:
            os.unlink(path + _dataset.MANIFEST_SUFFIX)
    return _dataset.Result(True, 0, 0, 0, 0, 0, removed)


@contextlib.contextmanager
def growing(src: str, case: Case) -> Iterator[None]:
    """Where C(case) is the file that grows, let it grow in the tree at C(src), and make it what it was afterwards.
    Raises OSError."""
    if case.group != GROWING:
        yield
        return
    full, ended = os.path.join(os.fsencode(src), case.names[0]), threading.Event()

    def write() -> None:
        with open(full, "ab", buffering=0) as stream:
            for size in range(_GROWING_BYTES, _GROWN_MOST_BYTES, _LINE_BYTES):
                if ended.wait(0.001):
                    return
                stream.write(_lines(size, size + _LINE_BYTES))

    with _restored(full):
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()


@contextlib.contextmanager
def _restored(full: bytes) -> Iterator[None]:
    before = os.lstat(full).st_mtime_ns
    # An earlier run may have been killed.
    os.truncate(full, _GROWING_BYTES)
    try:
        yield
    finally:
        os.truncate(full, _GROWING_BYTES)
        os.utime(full, ns=(before, before))


# --------------------------------------------------------------------------------------------------------------------
# Judging a copy


def below(case: Case, copy: _tree.Manifest) -> _tree.Manifest:
    """The list of a copy of a case's directory by itself, with the names that it has in a copy of the whole tree."""

    def within(path: bytes) -> bytes:
        return os.path.join(case.id.encode("ascii"), path)

    entries = {
        within(path): entry._replace(same=entry.same and within(entry.same)) for path, entry in copy.entries.items()
    }
    return _tree.Manifest(entries)


def anything_of(source: _tree.Manifest, copy: _tree.Manifest) -> bool:
    """Whether a copy has the content of a single file."""
    return any(
        entry.kind == "f" and entry.size and entry.sha256 and copy.entries[path].sha256 == entry.sha256
        for path, entry in source.entries.items()
        if path in copy.entries
    )


class Judged(NamedTuple):
    """What became of one name: one of C(OUTCOMES), and how it differs."""

    outcome: str
    detail: str = ""


def judge(cases: Sequence[Case], source: _tree.Manifest, copy: _tree.Manifest, failed: bool) -> list[dict[str, Any]]:
    """What a copy made of each case, as C(fidelity.cases) of a record has it. C(failed): whether the tool said by its
    status that something went wrong; then what is missing was refused, otherwise lost."""
    judged = []
    for case in cases:
        outcome, detail, kept = NOT_MADE, case.reason, 0
        if case.names:
            found = [(name, _judge_name(case.group, name, source, copy, failed)) for name in case.names]
            kept = sum(1 for _name, each in found if each.outcome == KEPT)
            name, worst = max(found, key=lambda each: OUTCOMES.index(each[1].outcome))
            outcome = worst.outcome
            if outcome != KEPT:
                detail = f"{_shown_name(name)}: {worst.detail}"
            elif failed and case.group == GROWING:
                detail = "the tool ended with a failure all the same"
        judged.append(
            {
                "id": case.id,
                "what": case.what,
                "names": len(case.names),
                "kept": kept,
                "outcome": outcome,
                "detail": detail,
            }
        )
    return judged


def _judge_name(group: str, name: bytes, source: _tree.Manifest, copy: _tree.Manifest, failed: bool) -> Judged:
    entry, other = source.entries[name], copy.entries.get(name)
    if other is None:
        return _judge_missing(name, source, copy, failed)
    if entry.kind == "l" and other.kind != "l":
        return Judged(FOLLOWED, "what it leads to is in its place")
    if other.kind != entry.kind:
        return Judged(CHANGED, f"kind {entry.kind} is {other.kind}")
    if entry.link != other.link:
        return Judged(CHANGED, f"leads to {_shown_name(other.link)}")
    if group == GROWING:
        return _judge_growing(entry, other)
    if entry.kind == "f" and (entry.size, entry.sha256) != (other.size, other.sha256):
        return Judged(CHANGED, "its content differs")
    return _JUDGES.get(group, _judge_nothing_more)(entry, other)


def _judge_missing(name: bytes, source: _tree.Manifest, copy: _tree.Manifest, failed: bool) -> Judged:
    beside = os.path.dirname(name)
    others = [path for path in sorted(copy.entries) if os.path.dirname(path) == beside and path not in source.entries]
    if others:
        return Judged(CHANGED, f"not there, unlike {_shown_name(others[0])}")
    return Judged(REFUSED if failed else LOST, "missing")


def _shown_name(name: bytes) -> str:
    """A name on one line, whatever bytes it holds."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in escape(name)
    )


def _judge_nothing_more(_entry: _tree.Entry, _other: _tree.Entry) -> Judged:
    return Judged(KEPT)


def _judge_growing(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    # An earlier run that was killed may have left more, which is cut off before this one.
    least = min(entry.size, _GROWING_BYTES)
    if other.size < least:
        return Judged(CHANGED, f"{other.size} of at least {least} bytes")
    # A copy may end anywhere within what was written.
    whole = hashlib.sha256(_lines(0, other.size + _LINE_BYTES)[: other.size]).hexdigest()
    if other.sha256 != whole:
        return Judged(CHANGED, "its content is not what was written")
    return Judged(KEPT)


def _judge_hardlink(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    return Judged(KEPT) if entry.same == other.same else Judged(LOST, "a file of its own")


def _judge_holes(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    if other.more is None or entry.more is None:
        raise ValueError("the trees were listed without their attributes")
    # Filesystems differ in their blocks: it is whether the hole is there.
    if other.more.allocated > (entry.more.allocated + entry.size) // 2:
        return Judged(LOST, f"it takes {other.more.allocated} bytes instead of {entry.more.allocated}")
    return Judged(KEPT)


def _judge_device(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    if entry.more and other.more and entry.more.device != other.more.device:
        return Judged(CHANGED, "device {}:{} is {}:{}".format(*entry.more.device, *other.more.device))
    return Judged(KEPT)


def _judge_mode(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    if entry.mode == other.mode:
        return Judged(KEPT)
    return Judged(CHANGED, f"mode {entry.mode:04o} is {other.mode:04o}")


def _judge_setid(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    bits = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
    lost = entry.mode & ~other.mode & bits
    return Judged(LOST, f"mode {entry.mode:04o} is {other.mode:04o}") if lost else _judge_mode(entry, other)


def _judge_owner(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    if (entry.uid, entry.gid) == (other.uid, other.gid):
        return Judged(KEPT)
    return Judged(LOST, f"{entry.uid}:{entry.gid} is {other.uid}:{other.gid}")


def _shown(time_ns: int) -> str:
    since = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=time_ns // 10**9)
    fraction = time_ns % 10**9
    return since.isoformat(" ") + (f".{fraction:09d}" if fraction else "")


def _judge_time(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    if entry.mtime_ns == other.mtime_ns:
        return Judged(KEPT)
    if abs(other.mtime_ns / 1e9 - time.time()) < _PRESENT_S:
        return Judged(LOST, "the time is that of the copying")
    return Judged(CHANGED, f"{_shown(entry.mtime_ns)} is {_shown(other.mtime_ns)}")


def _judge_xattrs(entry: _tree.Entry, other: _tree.Entry) -> Judged:
    if entry.more is None or other.more is None:
        raise ValueError("the trees were listed without their attributes")
    for name, value in entry.more.xattrs.items():
        if name not in other.more.xattrs:
            return Judged(LOST, f"{name} is missing")
        if other.more.xattrs[name] != value:
            return Judged(CHANGED, f"{name} differs")
    return Judged(KEPT)


_JUDGES: dict[str, Callable[[_tree.Entry, _tree.Entry], Judged]] = {
    "hardlinks": _judge_hardlink,
    "sparse": _judge_holes,
    "devices": _judge_device,
    "modes": _judge_mode,
    "setid": _judge_setid,
    "unreadable": _judge_mode,
    "owners": _judge_owner,
    "mtime_s": _judge_time,
    "mtime_ns": _judge_time,
    "mtime_old": _judge_time,
    "directory_mtimes": _judge_time,
    "xattrs": _judge_xattrs,
    "acls": _judge_xattrs,
}

#: What a case that was not kept means in the words of C(_tree.LOSSES). Times that a protocol has no number for are not
#: among them: a method that keeps the others keeps times.
_LOSS_OF = {
    "symlinks": _tree.SYMLINKS,
    "fifos": _tree.SPECIAL_FILES,
    "sockets": _tree.SPECIAL_FILES,
    "devices": _tree.SPECIAL_FILES,
    "hardlinks": _tree.HARDLINKS,
    "modes": _tree.MODE,
    "setid": _tree.MODE,
    "owners": _tree.OWNER,
    "mtime_s": _tree.MTIME,
    "directory_mtimes": _tree.MTIME,
}


def losses(judged: Sequence[dict[str, Any]]) -> frozenset[str]:
    """Which of C(_tree.LOSSES) a copy was found to have, that methods declare."""
    lost = {_LOSS_OF.get(case["id"].split(".")[0]) for case in judged if case["outcome"] not in (KEPT, NOT_MADE)}
    return frozenset(kind for kind in lost if kind)
