# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

#: Stands in for ssh: runs what it is given on this machine, as a login shell would, without a network.
FAKE_SSH = """#!/bin/sh
case "$*" in
*ProxyJump=hop*-G*) echo "proxyjump hop"; exit 0;;
*-G*) echo "hostname example"; exit 0;;
-V) echo OpenSSH_9.2p1 >&2; exit 0;;
"-Q cipher") printf '%s\\n' aes128-ctr aes128-cbc; exit 0;;
"-Q mac") echo hmac-md5; exit 0;;
*Ciphers=aes128-cbc*)
    case "$*" in *LogLevel=DEBUG1*)
        echo "Unable to negotiate with 127.0.0.1 port 22: no matching cipher found. Their offer: aes256-ctr,x" >&2;;
    esac
    exit 255;;
esac
compression=none
case "$*" in *Compression=yes*) compression=zlib@openssh.com;; esac
case "$*" in *LogLevel=DEBUG1*)
    echo "debug1: kex: client->server cipher: aes256-ctr MAC: hmac-sha2-256 compression: $compression" >&2;;
esac
[ -z "$FAKE_SSH_NOISE" ] || printf '%s\\n' "$FAKE_SSH_NOISE"
[ -z "$FAKE_SSH_REFUSAL" ] || { printf '%s\\n' "$FAKE_SSH_REFUSAL" >&2; exit 255; }
for word; do :; done
exec "${FAKE_SSH_SHELL:-/bin/sh}" -c "$word"
"""


class Programs:
    """A directory in front of PATH, for programs that behave as a test needs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, name: str, script: str) -> str:
        path = self.directory / name
        path.write_text(script)
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    return Programs(directory)


@pytest.fixture
def fake_ssh(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> str:
    # Whoever runs the tests may have logged in.
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return programs.add("ssh", FAKE_SSH)
