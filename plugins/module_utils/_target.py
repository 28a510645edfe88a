# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import importlib.util
import json
import queue
import re
import shlex
import subprocess
import tempfile
import threading
import time
import zlib
from typing import Any, Iterable, Mapping, NamedTuple

from ansible_collections.linkops.bulkcopy.plugins.module_utils import (
    _agent,
    _counters,
    _fingerprint,
    _pipeline,
    _record,
    _tree,
)

#: What the agent is made of, in the order in which one imports the other.
_AGENT_PARTS = (_record, _pipeline, _counters, _tree, _fingerprint, _agent)

CONNECT_TIMEOUT_S = 10

#: From the start of ssh to the agent's greeting: slow logins (reverse DNS, GSSAPI) take up to half a minute.
_LOGIN_LIMIT_S = 60.0

#: For answers that need no work worth mentioning.
_ANSWER_LIMIT_S = 60.0

#: For answers that read or delete a whole tree; the agent's heartbeat notices a dead network long before.
WORK_LIMIT_S = 24 * 3600.0

#: How long a session may take to end before it is made to.
_CLOSE_LIMIT_S = 3.0

#: Bytes of a login shell's noise that a message shows.
_NOISE_SHOWN_BYTES = 60

# Read with -c: python3 - would take the requests for program text. The version is tested before anything newer is parsed.
_BOOTSTRAP = (
    "import sys\n"
    "if sys.version_info < (3, 8): sys.exit('python %d.%d is too old' % sys.version_info[:2])\n"
    "import zlib\n"
    "i = sys.stdin.buffer\n"
    "exec(compile(zlib.decompress(i.read(int(i.readline()))), 'bulkcopy-bootstrap', 'exec'))\n"
)


