# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One table of options and exact command lines for each method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import CopyMethod, Job
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ended
from ansible_collections.linkops.bulkcopy.plugins.modules import rsync, scp, tar_nc, tar_ssh

from .conftest import host

MakeJob = Callable[..., Job]

SSH = (
    "-o BatchMode=yes -o RequestTTY=no -o ControlMaster=no -o ControlPath=none -o ClearAllForwardings=yes "
    "-o ForwardX11=no -o ForwardAgent=no -o PermitLocalCommand=no -o LogLevel=ERROR -o ConnectTimeout=10 "
    "-o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o Compression=no"
)
SSH_C = SSH.replace("Compression=no", "Compression=yes")
TAR = "/bin/tar -C /data -cf - -- ."
EXTRACT = "/bin/tar -C /srv/copy -xpf -"


def words(stages: list[list[str]]) -> list[str]:
    return [" ".join(argv) for argv in stages]


@pytest.mark.parametrize(
    ("options", "label", "argv"),
    [
        ({}, "scp", f"/bin/scp -r {SSH} -- ./copy 198.18.1.2:/srv/"),
        ({"ssh_compression": True}, "scp -C", f"/bin/scp -r {SSH_C} -- ./copy 198.18.1.2:/srv/"),
        ({"protocol": "legacy"}, "scp -O", f"/bin/scp -O -r {SSH} -- ./copy 198.18.1.2:/srv/"),
        (
            {"protocol": "legacy", "ssh_compression": True},
            "scp -OC",
            f"/bin/scp -O -r {SSH_C} -- ./copy 198.18.1.2:/srv/",
        ),
        ({"preserve": True}, "scp -p", f"/bin/scp -r -p {SSH} -- ./copy 198.18.1.2:/srv/"),
    ],
)
def test_scp(job_for: MakeJob, options: dict[str, Any], label: str, argv: str) -> None:
    method = scp.Scp({"ssh_compression": False, "protocol": "sftp", "preserve": False, **options})
    job = job_for(method)
    commands = method.commands(job)
    assert method.label() == label
    assert words(commands.streams[0].source) == [argv]
    assert not commands.streams[0].target
    assert commands.cwd == job.private_dir


@pytest.mark.parametrize(
    ("version", "protocol", "flag"),
    [
        ("OpenSSH_10.0p2", "sftp", []),
        ("OpenSSH_9.0p1", "sftp", []),
        ("OpenSSH_8.9p1 Ubuntu-3", "sftp", ["-s"]),
        ("OpenSSH_8.9p1 Ubuntu-3", "legacy", ["-O"]),
        ("OpenSSH_8.4p1", "legacy", []),
        ("OpenSSH_8.4p1", "sftp", None),
        ("Dropbear v2022.83", "legacy", None),
    ],
)
def test_scp_never_speaks_another_protocol_than_asked(
    job_for: MakeJob, version: str, protocol: str, flag: list[str] | None
) -> None:
    method = scp.Scp({"ssh_compression": False, "protocol": protocol, "preserve": False})
    job = job_for(method, source=host("source", answers={"/bin/ssh -V": version}))
    if flag is None:
        with pytest.raises(Ended) as raised:
            method.commands(job)
        assert raised.value.status == "unsupported"
    else:
        assert method.commands(job).streams[0].source[0][1 : 1 + len(flag)] == flag


def test_scp_brackets_ipv6(job_for: MakeJob) -> None:
    method = scp.Scp({"ssh_compression": False, "protocol": "sftp", "preserve": False})
    assert method.commands(job_for(method, address="fd00::2")).streams[0].source[0][-1] == "[fd00::2]:/srv/"


RSYNC_SSH = f"/bin/ssh {SSH}"


@pytest.mark.parametrize(
    ("options", "label", "argv"),
    [
        ({}, "rsync -a", f"/bin/rsync -a -s -e {RSYNC_SSH} -- ./ 198.18.1.2:/srv/copy/"),
        ({"compress": True}, "rsync -az", f"/bin/rsync -az -s -e {RSYNC_SSH} -- ./ 198.18.1.2:/srv/copy/"),
        (
            {"extra_args": ["--exclude=x y", "-H"]},
            "rsync -a --exclude=x y -H",
            f"/bin/rsync -a -s --exclude=x y -H -e {RSYNC_SSH} -- ./ 198.18.1.2:/srv/copy/",
        ),
        (
            {"ssh_compression": True},
            "rsync -a -e 'ssh -C'",
            f"/bin/rsync -a -s -e /bin/ssh {SSH_C} -- ./ 198.18.1.2:/srv/copy/",
        ),
    ],
)
def test_rsync(job_for: MakeJob, options: dict[str, Any], label: str, argv: str) -> None:
    method = rsync.Rsync({"compress": False, "ssh_compression": False, "extra_args": [], "streams": 1, **options})
    commands = method.commands(job_for(method))
    assert method.label() == label
    assert words(commands.streams[0].source) == [argv]
    assert not commands.streams[0].target
    assert commands.cwd == "/data"


