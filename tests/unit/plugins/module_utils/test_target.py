# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _agent, _counters, _target, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import (
    Ended,
    Ssh,
    Target,
    remote_command,
    ssh_failure,
)

from ..conftest import Programs

HARD_WORDS = [
    "plain",
    "two words",
    "it's",
    '"double"',
    "$HOME",
    "`id`",
    "back\\slash",
    "*",
    "-dash",
    "",
    "a;b|c&d",
    "\u00e9",
    # csh reads these in quotes too.
    "wow!",
    "two\nlines",
    # fish these.
    "two\\\\backslashes",
    "back\\'quote",
    "back\\",
    "100%d",
]


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "busybox", "fish", "csh", "zsh", "ksh"])
def test_words_cross_every_login_shell_unharmed(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *HARD_WORDS]
    start = [program, "sh"] if shell == "busybox" else [program]
    said = subprocess.run([*start, "-c", remote_command(show)], stdout=subprocess.PIPE, check=True).stdout
    assert json.loads(said) == HARD_WORDS


def test_a_bare_login_sets_only_what_must_be_so() -> None:
    assert Ssh("198.18.1.2").settings() == [
        "BatchMode=yes",
        "RequestTTY=no",
        "ControlMaster=no",
        "ControlPath=none",
        "ClearAllForwardings=yes",
        "ForwardX11=no",
        "ForwardAgent=no",
        "PermitLocalCommand=no",
        "LogLevel=ERROR",
        "ConnectTimeout=10",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=4",
        "Compression=no",
    ]


def test_a_full_login() -> None:
    ssh = Ssh("198.18.1.2", 2222, "copy", "/keys/a key", "/known hosts/100%", ("ProxyJump=hop",), True)
    settings = ssh.settings()
    assert settings[0] == "ProxyJump=hop"
    assert settings[-6:] == [
        "Compression=yes",
        "Port=2222",
        "User=copy",
        'IdentityFile="/keys/a key"',
        "IdentitiesOnly=yes",
        'UserKnownHostsFile="/known hosts/100%%"',
    ]
    assert ssh.argv("ssh", ["true"])[-3:] == ["--", "198.18.1.2", "exec /bin/sh -c 'exec true'"]


def test_ssh_itself_reads_the_settings_as_meant() -> None:
    program = shutil.which("ssh")
    if program is None:
        pytest.skip("no ssh here")
    link = Ssh("198.18.1.2", 2222, "copy", "/keys/a key", "/known hosts/list", ("Ciphers=aes256-ctr", "MACs=hmac-sha1"))
    ssh = link.with_options({"ssh_compression": True, "ssh_cipher": "aes128-gcm@openssh.com", "ssh_mac": None})
    said = subprocess.run(
        [program, *ssh.flags(), "-G", ssh.address], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    told = said.splitlines()
    for line in (
        "port 2222",
        "user copy",
        "identityfile /keys/a key",
        "userknownhostsfile /known hosts/list",
        "batchmode yes",
        "compression yes",
        "requesttty false",
        "identitiesonly yes",
        "ciphers aes128-gcm@openssh.com",
        "macs hmac-sha1",
        "forwardagent no",
        "controlmaster false",
    ):
        assert line in told


@pytest.mark.parametrize(
    ("address", "operand"),
    [("198.18.1.2", "198.18.1.2"), ("dc2-a", "dc2-a"), ("fd00::2", "[fd00::2]"), ("fe80::1%eth0", "[fe80::1%eth0]")],
)
def test_brackets_only_round_ipv6(address: str, operand: str) -> None:
    assert Ssh(address).operand_host == operand


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (
            "No ED25519 host key is known for a and you have requested strict checking.\nHost key verification failed.",
            "failed",
            "is not known",
        ),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "failed",
            "has changed",
        ),
        ("copy@a: Permission denied (publickey).", "failed", "refuses the login of user copy"),
        ("ssh: connect to host a port 22: Connection refused", "unreachable", "cannot reach"),
        ("ssh: connect to host a port 22: Connection timed out", "unreachable", "cannot reach"),
        ("ssh: Could not resolve hostname a: Name or service not known", "unreachable", "cannot reach"),
        ("kex_exchange_identification: Connection closed by remote host", "unreachable", "cannot reach"),
        ("", "failed", "no message"),
    ],
)
def test_what_ssh_says_becomes_one_sentence(said: str, status: str, words: str) -> None:
    ended = ssh_failure(255, said, Ssh("a", user="copy"), "dc2-a")
    assert ended.status == status
    assert words in ended.message
    assert "dc2-a" in ended.message
    assert "\n" not in ended.message


