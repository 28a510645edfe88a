# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One table of options and exact command lines for each method."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _rsync, _tree
from ansible_collections.linkops.bulkcopy.plugins.module_utils._copy import CopyMethod, Job
from ansible_collections.linkops.bulkcopy.plugins.module_utils._streams import piped
from ansible_collections.linkops.bulkcopy.plugins.module_utils._target import Ended, Ssh, remote_command, ssh_mistake
from ansible_collections.linkops.bulkcopy.plugins.modules import (
    command,
    fpsync,
    rclone,
    rsync,
    rsync_daemon,
    scp,
    sftp,
    tar_nc,
    tar_ssh,
)

from .conftest import host, made

MakeJob = Callable[..., Job]

SSH = (
    "-o BatchMode=yes -o RequestTTY=no -o ControlMaster=no -o ControlPath=none -o ClearAllForwardings=yes "
    "-o ForwardX11=no -o ForwardAgent=no -o PermitLocalCommand=no -o LogLevel=ERROR -o ConnectTimeout=10 "
    "-o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o Compression=no"
)
SSH_C = SSH.replace("Compression=no", "Compression=yes")
TAR = "/bin/tar -C /data -cf - -- ."
EXTRACT = "/bin/tar -C /srv/copy -xpf -"
BUFFERED = remote_command(piped([["/bin/mbuffer", "-q", "-m", "64M"], EXTRACT.split()]))


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
        (
            {"ssh_cipher": "aes128-gcm@openssh.com", "preserve": True},
            "scp -p aes128-gcm",
            f"/bin/scp -r -p -o Ciphers=aes128-gcm@openssh.com {SSH} -- ./copy 198.18.1.2:/srv/",
        ),
    ],
)
def test_scp(job_for: MakeJob, options: dict[str, Any], label: str, argv: str) -> None:
    method = made(scp.Scp, **options)
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
    method = made(scp.Scp, protocol=protocol)
    job = job_for(method, source=host("source", answers={"/bin/ssh -V": version}))
    if flag is None:
        with pytest.raises(Ended) as raised:
            method.commands(job)
        assert raised.value.status == "unsupported"
    else:
        assert method.commands(job).streams[0].source[0][1 : 1 + len(flag)] == flag


def test_scp_brackets_ipv6(job_for: MakeJob) -> None:
    method = made(scp.Scp)
    assert method.commands(job_for(method, address="fd00::2")).streams[0].source[0][-1] == "[fd00::2]:/srv/"


@pytest.mark.parametrize(
    ("options", "label", "put"),
    [
        ({}, "sftp", "put -R"),
        ({"preserve": True}, "sftp -p", "put -pR"),
        ({"preserve": True, "ssh_compression": True, "ssh_cipher": "aes128-ctr"}, "sftp -Cp aes128-ctr", "put -pR"),
    ],
)
def test_sftp(job_for: MakeJob, options: dict[str, Any], label: str, put: str) -> None:
    method = made(sftp.Sftp, **options)
    job = job_for(method)._replace(dest='/srv/a "b" c\\d')
    commands = method.commands(job)
    batch = f"{job.private_dir}/batch"
    assert method.label() == label
    (argv,) = commands.streams[0].source
    assert argv[:3] == ["/bin/sftp", "-b", batch]
    assert argv[3:] == [*job.ssh.flags(), "--", "198.18.1.2"]
    assert Path(batch).read_text() == put + ' . "/srv/a \\"b\\" c\\\\d"\n'
    assert commands.cwd == "/data"


def test_a_batch_of_sftp_has_no_line_break_in_a_name(job_for: MakeJob) -> None:
    method = made(sftp.Sftp)
    with pytest.raises(Ended, match="line break") as raised:
        method.commands(job_for(method)._replace(dest="/srv/a\nrm *"))
    assert raised.value.status == "unsupported"


RSYNC_SSH = f"/bin/ssh {SSH}"

