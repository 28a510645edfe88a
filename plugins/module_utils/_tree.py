# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import bisect
import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import shutil
import stat
import subprocess
import zlib
from typing import Any, Iterable, Iterator, NamedTuple, Union

from ansible_collections.linkops.bulkcopy.plugins.module_utils._record import escape

Path = Union[str, bytes]

SHA256 = "sha256"
SIZE_MTIME = "size-mtime"
NONE = "none"

#: States of the page cache, and the share of the content that makes them.
WARM = "warm"
COLD = "cold"
PARTLY_WARM = "partly-warm"
WARM_SHARE = 0.99
COLD_SHARE = 0.01

#: How many differing names a record shows; the count is always whole.
SHOWN_MISMATCHES = 20

_CHUNK_BYTES = 1 << 20
_KINDS = (
    (stat.S_ISREG, "f"),
    (stat.S_ISDIR, "d"),
    (stat.S_ISLNK, "l"),
    (stat.S_ISFIFO, "p"),
    (stat.S_ISSOCK, "s"),
    (stat.S_ISCHR, "c"),
    (stat.S_ISBLK, "b"),
)
_SPECIAL = frozenset("pscb")

#: The extended attributes that hold POSIX ACLs, as Linux shows them.
ACLS = ("system.posix_acl_access", "system.posix_acl_default")
CAPABILITY = "security.capability"


class More(NamedTuple):
    """What else there is to a name: C(xattrs), its extended attributes in hexadecimal by name, ACLs among them;
    C(allocated), the bytes that it takes on its filesystem; C(device), major and minor number of a device file."""

    xattrs: dict[str, str]
    allocated: int
    device: tuple[int, int]


class Entry(NamedTuple):
    """One name in a tree. C(kind) is a letter as C(find -type) writes it; C(size) counts only for regular files; C(link)
    is a symbolic link's text; C(same) is the first name (in byte order) of a hard-linked file's names, else empty;
    C(signature) (device, inode, change time in ns) tells whether a known checksum still stands; C(more) is there where
    C(scan) was asked for it."""

    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    link: bytes = b""
    same: bytes = b""
    sha256: str | None = None
    signature: tuple[int, int, int] = (0, 0, 0)
    more: More | None = None


class Manifest:
    """What a tree holds: C(entries) by path relative to the root (bytes, without C(./)); the root itself is not an
    entry. C(unreadable) names what could not be listed or read, with the reason."""

    def __init__(self, entries: dict[bytes, Entry], unreadable: dict[bytes, str] | None = None) -> None:
        self.entries = entries
        self.unreadable = unreadable or {}

    def _of(self, kind: str) -> Iterator[Entry]:
        return (entry for entry in self.entries.values() if entry.kind == kind)

    @property
    def files(self) -> int:
        return sum(1 for entry in self._of("f"))

    @property
    def directories(self) -> int:
        return sum(1 for entry in self._of("d"))

    @property
    def bytes(self) -> int:
        """Sum of the sizes of the regular files: not C(du), which counts directories and not holes."""
        return sum(entry.size for entry in self._of("f"))

    @property
    def linked_bytes(self) -> int:
        """How much of C(bytes) are further names of hard-linked files, which need not be copied twice."""
        return sum(entry.size for path, entry in self.entries.items() if entry.same and entry.same != path)

    @property
    def digest(self) -> str:
        """SHA-256 over the sorted names with kind, size and content: equal digests are equal data."""
        return self._digest(lambda entry: (entry.kind, entry.size, entry.sha256 or "", entry.link.hex()))

    @property
    def meta_digest(self) -> str:
        """SHA-256 over what else a copy may keep: mode, owner, whole seconds of the time of regular files and
        directories, and which names are one file."""
        return self._digest(
            lambda entry: (
                entry.mode if entry.kind != "l" else 0,
                entry.uid,
                entry.gid,
                entry.mtime_ns // 10**9 if entry.kind != "l" else 0,
                entry.same.hex(),
            )
        )

    def _digest(self, fields: Any) -> str:
        total = hashlib.sha256()
        for path in sorted(self.entries):
            line = "\0".join([path.hex()] + [str(field) for field in fields(self.entries[path])])
            total.update(line.encode("ascii") + b"\n")
        return total.hexdigest()

    def pack(self) -> str:
        """The manifest as one line of ASCII text, compressed."""
        rows = [[to_text(path), *_row(entry)] for path, entry in self.entries.items()]
        unreadable = {to_text(path): reason for path, reason in self.unreadable.items()}
        text = json.dumps({"entries": rows, "unreadable": unreadable}, separators=(",", ":"))
        return base64.b64encode(zlib.compress(text.encode("ascii"), 1)).decode("ascii")