@pytest.fixture
def target(fake_ssh: str) -> Iterator[Target]:
    target = Target(Ssh("198.18.1.2"), fake_ssh, sys.executable, "dc2-a")
    yield target
    target.close()


def processes_of(mark: str) -> list[int]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (directory / "cmdline").read_bytes() and directory.name != str(os.getpid()):
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def test_the_agent_says_who_it_is(target: Target) -> None:
    hello = target.open()
    assert hello["hostname"] == socket.gethostname()
    assert hello["uid"] == os.geteuid()
    assert hello["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert target.noise == b""


def test_the_agent_is_small_enough_for_a_slow_link() -> None:
    """Every run sends it: in a third of a second over 1 Mbit/s, and in two round trips of a new connection (10 and 20
    segments of 1448 bytes)."""
    assert len(_target._agent_program()) < min(1e6 / 8 / 3, 30 * 1448)


def test_noise_of_the_login_shell_is_told_apart(fake_ssh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SSH_NOISE", "*** Welcome \u00e9")
    target = Target(Ssh("198.18.1.2"), fake_ssh, sys.executable, "dc2-a")
    try:
        assert target.open()["uid"] == os.geteuid()
        assert target.noise == "*** Welcome \u00e9\n".encode()
    finally:
        target.close()


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("python-none", "has no python-none: install Python 3.8"),
        ("/etc/passwd", "cannot run /etc/passwd: install Python 3.8"),
        ("/bin/false", "ssh to target dc2-a (198.18.1.2) ended with 1"),
    ],
)
def test_a_target_without_python_is_told_so(fake_ssh: str, python: str, words: str) -> None:
    target = Target(Ssh("198.18.1.2"), fake_ssh, python, "dc2-a")
    try:
        with pytest.raises(Ended) as raised:
            target.open()
        assert words in raised.value.message
    finally:
        target.close()


def test_the_agent_reads_a_tree_as_we_do(target: Target, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    with open(os.path.join(os.fsencode(root), b"latin1_\xe9"), "wb") as stream:
        stream.write(b"content")
    target.open()
    here = _tree.scan(root)
    summary = target.request("scan", tree=str(root), hash_content=True)
    assert (summary["digest"], summary["meta_digest"]) == (here.digest, here.meta_digest)
    assert _tree.unpack(target.request("manifest_rows")["packed"]).entries == here.entries


def test_a_refusal_is_a_sentence_with_the_host(target: Target, tmp_path: Path) -> None:
    target.open()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(Ended) as raised:
        target.request("examine", dest=str(tmp_path / "full"), scratch=False, token=None)
    assert raised.value.message == (
        f"target dc2-a has a destination {tmp_path}/full that is not empty: choose an empty or absent directory"
    )
    assert target.request("hello")["uid"] == os.geteuid()


def test_nothing_is_deleted_without_our_marker(target: Target, tmp_path: Path) -> None:
    target.open()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "precious").touch()
    for request, arguments in (("examine", {"scratch": True, "token": None}), ("remove", {})):
        with pytest.raises(Ended, match="marker"):
            target.request(request, dest=str(tmp_path), **arguments)
    assert (tmp_path / "tree" / "precious").exists()
    (tmp_path / _agent.MARKER).write_text(json.dumps({"token": "one"}))
    with pytest.raises(Ended, match="another token"):
        target.request("examine", dest=str(tmp_path), scratch=True, token="two")
    target.request("examine", dest=str(tmp_path), scratch=True, token="one")
    target.request("remove", dest=str(tmp_path))
    assert not (tmp_path / "tree").exists()
    assert (tmp_path / _agent.MARKER).exists()


