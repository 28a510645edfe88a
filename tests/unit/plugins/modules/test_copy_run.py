# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs of a copy module on one machine: ssh is stood in for, everything else is real."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _copy, _counters, _record, _target, _tree
from ansible_collections.linkops.bulkcopy.plugins.modules import link_info, rsync_daemon, tar_nc, tar_ssh, tree_info

from ..conftest import Programs
from .conftest import Run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    source = tmp_path / "source tree"
    (source / "sub").mkdir(parents=True)
    for number in range(3):
        (source / "sub" / f"file {number}").write_bytes(os.urandom(100_000))
    (source / "link").symlink_to("sub")
    with open(os.path.join(os.fsencode(source), b"latin1_\xe9"), "wb") as stream:
        stream.write(b"content")
    return source


@pytest.fixture
def options(fake_ssh: str, tree: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "src": str(tree),
        "dest": str(tmp_path / "the copy"),
        "address": "127.0.0.1",
        "target_python": sys.executable,
    }


@pytest.fixture
def scratch(tmp_path: Path, options: dict[str, Any]) -> dict[str, Any]:
    root = tmp_path / "scratch"
    root.mkdir()
    (root / ".linkops-bulkcopy").write_text(json.dumps({"token": "one"}))
    return dict(options, dest=str(root), scratch=True, scratch_token="one")


def same(left: Path, right: Path) -> bool:
    return subprocess.run(["diff", "-r", "--no-dereference", left, right], check=False).returncode == 0


