# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from typing import Any, Callable, Mapping, NamedTuple, NoReturn, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.linkops.bulkcopy.plugins.module_utils import (
    _agent,
    _counters,
    _dataset,
    _fidelity,
    _fingerprint,
    _record,
    _tree,
)
from ansible_collections.linkops.bulkcopy.plugins.module_utils._pipeline import (
    SIGPIPE_RC,
    Parallel,
    Pipeline,
    StageResult,
    adopt_orphans,
    ended_how,
    first_cause,
)
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import (
    CONNECT_TIMEOUT_S,
    WORK_LIMIT_S,
    Ended,
    Ssh,
    Target,
    ssh_mistake,
)

#: Options of every module that logs in to the target.
CONNECTION_OPTIONS: dict[str, dict[str, Any]] = {
    "address": {"type": "str", "required": True},
    "ssh_port": {"type": "int"},
    "ssh_user": {"type": "str"},
    "ssh_identity_file": {"type": "path"},
    "ssh_known_hosts": {"type": "path"},
    "ssh_options": {"type": "list", "elements": "str", "default": []},
    "target_python": {"type": "str", "default": "python3"},
    "source_name": {"type": "str"},
    "target_name": {"type": "str"},
    "scratch_token": {"type": "str", "no_log": False},
}

#: Options of every copy method.
COPY_OPTIONS: dict[str, dict[str, Any]] = dict(
    CONNECTION_OPTIONS,
    src={"type": "path", "required": True},
    dest={"type": "str", "required": True},
    scratch={"type": "bool", "default": False},
    label={"type": "str"},
    timeout_s={"type": "float", "default": 86400.0},
    verify={"type": "str", "choices": [_tree.SHA256, _tree.SIZE_MTIME, _tree.NONE], "default": _tree.SHA256},
    cache={"type": "str", "choices": ["as-is", "warm", "cold"], "default": "as-is"},
    manifest={"type": "path"},
    update={"type": "bool", "default": False},
    base={"type": "str"},
    fidelity={"type": "bool", "default": False},
    link_Bps={"type": "float"},
    link_stream_Bps={"type": "float"},
)

#: How long the far end may take to end after our end has failed.
_AFTER_FAILURE_S = 5.0

#: How long an answer may take beyond the work that it is about.
_PATIENCE_S = 30.0

#: The shortest time in which steady traffic between the two hosts can be told from none: 1 % of 10 MB/s are then 10 kB.
_QUIET_S = 0.1

#: sshd refuses from 10 logins on that have not said yet who they are (MaxStartups in sshd_config(5)); one is ours.
_LOGINS_AT_ONCE = 8

#: What ssh says when sshd closes a connection before anybody could log in.
_LOGIN_DROPPED = re.compile(
    "kex_exchange_identification|Exceeded MaxStartups|Not allowed at this time|Connection (closed|reset) by .* port"
)

#: A copy of which not all of the stream arrived.
_TRUNCATED = "truncated"

#: With less than this a filesystem is full.
_FULL_BYTES = 1 << 16


class Host:
    """One end of a copy as a method sees it: which programs it has, and what they say of themselves."""

    def __init__(
        self,
        end: str,
        name: str,
        which: Callable[[list[str]], dict[str, str | None]],
        ask: Callable[[list[str]], dict[str, Any]],
        version_option: Callable[[str], str | None],
        write: Callable[[str, str], str],
    ) -> None:
        self.end = end
        self._version_option = version_option
        self.name = name
        self._which = which
        self._ask = ask
        self._write = write
        self._found: dict[str, str | None] = {}
        self._used: dict[str, str] = {}
        self._written: list[str] = []
        self._is_root: bool | None = None

    def look_up(self, names: Sequence[str]) -> None:
        """Find several programs with one question."""
        missing = [name for name in names if name not in self._found]
        if missing:
            self._found.update(self._which(missing))

    def find(self, *names: str) -> str | None:
        """The path of the first of C(names) that is there."""
        self.look_up(names)
        for name in names:
            path = self._found[name]
            if path:
                self._used[name] = path
                return path
        return None

    def program(self, name: str, instead: str = "") -> str:
        """The path of C(name); without it the run ends as unsupported, with C(instead) as another way out."""
        path = self.find(name)
        if path is None:
            raise Ended(
                "unsupported",
                "{} {} has no {}: install it there{}".format(
                    self.end, self.name, name, " or " + instead if instead else ""
                ),
            )
        return path

    def ask(self, argv: list[str]) -> str:
        """What a short command prints, standard error after standard output; empty where it cannot run."""
        answer = self._ask(argv)
        return str(answer["output"]) if answer["rc"] is not None else ""

    @property
    def is_root(self) -> bool:
        if self._is_root is None:
            self._is_root = self.ask(["id", "-u"]).strip() == "0"
        return self._is_root

    def private_file(self, name: str, text: str) -> str:
        """Write a file there that only the copy user can read and that is removed when the run is over; its path."""
        self._written.append(name)
        # A method may be asked for its commands more than once.
        times = self._written.count(name)
        return self._write(name if times == 1 else f"{name}.{times}", text)

    def version(self, name: str) -> str | None:
        """The first line that a program prints of its version; null where it is missing or does not tell."""
        path = self.find(name)
        option = self._version_option(name)
        if path is None or option is None:
            return None
        lines = self.ask([path, option]).splitlines()
        return lines[0].strip() if lines else None

    def versions(self) -> dict[str, str]:
        """The versions of the programs that were found and taken."""
        told = {name: self.version(name) for name in sorted(self._used)}
        return {name: version for name, version in told.items() if version}

    def paths(self) -> dict[str, str]:
        """Where the programs are that were found and taken."""
        return dict(sorted(self._used.items()))


class Stream(NamedTuple):
    """One of the streams of a copy: argv lists of its stages on the source, each feeding the next; those on the target,
    started before them by the agent (none where ssh starts the far end); the port on which one of them listens; whether
    they serve until they are told to end, which they are when every stream's stages on the source have ended; and the
    place of the source's stage whose output is what the target's first stage should write."""

    source: list[list[str]]
    target: Sequence[list[str]] = ()
    port: int = 0
    serves: bool = False
    counted: int = -2