def test_a_tree_that_forbids_its_own_deletion_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "tree" / "closed" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "closed" / "deep" / "file").touch()
    (tmp_path / "tree" / "closed" / "deep").chmod(0)
    (tmp_path / "tree" / "closed").chmod(0o500)
    _agent.remove_tree(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()


LISTENER = """
import socket, sys
bound = socket.create_server((sys.argv[1], int(sys.argv[2])))
connection = bound.accept()[0]
sys.stdout.buffer.write(connection.makefile("rb").read())
"""


def test_a_receiver_is_started_awaited_and_counted(target: Target, tmp_path: Path) -> None:
    target.open()
    out = tmp_path / "out"
    (port,) = target.request("free_ports", address="127.0.0.1", count=1)["ports"]
    stages = [[sys.executable, "-c", LISTENER, "127.0.0.1", str(port)], ["sh", "-c", f"cat > {out}"]]
    target.request("start", streams=[{"stages": stages, "port": port}], address="127.0.0.1")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"x" * 70000)
    answer = target.request("wait", timeout_s=10.0)
    assert answer["finished"]
    assert [stage["rc"] for stage in answer["stages"]] == [0, 0]
    assert answer["stages"][0]["stdout_bytes"] in (70000, None)
    assert 0 <= answer["ended_ago_s"] < 10
    assert out.read_bytes() == b"x" * 70000


def test_a_listener_elsewhere_is_refused_and_ended(target: Target) -> None:
    target.open()
    (port,) = target.request("free_ports", address="127.0.0.1", count=1)["ports"]
    stages = [[sys.executable, "-c", LISTENER, "0.0.0.0", str(port)]]
    with pytest.raises(Ended, match="instead of on"):
        target.request("start", streams=[{"stages": stages, "port": port}], address="127.0.0.1")
    assert processes_of(f"0.0.0.0\0{port}") == []


