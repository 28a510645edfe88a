# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A campaign's folder: the plan (C(campaign.json)), the rows (C(runs.jsonl)), the journal of its preparation.

Plain Python: knows nothing of Ansible. Rows are appended by several processes at once, and the controller may be
killed at any moment: a line is written whole or, at the very end of the file, torn.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CAMPAIGN = "campaign.json"
RUNS = "runs.jsonl"
SUMMARY = "summary.json"
JOURNAL = "prepare.jsonl"
LATEST = "latest"
#: Of C(campaign.json): 2 since plans have settings for blocks that are added.
SCHEMA = 2
SURROGATE = re.compile("[\ud800-\udfff]")

Row = dict[str, Any]


class ResultsError(ValueError):
    """A campaign's folder cannot be used: one sentence."""


def new_campaign_id(now: datetime | None = None) -> str:
    """Like C(20260131-142501-3f9c): UTC, and four random digits, since two campaigns may begin in one second."""
    moment = now or datetime.now(UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Makes a sentence of what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror}.") from None


def write_atomically(path: Path, text: str) -> None:
    """The file has the old content or the new, whenever the machine stops. Raises ResultsError."""
    with _writing(path):
        _replace(path, text)


def _replace(path: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def append_line(path: Path, data: Mapping[str, Any]) -> None:
    """Appends one JSON object as one line, under a lock, on disk when it returns. Raises ResultsError.

    A torn line left by a crash is first closed with a newline, so that it cannot swallow this one.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # a lone surrogate stands for a byte that was no UTF-8; it is kept as text that every later reader can write
    line = SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode("utf-8") + b"\n"
    with _writing(path):
        _append(path, line)


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end > 0 and os.pread(descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(descriptor, line) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[Row]:
    """The objects of a file of JSON lines, in order; what a crash tore is left out. No file is no line."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return list(_objects(content))


def _objects(content: bytes) -> Iterator[Row]:
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:  # UnicodeDecodeError is one too
            continue
        if isinstance(data, dict):
            yield data


class Campaign:
    """A campaign's folder on the controller."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, results: Path, campaign_id: str, content: Mapping[str, Any]) -> Campaign:
        """Makes C(results/<campaign_id>/) with its C(campaign.json) and points C(results/latest) to it."""
        path = results / campaign_id
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ResultsError(f"the campaign {campaign_id} exists already in {results}.") from None
        except OSError as error:
            raise ResultsError(
                f"cannot write results into {results} ({error.strerror}): set bulkcopy_results_dir to another folder."
            ) from None
        campaign = cls(path)
        campaign.save(content)
        campaign.point_latest()
        return campaign

    @classmethod
    def open(cls, results: Path, campaign_id: str) -> Campaign:
        """An earlier campaign by its id or C(latest)."""
        path = results / campaign_id
        if "/" in campaign_id or not (path / CAMPAIGN).is_file():
            known = sorted(p.parent.name for p in results.glob(f"*/{CAMPAIGN}") if p.parent.name != LATEST)
            there = f"there are {', '.join(known[-5:])}" if known else "there is none"
            raise ResultsError(f"there is no campaign {campaign_id} in {results}: {there}.")
        return cls(path.resolve())

    def point_latest(self) -> None:
        """Makes C(latest) a relative link to this campaign, in one step; a real file of that name is left alone."""
        link = self.path.parent / LATEST
        if link.exists() and not link.is_symlink():
            return
        temporary = self.path.parent / f".{LATEST}.{self.path.name}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self.path.name)
        temporary.replace(link)

    def load(self) -> dict[str, Any]:
        path = self.path / CAMPAIGN
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultsError(f"cannot read {path}: {error}.") from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else None
            raise ResultsError(
                f"{path} is of schema {found}, and this version of the collection reads {SCHEMA} only: use the version "
                "that made it, or begin a new campaign."
            )
        return data

    def summary(self) -> dict[str, Any]:
        """What C(summary.json) holds; empty where the campaign has none."""
        try:
            data = json.loads((self.path / SUMMARY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def save(self, content: Mapping[str, Any]) -> None:
        write_json(self.path / CAMPAIGN, content)

    def append_row(self, row: Mapping[str, Any]) -> None:
        append_line(self.path / RUNS, row)

    def rows(self) -> list[Row]:
        """One row for each run: the last ok one of a run that was repeated on resume, else its last."""
        latest: dict[str, Row] = {}
        for row in read_lines(self.path / RUNS):
            run_id = row.get("run_id")
            if not isinstance(run_id, str):
                continue
            if row.get("status") == "ok" or latest.get(run_id, {}).get("status") != "ok":
                latest[run_id] = row
        return list(latest.values())

    def finished(self) -> set[str]:
        """The run_ids that are recorded as ok: a resumed campaign does not run them again."""
        return {row["run_id"] for row in self.rows() if row.get("status") == "ok"}

    def note(self, step: str, key: str, outcome: Mapping[str, Any]) -> None:
        """Writes down how one step of the preparation ended for one host, tree or link."""
        append_line(self.path / JOURNAL, {"step": step, "key": key, **outcome})

    def journal(self) -> dict[tuple[str, str], Row]:
        """The last outcome of each (step, key)."""
        return {(str(row.get("step")), str(row.get("key"))): row for row in read_lines(self.path / JOURNAL)}

    def restart_journal(self, kept: Iterable[Mapping[str, Any]]) -> None:
        """Forgets how the steps of an earlier execution ended, less the lines to keep."""
        write_atomically(self.path / JOURNAL, "".join(json.dumps(row) + "\n" for row in kept))