#: As rsync 3.5.0 and 3.1.3 print it.
RSYNC_35 = """rsync  version 3.5.0  protocol version 32
Optimizations:
    SIMD-roll, no asm-roll, openssl-crypto, no asm-MD5
Checksum list:
    xxh128 xxh3 xxh64 (xxhash) md5 md4 sha1 none
Compress list:
    zstd lz4 zlibx zlib none
Daemon auth list:
    sha512 sha256 sha1 md5 md4

rsync comes with ABSOLUTELY NO WARRANTY.
"""
RSYNC_31 = """rsync  version 3.1.3  protocol version 31
Capabilities:
    64-bit files, 64-bit inums, 64-bit timestamps, 64-bit long ints,

rsync comes with ABSOLUTELY NO WARRANTY.
"""


def rsyncs(source: str, target: str) -> dict[str, Any]:
    return {
        "source": host("source", answers={"/bin/rsync --version": source}),
        "target": host("target", answers={"/bin/rsync --version": target}),
    }


@pytest.mark.parametrize(
    ("options", "source", "target", "words"),
    [
        ({"compress_choice": "zstd"}, RSYNC_35, RSYNC_31, "target dc2-a has rsync  version 3.1.3  protocol version 31"),
        ({"checksum_choice": "md5"}, RSYNC_31, RSYNC_35, "source dc1-a has rsync  version 3.1.3  protocol version 31"),
        (
            {"compress_choice": "lz4"},
            RSYNC_35.replace("lz4 ", ""),
            RSYNC_35,
            "rsync on source dc1-a was built without lz4: choose a compress_choice of zstd, zlibx, zlib, none",
        ),
    ],
)
def test_what_an_rsync_cannot_do_is_unsupported(
    job_for: MakeJob, options: dict[str, Any], source: str, target: str, words: str
) -> None:
    method = made(rsync.Rsync, **options)
    with pytest.raises(Ended) as raised:
        method.commands(job_for(method, **rsyncs(source, target)))
    assert raised.value.status == "unsupported"
    assert raised.value.message.startswith(words)


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"compress_choice": "zstd", "compress_level": 22}, None),
        (
            {"compress_choice": "zstd", "compress_level": 23},
            "compress_level 23 is not one of zstd's: choose -131072 to 22",
        ),
        ({"compress": True, "compress_level": 9}, None),
        ({"compress": True, "compress_level": 10}, "compress_level 10 is not one of zlib's: choose 1 to 9"),
        ({"compress_choice": "lz4", "compress_level": 1}, "compress_level 1 has no meaning for lz4: it has no levels"),
        ({"compress_level": 1}, "compress_level needs compress or a compress_choice to apply to"),
        (
            {"checksum": True, "checksum_choice": "none"},
            "checksum compares checksums and checksum_choice is none: leave one of them out",
        ),
    ],
)
def test_mistakes_of_rsync(options: dict[str, Any], mistake: str | None) -> None:
    assert made(rsync.Rsync, **options).mistake() == mistake


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
        (
            {"compress_choice": "zstd"},
            "rsync --zc=zstd",
            f"/bin/rsync -az --compress-choice=zstd -s -e {RSYNC_SSH} -- ./ 198.18.1.2:/srv/copy/",
        ),
        (
            {"compress": True, "compress_level": 1, "whole_file": True},
            "rsync -az --zl=1 -W",
            f"/bin/rsync -az --compress-level=1 --whole-file -s -e {RSYNC_SSH} -- ./ 198.18.1.2:/srv/copy/",
        ),
        (
            {"inplace": True, "checksum": True, "checksum_choice": "xxh3"},
            "rsync -a --inplace -c --cc=xxh3",
            f"/bin/rsync -a --checksum-choice=xxh3 --inplace --checksum -s -e {RSYNC_SSH} -- ./ 198.18.1.2:/srv/copy/",
        ),
        (
            {"ssh_cipher": "aes128-ctr", "ssh_mac": "umac-64@openssh.com"},
            "rsync -a -e 'ssh aes128-ctr umac-64'",
            "/bin/rsync -a -s -e /bin/ssh -o Ciphers=aes128-ctr -o MACs=umac-64@openssh.com "
            f"{SSH} -- ./ 198.18.1.2:/srv/copy/",
        ),
    ],
)
def test_rsync(job_for: MakeJob, options: dict[str, Any], label: str, argv: str) -> None:
    method = made(rsync.Rsync, **options)
    commands = method.commands(job_for(method, **rsyncs(RSYNC_35, RSYNC_35)))
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
            {"buffer": "64M"},
            "tar|mbuffer -m 64M|ssh",
            [TAR, "/bin/mbuffer -q -m 64M", f"/bin/ssh {SSH} -- 198.18.1.2 {BUFFERED}"],
        ),
        (
            {"ssh_compression": True, "ssh_cipher": "aes256-gcm@openssh.com"},
            "tar|ssh -C aes256-gcm",
            [
                TAR,
                f"/bin/ssh -o Ciphers=aes256-gcm@openssh.com {SSH_C} -- 198.18.1.2 exec /bin/sh -c 'exec {EXTRACT}'",
            ],
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
    method = made(tar_ssh.TarSsh, **options)
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
            {"compression": "lz4", "buffer": "64M"},
            OPENBSD,
            "tar|lz4|mbuffer -m 64M|nc",
            [TAR, "/bin/lz4 -c", "/bin/mbuffer -q -m 64M", "/bin/nc -n -N 198.18.1.2 4000"],
            ["/bin/nc -n -l 198.18.1.2 4000", "/bin/mbuffer -q -m 64M", "/bin/lz4 -d -c", EXTRACT],
        ),
        (
            {"transport": "socat"},
            "no netcat at all",
            "tar|socat",
            [TAR, "/bin/socat -u -b 65536 STDIN TCP4:198.18.1.2:4000"],
            ["/bin/socat -u -b 65536 TCP4-LISTEN:4000,bind=198.18.1.2,reuseaddr STDOUT", EXTRACT],
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
    method = made(tar_nc.TarNc, **options)
    commands = method.commands(job_for(method, **netcats(netcat, netcat)))
    assert method.label() == label
    assert words(commands.streams[0].source) == source
    assert words(commands.streams[0].target) == target


@pytest.mark.parametrize(("buffer", "counted"), [(None, "/bin/tar"), ("1G", "/bin/tar")])
def test_the_stream_is_counted_where_nothing_else_is_written(
    job_for: MakeJob, buffer: str | None, counted: str
) -> None:
    """mbuffer writes a byte to itself."""
    method = made(tar_nc.TarNc, buffer=buffer)
    (stream,) = method.commands(job_for(method, **netcats(OPENBSD, OPENBSD))).streams
    assert stream.source[stream.counted][0] == counted


@pytest.mark.parametrize(
    ("address", "send", "listen"),
    [
        ("fd00::2", "TCP6:[fd00::2]:4000", "TCP6-LISTEN:4000,bind=[fd00::2],reuseaddr"),
        ("dc2-a", "TCP:dc2-a:4000", "TCP-LISTEN:4000,bind=dc2-a,reuseaddr"),
    ],
)
def test_socat_s_addresses(job_for: MakeJob, address: str, send: str, listen: str) -> None:
    method = made(tar_nc.TarNc, transport="socat")
    (stream,) = method.commands(job_for(method, address=address)).streams
    assert (stream.source[-1][-1], stream.target[0][-2]) == (send, listen)


def test_a_name_is_looked_up_and_an_address_is_not(job_for: MakeJob) -> None:
    method = made(tar_nc.TarNc)
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
    method = made(tar_nc.TarNc)
    with pytest.raises(Ended) as raised:
        method.commands(job_for(method, address=address, **netcats(source, target)))
    assert raised.value.status == "unsupported"
    assert words in raised.value.message


@pytest.mark.parametrize(
    ("method_class", "options", "missing", "end", "name"),
    [
        (tar_ssh.TarSsh, {"compression": "zstd"}, "zstd", "target", "dc2-a"),
        (tar_ssh.TarSsh, {"compression": "zstd"}, "zstd", "source", "dc1-a"),
        (rsync.Rsync, {}, "rsync", "target", "dc2-a"),
        (scp.Scp, {"protocol": "legacy"}, "scp", "target", "dc2-a"),
        (sftp.Sftp, {}, "sftp", "source", "dc1-a"),
        (rsync_daemon.RsyncDaemon, {}, "rsync", "target", "dc2-a"),
        (rclone.Rclone, {}, "rclone", "source", "dc1-a"),
        (fpsync.Fpsync, {}, "fpsync", "source", "dc1-a"),
        (fpsync.Fpsync, {}, "rsync", "target", "dc2-a"),
        (tar_nc.TarNc, {"transport": "socat"}, "socat", "target", "dc2-a"),
        (tar_ssh.TarSsh, {"buffer": "1M"}, "mbuffer", "target", "dc2-a"),
    ],
)
def test_a_missing_program_is_unsupported_and_named(
    job_for: MakeJob, method_class: type[CopyMethod], options: dict[str, Any], missing: str, end: str, name: str
) -> None:
    method = made(method_class, **options)
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
        ({"buffer": "512k"}, None),
        ({"buffer": "0M"}, "buffer '0M' is not a size that mbuffer takes: give one like 512k, 64M or 1G"),
        ({"buffer": "64"}, "buffer '64' is not a size that mbuffer takes: give one like 512k, 64M or 1G"),
    ],
)
def test_levels(params: dict[str, Any], mistake: str | None) -> None:
    params = {"streams": 1, **params}
    assert made(tar_ssh.TarSsh, **params).mistake() == made(tar_nc.TarNc, **params).mistake() == mistake


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["ssh", "-o", "A=b"], "ssh -o A=b"),
        (["ssh", 'IdentityFile="/a b"'], "ssh 'IdentityFile=\"/a b\"'"),
        (["it's", ""], "'it''s' ''"),
    ],
)
def test_the_remote_shell_of_rsync(argv: list[str], text: str) -> None:
    assert _rsync.remote_shell(argv) == text