class Ended(Exception):
    """A run that cannot go on: its status (one of C(_record.STATUSES)) and one sentence for the person who started
    it."""

    def __init__(self, status: str, message: str, flags: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.flags = list(flags)


#: What one ssh connection has on its way at most: the window of OpenSSH's channels (CHAN_SES_WINDOW_DEFAULT, 64 packets
#: of 32 KiB).
SSH_WINDOW_BYTES = 2 << 20

#: Options of every method whose data goes through ssh.
SSH_OPTIONS: dict[str, dict[str, Any]] = {
    "ssh_compression": {"type": "bool", "default": False},
    "ssh_cipher": {"type": "str"},
    "ssh_mac": {"type": "str"},
}

#: Ciphers that authenticate by themselves, so that no MAC is used beside them (ssh_config(5), PROTOCOL.chacha20poly1305).
_AEAD = re.compile(r"(aes(128|256)-gcm|chacha20-poly1305)@openssh\.com$")


def ssh_label(params: Mapping[str, Any]) -> str:
    """C(ssh), with what a method's C(SSH_OPTIONS) make of it: C(ssh -C), C(ssh aes128-gcm), C(ssh aes128-ctr
    hmac-sha2-256). Names lose the domain that most have."""
    names = [params[key].replace("@openssh.com", "") for key in ("ssh_cipher", "ssh_mac") if params[key]]
    return " ".join(["ssh", *(["-C"] if params["ssh_compression"] else []), *names])


def ssh_mistake(params: Mapping[str, Any]) -> str | None:
    """What is wrong with a method's C(SSH_OPTIONS), in one sentence; null when nothing is, and where it has none."""
    cipher, mac = params.get("ssh_cipher"), params.get("ssh_mac")
    for name, value in (("ssh_cipher", cipher), ("ssh_mac", mac)):
        if value is not None and not re.match(r"[\w.@-]+$", value):
            return f"{name} {value!r} is not the name of one algorithm: ssh -Q {name[4:]} lists those that there are"
    if mac and (not cipher or _AEAD.match(cipher)):
        why = f"{cipher} authenticates by itself" if cipher else "the usual ciphers authenticate by themselves"
        return f"ssh_mac {mac} would not be used, since {why}: set ssh_cipher to one that needs a MAC, aes128-ctr for example"
    return None


def quote(word: str) -> str:
    """One word for a remote shell."""
    return shlex.quote(word)


#: What quotes do not protect in every login shell: csh reads C(!) and ends a line in them, fish takes a backslash off.
_UNSAFE_IN_QUOTES = re.compile(r"[!\\\n]")
_NEVER_SPECIAL = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 +,-./:=@_")


def remote_command(argv: list[str]) -> str:
    """What ssh is given to run C(argv) whatever the login shell is: fish, csh and old Bourne shells all agree on one
    quoted word, where it holds nothing that one of them reads in quotes too; then it is spelled out in octal.
    Everything that crosses a remote shell is quoted here and nowhere else."""
    command = "exec " + " ".join(quote(word) for word in argv)
    if _UNSAFE_IN_QUOTES.search(command):
        octal = "".join(
            chr(byte) if byte in _NEVER_SPECIAL else f"\\0{byte:03o}"
            for byte in command.encode("utf-8", "surrogateescape")
        )
        command = f'eval "$(printf %b "{octal}")"'
    return "exec /bin/sh -c " + quote(command)


class Ssh(NamedTuple):
    """How to log in to the target; what is null or empty is left to the user's ssh configuration."""

    address: str
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    options: tuple[str, ...] = ()
    compression: bool = False
    cipher: str | None = None
    mac: str | None = None

    def settings(self) -> list[str]:
        """Values for C(-o): a connection of its own, that asks nobody, and that carries what it is told to."""
        settings = [
            "BatchMode=yes",
            "RequestTTY=no",
            "ControlMaster=no",
            "ControlPath=none",
            "ClearAllForwardings=yes",
            "ForwardX11=no",
            "ForwardAgent=no",
            "PermitLocalCommand=no",
            "LogLevel=ERROR",
            f"ConnectTimeout={CONNECT_TIMEOUT_S}",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=4",
            "Compression=%s" % ("yes" if self.compression else "no"),
        ]
        if self.port is not None:
            settings.append(f"Port={self.port}")
        if self.user is not None:
            settings.append(f"User={self.user}")
        if self.identity_file is not None:
            settings += [f"IdentityFile={_ssh_word(self.identity_file)}", "IdentitiesOnly=yes"]
        if self.known_hosts is not None:
            settings.append(f"UserKnownHostsFile={_ssh_word(self.known_hosts)}")
        # ssh takes the first value it meets: a method's own come before the link's, and these before ours.
        own = [f"{key}={value}" for key, value in (("Ciphers", self.cipher), ("MACs", self.mac)) if value]
        return [*own, *self.options, *settings]

    def flags(self) -> list[str]:
        """C(settings) as arguments of ssh and of what takes its options."""
        return [word for setting in self.settings() for word in ("-o", setting)]

    def config(self) -> str:
        """C(settings) as a file for C(-F) of ssh and of what reads its files, with the user's and the host's behind them,
        which such a file would else put out of force."""
        # Not all that read such files know Key=value.
        settings = [re.sub(r"^\s*(\w+)\s*=?\s*", r"\1 ", setting) for setting in self.settings()]
        lines = ["Host *", *settings, "Include ~/.ssh/config", "Include /etc/ssh/ssh_config"]
        return "\n    ".join(lines) + "\n"

    def argv(self, program: str, remote: list[str]) -> list[str]:
        """The ssh command line that runs C(remote) on the target."""
        return [program, *self.flags(), "--", self.address, remote_command(remote)]

    def with_options(self, params: Mapping[str, Any]) -> Ssh:
        """The same login with what a method's C(SSH_OPTIONS) ask for, where it has them."""
        return self._replace(
            compression=bool(params.get("ssh_compression")),
            cipher=params.get("ssh_cipher"),
            mac=params.get("ssh_mac"),
        )

    @property
    def operand_host(self) -> str:
        """The address as it stands before C(:path): brackets round an IPv6 address, and only round one."""
        return f"[{self.address}]" if ":" in self.address else self.address


def _ssh_word(path: str) -> str:
    """A path as ssh_config(5) has it: C(%) starts a token, quotes keep spaces, and a quote is escaped in them."""
    path = path.replace("%", "%%")
    if not re.search(r"[\s'\"]", path):
        return path
    return '"{}"'.format(path.replace("\\", "\\\\").replace('"', '\\"'))


def ssh_failure(rc: int | None, stderr: str, ssh: Ssh, name: str) -> Ended:
    """What an ssh that did not get us a session has to say, as one sentence."""
    said = " ".join(stderr.split())
    where = "{} ({}{})".format(name, ssh.address, "" if ssh.port is None else f" port {ssh.port}")
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in stderr or "Host key verification failed" in stderr:
        known_hosts = ssh.known_hosts or "~/.ssh/known_hosts"
        scan = "ssh-keyscan {}{} >> {}".format(f"-p {ssh.port} " if ssh.port else "", ssh.address, known_hosts)
        if "HAS CHANGED" in stderr:
            entry = ssh.address if ssh.port in (None, 22) else f"'[{ssh.address}]:{ssh.port}'"
            return Ended(
                "failed",
                f"the host key of target {where} has changed since the source learned it: find out why; if it is right, "
                f"remove the old one with ssh-keygen -R {entry} -f {known_hosts} and add the new one with {scan}",
            )
        return Ended(
            "failed", f"the host key of target {where} is not known to the source: compare it and add it with {scan}"
        )
    if "Cannot execute command-line and remote command" in stderr:
        return Ended(
            "failed",
            f"the source's ssh configuration has a RemoteCommand for target {where}: add RemoteCommand=none to "
            "ssh_options",
        )
    if "Permission denied" in stderr or "Too many authentication failures" in stderr:
        return Ended(
            "failed",
            "target {} refuses the login of {}: the copy user on the source needs a key that it accepts "
            "(ssh_identity_file, ssh_user); ssh says: {}".format(
                where, "user " + ssh.user if ssh.user else "this user", said
            ),
        )
    network = ("refused", "timed out", "No route", "unreachable", "Could not resolve", "Connection closed", "reset by")
    if any(word in stderr for word in network):
        return Ended("unreachable", f"the source cannot reach target {where} by ssh: {said}")
    return Ended("failed", "ssh to target {} ended with {}: {}".format(where, rc, said or "no message"))


def _agent_program() -> bytes:
    """The agent's sources as one program: each part under its own name, so that they import each other as they do
    here. Compressed, since every run sends it: 100 kB would be nearly a second of a link of 1 Mbit/s."""
    parts = []
    for module in _AGENT_PARTS:
        # importlib's, not inspect's: inside Ansible's archive only the loader can read the sources.
        loader = importlib.util.find_spec(module.__name__).loader  # type: ignore[union-attr]
        parts.append((module.__name__, loader.get_source(module.__name__)))  # type: ignore[union-attr]
    text = (
        "import sys, types\n"
        "def load(name, source):\n"
        "    above, _dot, last = name.rpartition('.')\n"
        "    if above and above not in sys.modules: load(above, None)\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    if above: setattr(sys.modules[above], last, module)\n"
        "    if source is None: module.__path__ = []\n"
        "    else: exec(compile(source, name, 'exec'), module.__dict__)\n"
        f"for name, source in {parts!r}: load(name, source)\n"
        f"sys.modules[{_agent.__name__!r}].serve()\n"
    )
    program = zlib.compress(text.encode("utf-8"), 9)
    return b"%d\n%s" % (len(program), program)


class Target:
    """The far end of a run: one ssh session, kept for the whole run, with the agent in it. Requests raise C(Ended)."""

    def __init__(self, ssh: Ssh, ssh_program: str, python: str, name: str) -> None:
        self.ssh = ssh
        self.name = name
        #: What the login shell printed before anything was asked of it.
        self.noise = b""
        #: Seconds from the start of ssh to the agent's greeting.
        self.login_s = 0.0
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        self._closing = threading.Event()
        self._stderr = tempfile.TemporaryFile(prefix="bulkcopy-")
        argv = ssh.argv(ssh_program, [python, "-c", _BOOTSTRAP])
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=_pipeline.stage_environment(),
            start_new_session=True,
        )
        self._python = python
        for task in (self._read, self._beat):
            threading.Thread(target=task, daemon=True).start()

    def open(self) -> dict[str, Any]:
        """Start the agent and return its C(hello)."""
        # It is larger than a pipe, and a login that hangs reads nothing.
        threading.Thread(target=self._write, args=(_agent_program(),), daemon=True).start()
        deadline = time.monotonic() + _LOGIN_LIMIT_S
        while True:
            line = self._next_line(deadline)
            if line.rstrip(b"\n").endswith(_agent.GREETING.encode("ascii")):
                self.noise += line.rstrip(b"\n")[: -len(_agent.GREETING)]
                self.login_s = time.monotonic() - self._began
                return self.request("hello")
            self.noise += line

    @property
    def noise_shown(self) -> str:
        return _record.escape(self.noise[:_NOISE_SHOWN_BYTES])

    def request(self, name: str, limit_s: float = _ANSWER_LIMIT_S, **arguments: Any) -> dict[str, Any]:
        """Ask the agent for C(name) and return its answer."""
        self._write(json.dumps({"request": name, "arguments": arguments}).encode("ascii") + b"\n")
        line = self._next_line(time.monotonic() + limit_s)
        try:
            answer = json.loads(line.decode("ascii"))
        except ValueError:
            raise Ended(
                "failed",
                f"target {self.name} answered {name} with something else: {_record.escape(line[:200])}",
            ) from None
        if "refusal" in answer:
            raise Ended("failed", "target {} {}".format(self.name, answer["refusal"]))
        result: dict[str, Any] = answer["answer"]
        return result

    def round_trip_ms(self, times: int = 5) -> float:
        """The shortest of several round trips over this session, in milliseconds: the network's, with what ssh and
        Python at both ends take for a request that needs no work."""
        taken = []
        for _time in range(times):
            began = time.monotonic()
            self.request("ping")
            taken.append(time.monotonic() - began)
        return round(min(taken) * 1000, 3)

    def close(self) -> None:
        """End the session; the agent then ends whatever it still runs."""
        self._closing.set()
        # It ends by itself when its input closes, unless the network is dead; a writer then holds the lock until ssh is
        # gone.
        if self._lock.acquire(timeout=_CLOSE_LIMIT_S):
            with contextlib.suppress(OSError, ValueError):
                if self._process.stdin:
                    self._process.stdin.close()
            self._lock.release()
            ends = [None, self._process.terminate, self._process.kill]
        else:
            ends = [self._process.terminate, self._process.kill]
        for end in ends:
            if end is not None:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_LIMIT_S)
                break
        self._stderr.close()

    def _write(self, data: bytes) -> None:
        try:
            with self._lock:
                assert self._process.stdin is not None
                self._process.stdin.write(data)
                self._process.stdin.flush()
        except (OSError, ValueError):
            # The reason stands in what ssh says, which the reader gets.
            pass

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _beat(self) -> None:
        while not self._closing.wait(_agent.HEARTBEAT_S):
            self._write(b"{}\n")

    def _next_line(self, deadline: float) -> bytes:
        try:
            line = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise Ended("unreachable", f"target {self.name} does not answer") from None
        if line is None:
            raise self._lost()
        return line

    def _lost(self) -> Ended:
        rc: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            rc = self._process.wait(3.0)
        self._stderr.seek(0)
        stderr = _record.escape(self._stderr.read()[-_record.STDERR_TAIL_BYTES :])
        # What sh ends with when it cannot find, or cannot run, what it was asked to.
        if rc in (126, 127):
            return Ended(
                "failed",
                "target {} {} {}: install Python 3.8 or later there or set target_python".format(
                    self.name, "has no" if rc == 127 else "cannot run", self._python
                ),
            )
        if "is too old" in stderr:
            return Ended(
                "failed",
                f"target {self.name}: {stderr.strip().splitlines()[-1]}, 3.8 or later is needed; set target_python",
            )
        return ssh_failure(rc, stderr, self.ssh, self.name)