@pytest.mark.parametrize(
    ("options", "label", "source"),
    [
        ({}, "tar|ssh", [TAR, f"/bin/ssh {SSH} -- 198.18.1.2 exec /bin/sh -c 'exec {EXTRACT}'"]),
        (
            {"ssh_compression": True},
            "tar|ssh -C",
            [TAR, f"/bin/ssh {SSH_C} -- 198.18.1.2 exec /bin/sh -c 'exec {EXTRACT}'"],
        ),
        (
            {"compression": "gzip", "compression_level": 1},
            "tar|gzip -1|ssh",
            [
                TAR,
                "/bin/gzip -1 -c",
                f"/bin/ssh {SSH} -- 198.18.1.2 exec /bin/sh -c "
                "'exec /bin/tar --use-compress-program=/bin/gzip -C /srv/copy -xpf -'",
            ],
        ),
        (
            {"compression": "zstd"},
            "tar|zstd|ssh",
            [
                TAR,
                "/bin/zstd -c",
                f"/bin/ssh {SSH} -- 198.18.1.2 exec /bin/sh -c "
                "'exec /bin/tar --use-compress-program=/bin/zstd -C /srv/copy -xpf -'",
            ],
        ),
    ],
)
def test_tar_ssh(job_for: MakeJob, options: dict[str, Any], label: str, source: list[str]) -> None:
    method = tar_ssh.TarSsh(
        {"compression": "none", "compression_level": None, "ssh_compression": False, "streams": 1, **options}
    )
    commands = method.commands(job_for(method))
    assert method.label() == label
    assert words(commands.streams[0].source) == source
    assert not commands.streams[0].target


OPENBSD = "OpenBSD netcat (Debian patchlevel 1.219-1)\nusage: nc [-46CDdFhklNnrStUuvZz] ..."
TRADITIONAL = "[v1.10-47]\nconnect to somewhere:\tnc [-options] hostname port[s] [ports] ..."
NCAT = "Ncat 7.93 ( https://nmap.org/ncat )\nUsage: ncat [options] [hostname] [port]"
BUSYBOX = "BusyBox v1.36.1 multi-call binary.\n\n\t-l\tListen mode\n\t-s ADDR\tLocal address\n"
BUSYBOX_SMALL = "nc: invalid option -- 'h'\nBusyBox v1.35.0 multi-call binary.\n\n\t-l\tListen mode\n"


def netcats(source: str, target: str) -> dict[str, Any]:
    return {
        end: host(end, answers={"/bin/nc -h": said, "/bin/busybox nc -h": said})
        for end, said in (("source", source), ("target", target))
    }


@pytest.mark.parametrize(
    ("options", "netcat", "label", "source", "target"),
    [
        ({}, OPENBSD, "tar|nc", [TAR, "/bin/nc -n -N 198.18.1.2 4000"], ["/bin/nc -n -l 198.18.1.2 4000", EXTRACT]),
        (
            {},
            TRADITIONAL,
            "tar|nc",
            [TAR, "/bin/nc -n -q 0 198.18.1.2 4000"],
            ["/bin/nc -n -l -p 4000 -s 198.18.1.2", EXTRACT],
        ),
        (
            {},
            NCAT,
            "tar|nc",
            [TAR, "/bin/nc -n --send-only 198.18.1.2 4000"],
            ["/bin/nc -n -l 198.18.1.2 4000", EXTRACT],
        ),
        (
            {"netcat": "busybox"},
            BUSYBOX,
            "tar|nc",
            [TAR, "/bin/busybox nc 198.18.1.2 4000"],
            ["/bin/busybox nc -l -p 4000 -s 198.18.1.2", EXTRACT],
        ),
        (
            {"compression": "gzip"},
            OPENBSD,
            "tar|gzip|nc",
            [TAR, "/bin/gzip -c", "/bin/nc -n -N 198.18.1.2 4000"],
            ["/bin/nc -n -l 198.18.1.2 4000", "/bin/gzip -d -c", EXTRACT],
        ),
    ],
)
def test_tar_nc(
    job_for: MakeJob, options: dict[str, Any], netcat: str, label: str, source: list[str], target: list[str]
) -> None:
    method = tar_nc.TarNc({"compression": "none", "compression_level": None, "netcat": None, "streams": 1, **options})
    commands = method.commands(job_for(method, **netcats(netcat, netcat)))
    assert method.label() == label
    assert words(commands.streams[0].source) == source
    assert words(commands.streams[0].target) == target