def test_what_the_agent_started_ends_with_the_channel(target: Target) -> None:
    target.open()
    (port,) = target.request("free_ports", address="127.0.0.1", count=1)["ports"]
    stages = [[sys.executable, "-c", LISTENER, "127.0.0.1", str(port)]]
    target.request("start", streams=[{"stages": stages, "port": port}], address="127.0.0.1")
    assert len(processes_of(f"127.0.0.1\0{port}")) == 1
    target.close()
    deadline = time.monotonic() + 10
    while processes_of(f"127.0.0.1\0{port}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes_of(f"127.0.0.1\0{port}") == []


def test_a_silent_channel_is_given_up(fake_ssh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network gives no end of file: the agent notices that nothing is said any more."""
    monkeypatch.setattr(_agent, "HEARTBEAT_S", 0.2)
    code = (
        "from ansible_collections.linkops.bulkcopy.plugins.module_utils import _agent\n"
        "_agent.HEARTBEAT_S, _agent.SILENCE_LIMIT_S = 0.1, 0.3\n"
        "_agent.serve()\n"
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"linkops.bulkcopy agent\n"
    assert process.wait(10) == 0
    process.stdin.close()
    process.stdout.close()


def test_the_agent_starts_whatever_the_login_shell(fake_ssh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in filter(None, map(shutil.which, ("csh", "fish", "dash"))):
        monkeypatch.setenv("FAKE_SSH_SHELL", shell)
        started = Target(Ssh("127.0.0.1"), fake_ssh, sys.executable, "dc2-a")
        try:
            assert started.open()["uid"] == os.geteuid()
        finally:
            started.close()


@pytest.mark.parametrize("name", ["a key", "it's", 'q"q', "back\\slash", "per%h", "both ' and \" \\ x", "#1"])
def test_ssh_itself_reads_odd_paths_as_meant(name: str) -> None:
    program = shutil.which("ssh")
    if program is None:
        pytest.skip("no ssh here")
    flags = Ssh("198.18.1.2", identity_file=f"/keys/{name}", known_hosts=f"/hosts/{name}").flags()
    said = subprocess.run([program, *flags, "-G", "198.18.1.2"], stdout=subprocess.PIPE, text=True, check=True).stdout
    # It tells a key's path before tokens are replaced.
    assert f"identityfile /keys/{name}".replace("%", "%%") in said.splitlines()
    assert f"userknownhostsfile /hosts/{name}" in said.splitlines()


def test_a_login_that_hangs_is_given_up(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reads what is sent, and it does not fit into a pipe."""
    ssh = programs.add("ssh", "#!/bin/sh\nexec sleep 3000\n")
    monkeypatch.setattr(_target, "_LOGIN_LIMIT_S", 0.3)
    monkeypatch.setattr(_target, "_CLOSE_LIMIT_S", 0.3)
    hanging = Target(Ssh("127.0.0.1"), ssh, sys.executable, "dc2-a")
    start = time.monotonic()
    with pytest.raises(Ended) as ended:
        hanging.open()
    hanging.close()
    assert ended.value.status == "unreachable"
    assert time.monotonic() - start < 5
    assert hanging._process.returncode == -15


def test_a_proxy_that_is_missing_is_not_a_missing_python(fake_ssh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SSH_REFUSAL", "/bin/sh: 1: exec: hop: not found")
    refused = Target(Ssh("127.0.0.1"), fake_ssh, "python3", "dc2-a")
    with pytest.raises(Ended, match="hop: not found"):
        refused.open()
    refused.close()


def test_what_the_agent_started_ends_when_it_is_told_to(target: Target) -> None:
    target.open()
    (port,) = target.request("free_ports", address="127.0.0.1", count=1)["ports"]
    # Out of reach of an end of input: nobody connects.
    stages = [[sys.executable, "-c", LISTENER, "127.0.0.1", str(port)]]
    target.request("start", streams=[{"stages": stages, "port": port}], address="127.0.0.1")
    (listener,) = processes_of(f"127.0.0.1\0{port}")
    agent = int(Path(f"/proc/{listener}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGTERM)
    deadline = time.monotonic() + 10
    while processes_of(f"127.0.0.1\0{port}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes_of(f"127.0.0.1\0{port}") == []


def test_flushing_does_not_wait_for_the_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = threading.Event()

    class Slow:
        def finish(self) -> _counters.SessionsReading:
            assert flushed.wait(20.0)
            return _counters.SessionsReading(None, None, [])

    monkeypatch.setattr(_counters, "flush_filesystem", lambda _path: flushed.set())
    agent = _agent.Agent()
    agent.sessions = Slow()  # type: ignore[assignment]
    assert agent.finish(str(tmp_path))["flushed_ago_s"] >= 0
    assert agent.finish(None)["flushed_ago_s"] is None


def test_sessions_are_read_before_a_long_flush_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What logs in meanwhile is no session of the copy's time."""
    read = threading.Event()

    class Quick:
        def finish(self) -> _counters.SessionsReading:
            read.set()
            return _counters.SessionsReading(1.0, 2.0, [])

    def flush(_path: str) -> None:
        assert read.wait(20.0)

    monkeypatch.setattr(_counters, "flush_filesystem", flush)
    agent = _agent.Agent()
    agent.sessions = Quick()  # type: ignore[assignment]
    finished = agent.finish(str(tmp_path))
    assert finished["sessions"] == {"user_s": 1.0, "system_s": 2.0, "flags": []}
    assert finished["flushed_ago_s"] is not None


def test_a_read_only_filesystem_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _path: ReadOnly)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(_agent.Refusal, match="read-only"):
        _agent.Agent().examine(str(tmp_path / "copy"), False, None)


def test_a_private_file_is_ours_alone_and_goes_with_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_agent.tempfile, "tempdir", str(tmp_path))
    agent = _agent.Agent()
    paths = [Path(agent.private_file(name, f"{name} \udce9")["path"]) for name in ("one", "two")]
    assert [path.read_bytes() for path in paths] == [b"one \xe9", b"two \xe9"]
    assert {path.parent for path in paths} == {next(tmp_path.iterdir())}
    assert [oct(path.stat().st_mode & 0o777) for path in (*paths, paths[0].parent)] == ["0o600", "0o600", "0o700"]
    with pytest.raises(FileExistsError):
        agent.private_file("one", "again")
    agent.end_all()
    assert list(tmp_path.iterdir()) == []
