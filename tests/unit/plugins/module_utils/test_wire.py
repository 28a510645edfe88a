# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import socket
import struct
from typing import Any

import pytest
from ansible_collections.linkops.bulkcopy.plugins.module_utils import _wire

HEADER = 14 + 20 + 32  # Ethernet, IPv4, TCP with time stamps
MSS = 1448


def sum16(data: bytes) -> int:
    """The checksum by its definition: words added, carries folded in, complemented."""
    total = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        total += high * 256 + low
        total = total % 65536 + total // 65536
    return 65535 - total


def segment(size: int, flags: int = 0x18, sequence: int = 1000, number: int = 7) -> bytes:
    """A TCP segment of `size` bytes of payload as a TAP device hands it over, sums left to the device."""
    kind = 1 if size > MSS else 0
    vnet = struct.pack("=BBHHHH", 1, kind, HEADER, MSS if kind else 0, 34, 16)
    ethernet = bytes(range(12)) + b"\x08\x00"
    addresses = socket.inet_aton("198.18.9.1") + socket.inet_aton("198.18.9.2")
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 52 + size, number, 0x4000, 64, 6, 0) + addresses
    ip = ip[:10] + struct.pack("!H", sum16(ip)) + ip[12:]
    tcp = struct.pack("!HHIIBBHHH", 1, 2, sequence, 5, 0x80, flags, 500, 0, 0) + b"\x01\x01\x08\x0a" + bytes(8)
    return vnet + ethernet + ip + tcp + bytes(number % 251 for number in range(size))


def settings(**given: Any) -> _wire.Settings:
    return _wire.Settings(
        **{"rate_bps": None, "queue_bytes": 10**9, "delay_s": 0.0, "jitter_s": 0.0, "loss": 0.0, **given}
    )


def way(**given: Any) -> _wire.Direction:
    return _wire.Direction(settings(**given), random.Random(1))


def packets(frame: bytes) -> list[int]:
    """The sequence number of each packet in a frame."""
    count, _header, payload = _wire.segment_of(frame)
    (sequence,) = struct.unpack_from("!I", frame, 10 + 34 + 4)
    return [sequence + place * payload for place in range(count)]


def test_a_segment_is_counted_by_the_packet() -> None:
    assert _wire.segment_of(segment(100)) == (1, 0, HEADER + 100)
    assert _wire.segment_of(segment(10 * MSS)) == (10, HEADER, MSS)
    assert _wire.segment_of(segment(10 * MSS + 1)) == (11, HEADER, MSS)


@pytest.mark.parametrize(
    ("first", "last", "flags"),
    # ACK and PSH; the last packet keeps PSH and FIN, the first one CWR (RFC 3168, 6.1.2).
    [(0, 3, 0x90), (3, 4, 0x10), (4, 7, 0x19)],
)
def test_a_cut_segment_is_what_the_sender_would_have_sent(first: int, last: int, flags: int) -> None:
    whole = segment(6 * MSS + 100, flags=0x99, sequence=2**32 - 2 * MSS, number=65534)
    part = _wire.cut(whole, first, last)
    data = whole[10 + HEADER :][first * MSS : last * MSS]
    assert part[10 + HEADER :] == data
    ip, tcp = part[24:44], part[44:76]
    assert struct.unpack_from("!HH", ip, 2) == (52 + len(data), (65534 + first) % 65536)
    assert sum16(ip) == 0  # a right header sums up to nothing
    assert struct.unpack_from("!I", tcp, 4) == ((2**32 - 2 * MSS + first * MSS) % 2**32,)
    assert tcp[13] == flags
    assert part[1] == (1 if last - first > 1 else 0)
    # The device adds the sum of everything from the TCP header on and complements it: then the receiver's sum over
    # pseudo header and segment is nothing.
    pseudo = ip[12:20] + struct.pack("!HH", 6, 32 + len(data))
    body = tcp + data + bytes(len(data) % 2)
    filled = tcp[:16] + struct.pack("!H", sum16(body)) + tcp[18:]
    assert sum16(pseudo + filled + data + bytes(len(data) % 2)) == 0
    assert part[14:24] == whole[14:24]


def test_rate_counts_the_headers_of_every_packet() -> None:
    line = way(rate_bps=100_000_000)
    line.offer(segment(10 * MSS), 5.0)
    line.offer(segment(100), 5.0)
    seconds = [due - 5.0 for due, _frame in line.queue]
    # 10 full frames of 1514 bytes; then one of 166.
    assert seconds == pytest.approx([15140 * 8 / 1e8, (15140 + 166) * 8 / 1e8])
    line.offer(segment(100), 9.0)
    assert line.queue[-1][0] == pytest.approx(9.0 + 166 * 8 / 1e8)  # an idle line does not save up


def test_delay_comes_on_top() -> None:
    line = way(delay_s=0.04)
    line.offer(segment(100), 5.0)
    assert [due for due, _frame in line.queue] == [pytest.approx(5.04)]


def test_a_full_queue_drops_the_end() -> None:
    line = way(rate_bps=8_000_000, queue_bytes=20 * 1514)  # 1 MB/s
    line.offer(segment(15 * MSS), 0.0)
    line.offer(segment(15 * MSS), 0.0)
    line.offer(segment(MSS), 0.0)
    assert [len(packets(frame)) for _due, frame in line.queue] == [15, 5]
    line.offer(segment(MSS), 1514e-6 + 1e-9)  # one has left
    assert len(line.queue) == 3


def test_jitter_keeps_the_order_and_its_bounds() -> None:
    line = way(delay_s=0.04, jitter_s=0.01)
    for number in range(200):
        line.offer(segment(100, number=number), number * 0.05)
    waits = [due - number * 0.05 for number, (due, _frame) in enumerate(line.queue)]
    assert 0.03 <= min(waits) < 0.032
    assert 0.048 < max(waits) <= 0.05
    line = way(delay_s=0.04, jitter_s=0.01)
    for number in range(200):
        line.offer(segment(100, number=number), 0.0)
    dues = [due for due, _frame in line.queue]
    assert dues == sorted(dues)


@pytest.mark.parametrize("size", [MSS, 40 * MSS])
def test_loss_is_of_packets_whatever_they_come_in(size: int) -> None:
    line = way(loss=0.02)
    sent = 20_000
    each = size // MSS
    for number in range(sent // each):
        line.offer(segment(size, sequence=number * size), 0.0)
    arrived = [sequence for _due, frame in line.queue for sequence in packets(frame)]
    assert len(set(arrived)) == len(arrived)
    assert set(arrived) <= {number * MSS for number in range(sent)}
    # 99.9 % of the binomial distribution B(20000, 0.02) lie within 3.29 standard deviations of 19.8.
    assert abs(sent - len(arrived) - 400) < 3.29 * 19.8


def test_all_and_nothing_is_lost() -> None:
    line = way(loss=1.0)
    line.offer(segment(10 * MSS), 0.0)
    assert not line.queue
    line = way()
    line.offer(segment(10 * MSS), 0.0)
    assert [frame for _due, frame in line.queue] == [segment(10 * MSS)]