@pytest.mark.parametrize(
    ("cipher", "mac", "words"),
    [
        ("aes128-ctr", "hmac-sha2-256", None),
        ("aes128-gcm@openssh.com", None, None),
        (None, None, None),
        ("aes128-ctr,aes256-ctr", None, "ssh_cipher 'aes128-ctr,aes256-ctr' is not the name of one algorithm"),
        ("+aes128-cbc", None, "ssh -Q cipher lists"),
        ("aes128-ctr", "a b", "ssh -Q mac lists"),
        (None, "hmac-sha2-256", "the usual ciphers authenticate by themselves"),
        ("aes256-gcm@openssh.com", "hmac-sha2-256", "aes256-gcm@openssh.com authenticates by itself"),
    ],
)
def test_mistakes_of_cipher_and_mac(cipher: str | None, mac: str | None, words: str | None) -> None:
    said = ssh_mistake({"ssh_cipher": cipher, "ssh_mac": mac})
    assert said is None if words is None else words in str(said)


def test_a_method_s_cipher_comes_before_the_link_s() -> None:
    """ssh takes the first value that it meets (ssh_config(5))."""
    link = Ssh("198.18.1.2", options=("Ciphers=aes256-ctr",))
    settings = link.with_options({"ssh_cipher": "aes128-ctr", "ssh_compression": True}).settings()
    assert [value for value in settings if value.startswith("Ciphers=")] == ["Ciphers=aes128-ctr", "Ciphers=aes256-ctr"]
    assert "Compression=yes" in settings
    assert link.with_options({}) == link