def ours_left(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in text:
            found.append(text.decode(errors="replace"))
    return found


def test_a_copy_is_made_verified_and_measured(run_module: Run, options: dict[str, Any], tree: Path) -> None:
    result = run_module(tar_ssh, **options)
    record = result["record"]
    assert result["changed"] is True
    assert (record["status"], record["message"]) == ("ok", "")
    assert same(tree, Path(options["dest"]))
    assert result["ansible_facts"]["bulkcopy"] == record
    assert set(record) == set(_record.new_record())
    assert record["method"]["label"] == "tar|ssh"
    assert record["dataset"]["files"] == 4
    assert record["dataset"]["bytes"] == 3 * 100_000 + 7
    assert record["verified"] == {"method": "sha256", "files": 4, "mismatches": [], "not_kept": {}}
    assert [(stage["end"], stage["rc"]) for stage in record["stages"]] == [("source", 0), ("source", 0)]
    assert record["stages"][0]["argv"][1:] == ["-C", str(tree), "-cf", "-", "--", "."]
    assert record["setup_s"] == 0
    assert record["total_s"] == record["wall_s"] <= record["durable_s"]
    assert record["throughput_Bps"] == pytest.approx(300_007 / record["total_s"], rel=1e-3)
    assert record["cpu"]["source"]["basis"] == "rusage"
    assert record["measuring"]["module_s"] > 0
    assert set(record["method"]["versions"]) <= set(record["method"]["paths"]) == {"ssh", "tar", "target tar"}
    assert record["method"]["paths"]["tar"] == record["stages"][0]["argv"][0]
    assert record["measuring"]["agent_s"] > 0
    # There is no sshd here, so there is no figure, and the record says why.
    assert record["cpu"]["target"] is None
    assert "no-sshd-listener" in record["flags"]


@pytest.mark.parametrize("module", [tar_ssh, tar_nc])
def test_both_ends_count_what_crosses_the_wire(
    run_module: Run, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.1 50000 127.0.0.1 22")
    record = run_module(module, **options)["record"]
    wire = record["wire"]
    assert (wire["ends"]["source"]["device"], wire["ends"]["target"]["device"]) == ("lo", "lo")
    assert wire["basis"] == "both-devices"
    assert wire["tx_bytes"] <= min(wire["ends"]["source"]["tx_bytes"], wire["ends"]["target"]["rx_bytes"])
    assert wire["foreign_bytes"] == wire["ends"]["source"]["tx_bytes"] - wire["tx_bytes"]
    assert wire["rtt_ms"]["before"] > 0
    assert wire["rtt_ms"]["after"] > 0
    assert "one-end-counted" not in record["flags"]


def test_one_end_s_count_is_said_to_be_one(run_module: Run, options: dict[str, Any]) -> None:
    record = run_module(tar_ssh, **options)["record"]
    assert (record["wire"]["basis"], record["wire"]["foreign_bytes"]) == ("device", None)
    assert record["wire"]["ends"]["target"] is None
    assert "one-end-counted" in record["flags"]


def test_netcat_copies_too(run_module: Run, options: dict[str, Any], tree: Path) -> None:
    record = run_module(tar_nc, compression="gzip", **options)["record"]
    assert (record["status"], record["message"]) == ("ok", "")
    assert same(tree, Path(options["dest"]))
    assert [(stage["end"], stage["rc"]) for stage in record["stages"]] == [("target", 0)] * 3 + [("source", 0)] * 3
    assert record["cpu"]["target"]["basis"] == "agent-children"
    assert record["setup_s"] > 0
    assert record["total_s"] == pytest.approx(record["setup_s"] + record["wall_s"], abs=1e-6)
    assert record["method"]["encrypted"] is False


def names_everywhere(tree: Path) -> None:
    """Names of every kind in directories that several streams write to, with modes and times of their own."""
    for number in range(40):
        directory = tree / f"d {number % 5}" / "deep"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"-file\n{number}").write_bytes(os.urandom(number * 100))
    os.link(tree / "d 0" / "deep" / "-file\n0", tree / "d 4" / "other name")
    (tree / "d 1" / "empty").mkdir(mode=0o700)
    (tree / "back\\nslash").write_text("no newline")
    (tree / "cut in two").write_bytes(os.urandom(9_000_001))
    (tree / "cut in two").chmod(0o4750)
    os.utime(tree / "cut in two", ns=(0, 1_600_000_000_123_456_789))
    (tree / "d 2").chmod(0o2555)
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            os.utime(path, ns=(0, 1_500_000_000_000_000_000))


@pytest.mark.parametrize(
    ("module", "more"),
    [
        (tar_ssh, {}),
        (tar_ssh, {"compression": "gzip"}),
        (tar_nc, {}),
        (tar_nc, {"compression": "gzip"}),
    ],
)
def test_streams_make_one_whole_copy(
    run_module: Run,
    options: dict[str, Any],
    tree: Path,
    module: ModuleType,
    more: dict[str, Any],
) -> None:
    names_everywhere(tree)
    record = run_module(module, streams=3, **more, **options)["record"]
    assert (record["status"], record["message"]) == ("ok", "")
    # Times, modes and owners of directories and of the file that was cut are among what is compared.
    assert record["verified"]["not_kept"] == {}
    assert record["method"]["streams"] == 3
    assert {stage["stream"] for stage in record["stages"]} == {0, 1, 2}
    assert not any(stage["rc"] for stage in record["stages"])
    assert record["setup_s"] > 0
    copy = Path(options["dest"])
    assert (copy / "cut in two").read_bytes() == (tree / "cut in two").read_bytes()
    assert (copy / "d 2").stat().st_mode & 0o7777 == 0o2555
    assert (copy / "d 2").stat().st_mtime_ns == 1_500_000_000_000_000_000
    pieces = any("skip=" in word for stage in record["stages"] for word in stage["argv"])
    assert pieces is (module is tar_nc or (module is tar_ssh and not more))


def test_one_failed_stream_fails_the_run_and_ends_the_others(
    run_module: Run, options: dict[str, Any], programs: Programs, tree: Path
) -> None:
    names_everywhere(tree)
    # The second stream's archive fails; the others' would take for ever.
    programs.add(
        "tar",
        '#!/bin/sh\ncase "$*" in *--version*) exec /bin/tar "$@";; *part-1*) echo disk on fire >&2; exit 9;; '
        '*-cf*) exec sleep 1000;; esac\nexec /bin/tar "$@"\n',
    )
    # What is compressed is not cut into pieces, so that tar is a stage of its own.
    result = run_module(tar_ssh, streams=3, compression="gzip", **options)
    assert result["record"]["status"] == "failed"
    assert result["msg"] == f"tar on source {os.uname().nodename} ended with 9: disk on fire"
    ended = {(stage["stream"], stage["rc"]) for stage in result["record"]["stages"]}
    assert (1, 9) in ended and {(0, 143), (2, 143)} <= ended
    assert ours_left("sleep\x001000") == []


def test_a_receiver_that_fails_among_several_is_the_one_to_blame(
    run_module: Run, options: dict[str, Any], programs: Programs, tree: Path
) -> None:
    names_everywhere(tree)
    (tree / "cut in two").unlink()
    programs.add(
        "tar", '#!/bin/sh\ncase "$*" in *--version*|*-cf*) exec /bin/tar "$@";; esac\necho no space >&2; exit 2\n'
    )
    result = run_module(tar_nc, streams=3, **options)
    assert result["msg"] == "tar on target 127.0.0.1 ended with 2: no space"


def test_a_login_that_sshd_dropped_says_so(
    run_module: Run, options: dict[str, Any], programs: Programs, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_everywhere(tree)
    real = Path(shutil.which("ssh") or "").read_text()
    dropped = (
        'case "$*" in *-xpf*) echo "kex_exchange_identification: Connection closed by remote host" >&2; exit 255;; esac'
    )
    programs.add("ssh", real.replace("compression=none\n", f"{dropped}\ncompression=none\n"))
    result = run_module(tar_ssh, streams=3, **options)
    assert "choose fewer than 3 streams, or raise MaxStartups" in result["msg"]
    assert "login-dropped" in result["record"]["flags"]


def test_streams_need_a_tar_that_reads_lists(run_module: Run, options: dict[str, Any], programs: Programs) -> None:
    programs.add("tar", '#!/bin/sh\necho "tar (busybox) 1.35.0"\n')
    result = run_module(tar_ssh, streams=2, **options)
    assert result["record"]["status"] == "unsupported"
    assert "is not GNU tar" in result["msg"]


def test_check_mode_shows_every_stream(run_module: Run, options: dict[str, Any], tree: Path) -> None:
    names_everywhere(tree)
    record = run_module(tar_nc, check_mode=True, streams=2, **options)["record"]
    assert [(stage["end"], stage["stream"]) for stage in record["stages"]] == [
        (end, stream) for end in ("target", "source") for stream in (0, 0, 1, 1)
    ]
    assert record["method"]["label"] == "tar|nc x2"


def test_an_rsync_daemon_lives_as_long_as_the_copy(
    run_module: Run, options: dict[str, Any], tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.1 50000 127.0.0.1 22")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(_copy.tempfile, "tempdir", None)
    if shutil.which("rsync") is None:
        pytest.skip("no rsync here")
    result = run_module(rsync_daemon, **options)
    record = result["record"]
    assert (record["status"], record["message"]) == ("ok", "")
    assert same(tree, Path(options["dest"]))
    daemon, client = record["stages"]
    assert (daemon["end"], os.path.basename(daemon["argv"][0]), daemon["argv"][1]) == ("target", "rsync", "--daemon")
    assert (client["end"], client["rc"]) == ("source", 0)
    assert record["cpu"]["target"]["basis"] == "agent-children"
    assert record["method"]["encrypted"] is False
    assert "stream-not-counted" not in record["flags"]
    # Nothing is left: no daemon, and neither its configuration nor the secret.
    assert ours_left(daemon["argv"][3]) == []
    assert not list(tmp_path.glob("bulkcopy-*"))


def test_another_client_is_not_let_in(
    run_module: Run, options: dict[str, Any], programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is at 127.0.0.1, and the target took it for another one."""
    rsync = shutil.which("rsync")
    if rsync is None:
        pytest.skip("no rsync here")
    monkeypatch.setenv("SSH_CONNECTION", "198.18.1.1 50000 127.0.0.1 22")
    result = run_module(rsync_daemon, **options)
    assert result["record"]["status"] == "failed"
    # To a stranger it does not even say that there is anything.
    assert "@ERROR: Unknown module 'copy'" in result["msg"]
    # Nor is who comes from there with another secret.
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.1 50000 127.0.0.1 22")
    programs.add(
        "rsync",
        f'#!/bin/sh\ncase "$*" in *--password-file*) RSYNC_PASSWORD=x; export RSYNC_PASSWORD\n'
        f'for word; do shift; case "$word" in --password-file*) ;; *) set -- "$@" "$word";; esac; done;; esac\n'
        f'exec {rsync} "$@"\n',
    )
    result = run_module(rsync_daemon, **dict(options, dest=options["dest"] + "2"))
    assert result["record"]["status"] == "failed"
    assert "auth failed on module copy" in result["msg"]


@pytest.mark.parametrize(
    ("changes", "programs_needed", "stages"),
    [
        ({"transport": "socat"}, ["socat"], ["socat", "tar", "tar", "socat"]),
        (
            {"transport": "socat", "buffer": "1M", "compression": "gzip"},
            ["socat", "mbuffer"],
            ["socat", "mbuffer", "gzip", "tar", "tar", "gzip", "mbuffer", "socat"],
        ),
    ],
)
def test_socat_and_mbuffer_count_every_byte(
    run_module: Run,
    options: dict[str, Any],
    tree: Path,
    changes: dict[str, Any],
    programs_needed: list[str],
    stages: list[str],
) -> None:
    if not all(map(shutil.which, programs_needed)):
        pytest.skip(f"no {programs_needed} here")
    record = run_module(tar_nc, **options, **changes)["record"]
    assert (record["status"], record["message"]) == ("ok", "")
    assert same(tree, Path(options["dest"]))
    assert [os.path.basename(stage["argv"][0]) for stage in record["stages"]] == stages
    assert not {"stream-not-counted", "truncated"} & set(record["flags"])


@pytest.mark.parametrize("module", [tar_ssh, tar_nc])
def test_a_backslash_in_a_path_is_a_backslash(
    run_module: Run, options: dict[str, Any], tree: Path, tmp_path: Path, module: Any
) -> None:
    """GNU tar reads escapes in the argument of -C."""
    source = tree.rename(tmp_path / "new\\next \\\\ tree")
    dest = tmp_path / "copy\\\\of\\tree"
    assert run_module(module, **dict(options, src=str(source), dest=str(dest)))["record"]["status"] == "ok"
    assert same(source, dest)


def test_a_measured_copy_is_deleted_after_it_was_verified(
    run_module: Run, scratch: dict[str, Any], tmp_path: Path
) -> None:
    for _twice in range(2):
        record = run_module(tar_ssh, **scratch)["record"]
        assert record["status"] == "ok"
        assert record["verified"]["files"] == 4
        assert os.listdir(tmp_path / "scratch") == [".linkops-bulkcopy"]


@pytest.mark.parametrize("module", [tar_ssh, tar_nc])
def test_check_mode_tells_the_commands_and_changes_nothing(
    run_module: Run, options: dict[str, Any], tmp_path: Path, module: Any
) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = run_module(module, check_mode=True, **options)
    assert result["changed"] is True
    assert "ansible_facts" not in result
    assert result["record"]["status"] == "planned"
    assert result["record"]["stages"][-1]["argv"][0].endswith(("ssh", "nc"))
    assert sorted(tmp_path.rglob("*")) == before


FAKE_TAR = """#!/bin/sh
case "$*" in *-xpf*) {body};; esac
exec /bin/tar "$@"
"""


@pytest.mark.parametrize(
    ("body", "first"),
    [
        # A stream cut after its first members: tar itself is content.
        (
            'cat >"$2.all"; head -c 103000 "$2.all" | /bin/tar "$@" 2>/dev/null; rm "$2.all"; exit 0',
            "missing: ",
        ),
        (
            '/bin/tar "$@"; tail -c +5001 "$2/sub/file 1" | head -c 1 | tr "\\000-\\377" "\\001-\\377\\000" | '
            'dd of="$2/sub/file 1" bs=1 seek=5000 conv=notrunc 2>/dev/null; exit 0',
            "content: sub/file 1",
        ),
        ('/bin/tar "$@"; rm "$2/sub/file 2"; exit 0', "missing: sub/file 2"),
        ('/bin/tar "$@"; touch "$2/more"; exit 0', "extra: more"),
        ('/bin/tar "$@"; truncate -s 99999 "$2/sub/file 0"; exit 0', "size 100000 is 99999: sub/file 0"),
        ("cat >/dev/null; exit 0", "missing: latin1_\\xe9"),
    ],
)
def test_a_planted_fault_is_a_corrupt_copy(
    run_module: Run, options: dict[str, Any], programs: Programs, body: str, first: str
) -> None:
    programs.add("tar", FAKE_TAR.format(body=body))
    result = run_module(tar_ssh, **options)
    assert result["failed"] is True
    assert result["record"]["status"] == "corrupt"
    assert any(line.startswith(first) for line in result["record"]["verified"]["mismatches"])
    assert [stage["rc"] for stage in result["record"]["stages"]] == [0, 0]
    assert "differ" in result["msg"]


#: A netcat that passes on only the first 150000 of the bytes that it gets, and ends with 0.
# The real interpreter's path: that of a clone may hold a space, which ends the name in this line.
LOSSY_NETCAT = f"""#!{os.path.realpath(sys.executable)}
import os, socket, sys
words = sys.argv[1:]
if words == ["-h"]:
    print("OpenBSD netcat")
elif "-l" in words:
    bound = socket.create_server((words[-2], int(words[-1])))
    os.write(1, bound.accept()[0].makefile("rb").read()[:150000])
else:
    with socket.create_connection((words[-2], int(words[-1]))) as connection:
        connection.sendall(sys.stdin.buffer.read())
"""


@pytest.mark.parametrize(("memory_bytes", "reads"), [(300_007, 1), (300_006, 0), (None, 1)])
def test_a_tree_larger_than_memory_is_not_read_in_vain(
    run_module: Run, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, memory_bytes: int | None, reads: int
) -> None:
    """The tree has three files of 100 000 bytes and one of seven."""
    read: list[str] = []
    monkeypatch.setattr(_copy._fingerprint, "memory_bytes", lambda: memory_bytes)
    monkeypatch.setattr(_copy._tree, "warm", lambda root, manifest: read.append(root))
    assert run_module(tar_ssh, cache="warm", **options)["record"]["status"] == "ok"
    assert len(read) == reads


@pytest.mark.parametrize(("lost", "status"), [(None, "timeout"), ("gone", "unreachable")])
def test_a_copy_that_the_network_left_hanging_is_no_timeout_of_the_method(
    run_module: Run, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, lost: str | None, status: str
) -> None:
    run_stages = _copy.Run._run_stages

    def hanging(run: _copy.Run, *args: Any) -> _copy.Measured:
        ended = lost and _copy.Ended("unreachable", lost)
        return run_stages(run, *args)._replace(finished=False, lost=ended)

    monkeypatch.setattr(_copy.Run, "_run_stages", hanging)
    record = run_module(tar_ssh, **options)["record"]
    assert record["status"] == status
    assert ("does not answer" in record["message"]) is (lost is not None)


def test_lost_bytes_of_a_stream_are_noticed_though_all_exit_0(
    run_module: Run, options: dict[str, Any], programs: Programs
) -> None:
    """As some pairs of netcats do when the listener's input ends early."""
    programs.add("nc", LOSSY_NETCAT)
    programs.add("tar", FAKE_TAR.format(body='/bin/tar "$@" 2>/dev/null; exit 0'))
    for verify, rest in (("sha256", r"; \d names differ between .*"), ("none", "")):
        result = run_module(tar_nc, verify=verify, **dict(options, dest=f"{options['dest']} {verify}"))
        record = result["record"]
        assert [stage["rc"] for stage in record["stages"]] == [0, 0, 0, 0]
        assert record["status"] == "corrupt"
        said = r"every program ended with 0, but \d{6} of the stream's \d{6} bytes arrived" + rest
        assert re.fullmatch(said, result["msg"])
        assert "truncated" in record["flags"]


def test_what_a_stage_writes_elsewhere_does_not_make_a_whole_copy_corrupt(
    run_module: Run, options: dict[str, Any], programs: Programs, tree: Path, tmp_path: Path
) -> None:
    programs.add(
        "tar",
        f'#!/bin/sh\ncase "$*" in *-cf*) echo a line of a log >{tmp_path}/log;; esac\nexec /bin/tar "$@"\n',
    )
    record = run_module(tar_nc, **options)["record"]
    assert (record["status"], record["message"]) == ("ok", "")
    assert same(tree, Path(options["dest"]))
    assert "stream-not-counted" in record["flags"]
    assert "truncated" not in record["flags"]


def test_a_failed_stage_fails_the_run_with_its_own_words(
    run_module: Run, options: dict[str, Any], programs: Programs
) -> None:
    programs.add(
        "tar",
        '#!/bin/sh\ncase "$*" in *-cf*) /bin/tar "$@"; echo disk on fire >&2; exit 9;; esac\nexec /bin/tar "$@"\n',
    )
    result = run_module(tar_ssh, **options)
    assert result["failed"] is True
    assert result["record"]["status"] == "failed"
    assert result["msg"] == f"tar on source {os.uname().nodename} ended with 9: disk on fire"
    assert result["record"]["total_s"] > 0
    assert result["record"]["throughput_Bps"] is None
    assert [stage["rc"] for stage in result["record"]["stages"]] == [9, 0]


def test_a_receiver_s_failure_is_blamed_on_the_receiver(
    run_module: Run, options: dict[str, Any], programs: Programs
) -> None:
    programs.add("tar", FAKE_TAR.format(body="echo no space >&2; exit 2"))
    result = run_module(tar_nc, **options)
    assert result["record"]["status"] == "failed"
    assert result["msg"] == "tar on target 127.0.0.1 ended with 2: no space"


def test_a_source_s_failure_is_not_blamed_on_the_receiver_that_got_half(
    run_module: Run, options: dict[str, Any], programs: Programs
) -> None:
    programs.add(
        "tar", '#!/bin/sh\ncase "$*" in *-cf*) /bin/tar "$@" | head -c 5000; kill -9 $$;; esac\nexec /bin/tar "$@"\n'
    )
    result = run_module(tar_nc, **options)
    assert result["msg"] == f"tar on source {os.uname().nodename} was ended by SIGKILL: no message"
    assert [stage["rc"] for stage in result["record"]["stages"]] == [0, 2, 137, 0]


def test_what_ssh_started_is_on_the_target(run_module: Run, options: dict[str, Any], programs: Programs) -> None:
    programs.add("tar", FAKE_TAR.format(body="echo no luck >&2; exit 2"))
    result = run_module(tar_ssh, **options)
    assert result["msg"] == "what ssh started on target 127.0.0.1 ended with 2: no luck"


@pytest.mark.parametrize(
    ("left", "flag"), [((4096, 9), "no-space"), ((1 << 30, 0), "no-inodes"), ((1 << 30, None), None)]
)
def test_a_full_target_is_named_where_the_program_does_not(
    run_module: Run,
    options: dict[str, Any],
    programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
    left: tuple[int, int | None],
    flag: str | None,
) -> None:
    """scp over SFTP says "Failure"."""
    programs.add("tar", FAKE_TAR.format(body="echo Failure >&2; exit 1"))
    monkeypatch.setattr(_copy.Run, "_room_left", lambda _run: {"bytes": left[0], "inodes": left[1]})
    result = run_module(tar_ssh, **options)
    assert (f"left at {options['dest']}" in result["msg"]) == (flag is not None)
    assert set(result["record"]["flags"]) & {"no-space", "no-inodes"} == ({flag} if flag else set())


def test_a_lost_session_does_not_cost_what_was_measured(
    run_module: Run, options: dict[str, Any], programs: Programs
) -> None:
    # The receiving tar's parent is the agent.
    programs.add("tar", FAKE_TAR.format(body="cat >/dev/null; kill -9 $PPID; exit 0"))
    result = run_module(tar_nc, **options)
    record = result["record"]
    assert record["status"] == "failed"
    assert result["msg"].startswith("the session on target 127.0.0.1 was lost during the copy")
    assert [(stage["end"], stage["rc"]) for stage in record["stages"]] == [("source", 0), ("source", 0)]
    assert record["cpu"]["source"]["user_s"] >= 0
    assert (record["measuring"]["agent_s"], record["wire"]["rtt_ms"]["after"]) == (None, None)
    # When the receiver ended is not known.
    assert (record["wall_s"], record["total_s"], record["durable_s"], record["cpu"]["target"]) == (None,) * 4
    assert {"session-lost", "not-flushed"} <= set(record["flags"])


@pytest.mark.parametrize("module", [tar_ssh, tar_nc])
def test_a_hanging_copy_is_ended_at_both_ends(
    run_module: Run, options: dict[str, Any], programs: Programs, module: Any, tmp_path: Path
) -> None:
    mark = f"{os.getpid()}.25"
    programs.add("tar", FAKE_TAR.format(body=f"exec sleep 3000{mark}"))
    result = run_module(module, timeout_s=0.5, **options)
    record = result["record"]
    assert record["status"] == "timeout"
    assert "did not end within 0.5 s" in result["msg"]
    assert record["total_s"] >= 0.5
    assert record["durable_s"] is None
    assert ours_left(f"3000{mark}") == []
    assert ours_left(str(options["dest"])) == []


def test_a_source_that_changes_is_flagged(run_module: Run, options: dict[str, Any], programs: Programs) -> None:
    programs.add("tar", FAKE_TAR.format(body=f"/bin/tar \"$@\"; echo more >> '{options['src']}/late'; exit 0"))
    result = run_module(tar_ssh, **options)
    assert "source-changed" in result["record"]["flags"]
    assert result["record"]["status"] == "corrupt"


def test_what_was_not_verified_is_flagged(run_module: Run, options: dict[str, Any]) -> None:
    record = run_module(tar_ssh, verify="none", **options)["record"]
    assert record["status"] == "ok"
    assert "not-verified" in record["flags"]


@pytest.mark.parametrize("cache", ["warm", "as-is"])
def test_the_state_of_the_cache_is_recorded(run_module: Run, options: dict[str, Any], cache: str) -> None:
    record = run_module(tar_ssh, cache=cache, **options)["record"]
    # The tree has just been written.
    assert record["cache"] == {"requested": cache, "achieved": "warm", "resident": 1.0}


@pytest.mark.parametrize(
    ("cache", "seen", "achieved", "flags"),
    [
        ("warm", (99, 100, 0), "warm", set()),
        # Memory is too small for the tree.
        ("warm", (98, 100, 0), "partly-warm", {"cache-not-warm"}),
        ("warm", (0, 100, 100), None, {"cache-unknown"}),
        ("warm", (0, 0, 0), "warm", set()),
        ("cold", (1, 100, 0), "cold", set()),
        # The kernel was told to forget, and did not.
        ("cold", (2, 100, 0), "partly-warm", {"cache-not-cold"}),
        ("as-is", (0, 100, 0), "cold", set()),
        ("as-is", (50, 100, 0), "partly-warm", set()),
        ("as-is", (50, 100, 50), None, {"cache-unknown"}),
        ("as-is", (0, 0, 0), "as-is", set()),
    ],
)
def test_the_cache_is_what_the_kernel_says_and_not_what_was_asked_for(
    run_module: Run,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    cache: str,
    seen: tuple[int, int, int],
    achieved: str | None,
    flags: set[str],
) -> None:
    monkeypatch.setattr(_counters, "drop_page_cache", lambda _path: True)
    monkeypatch.setattr(_target.Target, "request", dropping(_target.Target.request))
    monkeypatch.setattr(_tree, "resident", lambda _root, _manifest: _tree.Residency(*seen))
    record = run_module(tar_ssh, cache=cache, **options)["record"]
    resident = None if seen[2] or not seen[1] else seen[0] / seen[1]
    assert record["cache"] == {"requested": cache, "achieved": achieved, "resident": resident}
    assert {flag for flag in record["flags"] if flag.startswith("cache-")} == flags


@pytest.mark.parametrize(("here", "there"), [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("seen", [(0, 0, 0), (1, 100, 0)])
def test_what_was_not_dropped_at_both_ends_is_not_cold(
    run_module: Run,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    seen: tuple[int, int, int],
    here: bool,
    there: bool,
) -> None:
    """Nor is an empty tree: what copies it was not forgotten."""
    monkeypatch.setattr(_counters, "drop_page_cache", lambda _path: here)
    monkeypatch.setattr(_target.Target, "request", dropping(_target.Target.request, there))
    monkeypatch.setattr(_tree, "resident", lambda _root, _manifest: _tree.Residency(*seen))
    record = run_module(tar_ssh, cache="cold", **options)["record"]
    assert record["cache"]["achieved"] is None
    assert "cache-not-cold" in record["flags"]


@pytest.mark.parametrize(("there", "shared"), [("same", True), ("other", False), (None, None)])
def test_whether_both_ends_share_a_kernel_may_be_unknown(
    run_module: Run, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, there: str | None, shared: bool | None
) -> None:
    request = _target.Target.request

    def answer(target: _target.Target, name: str, *more: Any, **arguments: Any) -> Any:
        told = request(target, name, *more, **arguments)
        return dict(told, boot_id=there) if name == "hello" and there != "same" else told

    monkeypatch.setattr(_target.Target, "request", answer)
    host_cpu = run_module(tar_ssh, **options)["record"]["host_cpu"]
    assert (host_cpu["source"]["shared"], host_cpu["target"]["shared"]) == (shared, shared)


def dropping(request: Any, dropped: bool = True) -> Any:
    """The agent's answers, without its making this machine forget everything."""

    def answer(target: _target.Target, name: str, *more: Any, **arguments: Any) -> Any:
        return {"dropped": dropped} if name == "drop_page_cache" else request(target, name, *more, **arguments)

    return answer


def test_a_saved_list_spares_reading_the_source(run_module: Run, options: dict[str, Any], tmp_path: Path) -> None:
    listed = run_module(tree_info, path=options["src"], manifest=str(tmp_path / "list"))
    assert listed["changed"] is True
    assert (listed["tree"]["files"], listed["tree"]["directories"], listed["tree"]["bytes"]) == (4, 1, 300_007)
    assert listed["tree"]["compressibility"] == pytest.approx(1.0, abs=0.01)
    assert listed["tree"]["compressibility_basis"] == ("zstd -1" if shutil.which("zstd") else "zlib -1")
    assert run_module(tree_info, path=options["src"], manifest=str(tmp_path / "list"))["changed"] is False
    record = run_module(tar_ssh, manifest=str(tmp_path / "list"), **options)["record"]
    assert record["dataset"]["digest"] == listed["tree"]["digest"]


class TestRefusals:
    """Bad input: one sentence that says what and where, and nothing is written."""

    def refused(self, run_module: Run, options: dict[str, Any], **changes: Any) -> str:
        result = run_module(tar_ssh, **{**options, **changes})
        assert result["failed"] is True
        assert result["record"]["stages"] == []
        assert result["record"]["total_s"] is None
        message: str = result["msg"]
        assert "\n" not in message
        return message

    def test_missing_source(self, run_module: Run, options: dict[str, Any]) -> None:
        assert "has no /no/such/tree" in self.refused(run_module, options, src="/no/such/tree")

    def test_source_is_a_file(self, run_module: Run, options: dict[str, Any]) -> None:
        assert "is not a directory" in self.refused(run_module, options, src="/etc/passwd")

    def test_relative_destination(self, run_module: Run, options: dict[str, Any]) -> None:
        assert "not an absolute path" in self.refused(run_module, options, dest="copy")

    def test_destination_in_use(self, run_module: Run, options: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "the copy").mkdir()
        (tmp_path / "the copy" / "precious").touch()
        assert "is not empty" in self.refused(run_module, options)
        assert (tmp_path / "the copy" / "precious").exists()

    def test_destination_in_the_source(self, run_module: Run, options: dict[str, Any], tree: Path) -> None:
        assert "lie in each other" in self.refused(run_module, options, dest=str(tree / "sub" / "copy"))
        assert not (tree / "sub" / "copy").exists()

    def test_source_in_the_destination(self, run_module: Run, options: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        assert "lie in each other" in self.refused(
            run_module, options, src=str(tmp_path / "empty"), dest=str(tmp_path / "empty")
        )

    def test_scratch_that_is_not_ours(self, run_module: Run, options: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "theirs").mkdir()
        assert "not ours" in self.refused(run_module, options, dest=str(tmp_path / "theirs"), scratch=True)

    def test_another_machine_s_scratch(self, run_module: Run, scratch: dict[str, Any]) -> None:
        assert "is not the machine" in self.refused(run_module, scratch, scratch_token="two")

    def test_no_room(
        self, run_module: Run, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tree: Path
    ) -> None:
        os.truncate(tree / "sub" / "file 0", 1 << 43)
        message = self.refused(run_module, options, verify="size-mtime")
        assert "free at" in message
        assert "8.8 TB" in message

    @pytest.mark.parametrize("timeout_s", [0, -1, "inf", "nan"])
    def test_no_time(self, run_module: Run, options: dict[str, Any], timeout_s: Any) -> None:
        assert "give seconds above 0" in run_module(tar_ssh, timeout_s=timeout_s, **options)["msg"]

    def test_an_address_that_only_the_source_knows(self, run_module: Run, options: dict[str, Any]) -> None:
        result = run_module(tar_nc, **dict(options, address="fe80::1%lo"))
        assert result["record"]["status"] == "unsupported"
        assert "has a zone" in result["msg"]

    def test_a_jump_host_leaves_what_listens_no_way(self, run_module: Run, options: dict[str, Any]) -> None:
        result = run_module(tar_nc, **dict(options, ssh_options=["ProxyJump=hop"]))
        assert result["record"]["status"] == "unsupported"
        assert "through hop (proxyjump), tar_nc cannot: there is no direct route" in result["msg"]

    def test_login_refused(self, run_module: Run, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE_SSH_REFUSAL", "copy@127.0.0.1: Permission denied (publickey).")
        assert "refuses the login" in self.refused(run_module, options)

    def test_unreachable(self, run_module: Run, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE_SSH_REFUSAL", "ssh: connect to host 127.0.0.1 port 22: Connection refused")
        result = run_module(tar_ssh, **options)
        assert result["record"]["status"] == "unreachable"


def test_link_info_measures_and_names(
    run_module: Run, scratch: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = {key: scratch[key] for key in ("address", "target_python", "scratch_token")}
    result = run_module(link_info, scratch_dir=scratch["dest"], **looked)
    assert result["link"]["device"] == "lo"
    assert result["link"]["connect_s"] > 0
    assert result["target"]["room"]["bytes"] > 0
    here, there = result["source"]["fingerprint"], result["target"]["fingerprint"]
    # Both ends are this machine, which only told the source a route and the target a directory.
    assert (here["nic"]["device"], here["filesystem"]["type"]) == ("lo", None)
    assert (there["nic"]["device"], there["filesystem"]["type"]) != (None, None)
    assert set(here) == set(there)
    assert (here["kernel"], here["cpu"], here["tcp"]) == (there["kernel"], there["cpu"], there["tcp"])
    with_data = run_module(link_info, data_dir=scratch["dest"], **looked)["source"]["fingerprint"]
    assert with_data["filesystem"] == there["filesystem"]
    assert result["flags"] == []
    monkeypatch.setenv("FAKE_SSH_NOISE", "hello")
    assert run_module(link_info, **looked)["flags"] == ["shell-not-clean"]
    refused = run_module(link_info, scratch_dir=scratch["dest"], **dict(looked, scratch_token="two"))
    assert refused["failed"] is True
    assert "is not the machine" in refused["msg"]


def test_what_ssh_negotiated_is_read() -> None:
    said = "debug1: kex: client->server cipher: chacha20-poly1305@openssh.com MAC: <implicit> compression: none\n"
    assert _copy.negotiated(said) == {
        "cipher": "chacha20-poly1305@openssh.com",
        "mac": "implicit",
        "compression": "none",
    }
    assert _copy.negotiated("nothing") == {"cipher": None, "mac": None, "compression": None}


AGREED = {"cipher": "aes256-ctr", "mac": "hmac-sha2-256", "compression": "none"}


def test_a_link_tells_what_other_ways_to_log_in_agree_on(run_module: Run, scratch: dict[str, Any]) -> None:
    looked = {key: scratch[key] for key in ("address", "target_python", "scratch_token")}
    asked = [{"ssh_options": ["Ciphers=x"]}, {"compression": True}, {"cipher": "aes128-cbc", "mac": "hmac-md5"}]
    result = run_module(link_info, ssh_variants=asked, **looked)
    assert result["ssh"] == AGREED
    plain = {"ssh_options": [], "compression": False, "cipher": None, "mac": None}
    assert result["ssh_variants"] == [
        {**plain, "ssh_options": ["Ciphers=x"], "negotiated": AGREED},
        {**plain, "compression": True, "negotiated": {**AGREED, "compression": "zlib@openssh.com"}},
        {**plain, **asked[2], "negotiated": dict.fromkeys(AGREED)},
    ]


@pytest.mark.parametrize(("compress", "compression"), [(False, "none"), (True, "zlib@openssh.com")])
def test_a_copy_of_its_own_tells_what_ssh_agreed_on(
    run_module: Run, options: dict[str, Any], compress: bool, compression: str
) -> None:
    record = run_module(tar_ssh, ssh_compression=compress, **options)["record"]
    assert record["method"]["ssh"] == {**AGREED, "compression": compression}


@pytest.mark.parametrize(
    ("cipher", "words"),
    [
        ("aes64", "has no cipher aes64: choose one that ssh -Q cipher lists there: aes128-ctr, aes128-cbc"),
        ("aes128-cbc", "refuses the cipher that is asked for: choose one that it offers: aes256-ctr, x"),
    ],
)
@pytest.mark.parametrize("measured", [False, True])
def test_a_cipher_that_an_end_does_not_have_is_unsupported(
    run_module: Run, options: dict[str, Any], scratch: dict[str, Any], cipher: str, words: str, measured: bool
) -> None:
    result = run_module(tar_ssh, ssh_cipher=cipher, **(scratch if measured else options))
    assert result["record"]["status"] == "unsupported"
    assert result["msg"].endswith(words)


IPERF = {"end": {"sum_sent": {"bits_per_second": 100e6}, "sum_received": {"bits_per_second": 96e6}}}


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        (json.dumps(IPERF), 12_000_000),
        (json.dumps(IPERF, indent=1) + "\niperf3: getsockopt - Protocol not available\n", 12_000_000),
        ('{"error": "unable to connect"}', None),
        ("iperf3: no such thing", None),
        ("", None),
    ],
)
def test_the_ceiling_is_what_iperf3_received(said: str, rate: int | None) -> None:
    assert link_info.received_Bps(said) == rate


def test_without_iperf3_the_ceiling_is_null_and_says_why(
    run_module: Run, scratch: dict[str, Any], programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = {key: scratch[key] for key in ("address", "target_python", "scratch_token")}
    monkeypatch.setattr(
        link_info._agent, "which", lambda names: {"ssh": str(programs.directory / "ssh"), "iperf3": None}
    )
    result = run_module(link_info, ceiling_s=1, **looked)
    assert (result["link"]["ceiling_Bps"], result["flags"]) == (None, ["no-iperf3"])
    assert result["link"]["streams_Bps"] == {"1": None, "4": None}


@pytest.mark.parametrize(
    ("round_trip_ms", "seconds"),
    [
        (0.2, 1),
        (60.0, 1),
        # A new connection sends 10 segments, and doubles them 14.7 times to the 375 MB that fill 10 Gbit/s.
        (300.0, math.ceil(0.3 * math.log2(10e9 / 8 * 0.3 / 14480))),
        (9000.0, 60),
    ],
)
def test_tcp_is_given_time_to_find_its_rate(round_trip_ms: float, seconds: int) -> None:
    assert link_info.slow_start_s(round_trip_ms) == seconds


def test_a_link_whose_address_the_target_does_not_have_has_no_ceiling_and_is_a_link(
    run_module: Run, scratch: dict[str, Any], programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router hands it on, which an ssh method does not notice."""
    programs.add("iperf3", "exit 0")
    monkeypatch.setattr(_counters, "tcp_round_trip_ms", lambda _address, _port: None)
    looked = {key: scratch[key] for key in ("target_python", "scratch_token")}
    result = run_module(link_info, ceiling_s=1, address="198.51.100.77", **looked)
    assert result["flags"] == ["ceiling-not-measured"]
    assert result["link"]["ceiling_Bps"] is None
    assert result["target"]["hostname"]


#: A server listens once; a client says 8 Mbit/s for each of its streams, or nothing.
FAKE_IPERF = f"""#!{os.path.realpath(sys.executable)}
import json, socket, sys
words = sys.argv[1:]
host, port = words[words.index("--bind" if "--server" in words else "--client") + 1], int(words[words.index("--port") + 1])
if "--server" in words:
    socket.create_server((host, port)).accept()
else:
    socket.create_connection((host, port)).close()
    streams = int(words[words.index("--parallel") + 1])
    if streams not in FAILING:
        print(json.dumps({{"end": {{"sum_received": {{"bits_per_second": 8e6 * streams}}}}}}))
"""


@pytest.mark.parametrize(
    ("failing", "ceiling", "rates", "flags"),
    [
        ((), 4_000_000, {"1": 1_000_000, "4": 4_000_000}, []),
        ((4,), 1_000_000, {"1": 1_000_000, "4": None}, ["streams-not-measured"]),
        ((1, 4), None, {"1": None, "4": None}, ["ceiling-not-measured"]),
    ],
)
def test_the_ceiling_is_the_largest_of_the_rates(
    run_module: Run,
    scratch: dict[str, Any],
    programs: Programs,
    failing: tuple[int, ...],
    ceiling: int | None,
    rates: dict[str, int | None],
    flags: list[str],
) -> None:
    programs.add("iperf3", FAKE_IPERF.replace("FAILING", repr(failing)))
    looked = {key: scratch[key] for key in ("address", "target_python", "scratch_token")}
    result = run_module(link_info, ceiling_s=1, **looked)
    assert (result["link"]["ceiling_Bps"], result["link"]["streams_Bps"]) == (ceiling, rates)
    assert result["flags"] == flags
