"""Drop packets to or from a port on the sandbox's loopback, as a broken network does.

It uses the kernel's traffic control with a small packet-filter program (classic BPF), which every
kernel has; iptables is not on every machine. Packets are dropped on arrival, so no sender notices:
connections stay open, and new ones hang.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from verify.soak.faults import sandbox

TIMEOUT_SECONDS = 10.0
PRIORITY = "10"

_LOAD_HALF, _LOAD_BYTE, _LOAD_HEADER_LENGTH = 0x28, 0x30, 0xB1
_LOAD_HALF_BEHIND_HEADER, _JUMP_IF_EQUAL, _RETURN = 0x48, 0x15, 0x06
_ETHERTYPE_AT, _PROTOCOL_AT, _IP_AT = 12, 23, 14
_IPV4, _TCP = 0x0800, 6
_GO_ON, _DROP = 0xFFFFFFFF, 2
"""TC_ACT_UNSPEC and TC_ACT_SHOT."""


class Direction(Enum):
    """Offset of the port in the TCP header of dropped packets."""

    TO = (2,)
    FROM = (0,)
    BOTH = (0, 2)


class _Step(NamedTuple):
    """One instruction; a jump target is "drop", "pass" or the number of skipped instructions."""

    code: int
    operand: int
    if_true: str | int = 0
    if_false: str | int = 0


def program(way: Direction, ports: Sequence[int]) -> str:
    """Return the filter in tc's format: the number of instructions, then each."""
    steps = [
        _Step(_LOAD_HALF, _ETHERTYPE_AT),
        _Step(_JUMP_IF_EQUAL, _IPV4, 0, "pass"),
        _Step(_LOAD_BYTE, _PROTOCOL_AT),
        _Step(_JUMP_IF_EQUAL, _TCP, 0, "pass"),
        _Step(_LOAD_HEADER_LENGTH, _IP_AT),
    ]
    for place in way.value:
        steps.append(_Step(_LOAD_HALF_BEHIND_HEADER, _IP_AT + place))
        steps += [_Step(_JUMP_IF_EQUAL, port, "drop", 0) for port in ports]
    ends = {"pass": len(steps), "drop": len(steps) + 1}
    steps += [_Step(_RETURN, _GO_ON), _Step(_RETURN, _DROP)]

    def distance(place: str | int, number: int) -> int:
        return place if isinstance(place, int) else ends[place] - number - 1

    lines = [
        f"{step.code} {distance(step.if_true, n)} {distance(step.if_false, n)} {step.operand}"
        for n, step in enumerate(steps)
    ]
    return ",".join((str(len(steps)), *lines))


@contextmanager
def cut(way: Direction, ports: Sequence[int]) -> Iterator[None]:
    """Drop packets during the block. Only in a sandbox, and one filter at a time."""
    if not sandbox.inside():
        raise RuntimeError("packets are dropped inside a sandbox alone")
    _tc("add", "bpf", "bytecode", program(way, ports), "direct-action")
    try:
        yield
    finally:
        _tc("del")


def _tc(what: str, *rest: str) -> None:
    place = ("dev", "lo", "ingress", "protocol", "ip", "pref", PRIORITY)
    subprocess.run(
        ["tc", "filter", what, *place, *rest],
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_SECONDS,
    )