GNU = "tar (GNU tar) 1.34"


@pytest.mark.parametrize(
    ("uid", "tar", "mode", "more", "within"),
    [
        ("0", GNU, 0o555, {}, True),
        ("1000", GNU, 0o755, {}, True),
        # One stream that has ended would lock the others out.
        ("1000", GNU, 0o555, {}, False),
        ("0", "tar (busybox) 1.35.0", 0o755, {}, False),
        ("0", GNU, 0o755, {"touch": "touch: invalid date '@1.000000001'"}, False),
        ("0", GNU, 0o755, {"update": True}, False),
        ("0", GNU, 0o755, {"keep": ["acls"]}, False),
    ],
)
def test_who_sets_what_several_streams_write_to(
    job_for: MakeJob, tmp_path: Path, uid: str, tar: str, mode: int, more: dict[str, Any], within: bool
) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_bytes(bytes(5 << 20))
    os.utime(tree / "sub" / "file", ns=(0, -1_500_000_000))
    (tree / "sub" / "file").chmod(0o640)
    (tree / "sub").chmod(mode)
    method = made(tar_ssh.TarSsh, streams=2, keep=more.get("keep", []))
    answers = {"/bin/tar --version": tar, "id -u": uid}
    if "touch" in more:
        answers["touch -c -m -d @1.000000001 -- /nonexistent"] = more["touch"]
    openssh = {"/bin/ssh -V": "OpenSSH_9.2p1", "/bin/tar --version": GNU}
    job = job_for(method, source=host("source", answers=openssh), target=host("target", answers=answers))
    job = job._replace(src=str(tree), list_source=lambda more: _tree.scan(str(tree), False, more=more))
    commands = method.commands(job._replace(update="update" in more))
    first, second = (stream.source[-1][-1] for stream in commands.streams)
    assert "count=2621440" in first
    assert "count=2621440" in second
    for remote in (first, second):
        # 1.5 s before 1970, in the writing of date(1).
        assert ("touch -m -d @-1.500000000 -- /srv/copy/sub/file" in remote) is within
        assert ("chmod 0640 -- /srv/copy/sub/file" in remote) is within
        assert ("mkdir -p -- /srv/copy/sub" in remote) is within
        assert ("tar" in remote) is within
        owner = f"chown {os.getuid()}:{os.getgid()} -- /srv/copy/sub/file"
        assert (owner in remote) is (within and uid == "0")
    assert (commands.settled is None) is within
    if within:
        lists = [(Path(job.private_dir) / f"part-{number}").read_bytes() for number in (0, 1)]
        assert lists == [b"./sub\0", b"./sub\0"]