class Commands(NamedTuple):
    """What a method runs: its streams, side by side; the source stages' working directory; what the method found out of
    its programs' versions beyond what C(--version) tells; the ssh logins that all of it makes, by default
    C(CopyMethod.sessions) for each stream; what the target's agent lays out before the streams begin, and gives mode, owner and time when all
    have ended; the seconds that it took to plan what each stream carries; and whether the data goes through another ssh client
    than the source's, of which nobody knows what it agrees on."""

    streams: list[Stream]
    cwd: str | None = None
    versions: dict[str, str] | None = None
    sessions: int | None = None
    settled: _tree.Manifest | None = None
    planned_s: float = 0.0
    own_ssh: bool = False


class Job(NamedTuple):
    """What a method is asked to copy, and with what. C(dest) is an absolute path of an empty directory on the target;
    C(private_dir) an empty directory of ours on the source. C(free_ports) finds as many free ports on the target,
    C(list_source) lists the source now, without checksums (and with what else there is to its names, where that is asked
    for), and C(round_trip_s) measures one. C(cores) may be at work at
    both ends. C(peer) is the source's address as the target sees it, null where the target does not tell. C(link_Bps)
    and C(link_stream_Bps) are what the link carries in bytes a second, as a whole and in one TCP connection; null where
    nobody has measured it. With C(update) the destination is not empty but holds an older version."""

    params: Mapping[str, Any]
    src: str
    dest: str
    ssh: Ssh
    source: Host
    target: Host
    private_dir: str
    free_ports: Callable[[int], list[int]]
    list_source: Callable[[bool], _tree.Manifest]
    round_trip_s: Callable[[], float]
    cores: int
    peer: str | None = None
    link_Bps: float | None = None  # noqa: N815
    link_stream_Bps: float | None = None  # noqa: N815
    update: bool = False


class CopyMethod:
    """What a method has to say of itself; a module file subclasses it and is done. C(params) are its own options."""

    #: Name of the module.
    name = ""
    #: Whether the payload crosses the network encrypted.
    encrypted = True
    #: ssh logins to the target that one stream of a copy makes; null where nobody can say.
    sessions: int | None = 1
    #: Whether the target's stages listen on a port of the link's address.
    listens = False
    #: Whether it copies what a symbolic link leads to.
    follows_symlinks = False
    #: Whether text printed by the target's login shell breaks it.
    needs_clean_shell = False
    #: Programs to look for at each end, found with one question; C(commands) says which are really needed.
    source_programs: Sequence[str] = ()
    target_programs: Sequence[str] = ()

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def label(self) -> str:
        """The method with these options, as the field writes it."""
        raise NotImplementedError

    def version_option(self, program: str) -> str | None:
        """How a program is asked for its version; null for one that does not tell."""
        return "-V" if program == "ssh" else "--version"

    def mistake(self) -> str | None:
        """What is wrong with the options beyond what their types say, in one sentence; null when nothing is."""
        return None

    def losses(self) -> frozenset[str]:
        """Which C(_tree.LOSSES) are this method's nature and not a fault."""
        return frozenset()

    def commands(self, job: Job) -> Commands:
        """The stages for a job. Raises C(Ended) with V(unsupported) where an end cannot do it."""
        raise NotImplementedError


class Measured(NamedTuple):
    """What running the stages gave. Null: C(wall_s) where the end at the far end is not known, C(durable_s) where the
    target was not written out, C(counted) (the agent's C(finish)) where the session was lost, and C(lost) where it was
    not. C(laying) is the CPU time that the agent took for laying out names and for settling them, as far as it did. C(own_s) is the
    CPU time that this process took meanwhile, C(host) are the source's counters before and after,
    C(carried) is what its device did meanwhile, and C(round_trips_ms) was measured before and after."""

    setup_s: float
    wall_s: float | None
    durable_s: float | None
    finished: bool
    lost: Ended | None
    laying: list[dict[str, float]]
    own_s: float
    host: tuple[_counters.HostCpu | None, _counters.HostCpu | None]
    carried: _counters.Carried | None
    round_trips_ms: tuple[float, float | None]
    counted: dict[str, Any] | None


