# Copyright (c) 2026, linkops.bulkcopy contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A link with delay, jitter and loss between two network namespaces, for kernels that have no netem.

One process holds a TAP device in each namespace and carries frames from one to the other: each leaves when the rate has
let it through, and arrives a delay later. TCP hands over segments of up to 64 KiB, which cost little more to carry than
one packet; what they weigh, and what is lost of them, is counted by the packet all the same.

The lab starts this file as a program of its own, so it uses the standard library alone. The devices live as long as the
process, and the process ends when a device is gone.
"""

from __future__ import annotations

import collections
import fcntl
import gc
import json
import math
import os
import random
import select
import struct
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Callable, NamedTuple

MTU = 1500
ETHERNET = 14  # bytes of a frame's header; the preamble and the like are not counted, as tc does not either
VNET = 10  # struct virtio_net_hdr, which comes before every frame
FRAME = VNET + ETHERNET + 65535
DEVICE_QUEUE = 10000  # packets that wait in the device while this process does not run

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x2, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 1, 2

#: Frames that are due within this time are carried at one waking.
_TOGETHER_S = 0.0001
_AT_ONCE = 64


class Settings(NamedTuple):
    """One direction of a link. The delay varies evenly by the jitter to both sides, but no frame overtakes another."""

    rate_bps: int | None  # null: not limited
    queue_bytes: int  # what may wait for its turn; more is dropped
    delay_s: float
    jitter_s: float
    loss: float  # the share of packets that are lost, each by itself


def segment_of(frame: bytes) -> tuple[int, int, int]:
    """(packets, bytes of headers of each, bytes of payload of each but the last) of a frame with its C(VNET) header."""
    size = len(frame) - VNET
    if not frame[1]:  # gso_type
        return 1, 0, size
    _flags, _kind, _header, payload, start = struct.unpack_from("=BBHHH", frame)
    header = start + (frame[VNET + start + 12] >> 4) * 4
    return max(1, -(-(size - header) // payload)), header, payload


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) before its complement is taken, of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def cut(frame: bytes, first: int, last: int) -> bytes:
    """Packets C(first) up to C(last), not included, of a TCP segment over IPv4, as a segment of its own: what the kernel
    makes of a segment when a device cannot take it whole."""
    packets, header, payload = segment_of(frame)
    head = bytearray(frame[: VNET + header])
    data = frame[VNET + header + first * payload : VNET + header + last * payload]
    (start,) = struct.unpack_from("=H", frame, 6)
    ip, tcp = VNET + ETHERNET, VNET + start
    if last - first == 1:
        struct.pack_into("=BBHH", head, 0, frame[0], 0, 0, 0)  # no longer a segment of many
    length, number = struct.unpack_from("!HH", head, ip + 2)
    length = header - ETHERNET + len(data)
    struct.pack_into("!HH", head, ip + 2, length, (number + first) & 0xFFFF)
    struct.pack_into("!H", head, ip + 10, 0)
    struct.pack_into("!H", head, ip + 10, ~checksum(bytes(head[ip:tcp])) & 0xFFFF)
    (sequence,) = struct.unpack_from("!I", head, tcp + 4)
    struct.pack_into("!I", head, tcp + 4, (sequence + first * payload) & 0xFFFFFFFF)
    if first > 0:
        head[tcp + 13] &= ~0x80  # CWR belongs to the first packet,
    if last < packets:
        head[tcp + 13] &= ~0x09  # FIN and PSH to the last
    # The kernel left the rest of this sum to the device: here stands that of the pseudo header alone (RFC 9293, 3.1).
    pseudo = bytes(head[ip + 12 : ip + 20]) + struct.pack("!HH", 6, length - (start - ETHERNET))
    struct.pack_into("!H", head, tcp + 16, checksum(pseudo))
    return bytes(head) + data


class Direction:
    """What goes one way. C(queue) holds (time due, frame) in the order of both."""

    def __init__(self, settings: Settings, chance: random.Random) -> None:
        self.queue: collections.deque[tuple[float, bytes]] = collections.deque()
        self._chance = chance
        self._delay_s, self._jitter_s = settings.delay_s, settings.jitter_s
        self._s_per_byte = 8 / settings.rate_bps if settings.rate_bps else 0.0
        self._queue_s = settings.queue_bytes * self._s_per_byte
        self._free = 0.0  # when the last frame has left
        self._last = 0.0  # when the last frame is due
        self._loss = settings.loss
        self._until_lost = self._next_loss()

    def _next_loss(self) -> int:
        """How many packets pass before the next is lost: geometrically distributed, by inversion (Devroye 1986, X.2)."""
        if self._loss <= 0:
            return sys.maxsize
        if self._loss >= 1:
            return 0
        return int(math.log(1.0 - self._chance.random()) / math.log(1.0 - self._loss))

    def offer(self, frame: bytes, now: float) -> None:
        """Take a frame that has arrived at this end at C(now), or as many of its packets as find room and are not lost."""
        size = len(frame) - VNET
        packets = header = payload = 1
        if frame[1]:
            packets, header, payload = segment_of(frame)
            size += (packets - 1) * header
        kept = packets
        if self._s_per_byte:
            start = max(self._free, now)
            room_s = now + self._queue_s - start
            if size * self._s_per_byte > room_s:
                kept = min(packets, int(room_s / self._s_per_byte / (header + payload))) if packets > 1 else 0
                if kept <= 0:
                    return
                if kept < packets:
                    size = kept * (header + payload)
            self._free = now = start + size * self._s_per_byte
        # What is lost has used the link all the same.
        if self._until_lost >= kept:
            self._until_lost -= kept
            self._put(frame if kept == packets else cut(frame, 0, kept), now)
            return
        first = 0
        while first < kept:
            last = min(kept, first + self._until_lost)
            self._until_lost -= last - first
            if last > first:
                self._put(cut(frame, first, last), now)
            if last < kept:
                self._until_lost = self._next_loss()
            first = last + 1

    def _put(self, frame: bytes, left: float) -> None:
        due = left + self._delay_s
        if self._jitter_s:
            due += self._chance.uniform(-self._jitter_s, self._jitter_s)
        self._last = due = max(due, self._last)
        self.queue.append((due, frame))


def carry(ends: tuple[int, int], settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
    """Carry frames between two TAP devices until one of them is gone."""
    first, second = ends
    there, back = Direction(settings, random.Random()), Direction(settings, random.Random())
    ways = ((there.queue, second), (back.queue, first))
    incoming = {first: there, second: back}
    while True:
        now = clock()
        wait_s: float | None = None
        for queue, out in ways:
            while queue and queue[0][0] <= now:
                # A device that is down or out of memory loses what it gets; one that is gone cannot be read either.
                with suppress(OSError):
                    os.write(out, queue.popleft()[1])
            if queue:
                until_s = max(queue[0][0] - now, _TOGETHER_S)
                wait_s = until_s if wait_s is None else min(wait_s, until_s)
        ready, _writable, _odd = select.select(ends, (), (), wait_s)
        if not ready:
            continue
        now = clock()
        for descriptor in ready:
            offer = incoming[descriptor].offer
            with suppress(BlockingIOError):
                for _frame in range(_AT_ONCE):
                    offer(os.read(descriptor, FRAME), now)


def open_device(name: str) -> int:
    """A TAP device of our network namespace, read without waiting. It goes when the descriptor is closed."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
    fcntl.ioctl(descriptor, _TUNSETIFF, request)
    fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
    return descriptor


def main() -> None:
    """Wait for the word to begin, make both devices, put each into its namespace, say so, and carry.

    The argument is JSON: C(device), C(ends), which are pairs of namespace and MAC address, and C(settings). The
    devices are made in our own namespace and get their address there, so that the lab knows them from their first
    moment where they belong.
    """
    if sys.stdin.readline() != "go\n":
        sys.exit(1)
    given: dict[str, Any] = json.loads(sys.argv[1])
    opened = []
    for netns, mac in given["ends"]:
        opened.append(open_device(given["device"]))
        words = ["ip", "link", "set", "dev", given["device"]]
        more = ["address", mac, "mtu", str(MTU), "txqueuelen", str(DEVICE_QUEUE)]
        for argv in ([*words, *more], [*words, "netns", netns]):
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    print("up", flush=True)
    with open(os.devnull, "r+b") as nothing:
        for standard in (0, 1):
            os.dup2(nothing.fileno(), standard)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # what waits for us waits on the link
    gc.disable()  # nothing here is a cycle
    with suppress(OSError):
        carry((opened[0], opened[1]), Settings(**given["settings"]))


if __name__ == "__main__":
    main()