def test_netcat_s_name_is_not_for_another_transport() -> None:
    mistake = made(tar_nc.TarNc, transport="socat", netcat="ncat").mistake()
    assert mistake == "netcat ncat is not used by transport: socat: leave one of them out"


@pytest.mark.parametrize(
    ("uid", "owner"),
    [("0", "use chroot = yes\nnumeric ids = no\nuid = 0\ngid = 0\n"), ("1000", "use chroot = no\n")],
)
def test_rsync_daemon(job_for: MakeJob, uid: str, owner: str) -> None:
    here: dict[str, str] = {}
    there: dict[str, str] = {}
    method = made(rsync_daemon.RsyncDaemon, whole_file=True)
    job = job_for(
        method, source=host("source", written=here), target=host("target", answers={"id -u": uid}, written=there)
    )
    (stream,) = method.commands(job).streams
    assert method.label() == "rsyncd -a -W"
    assert words(stream.source) == [
        "/bin/rsync -a --whole-file -s --password-file=/private/password -- ./ rsync://bulkcopy@198.18.1.2:4000/copy/"
    ]
    assert words(list(stream.target)) == [
        "/bin/rsync --daemon --no-detach --config=/private/rsyncd.conf --port=4000 --log-file=/private/rsyncd.log"
    ]
    assert (stream.port, stream.serves) == (4000, True)
    secret = here["password"].strip()
    assert re.fullmatch(r"[0-9a-f]{32}", secret)
    assert there["rsyncd.secrets"] == f"bulkcopy:{secret}\n"
    assert there["rsyncd.conf"] == (
        "address = 198.18.1.2\nreverse lookup = no\n" + owner + "[copy]\npath = /srv/copy/\n"
        "read only = no\nwrite only = yes\nlist = no\nmunge symlinks = no\nhosts allow = 198.18.1.1\n"
        "auth users = bulkcopy\nsecrets file = /private/rsyncd.secrets\n"
    )
    # Nobody reads it off a list of processes.
    assert secret not in str(stream)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"peer": None}, "does not tell from which address"),
        ({"dest": "/srv/a\nb"}, "line break"),
        ({"dest": "/srv/%HOME%"}, "which rsyncd.conf cannot name"),
    ],
)
def test_what_an_rsync_daemon_cannot_be_told(job_for: MakeJob, changed: dict[str, Any], words: str) -> None:
    method = made(rsync_daemon.RsyncDaemon)
    with pytest.raises(Ended, match=words) as raised:
        method.commands(job_for(method)._replace(**changed))
    assert raised.value.status == "unsupported"