def test_a_name_is_looked_up_and_an_address_is_not(job_for: MakeJob) -> None:
    method = tar_nc.TarNc({"compression": "none", "compression_level": None, "netcat": None, "streams": 1})
    commands = method.commands(job_for(method, address="dc2-a", **netcats(OPENBSD, OPENBSD)))
    assert words(commands.streams[0].source)[-1] == "/bin/nc -N dc2-a 4000"


@pytest.mark.parametrize(
    ("address", "source", "target", "words"),
    [
        ("198.18.1.2", "something else", OPENBSD, "unknown netcat, it says: something else"),
        ("198.18.1.2", OPENBSD, BUSYBOX_SMALL, "every address at once"),
        ("fd00::2", TRADITIONAL, OPENBSD, "knows no IPv6"),
    ],
)
def test_what_netcat_cannot_do_is_unsupported(
    job_for: MakeJob, address: str, source: str, target: str, words: str
) -> None:
    method = tar_nc.TarNc({"compression": "none", "compression_level": None, "netcat": None, "streams": 1})
    with pytest.raises(Ended) as raised:
        method.commands(job_for(method, address=address, **netcats(source, target)))
    assert raised.value.status == "unsupported"
    assert words in raised.value.message


def test_a_jump_host_leaves_netcat_no_way(job_for: MakeJob) -> None:
    method = tar_nc.TarNc({"compression": "none", "compression_level": None, "netcat": None, "streams": 1})
    job = job_for(method, **netcats(OPENBSD, OPENBSD))
    ask = " ".join(["/bin/ssh", *job.ssh.flags(), "-G", "--", "198.18.1.2"])
    jumped = job._replace(source=host("source", answers={"/bin/nc -h": OPENBSD, ask: "user x\nproxyjump hop\n"}))
    with pytest.raises(Ended, match="no direct route"):
        method.commands(jumped)


@pytest.mark.parametrize(
    ("method", "missing", "end", "name"),
    [
        (
            tar_ssh.TarSsh({"compression": "zstd", "compression_level": None, "ssh_compression": False, "streams": 1}),
            "zstd",
            "target",
            "dc2-a",
        ),
        (
            tar_ssh.TarSsh({"compression": "zstd", "compression_level": None, "ssh_compression": False, "streams": 1}),
            "zstd",
            "source",
            "dc1-a",
        ),
        (rsync.Rsync({"compress": False, "ssh_compression": False, "extra_args": []}), "rsync", "target", "dc2-a"),
        (scp.Scp({"ssh_compression": False, "protocol": "legacy", "preserve": False}), "scp", "target", "dc2-a"),
    ],
)
def test_a_missing_program_is_unsupported_and_named(
    job_for: MakeJob, method: CopyMethod, missing: str, end: str, name: str
) -> None:
    answers = {"/bin/ssh -V": "OpenSSH_9.2p1"}
    with pytest.raises(Ended) as raised:
        method.commands(job_for(method, **{end: host(end, (missing,), answers)}))
    assert raised.value.status == "unsupported"
    assert raised.value.message.startswith(f"{end} {name} has no {missing}: install it there")


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({"compression": "gzip", "compression_level": 9}, None),
        ({"compression": "gzip", "compression_level": 10}, "compression_level 10 is not one of gzip's: choose 1 to 9"),
        ({"compression": "zstd", "compression_level": 19}, None),
        ({"compression": "zstd", "compression_level": 0}, "compression_level 0 is not one of zstd's: choose 1 to 19"),
        ({"compression": "none", "compression_level": 1}, "compression_level needs a compression to apply to"),
    ],
)
def test_levels(params: dict[str, Any], mistake: str | None) -> None:
    params = {"streams": 1, **params}
    assert tar_ssh.TarSsh(params).mistake() == tar_nc.TarNc(params).mistake() == mistake


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["ssh", "-o", "A=b"], "ssh -o A=b"),
        (["ssh", 'IdentityFile="/a b"'], "ssh 'IdentityFile=\"/a b\"'"),
        (["it's", ""], "'it''s' ''"),
    ],
)
def test_the_remote_shell_of_rsync(argv: list[str], text: str) -> None:
    assert rsync.remote_shell(argv) == text