def refuse_without_room(manifest: _tree.Manifest, room: Mapping[str, Any], target_name: str, dest: str) -> None:
    """Raise C(Ended) where a copy of the tree would not fit on the target; C(room) is what its agent said of C(dest)."""
    block = room["block_bytes"]
    needed = sum(-(-entry.size // block) * block if entry.kind == "f" else block for entry in manifest.entries.values())
    if needed > room["bytes"]:
        raise Ended(
            "failed",
            f"target {target_name} has {_record.human_bytes(room['bytes'])} free at {dest} and the copy needs "
            f"{_record.human_bytes(needed)}: free some or choose another destination",
            ["no-space"],
        )
    if room["inodes"] is not None and len(manifest.entries) > room["inodes"]:
        raise Ended(
            "failed",
            f"target {target_name} has {room['inodes']} inodes free at {dest} and the copy needs {len(manifest.entries)}: "
            "choose another destination",
            ["no-inodes"],
        )


class Run:
    """The life of one run: from the checks to the record."""

    def __init__(self, module: AnsibleModule, method: CopyMethod, method_args: dict[str, Any]) -> None:
        self.module = module
        self.method = method
        self.params = module.params
        self.private_dir = tempfile.mkdtemp(prefix="bulkcopy-")
        self.source_name = self.params["source_name"] or socket.gethostname()
        self.target_name = self.params["target_name"] or self.params["address"]
        self.ssh = ssh_of(self.params)
        #: The login of the method's own connections; our session is not compressed and has the link's cipher.
        self.method_ssh = self.ssh.with_options(method.params)
        self.here = Host(
            "source",
            self.source_name,
            _agent.which,
            _agent.ask,
            method.version_option,
            lambda name, text: _agent.write_private(self.private_dir, name, text),
        )
        self.target: Target | None = None
        self.pipelines: Parallel | None = None
        self.far_results: list[dict[str, Any]] = []
        #: C(Stream.counted) of each stream.
        self.counted: list[int] = []
        #: The number of the stream whose receiver failed first; null where none did.
        self.far_failed: int | None = None
        self.target_uid = 0
        #: That fewer or more bytes of the stream arrived than were sent; empty where it was not so.
        self.cut = ""
        self.record = _record.new_record()
        self.record["scenario"] = "update" if self.params["update"] else "full"
        if self.params["fidelity"]:
            self.record["scenario"] = _fidelity.SHAPE
        #: What the target held before the copy; null where that was nothing.
        self.held: _tree.Manifest | None = None
        self.record["cache"]["requested"] = self.params["cache"]
        self.record["link"].update(source=self.source_name, target=self.target_name, address=self.params["address"])
        self.record["method"].update(
            label=self.params["label"] or method.label(),
            module=method.name,
            args=method_args,
            encrypted=method.encrypted,
            streams=1,
        )

    def carry_out(self) -> dict[str, Any]:
        """Do it all and return the record, whatever the outcome."""
        try:
            self._run()
        except Ended as ended:
            self.record["status"] = ended.status
            self.record["message"] = ended.message
            self.record["throughput_Bps"] = None  # the payload did not arrive, or not whole
            for flag in ended.flags:
                _record.add_flag(self.record, flag)
        finally:
            self.end_all()
        return self.record

    def end_all(self) -> None:
        """Leave nothing behind that runs, and no directory of ours on the source."""
        if self.pipelines is not None:
            self.pipelines.kill()
        if self.target is not None:
            self.target.close()
        shutil.rmtree(self.private_dir, ignore_errors=True)

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        params = self.params
        src = self._checked_source()
        cases = self._cases(src)
        if not os.path.isabs(params["dest"]):
            raise Ended("failed", "dest {} is not an absolute path".format(params["dest"]))
        self.here.look_up(["ssh", *self.method.source_programs])
        self._refuse_unknown_algorithms()
        if not params["scratch"]:
            # Before the agent looks: the login that is measured here has then left the process table.
            self._measure_connection()
        target = self._open_target()
        hello = target.open()
        self.target_uid = hello["uid"]
        there = Host(
            "target",
            self.target_name,
            lambda names: target.request("which", names=names),
            lambda argv: target.request("ask", argv=argv),
            self.method.version_option,
            lambda name, text: str(target.request("private_file", file=name, text=text)["path"]),
        )
        there.look_up(self.method.target_programs)
        if target.noise and self.method.needs_clean_shell:
            raise Ended(
                "failed",
                f"the login shell on target {self.target_name} prints before it is asked anything, and {self.method.name} takes that for data: silence it "
                f"for sessions without a terminal; it begins with: {target.noise_shown}",
                ["shell-not-clean"],
            )
        if target.noise:
            _record.add_flag(self.record, "shell-not-clean")
        place = target.request(
            "examine",
            dest=params["dest"],
            scratch=params["scratch"],
            token=params["scratch_token"],
            update=params["update"],
        )
        if params["base"] is not None and params["base"] not in place["bases"]:
            raise Ended(
                "failed",
                f"target {self.target_name} has no version {params['base']} in {params['dest']}: put it there first with "
                "the module base",
            )
        same_kernel = hello["boot_id"] == _counters.boot_id() if hello["boot_id"] else None
        self._refuse_overlap(src, place, bool(same_kernel))
        if cases:
            before = self._scan(src, True, None, more=True)
        else:
            before = self._scan(src, params["verify"] == _tree.SHA256 and params["cache"] != "as-is", self._known())
        self._describe_dataset(before)
        if self.method.follows_symlinks and not cases:
            # The circles in a tree of hard cases end where the kernel follows no more links.
            self._refuse_symlink_loop(src, before)
        if params["scratch"] or not params["update"]:
            # What an update of the user's own tree adds to it is for the method to find out.
            refuse_without_room(before, place["room"], self.target_name, params["dest"])
        tree = os.path.join(params["dest"], _agent.TREE) if params["scratch"] else params["dest"]
        if self.method.listens:
            self._refuse_what_cannot_be_listened_on()
        job = Job(
            params=self.method.params,
            src=src,
            dest=tree,
            ssh=self.method_ssh,
            source=self.here,
            target=there,
            private_dir=self.private_dir,
            free_ports=lambda count: target.request("free_ports", address=params["address"], count=count)["ports"],
            list_source=lambda more: self._scan(src, False, None, more),
            round_trip_s=lambda: target.round_trip_ms() / 1000,
            cores=min(_fingerprint.usable_cores(), hello["cores"]),
            peer=hello["peer"],
            link_Bps=params["link_Bps"],
            link_stream_Bps=params["link_stream_Bps"],
            update=params["update"],
        )
        commands = self.method.commands(job)
        self.record["method"]["streams"] = len(commands.streams)
        if commands.own_ssh:
            self.record["method"]["ssh"] = dict.fromkeys(("cipher", "mac", "compression"))
            _record.add_flag(self.record, "own-ssh")
        self.record["method"]["versions"] = dict(
            self.here.versions(),
            **{"target " + name: version for name, version in there.versions().items()},
            **(commands.versions or {}),
        )
        self.record["method"]["paths"] = dict(
            self.here.paths(), **{"target " + name: path for name, path in there.paths().items()}
        )
        if self.module.check_mode:
            self.record["status"] = _record.PLANNED
            self.record["stages"] = [
                {"end": end, "stream": number, "argv": argv}
                for end in ("target", "source")
                for number, stream in enumerate(commands.streams)
                for argv in getattr(stream, end)
            ]
            return
        target.request(
            "prepare",
            WORK_LIMIT_S,
            dest=params["dest"],
            scratch=params["scratch"],
            base=params["base"],
            update=params["update"],
        )
        if params["update"] and params["verify"] != _tree.NONE:
            target.request("scan", WORK_LIMIT_S, tree=tree, hash_content=False)
            self.held = _tree.unpack(target.request("manifest_rows", WORK_LIMIT_S)["packed"])
        dropped = True
        if params["cache"] == _tree.COLD:
            dropped = target.request("drop_page_cache", WORK_LIMIT_S, dest=tree)["dropped"]
        target.request("flush", WORK_LIMIT_S, dest=tree)
        # Last: what is read in between may push it out.
        quiet = self._in_quiet(target, lambda: self._set_cache(src, before, dropped))
        self._measure(commands, target, tree, same_kernel, quiet)
        if cases:
            self._judge_cases(cases, job, before, target)
            target.request("remove", WORK_LIMIT_S, dest=params["dest"])
            return
        after = self._scan(
            src, params["verify"] == _tree.SHA256, before if params["cache"] != "as-is" else self._known()
        )
        if _signatures(before) != _signatures(after):
            _record.add_flag(self.record, "source-changed")
        self._describe_dataset(after)
        self._judge_stages()
        _record.mark_setup_dominated(self.record)
        self._verify(after, target, tree)
        if params["scratch"]:
            target.request("remove", WORK_LIMIT_S, dest=params["dest"])

    def _checked_source(self) -> str:
        src: str = self.params["src"]
        where = f"source {self.source_name}"
        if not os.path.lexists(src):
            raise Ended("failed", f"{where} has no {src}: name an existing directory as src")
        if not os.path.isdir(src):
            raise Ended("failed", f"src {src} on {where} is not a directory")
        if not os.access(src, os.R_OK | os.X_OK):
            raise Ended("failed", "user {} may not read src {} on {}".format(_agent.host_facts()["user"], src, where))
        return os.path.realpath(src)

    def _open_target(self) -> Target:
        self.target = Target(self.ssh, self.here.program("ssh"), self.params["target_python"], self.target_name)
        return self.target

    def _measure_connection(self) -> None:
        """What a login and a round trip cost, and what ssh agrees on: a campaign looks at these once a link instead."""
        login = log_in(self.method_ssh, self.here.program("ssh"))
        self._refuse_what_the_server_lacks(login)
        self.record["link"].update(
            connect_s=login.seconds,
            rtt_ms=_counters.tcp_round_trip_ms(self.ssh.address, self.ssh.port or 22),
        )
        if self.method.encrypted and login.negotiated["cipher"] is not None:
            self.record["method"]["ssh"] = login.negotiated

    def _refuse_unknown_algorithms(self) -> None:
        """What the source's ssh has never heard of."""
        for kind, name in (("cipher", self.method_ssh.cipher), ("mac", self.method_ssh.mac)):
            known = self.here.ask([self.here.program("ssh"), "-Q", kind]).split() if name else []
            if name and name not in known:
                raise Ended(
                    "unsupported",
                    f"ssh on source {self.source_name} has no {kind} {name}: choose one that ssh -Q {kind} lists there: {', '.join(known)}",
                )

    def _refuse_what_the_server_lacks(self, login: Login) -> None:
        found = re.search(r"no matching (cipher|MAC) found\. Their offer: (\S*)", login.said)
        if found is not None:
            kind, offer = found.groups()
            raise Ended(
                "unsupported",
                f"the ssh server of target {self.target_name} refuses the {kind} that is asked for: choose one that it offers: "
                + offer.replace(",", ", "),
            )

    def _refuse_what_cannot_be_listened_on(self) -> None:
        address = self.params["address"]
        if "%" in address:
            raise Ended(
                "unsupported",
                f"address {address} has a zone, which is a name of the source's own: nothing can listen on it on "
                f"target {self.target_name}; give a global address or choose an ssh method",
            )
        said = self.here.ask([self.here.program("ssh"), *self.ssh.flags(), "-G", "--", address])
        found = re.search(r"^(proxyjump|proxycommand) (?!none$)(.+)$", said, re.MULTILINE)
        if found:
            raise Ended(
                "unsupported",
                f"ssh reaches target {self.target_name} through {found.group(2)} ({found.group(1)}), {self.method.name} cannot: there is no direct route",
            )

    def _refuse_overlap(self, src: str, place: dict[str, Any], same_kernel: bool) -> None:
        """The two ends may be one filesystem under two addresses; then a copy must not feed on itself."""
        try:
            seen = os.stat(place["place"])
        except OSError:
            return
        if not same_kernel or (seen.st_dev, seen.st_ino) != (place["device"], place["inode"]):
            return
        dest = place["real"]
        if os.path.commonpath([src, dest]) in (src, dest):
            raise Ended(
                "failed",
                f"source {self.source_name} and target {self.target_name} have the same filesystem, and src {src} and dest {dest} lie in each other: choose a "
                "target on another machine or a dest outside src",
            )
        if os.stat(src).st_dev == seen.st_dev:
            _record.add_flag(self.record, "shared-filesystem")

    def _known(self) -> _tree.Manifest | None:
        return known_manifest(self.params["manifest"])

    def _scan(self, src: str, hash_content: bool, known: _tree.Manifest | None, more: bool = False) -> _tree.Manifest:
        try:
            return _tree.scan(src, hash_content, known, more)
        except OSError as error:
            raise Ended("failed", f"source {self.source_name} cannot list {src}: {error.strerror}") from error

    def _cases(self, src: str) -> list[_fidelity.Case]:
        """The hard cases of the source; none where that is not what this copy is about."""
        if not self.params["fidelity"]:
            return []
        try:
            return _fidelity.cases_of(src)
        except _dataset.DatasetError as error:
            raise Ended("failed", f"source {self.source_name}: {error}") from error

    def _refuse_symlink_loop(self, src: str, manifest: _tree.Manifest) -> None:
        """What follows links would copy the same directories again and again."""
        loop = _tree.symlink_loop(src, manifest)
        if loop is not None:
            raise Ended(
                "unsupported",
                f"{self.method.name} follows symbolic links, and {_record.escape(loop)} in {src} on source {self.source_name} leads in "
                "a circle: remove it or choose a method that keeps links",
            )

    def _in_quiet(self, target: Target, work: Callable[[], None]) -> _counters.Quiet:
        """Do what needs no word with the target, and see what both ends' devices carry meanwhile. The session is silent
        in it at one end or the other, so that what both saw is others'."""
        device = _counters.route_device(self.params["address"])
        self.record["link"].update(device=device, mtu=_counters.device_mtu(device))
        target.request("carried")
        meter, began = _counters.Meter(device), time.monotonic()
        work()
        time.sleep(max(0.0, _QUIET_S - (time.monotonic() - began)))
        return meter.read(), _carried_there(target.request("carried"))

    def _set_cache(self, src: str, manifest: _tree.Manifest, dropped: bool) -> None:
        """Put the source's page cache into the state asked for, and write down what the kernel says that it is.
        C(dropped) is whether the target's was, where it had to be."""
        wanted, cache = self.params["cache"], self.record["cache"]
        if wanted == _tree.WARM:
            # What is larger than memory would only push itself out, however often it is read.
            if manifest.bytes - manifest.linked_bytes <= (_fingerprint.memory_bytes() or float("inf")):
                _tree.warm(src, manifest)
        elif wanted == _tree.COLD:
            dropped = _counters.drop_page_cache(src) and dropped
        seen = _tree.resident(src, manifest)
        if wanted == _tree.COLD:
            # Looking at the files has brought their inodes into memory.
            dropped = _counters.drop_page_cache(src) and dropped
        cache["resident"] = None if seen.share is None else round(seen.share, 4)
        # Where there is no content it is in any state.
        state = seen.state if seen.total_bytes else wanted
        # What was not dropped everywhere is not cold, though the source's content may be.
        cache["achieved"] = state if dropped or state != _tree.COLD else None
        if state is None:
            _record.add_flag(self.record, "cache-unknown")
        if wanted != "as-is" and (not dropped or state not in (None, wanted)):
            _record.add_flag(self.record, f"cache-not-{wanted}")

    def _measure(
        self, commands: Commands, target: Target, tree: str, same_kernel: bool | None, quiet: _counters.Quiet
    ) -> None:
        """Run the stages at both ends between two readings of the counters, and write down what that gave."""
        measured = self._run_stages(commands, target, tree)
        far = None if measured.counted is None else _carried_there(measured.counted)
        wire = _counters.wire(measured.carried, far, [quiet])
        if wire != _counters.wire(measured.carried, far):
            # Something flowed before the copy: only what still does is no burst.
            with contextlib.suppress(Ended):
                wire = _counters.wire(measured.carried, far, [quiet, self._in_quiet(target, lambda: None)])
        self._write_down(measured, same_kernel, wire)
        lost = measured.lost
        if not measured.finished:
            raise Ended(
                # Whose session is dead too has lost the network, not the race against time.
                "unreachable" if lost else "timeout",
                "{} did not end within {:g} s; {}".format(
                    self.record["method"]["label"],
                    self.params["timeout_s"],
                    f"it was ended on the source, and target {self.target_name} does not answer"
                    if lost
                    else "it was ended on both sides",
                ),
            )
        if lost is not None:
            raise Ended(
                lost.status, f"the session on target {self.target_name} was lost during the copy: {lost.message}"
            )

    def _run_stages(self, commands: Commands, target: Target, tree: str) -> Measured:
        params = self.params
        round_trip_before_ms, round_trip_after_ms = target.round_trip_ms(), None
        sessions = commands.sessions
        if sessions is None and self.method.sessions is not None:
            sessions = self.method.sessions * len(commands.streams)
        target.request("begin", expected_sessions=sessions)
        own_before_s = time.process_time()
        host_before, meter = _counters.host_cpu(), _counters.Meter(self.record["link"]["device"])
        setup_start = time.monotonic()
        receivers = [
            {"stages": list(stream.target), "port": stream.port, "serves": stream.serves}
            for stream in commands.streams
            if stream.target
        ]
        laying: list[dict[str, float]] = []
        if commands.settled is not None:
            laid_out = target.request("lay_out", WORK_LIMIT_S, tree=tree, packed=commands.settled.pack())
            laying.append(laid_out)
        if receivers:
            target.request("start", streams=receivers, address=params["address"])
        asked = receivers or commands.settled is not None
        setup_s = commands.planned_s + (time.monotonic() - setup_start if asked else 0.0)
        self.counted = [stream.counted for stream in commands.streams]
        self.pipelines = pipelines = Parallel(
            [Pipeline(stream.source, cwd=commands.cwd) for stream in commands.streams],
            _LOGINS_AT_ONCE if sessions else None,
            target.login_s,
        )
        try:
            start = pipelines.start()
        except OSError as error:
            raise Ended(
                "failed",
                f"source {self.source_name} cannot start {commands.streams[0].source[0][0]}: {error.strerror}",
            ) from error
        finished = pipelines.wait(params["timeout_s"])
        if not finished:
            pipelines.kill()
        # After a timeout the network may be dead; a live one answers at once.
        patience_s = _PATIENCE_S if finished else _AFTER_FAILURE_S
        ended, carried, host_after = pipelines.ended, meter.read(), _counters.host_cpu()
        own_s = time.process_time() - own_before_s
        failed = pipelines.first_failed is not None
        counted: dict[str, Any] | None = None
        flushed: float | None = None
        lost: Ended | None = None
        try:
            if receivers:
                left_s = params["timeout_s"] - (time.monotonic() - start)
                left_s = max(0.0, min(left_s, _AFTER_FAILURE_S) if failed or not finished else left_s)
                ended_here, ended = ended, None
                far = target.request("wait", left_s + patience_s, timeout_s=left_s)
                answered = time.monotonic()
                carried, host_after = meter.read(), _counters.host_cpu()
                own_s = time.process_time() - own_before_s
                self.far_results, self.far_failed = far["stages"], far["first_failed"]
                # A receiver that had to be ended because ours had failed is not a timeout of its own.
                finished = finished and (far["finished"] or failed)
                if ended_here is not None and far["ended_ago_s"] is not None:
                    ended = max(ended_here, answered - far["ended_ago_s"])
                elif all(stage["serves"] for stage in self.far_results):
                    ended = ended_here
            # Of hard cases some always fail, and the others are settled all the same.
            whole = not failed and self.far_failed is None
            if commands.settled is not None and finished and (whole or params["fidelity"]):
                laying.append(target.request("settle", WORK_LIMIT_S, tree=tree))
                # Whoever copies waits for the answer.
                ended, carried, host_after = time.monotonic(), meter.read(), _counters.host_cpu()
                own_s = time.process_time() - own_before_s
            counted = target.request(
                "finish", WORK_LIMIT_S if finished else patience_s, flush=tree if finished else None
            )
            if counted["flushed_ago_s"] is not None:
                flushed = time.monotonic() - counted["flushed_ago_s"]
            round_trip_after_ms = target.round_trip_ms()
        except Ended as problem:
            # What was measured here stands all the same.
            lost = problem
        return Measured(
            setup_s=setup_s,
            wall_s=None if ended is None else ended - start,
            durable_s=None if flushed is None else setup_s + flushed - start,
            finished=finished,
            lost=lost,
            laying=laying,
            own_s=own_s,
            host=(host_before, host_after),
            carried=carried,
            round_trips_ms=(round_trip_before_ms, round_trip_after_ms),
            counted=counted,
        )

    def _write_down(self, measured: Measured, same_kernel: bool | None, wire: dict[str, Any]) -> None:
        record, counted = self.record, measured.counted
        record["setup_s"] = round(measured.setup_s, 6)
        if measured.wall_s is not None:
            record["wall_s"] = round(measured.wall_s, 6)
            record["total_s"] = round(record["setup_s"] + record["wall_s"], 6)
        if measured.durable_s is not None:
            # The far end's instants are known to within a one-way delay.
            record["durable_s"] = max(round(measured.durable_s, 6), record["total_s"] or 0.0)
        elif measured.finished:
            _record.add_flag(record, "not-flushed")
        assert self.pipelines is not None
        record["stages"] = self.far_results_as_record() + [
            result.as_record("source", number)
            for number, pipeline in enumerate(self.pipelines.pipelines)
            for result in pipeline.results
        ]
        record["wire"].update(wire)
        record["wire"]["rtt_ms"] = dict(zip(("before", "after"), measured.round_trips_ms))
        if record["wire"]["basis"] is None:
            _record.add_flag(record, "no-device-counters")
        elif record["wire"]["basis"] == _counters.DEVICE:
            _record.add_flag(record, "one-end-counted")
        if _counters.shared_the_wire(record["wire"], record["link"]["mtu"]):
            _record.add_flag(record, _counters.FOREIGN_TRAFFIC)
        record["measuring"]["module_s"] = round(measured.own_s, 6)
        record["host_cpu"]["source"] = _counters.host_cpu_between(*measured.host, same_kernel)
        if counted is not None:
            record["measuring"]["agent_s"] = round(counted["own_s"], 6)
            record["host_cpu"]["target"] = counted["host_cpu"] and dict(counted["host_cpu"], shared=same_kernel)
        self._charge_cpu(measured, record["wall_s"])

    def far_results_as_record(self) -> list[dict[str, Any]]:
        ours = ("stdout_bytes", "serves")
        return [{key: value for key, value in stage.items() if key not in ours} for stage in self.far_results]

    def _charge_cpu(self, measured: Measured, wall_s: float | None) -> None:
        assert self.pipelines is not None
        cpu, results = self.record["cpu"], self.pipelines.results
        cpu["source"] = _record.cpu(
            sum(result.user_s for result in results),
            sum(result.system_s for result in results),
            wall_s,
            _counters.RUSAGE,
        )
        sessions = measured.counted and measured.counted["sessions"]
        far: dict[str, Any] | None = None
        if self.far_results:
            far = {key: sum(stage[key] for stage in self.far_results) for key in ("user_s", "system_s")}
            basis = _counters.AGENT_CHILDREN
        elif sessions is None:
            _record.add_flag(self.record, "session-lost")
        elif sessions["user_s"] is not None:
            far, basis = sessions, _counters.SSHD_CHILDREN
        else:
            for flag in sessions["flags"]:
                _record.add_flag(self.record, flag)
        if far is not None:
            user_s, system_s = (sum(took[key] for took in [far, *measured.laying]) for key in ("user_s", "system_s"))
            cpu["target"] = _record.cpu(user_s, system_s, wall_s, basis)

    def _describe_dataset(self, manifest: _tree.Manifest) -> None:
        size = manifest.bytes
        self.record["dataset"].update(
            name=os.path.basename(self.params["src"].rstrip("/")) or "/",
            files=manifest.files,
            directories=manifest.directories,
            bytes=size,
            linked_bytes=manifest.linked_bytes,
            digest=manifest.digest if self.params["verify"] == _tree.SHA256 else None,
        )
        # Of a tree that is brought up to date only a part crosses the link.
        if size and self.record["total_s"] and not self.params["update"]:
            self.record["throughput_Bps"] = round(size / self.record["total_s"])

    def _judge_stages(self) -> None:
        """Any stage that failed fails the run, whatever the last one said."""
        assert self.pipelines is not None
        number = self.pipelines.first_failed
        if number is None:
            number = self.far_failed
        if number is not None:
            self._judge_stream(number, self.pipelines.pipelines[number].results)
        for number, pipeline in enumerate(self.pipelines.pipelines):
            first = next((stage for stage in self.far_results if stage["stream"] == number), None)
            if not self.far_results or len(pipeline.results) < 2 or (first and first["serves"]):
                continue
            received = first and first["stdout_bytes"]
            sent = pipeline.results[self.counted[number]].stdout_bytes
            if sent is None or received is None:
                _record.add_flag(self.record, "stream-not-counted")
            elif sent != received:
                # A stage that writes to other files too has them counted: whether data is lost the comparison decides.
                self.cut = f"every program ended with 0, but {received} of the stream's {sent} bytes arrived"

    def _judge_stream(self, number: int, results: Sequence[StageResult]) -> None:
        ours = first_cause(results)
        theirs = next(
            (stage for stage in self.far_results if stage["stream"] == number and stage["rc"] and not stage["serves"]),
            None,
        )
        # A receiver that fails breaks the connection under our last stage. What fails before that one, or by a signal,
        # does so by itself, and the receiver then gets half a stream.
        by_itself = ours is not None and (ours is not results[-1] or ours.rc > 128)
        if ours is not None and (theirs is None or (by_itself and ours.rc != SIGPIPE_RC)):
            self._blame("source", ours.as_record("source", number))
        if theirs is not None:
            self._blame("target", theirs)

    def _blame(self, end: str, stage: dict[str, Any]) -> NoReturn:
        program, said = os.path.basename(stage["argv"][0]), " ".join(stage["stderr"].split())
        if self.method_ssh.cipher or self.method_ssh.mac:
            self._refuse_what_the_server_lacks(log_in(self.method_ssh, self.here.program("ssh")))
        if program == "ssh" and 0 < stage["rc"] < 128:
            # ssh ends as the command at its far end does.
            end, program = "target", "what ssh started"
        message = "{} on {} {} {}: {}".format(
            program,
            end,
            self.source_name if end == "source" else self.target_name,
            ended_how(stage["rc"]),
            said or "no message",
        )
        flags = []
        streams = self.record["method"]["streams"]
        if streams > 1 and _LOGIN_DROPPED.search(said):
            message += (
                f"; sshd on target {self.target_name} drops logins when many begin at once: choose fewer than {streams} "
                "streams, or raise MaxStartups (and PerSourceMaxStartups) there"
            )
            flags.append("login-dropped")
        # Some programs say only "Failure" of a full disk.
        room = self._room_left()
        full = None
        if room and room["bytes"] < _FULL_BYTES:
            full = "space"
        elif room and room["inodes"] == 0:
            full = "inodes"
        if full:
            message += f"; target {self.target_name} has no {full} left at {self.params['dest']}"
            flags.append(f"no-{full}")
        raise Ended("failed", message, flags)

    def _room_left(self) -> dict[str, Any] | None:
        with contextlib.suppress(Ended):
            return self.target.request("room", dest=self.params["dest"]) if self.target else None
        return None

    def _verify(self, source: _tree.Manifest, target: Target, tree: str) -> None:
        verify = self.params["verify"]
        verified: dict[str, Any] = {"method": verify, "files": 0, "mismatches": [], "not_kept": {}}
        self.record["verified"] = verified
        self.record["status"] = "ok"
        if verify == _tree.NONE:
            if self.cut:
                raise Ended("corrupt", self.cut, [_TRUNCATED])
            _record.add_flag(self.record, "not-verified")
            return
        summary = target.request("scan", WORK_LIMIT_S, tree=tree, hash_content=verify == _tree.SHA256)
        verified["files"] = summary["files"]
        if not summary["unreadable"] and _tree.quick_match(source, summary["digest"], summary["meta_digest"]):
            self._miscounted()
            return
        copy = _tree.unpack(target.request("manifest_rows", WORK_LIMIT_S)["packed"])
        declared = self._declared()
        compared = _tree.compare(source, copy, verify, declared, self.held)
        verified["mismatches"] = compared.mismatches[: _tree.SHOWN_MISMATCHES]
        verified["not_kept"] = compared.not_kept
        for kind in sorted(set(compared.not_kept) - declared):
            _record.add_flag(self.record, f"lost-{kind}")
        if compared.mismatches:
            raise Ended(
                "corrupt",
                "{}{} names differ between {} and its copy, the first: {}".format(
                    self.cut and self.cut + "; ",
                    len(compared.mismatches),
                    self.params["src"],
                    compared.mismatches[0],
                ),
                [_TRUNCATED] if self.cut else [],
            )
        self._miscounted()

    def _judge_cases(self, cases: Sequence[_fidelity.Case], job: Job, source: _tree.Manifest, target: Target) -> None:
        """See what became of each hard case.

        What one case does to the tool's status says nothing of the others. So each that is not kept is copied again, by
        itself, where the tool has reported a failure; and so is, always, the file that grows."""
        failure: Ended | None = None
        try:
            self._judge_stages()
        except Ended as ended:
            failure = ended
        copy = self._scan_copy(target, job.dest)
        if failure is not None and (failure.flags or not _fidelity.anything_of(source, copy)):
            # The login was refused or the disk is full: that is not for any case to answer.
            raise failure
        judged = _fidelity.judge(cases, source, copy, failure is not None)
        for number, case in enumerate(cases):
            doubtful = failure is not None and judged[number]["outcome"] != _fidelity.KEPT
            if case.names and (doubtful or case.group == _fidelity.GROWING):
                judged[number] = self._judge_alone(case, job, source, target)
        for kind in sorted(_fidelity.losses(judged) - self._declared()):
            _record.add_flag(self.record, f"lost-{kind}")
        self.record["fidelity"] = {"cases": judged}
        self.record["status"] = "ok"
        self.record["message"] = "" if failure is None else failure.message

    def _scan_copy(self, target: Target, tree: str) -> _tree.Manifest:
        target.request("scan", WORK_LIMIT_S, tree=tree, hash_content=True, more=True)
        return _tree.unpack(target.request("manifest_rows", WORK_LIMIT_S)["packed"])

    def _judge_alone(self, case: _fidelity.Case, job: Job, source: _tree.Manifest, target: Target) -> dict[str, Any]:
        """What becomes of a hard case that is copied by itself."""
        src = os.path.join(job.src, case.id)
        params = self.params
        target.request("prepare", WORK_LIMIT_S, dest=params["dest"], scratch=True)
        with tempfile.TemporaryDirectory(dir=self.private_dir) as private_dir, _fidelity.growing(job.src, case):
            commands = self.method.commands(
                job._replace(
                    src=src, private_dir=private_dir, list_source=lambda more: self._scan(src, False, None, more)
                )
            )
            measured = self._run_stages(commands, target, job.dest)
        if measured.lost is not None:
            raise measured.lost
        assert self.pipelines is not None
        failed = not measured.finished or self.pipelines.first_failed is not None or self.far_failed is not None
        copy = _fidelity.below(case, self._scan_copy(target, job.dest))
        return _fidelity.judge([case], source, copy, failed)[0]

    def _declared(self) -> frozenset[str]:
        """What a copy to this target need not keep."""
        # Only root may give a file to somebody else.
        return self.method.losses() | ({_tree.OWNER} if self.target_uid != 0 else frozenset())

    def _miscounted(self) -> None:
        """The copy is whole, so that it was the count of the stream's bytes that was wrong."""
        if self.cut:
            _record.add_flag(self.record, "stream-not-counted")


def _carried_there(answer: dict[str, Any]) -> _counters.Carried | None:
    """What the agent's device has carried, out of an answer that tells it."""
    return None if answer["carried"] is None else _counters.Carried(**answer["carried"])


def _signatures(manifest: _tree.Manifest) -> dict[bytes, Any]:
    return {path: (entry.kind, entry.size, entry.mtime_ns, entry.signature) for path, entry in manifest.entries.items()}


def known_manifest(path: str | None) -> _tree.Manifest | None:
    """A saved list of the source; null where there is none. A lost or damaged one costs reading the source again, nothing
    else."""
    if path:
        with contextlib.suppress(OSError, ValueError):
            return _tree.load(path)
    return None


def ssh_of(params: Mapping[str, Any]) -> Ssh:
    """The login that C(CONNECTION_OPTIONS) describe."""
    return Ssh(
        params["address"],
        params["ssh_port"],
        params["ssh_user"],
        params["ssh_identity_file"],
        params["ssh_known_hosts"],
        tuple(params["ssh_options"]),
    )


class Login(NamedTuple):
    """A login that did nothing: how long it took, null where it failed, and the cipher, MAC and compression towards the
    target that were agreed on, null where ssh does not tell; and all that ssh said at C(LogLevel=DEBUG1)."""

    seconds: float | None
    negotiated: dict[str, str | None]
    said: str


def log_in(ssh: Ssh, program: str) -> Login:
    """Log in with these settings, once."""
    # ssh takes the first value that it meets.
    argv = [program, "-o", "LogLevel=DEBUG1", *ssh.argv(program, ["true"])[1:]]
    start = time.monotonic()
    done = _agent.ask(argv, CONNECT_TIMEOUT_S * 3.0)
    took_s = round(time.monotonic() - start, 6)
    return Login(took_s if done["rc"] == 0 else None, negotiated(done["output"]), done["output"])


def negotiated(said: str) -> dict[str, str | None]:
    """Cipher, MAC and compression towards the server out of what ssh says at C(LogLevel=DEBUG1)."""
    found = re.search(r"kex: client->server cipher: (\S+) MAC: (\S+) compression: (\S+)", said)
    cipher, mac, compression = found.groups() if found else (None, None, None)
    return {"cipher": cipher, "mac": mac and mac.strip("<>"), "compression": compression}


def die_with_controller(end_all: Callable[[], None]) -> None:
    """End what we started when nobody waits for us any more: when our standard output loses its reader (the controller
    was stopped, the connection broke), or at a signal that asks us to end."""

    def watch() -> None:
        poll = select.poll()
        poll.register(1, 0)
        poll.poll()
        end_all()
        os._exit(1)

    def on_signal(_number: int, _frame: Any) -> NoReturn:
        raise SystemExit(1)

    # A terminal that hangs up, as Ansible's does without pipelining, says it by SIGHUP.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, on_signal)
    threading.Thread(target=watch, daemon=True).start()


def mistake_in(method: CopyMethod) -> str | None:
    """What is wrong with a method's options, in one sentence; null when nothing is."""
    return method.mistake() or ssh_mistake(method.params)


def run_copy(method_class: Any, options: dict[str, dict[str, Any]]) -> None:
    """The C(main) of a copy module: its options beside the common ones, one run, its record."""
    module = AnsibleModule(argument_spec=dict(COPY_OPTIONS, **options), supports_check_mode=True)
    method_args = {name: module.params[name] for name in options}
    method = method_class(method_args)
    mistake = mistake_in(method)
    if module.params["scratch"] and module.params["update"] != (module.params["base"] is not None):
        mistake = (
            "update and base belong together in a scratch directory: a copy there begins with nothing, or with base"
        )
    if module.params["base"] is not None and not module.params["scratch"]:
        mistake = "base is what a copy in a scratch directory begins with: set scratch, or leave it out"
    if module.params["fidelity"] and (module.params["update"] or not module.params["scratch"]):
        mistake = "fidelity needs scratch, and no update: nobody keeps a copy of hard cases"
    if not 0 < module.params["timeout_s"] < float("inf"):
        mistake = "timeout_s {:g} is not a time: give seconds above 0".format(module.params["timeout_s"])
    if mistake:
        module.fail_json(msg=mistake)
    run = Run(module, method, method_args)
    die_with_controller(run.end_all)
    adopt_orphans()
    record = run.carry_out()
    if record["status"] == _record.PLANNED:
        module.exit_json(changed=True, record=record)
    facts = {"bulkcopy": record}
    if record["status"] != "ok":
        module.fail_json(msg=record["message"], record=record, ansible_facts=facts)
    module.exit_json(changed=True, record=record, ansible_facts=facts)