def test_command_replaces_names_in_braces_once(job_for: MakeJob) -> None:
    here: dict[str, str] = {}
    method = made(
        command.Command,
        encrypted=True,
        ssh_cipher="aes128-ctr",
        source=[
            ["cat", "{src}/{dest}", "{address} {host}", "{open}src{close} {} ${HOME} {a b} {1}"],
            ["{src}/send", "-F", "{ssh_config}", "{ssh_user}@{peer}:{ssh_port}", "{port}"],
        ],
        target=[["receive", "{port}"]],
        target_serves=True,
        logins=2,
    )
    job = job_for(method, address="fd00::2", source=host("source", written=here))
    job = job._replace(src="/data/{dest}", ssh=job.ssh._replace(user="copy", port=2222))
    commands = method.commands(job)
    (stream,) = commands.streams
    assert stream.source == [
        ["/bin/cat", "/data/{dest}//srv/copy", "fd00::2 [fd00::2]", "{src} {} ${HOME} {a b} {1}"],
        ["/bin//data/{dest}/send", "-F", "/private/ssh_config", "copy@198.18.1.1:2222", "4000"],
    ]
    assert list(stream.target) == [["/bin/receive", "4000"]]
    assert (stream.port, stream.serves, commands.cwd, commands.own_ssh) == (4000, True, "/data/{dest}", True)
    assert (method.listens, method.sessions, method.encrypted) == (True, 2, True)
    assert here["ssh_config"].startswith("Host *\n    Ciphers aes128-ctr\n    BatchMode yes\n")
    assert here["ssh_config"].endswith("\n    Include ~/.ssh/config\n    Include /etc/ssh/ssh_config\n")