def to_text(name: bytes) -> str:
    """A name as text that C(to_bytes) turns back."""
    # Not os.fsdecode: the two ends of a copy may have different locales.
    return name.decode("utf-8", "surrogateescape")


def to_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _row(entry: Entry) -> list[Any]:
    row: list[Any] = list(entry)
    row[6] = to_text(entry.link)
    row[7] = to_text(entry.same)
    return row


def unpack(text: str) -> Manifest:
    """The manifest that C(Manifest.pack) wrote. Raises ValueError where it did not."""
    try:
        data = json.loads(zlib.decompress(base64.b64decode(text, validate=True)).decode("ascii"))
        entries = {}
        for row in data["entries"]:
            row[7] = to_bytes(row[7])
            row[8] = to_bytes(row[8])
            row[10] = tuple(row[10])
            if len(row) > 11 and row[11] is not None:
                xattrs, allocated, device = row[11]
                row[11] = More(xattrs, allocated, tuple(device))
            entries[to_bytes(row[0])] = Entry(*row[1:])
        unreadable = {to_bytes(path): reason for path, reason in data["unreadable"].items()}
    except (zlib.error, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"not a manifest: {error}") from error
    return Manifest(entries, unreadable)


def save(manifest: Manifest, path: Path) -> None:
    """Write a manifest so that a reader sees the old one or the new one, never half of one."""
    temporary = os.fsdecode(path) + ".new"
    with open(temporary, "w", encoding="ascii") as stream:
        stream.write(manifest.pack() + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def load(path: Path) -> Manifest:
    """Read what C(save) wrote. Raises OSError, or ValueError where the file is something else."""
    with open(path, encoding="ascii") as stream:
        return unpack(stream.read().strip())


def _open_regular(path: bytes) -> tuple[int, bool]:
    """A descriptor of a regular file, and whether the kernel takes us for its owner; anything else is refused before it
    is read (a FIFO would block for ever). Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor, owner = os.open(path, flags | os.O_NOATIME), True
    except PermissionError:
        # O_NOATIME is for the owner and root only.
        descriptor, owner = os.open(path, flags), False
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("no longer a regular file")
    return descriptor, owner


def read_whole(path: bytes) -> Iterator[bytes]:
    """The content of a regular file, in pieces. Raises OSError, also where it is something else."""
    descriptor, _owner = _open_regular(path)
    try:
        while True:
            piece = os.read(descriptor, _CHUNK_BYTES)
            if not piece:
                return
            yield piece
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _lent(path: bytes, mode: int) -> Iterator[None]:
    """Let an owner who has taken the right to read from himself have it for a moment."""
    if os.access(path, os.R_OK, effective_ids=True):
        yield
        return
    os.chmod(path, mode | stat.S_IRUSR)
    try:
        yield
    finally:
        os.chmod(path, mode)


def _more(path: bytes, status: os.stat_result) -> More:
    """Raises OSError."""
    names: list[str] = []
    # A filesystem without extended attributes has none, and not every kind of name can have them.
    with contextlib.suppress(OSError):
        names = os.listxattr(path, follow_symlinks=False)
    # Labels of security modules belong to the host.
    kept = [name for name in names if name.startswith(("user.", "trusted.")) or name in (*ACLS, CAPABILITY)]
    xattrs = {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in kept}
    device = (os.major(status.st_rdev), os.minor(status.st_rdev))
    return More(xattrs, status.st_blocks * 512, device)


def sha256(path: bytes) -> str:
    """The SHA-256 of a regular file, in hexadecimal. Raises OSError."""
    total = hashlib.sha256()
    for piece in read_whole(path):
        total.update(piece)
    return total.hexdigest()


def scan(root: Path, hash_content: bool = True, known: Manifest | None = None, more: bool = False) -> Manifest:
    """List everything below C(root) without following a symbolic link.

    With C(hash_content) regular files get their SHA-256; a checksum in C(known) is taken over where size, times, device
    and inode are as they were. With C(more) entries have C(Entry.more), and our own files that we may not read are read
    all the same: for a tree of ours only. What cannot be read is listed in C(unreadable) and is not an error; a C(root) that
    cannot be listed raises OSError."""
    top = os.fsencode(root)
    entries: dict[bytes, Entry] = {}
    unreadable: dict[bytes, str] = {}
    first_name: dict[tuple[int, int], bytes] = {}
    many_names: dict[bytes, tuple[int, int]] = {}
    old = known.entries if known else {}
    pending = [b""]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(os.path.join(top, directory)) as listing:
                found = list(listing)
        except OSError as error:
            if not directory:
                raise
            unreadable[directory] = error.strerror or str(error)
            continue
        for item in found:
            path = os.path.join(directory, item.name)
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                # Deleted since it was listed: the tree has it no more.
                continue
            except OSError as error:
                unreadable[path] = error.strerror or str(error)
                continue
            kind = next((letter for test, letter in _KINDS if test(status.st_mode)), "?")
            entry = Entry(
                kind,
                status.st_size if kind == "f" else 0,
                stat.S_IMODE(status.st_mode),
                status.st_uid,
                status.st_gid,
                status.st_mtime_ns,
                signature=(status.st_dev, status.st_ino, status.st_ctime_ns),
            )
            full = os.path.join(top, path)
            if kind == "d":
                pending.append(path)
            try:
                if kind == "l":
                    entry = entry._replace(link=os.readlink(full))
                elif kind == "f" and hash_content:
                    before = old.get(path)
                    if before and before.sha256 and before._replace(sha256=None, same=b"", more=None) == entry:
                        entry = entry._replace(sha256=before.sha256)
                    else:
                        with _lent(full, entry.mode) if more else contextlib.nullcontext():
                            entry = entry._replace(sha256=sha256(full))
                if more:
                    with _lent(full, entry.mode) if kind == "f" else contextlib.nullcontext():
                        entry = entry._replace(more=_more(full, status))
            except FileNotFoundError:
                continue
            except OSError as error:
                unreadable[path] = error.strerror or str(error)
            entries[path] = entry
            if kind == "f" and status.st_nlink > 1:
                inode = (status.st_dev, status.st_ino)
                many_names[path] = inode
                first_name[inode] = min(path, first_name.get(inode, path))
    for path, inode in many_names.items():
        entries[path] = entries[path]._replace(same=first_name[inode])
    return Manifest(entries, unreadable)


def warm(root: Path, manifest: Manifest) -> None:
    """Read every regular file once, so that the page cache holds what fits; C(resident) tells what that was."""
    top = os.fsencode(root)
    for path, entry in manifest.entries.items():
        if entry.kind == "f":
            with contextlib.suppress(OSError):
                for _piece in read_whole(os.path.join(top, path)):
                    pass


def duplicate(source: Path, copy: Path) -> None:
    """Copy a tree on this host, with content, links, hard links, modes, owners and times to the nanosecond, to a place
    where nothing is. Raises OSError."""
    top, new = os.fsencode(source), os.fsencode(copy)
    manifest = scan(source, hash_content=False)
    os.mkdir(new, 0o700)
    for path in sorted(manifest.entries):
        entry, old, full = manifest.entries[path], os.path.join(top, path), os.path.join(new, path)
        if entry.kind == "d":
            os.mkdir(full, 0o700)
        elif entry.same and entry.same != path:
            os.link(os.path.join(new, entry.same), full, follow_symlinks=False)
        elif entry.kind == "f":
            shutil.copyfile(old, full, follow_symlinks=False)
        elif entry.kind == "l":
            os.symlink(entry.link, full)
        elif entry.kind == "p":
            os.mkfifo(full)
        if entry.kind in "lp":
            if os.geteuid() == 0:
                os.chown(full, entry.uid, entry.gid, follow_symlinks=False)
            os.utime(full, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
    settle(copy, manifest)
    top_status = os.lstat(top)
    os.chmod(new, stat.S_IMODE(top_status.st_mode))


def lay_out(root: Path, manifest: Manifest) -> None:
    """Make the directories and, empty, the regular files of C(manifest) below C(root), for nobody but us until
    C(settle); what an older version has in their place goes. Raises OSError."""
    top = os.fsencode(root)
    for path in sorted(manifest.entries):
        full = os.path.join(top, path)
        there = os.path.isdir(full) and not os.path.islink(full)
        if manifest.entries[path].kind == "d":
            if not there:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(full)
                os.mkdir(full, 0o700)
        else:
            if there:
                shutil.rmtree(full)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(full)
            os.close(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def settle(root: Path, manifest: Manifest) -> None:
    """Give the directories and regular files of C(manifest) that are below C(root) their mode, their time, as root
    their owner, and the extended attributes that the manifest has; the deepest first, since what is done in a directory
    changes its time. What is not there, or not ours, stays as it is. Raises OSError where the filesystem does not let
    us."""
    top = os.fsencode(root)
    for path in sorted(manifest.entries, reverse=True):
        entry, full = manifest.entries[path], os.path.join(top, path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            kind = next((letter for test, letter in _KINDS if test(os.lstat(full).st_mode)), "?")
            if kind != entry.kind or kind not in "df":
                continue
            if os.geteuid() == 0:
                # First: a change of owner takes set-id bits away.
                os.chown(full, entry.uid, entry.gid, follow_symlinks=False)
            for name, value in entry.more.xattrs.items() if entry.more else ():
                # What this filesystem or user cannot have is left out, as tar does. The mode may take the right away.
                with contextlib.suppress(OSError):
                    os.setxattr(full, name, bytes.fromhex(value), follow_symlinks=False)
            os.chmod(full, entry.mode)
            os.utime(full, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)


class Residency(NamedTuple):
    """How much of the content of a tree's regular files the page cache holds, in bytes; of C(unknown_bytes) the kernel
    does not tell us."""

    resident_bytes: int
    total_bytes: int
    unknown_bytes: int

    @property
    def share(self) -> float | None:
        """From 0 to 1; null where a part is not known, or where there is no content."""
        return None if self.unknown_bytes or not self.total_bytes else self.resident_bytes / self.total_bytes

    @property
    def state(self) -> str | None:
        """V(warm) from 99 % on, V(cold) up to 1 %, V(partly-warm) between them, whatever is true of what is not known;
        null where that decides, or where there is no content."""
        if not self.total_bytes:
            return None
        least = self.resident_bytes / self.total_bytes
        most = (self.resident_bytes + self.unknown_bytes) / self.total_bytes
        if least >= WARM_SHARE:
            return WARM
        if most <= COLD_SHARE:
            return COLD
        return PARTLY_WARM if least > COLD_SHARE and most < WARM_SHARE else None


def resident(root: Path, manifest: Manifest) -> Residency:
    """Ask the kernel what the page cache holds of every regular file, by mincore(2); nothing is read.

    Since Linux 5.2 only the owner, root and who may write a file are told the truth; others see every page as resident.
    A file of which we are none, or that cannot be opened, counts as unknown."""
    top = os.fsencode(root)
    found = total = unknown = 0
    for path, entry in manifest.entries.items():
        if entry.kind != "f":
            continue
        full = os.path.join(top, path)
        size, held = entry.size, None
        with contextlib.suppress(OSError):
            descriptor, told = _open_regular(full)
            try:
                size = os.fstat(descriptor).st_size
                # The kernel lets O_NOATIME and mincore be by the same test of the owner.
                if told or os.access(full, os.W_OK, effective_ids=True):
                    held = _resident_bytes(descriptor, size)
            finally:
                os.close(descriptor)
        total += size
        if held is None:
            unknown += size
        else:
            found += held
    return Residency(found, total, unknown)


_LIBC = ctypes.CDLL(None, use_errno=True)
# Where off_t has 32 bits there is another one with 64. mmap.mmap cannot be asked where it is.
_MMAP: Any = getattr(_LIBC, "mmap64", None) or _LIBC.mmap
_MMAP.restype = ctypes.c_void_p
_MMAP.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_int64]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value
#: A multiple of every page size.
_MAP_BYTES = 1 << 28
#: Only the lowest bit of what mincore says of a page has a meaning.
_LOWEST_BIT = bytes(number & 1 for number in range(256))


def _resident_bytes(descriptor: int, size: int) -> int:
    """How many of a file's bytes lie in pages that are in memory. Raises OSError."""
    found = 0
    for offset in range(0, size, _MAP_BYTES):
        length = min(_MAP_BYTES, size - offset)
        pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
        where = _MMAP(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)
        if where == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            if _LIBC.mincore(where, length, pages) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            _LIBC.munmap(where, length)
        in_memory = pages.raw.translate(_LOWEST_BIT)
        found += in_memory.count(1) * mmap.PAGESIZE
        if in_memory[-1]:
            # The last page is only partly the file's.
            found -= len(in_memory) * mmap.PAGESIZE - length
    return found


def symlink_loop(root: Path, manifest: Manifest) -> bytes | None:
    """A symbolic link by which whoever follows links walks in a circle: it leads to a directory above it, or to one from
    which another link leads back. Null where there is none; a circle through directories outside C(root) is not seen."""
    top = os.path.realpath(os.fsencode(root))
    leads: dict[bytes, bytes] = {}
    for path, entry in manifest.entries.items():
        if entry.kind == "l":
            end = os.path.realpath(os.path.join(top, path))
            if os.path.isdir(end):
                leads[path] = os.path.join(end, b"")
    links = sorted(leads, key=lambda path: _holder(top, path))
    holders = [_holder(top, path) for path in links]

    def below(path: bytes) -> Iterator[bytes]:
        """The links that are met below where a link leads."""
        number = bisect.bisect_left(holders, leads[path])
        while number < len(links) and holders[number].startswith(leads[path]):
            yield links[number]
            number += 1

    done: set[bytes] = set()
    for first in links:
        if first in done:
            continue
        way, open_ends = [first], [below(first)]
        while way:
            found = next(open_ends[-1], None)
            if found is None:
                done.add(way.pop())
                open_ends.pop()
            elif found in way:
                return found
            elif found not in done:
                way.append(found)
                open_ends.append(below(found))
    return None


def _holder(top: bytes, path: bytes) -> bytes:
    """The directory that holds a name, with a slash behind it."""
    return os.path.join(top, os.path.dirname(path), b"")


_SAMPLE_PIECES = 64
_SAMPLE_BYTES = 1 << 16
_COMPRESSOR_LIMIT_S = 60.0


class Compressibility(NamedTuple):
    """How small content becomes: compressed size by size. V(1.0) does not compress at all. C(basis) is what compressed
    it, V(zstd -1) or V(zlib -1). Both are null where there is no content."""

    value: float | None
    basis: str | None


def _sample(root: Path, manifest: Manifest) -> bytes:
    """Up to 64 pieces of 64 KiB, at equal distances in all the content put together in byte order of the names; all of
    it where there is no more. Raises OSError."""
    top = os.fsencode(root)
    files = [(path, entry.size) for path, entry in sorted(manifest.entries.items()) if entry.kind == "f" and entry.size]
    total = sum(size for _path, size in files)
    pieces = [(total * number // _SAMPLE_PIECES, _SAMPLE_BYTES) for number in range(_SAMPLE_PIECES)]
    if total <= _SAMPLE_PIECES * _SAMPLE_BYTES:
        pieces = [(0, total)]
    sample = bytearray()
    begins = 0
    for path, size in files:
        while pieces and pieces[0][0] < begins + size:
            start, length = pieces.pop(0)
            here = min(length, begins + size - start)
            sample += _read_at(os.path.join(top, path), start - begins, here)
            if here < length:
                pieces.insert(0, (start + here, length - here))
        begins += size
    return bytes(sample)


def _read_at(path: bytes, offset: int, length: int) -> bytes:
    """As much of a regular file as there is at that place. Raises OSError."""
    descriptor, _owner = _open_regular(path)
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


def compressibility(root: Path, manifest: Manifest, zstd: str | None) -> Compressibility:
    """Compress a sample that is spread over the whole content with the program C(zstd) at level 1; where it is null or
    fails, with zlib at level 1. Raises OSError."""
    sample = _sample(root, manifest)
    if not sample:
        return Compressibility(None, None)
    size_after, basis = _zstd_bytes(zstd, sample), "zstd -1"
    if size_after is None:
        size_after, basis = len(zlib.compress(sample, 1)), "zlib -1"
    return Compressibility(round(size_after / len(sample), 4), basis)


def _zstd_bytes(zstd: str | None, sample: bytes) -> int | None:
    if zstd is None:
        return None
    try:
        done = subprocess.run(
            [zstd, "-1", "-c"],
            input=sample,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_COMPRESSOR_LIMIT_S,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return len(done.stdout) if done.returncode == 0 else None


class Comparison(NamedTuple):
    """C(mismatches): data that differs, as C(what: name), sorted by name; C(not_kept): how many names lost a kind of
    thing that is not data, or that the method is known not to keep."""

    mismatches: list[str]
    not_kept: dict[str, int]


#: Kinds of loss a method may declare, so that they are counted and do not make its copies corrupt.
SYMLINKS = "symlinks"
SPECIAL_FILES = "special_files"
HARDLINKS = "hardlinks"
MODE = "mode"
OWNER = "owner"
MTIME = "mtime"
#: Names of an older version that have vanished from the source.
DELETIONS = "deletions"
LOSSES = frozenset([SYMLINKS, SPECIAL_FILES, HARDLINKS, MODE, OWNER, MTIME, DELETIONS])


def compare(
    source: Manifest, target: Manifest, verify: str, declared: Iterable[str] = (), before: Manifest | None = None
) -> Comparison:
    """Compare a copy with what was copied.

    C(verify) is V(sha256) (names, kinds, sizes, checksums) or V(size-mtime) (names, kinds, sizes, and the time to the
    second unless the method declares not to keep it). C(declared) is a set of C(LOSSES). C(before) is what the target held
    before. Names that either side could
    not read differ: nothing is known of them."""
    may_lose: frozenset[str] = frozenset(declared)
    unknown = may_lose - LOSSES
    if unknown:
        raise ValueError("no such kind of loss: {}".format(", ".join(sorted(unknown))))
    mismatches: list[tuple[bytes, str]] = []
    not_kept: dict[str, int] = {}

    def lost(kind: str) -> None:
        not_kept[kind] = not_kept.get(kind, 0) + 1

    followed: set[bytes] = set()
    for path, entry in source.entries.items():
        copy = target.entries.get(path)
        if entry.kind == "l" and SYMLINKS in may_lose and (copy is None or copy.kind != "l"):
            # A method that follows links leaves a file or a whole tree in the link's place, or nothing.
            lost(SYMLINKS)
            followed.add(path)
        elif copy is None:
            if entry.kind in _SPECIAL and SPECIAL_FILES in may_lose:
                lost(SPECIAL_FILES)
            else:
                mismatches.append((path, "missing"))
        elif copy.kind != entry.kind:
            mismatches.append((path, f"kind {entry.kind} is {copy.kind}"))
        elif entry.kind == "f" and copy.size != entry.size:
            mismatches.append((path, f"size {entry.size} is {copy.size}"))
        elif entry.kind == "f" and verify == SHA256 and (copy.sha256 is None or entry.sha256 is None):
            mismatches.append((path, "unreadable"))
        elif entry.kind == "f" and verify == SHA256 and copy.sha256 != entry.sha256:
            mismatches.append((path, "content"))
        elif entry.kind == "l" and copy.link != entry.link:
            mismatches.append((path, "link"))
        else:
            late = entry.kind != "l" and copy.mtime_ns // 10**9 != entry.mtime_ns // 10**9
            if late and verify == SIZE_MTIME and entry.kind == "f" and MTIME not in may_lose:
                mismatches.append((path, "time"))
                continue
            if late:
                lost(MTIME)
            if entry.kind != "l" and copy.mode != entry.mode:
                lost(MODE)
            if (copy.uid, copy.gid) != (entry.uid, entry.gid):
                lost(OWNER)
            if copy.same != entry.same:
                lost(HARDLINKS)
    for path in target.entries:
        if path in source.entries or any(above in followed for above in _above(path)):
            continue
        if DELETIONS in may_lose and before is not None and path in before.entries:
            lost(DELETIONS)
        else:
            mismatches.append((path, "extra"))
    named = {path for path, _what in mismatches}
    unreadable = set(source.unreadable) | set(target.unreadable)
    mismatches.extend((path, "unreadable") for path in unreadable - named)
    return Comparison([f"{what}: {escape(path)}" for path, what in sorted(mismatches)], not_kept)


def _above(path: bytes) -> Iterator[bytes]:
    """The directories that C(path) is in, nearest first."""
    while b"/" in path:
        path = path[: path.rindex(b"/")]
        yield path


def quick_match(source: Manifest, digest: str, meta_digest: str) -> bool:
    """Whether the digests of a copy show at once that nothing at all differs."""
    return not source.unreadable and source.digest == digest and source.meta_digest == meta_digest