def test_ssh_reads_the_file_as_it_reads_the_options(tmp_path: Path) -> None:
    program = shutil.which("ssh")
    if program is None:
        pytest.skip("no ssh here")
    ssh = Ssh(
        "198.18.1.2", 2222, "copy", "/keys/a key", "/known hosts/100%", ("ProxyCommand=nc -X 5 %h %p", "Tunnel no")
    )
    (tmp_path / "config").write_text(ssh.config())
    told = [
        subprocess.run([program, *argv, "-G", "198.18.1.2"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for argv in (ssh.flags(), ["-F", str(tmp_path / "config")])
    ]
    assert told[0] == told[1]
    assert "proxycommand nc -X 5 %h %p\n" in told[0]


def test_what_ssh_knows_fills_in_what_the_link_leaves_out(job_for: MakeJob) -> None:
    method = made(command.Command, encrypted=True, source=[["x", "{ssh_user}", "{ssh_port}"]])
    job = job_for(method)
    asked = " ".join(["/bin/ssh", *job.ssh.flags(), "-G", "--", "198.18.1.2"])
    job = job._replace(source=host("source", answers={asked: "user me\nport 22\nuser other\n"}))
    assert method.commands(job).streams[0].source == [["/bin/x", "me", "22"]]
    unknown = made(command.Command, encrypted=True, source=[["x", "{ssh_identity_file}"]])
    with pytest.raises(Ended, match="set ssh_identity_file of the link"):
        unknown.commands(job._replace(params=unknown.params))


@pytest.mark.parametrize(
    ("changed", "mistake"),
    [
        ({"source": []}, "source has no stage: give one list of words for each program"),
        ({"source": ["tar -cf"]}, "stage 1 of source is not a list of words that begins with a program: 'tar -cf'"),
        ({"source": [["a"], []]}, "stage 2 of source is not a list of words that begins with a program: []"),
        ({"source": [["a", 8]]}, "stage 1 of source has 8 in it, which is not a text: put it in quotes"),
        ({"target": [["a", "{prt}"]]}, "stage 1 of target has the unknown name {prt} in it; known are address, close"),
        ({"target": [["a", "{port}"]]}, "source does not use {port}, where the target has to listen"),
        (
            {"source": [["a", "{port}"]], "target": [["a"]]},
            "target does not use {port}, where the target has to listen",
        ),
        ({"source": [["a", "{port}"]]}, "source uses {port}, and there is no target to listen on it"),
        ({"target_serves": True}, "target_serves is set, and there is no target"),
        ({"logins": -1}, "logins -1 is not a number of logins"),
        ({}, None),
    ],
)
def test_mistakes_of_command(changed: dict[str, Any], mistake: str | None) -> None:
    found = made(command.Command, **{"encrypted": True, "source": [["a", "{open}x{close}"]], **changed}).mistake()
    assert found == mistake if mistake is None else str(found).startswith(mistake)


RCLONE = "rclone v1.60.1-DEV\n- os/version: debian 12.11 (64 bit)"


def rclones(job: Job, version: str, told: str = "") -> tuple[Job, dict[str, str]]:
    written: dict[str, str] = {}
    asked = " ".join(["/bin/ssh", *job.ssh.flags(), "-G", "--", job.ssh.address])
    source = host("source", answers={"/bin/rclone --version": version, asked: told}, written=written)
    source._version_option = lambda _program: "--version"
    return job._replace(source=source), written


def test_an_old_rclone_logs_in_by_itself(job_for: MakeJob) -> None:
    method = made(rclone.Rclone, transfers=8, checkers=16, extra_args=["--sftp-disable-hashcheck"])
    job = job_for(method)
    job = job._replace(ssh=job.ssh._replace(known_hosts="/keys/known hosts", identity_file="/keys/a key"))
    job, written = rclones(job, RCLONE, "user me\nport 2222\nproxycommand none\n")
    commands = method.commands(job)
    assert method.label() == "rclone --transfers 8 --checkers 16 --sftp-disable-hashcheck"
    assert words(commands.streams[0].source) == [
        "/bin/rclone copy --config=/private/rclone.conf --quiet --create-empty-src-dirs --transfers=8 --checkers=16 "
        "--sftp-disable-hashcheck -- . target:/srv/copy"
    ]
    assert written["rclone.conf"] == (
        "[target]\ntype = sftp\nshell_type = unix\nhost = 198.18.1.2\nknown_hosts_file = /keys/known hosts\n"
        "user = me\nport = 2222\nkey_file = /keys/a key\n"
    )
    assert (commands.cwd, commands.own_ssh, method.sessions) == ("/data", True, None)


def test_a_newer_rclone_takes_the_host_s_ssh(job_for: MakeJob) -> None:
    method = made(rclone.Rclone, ssh_cipher="aes128-ctr")
    job, written = rclones(job_for(method), "rclone v1.68.2")
    commands = method.commands(job)
    assert method.label() == "rclone --sftp-ssh 'ssh aes128-ctr'"
    assert written["rclone.conf"] == (
        "[target]\ntype = sftp\nshell_type = unix\nssh = /bin/ssh -F /private/ssh_config 198.18.1.2\n"
    )
    assert written["ssh_config"] == job.ssh.config()
    assert commands.own_ssh is False


@pytest.mark.parametrize(
    ("options", "told", "words"),
    [
        ({"ssh_compression": True}, "", "does not know ssh_compression: install a newer one"),
        ({}, "proxyjump hop\n", "does not know proxyjump: install a newer one"),
        ({}, "userknownhostsfile /no/such/file\n", "would trust any machine"),
    ],
)
def test_what_an_old_rclone_cannot_do_is_unsupported(
    job_for: MakeJob, options: dict[str, Any], told: str, words: str
) -> None:
    method = made(rclone.Rclone, **options)
    job, _written = rclones(job_for(method), RCLONE, told)
    with pytest.raises(Ended, match=words) as raised:
        method.commands(job)
    assert raised.value.status == "unsupported"


def test_fpsync(job_for: MakeJob) -> None:
    method = made(fpsync.Fpsync, workers=4, files_per_job=500, ssh_cipher="aes128-ctr")
    job = job_for(method)._replace(dest="/srv/a b")
    assert method.label() == "fpsync -n 4 -f 500 -e 'ssh aes128-ctr'"
    (argv,) = method.commands(job).streams[0].source
    assert argv == [
        "/bin/env",
        f"RSYNC_RSH=/bin/ssh -o Ciphers=aes128-ctr {SSH}",
        "/bin/fpsync",
        *("-n", "4", "-f", "500", "-t", job.private_dir, "-o", "-lptgoD -v --numeric-ids -s"),
        "/data/",
        "198.18.1.2:/srv/a b/",
    ]
    assert method.sessions is None
    with pytest.raises(Ended, match="through a shell"):
        method.commands(job._replace(dest="/srv/$HOME"))


@pytest.mark.parametrize(
    ("method_class", "options", "mistake"),
    [
        (fpsync.Fpsync, {"workers": 0}, "workers 0 is below 1"),
        (rclone.Rclone, {"checkers": 0}, "checkers 0 is below 1"),
        (fpsync.Fpsync, {}, None),
        (rclone.Rclone, {}, None),
    ],
)
def test_numbers(method_class: type[CopyMethod], options: dict[str, Any], mistake: str | None) -> None:
    assert made(method_class, **options).mistake() == mistake


KEEP = ["acls", "times", "sparse", "xattrs"]
#: GNU tar's manual: what each end is told. Only who extracts chooses names of attributes.
GNU = "(GNU tar) 1.34"


@pytest.mark.parametrize(
    ("keep", "label", "create", "extract"),
    [
        (["times"], "tar --format=posix|ssh", "--format=posix", ""),
        (["sparse"], "tar -S|ssh", "-S", ""),
        (
            KEEP,
            "tar -S --xattrs --acls --format=posix|ssh",
            "-S --xattrs --xattrs-include=* --acls --format=posix",
            "--xattrs --xattrs-include=* --acls",
        ),
    ],
)
def test_tar_is_told_what_to_keep(
    job_for: MakeJob, monkeypatch: pytest.MonkeyPatch, keep: list[str], label: str, create: str, extract: str
) -> None:
    monkeypatch.setattr("ansible_collections.linkops.bulkcopy.plugins.module_utils._copy.Host.version", lambda *_: GNU)
    method = made(tar_ssh.TarSsh, keep=keep)
    assert method.label() == label
    [stream] = method.commands(job_for(method)).streams
    assert words(stream.source)[0] == f"/bin/tar {create} -C /data -cf - -- ."
    receive = [word for word in f"/bin/tar {extract} -C /srv/copy -xpf -".split(" ") if word]
    assert stream.source[-1][-1] == remote_command(receive)


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize(
    ("version", "says", "words"),
    [
        ("bsdtar 3.6.2", "", "is not GNU tar, which keeps acls"),
        (GNU, "/bin/tar: POSIX ACL support is not available\n", "cannot keep acls, it says: /bin/tar: POSIX ACL"),
    ],
)
def test_a_tar_that_cannot_keep_is_unsupported(
    job_for: MakeJob, monkeypatch: pytest.MonkeyPatch, end: str, version: str, says: str, words: str
) -> None:
    monkeypatch.setattr(
        "ansible_collections.linkops.bulkcopy.plugins.module_utils._copy.Host.version",
        lambda asked, _name: version if asked.end == end else GNU,
    )
    method = made(tar_nc.TarNc, keep=["acls"], transport="socat")
    other = host(end, answers={"/bin/tar --acls -cf /dev/null -T /dev/null": says})
    with pytest.raises(Ended, match=f"tar on {end} dc[12]-a {words}") as raised:
        method.commands(job_for(method, **{end: other}))
    assert raised.value.status == "unsupported"
