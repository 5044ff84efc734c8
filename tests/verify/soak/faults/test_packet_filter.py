"""The filter's steps, carried out by hand on packets made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from verify.soak.faults.packet_filter import Direction, program

PASS, DROP = 0xFFFFFFFF, 2


def packet(source: int, destination: int, *, ethertype: int = 0x0800, protocol: int = 6) -> bytes:
    """Ethernet, IPv4 with four bytes of options, then the ports."""
    ip = bytes((0x46, *[0] * 8, protocol, *[0] * 14))
    return bytes(12) + struct.pack(">H", ethertype) + ip + struct.pack(">HH", source, destination)


def carried_out(text: str, data: bytes) -> int:
    count, *lines = text.split(",")
    steps: Sequence[list[int]] = [[int(part) for part in line.split()] for line in lines]
    assert len(steps) == int(count)
    accumulator = index = place = 0
    while True:
        code, if_true, if_false, operand = steps[place]
        place += 1
        if code == 0x28:
            (accumulator,) = struct.unpack_from(">H", data, operand)
        elif code == 0x30:
            accumulator = data[operand]
        elif code == 0xB1:
            index = 4 * (data[operand] & 0xF)
        elif code == 0x48:
            (accumulator,) = struct.unpack_from(">H", data, index + operand)
        elif code == 0x15:
            place += if_true if accumulator == operand else if_false
        else:
            assert code == 0x06
            return operand


@pytest.mark.parametrize(
    ("way", "to_it", "from_it"),
    [(Direction.TO, DROP, PASS), (Direction.FROM, PASS, DROP), (Direction.BOTH, DROP, DROP)],
)
def test_what_goes_to_a_port_or_comes_from_it_is_dropped(
    way: Direction, to_it: int, from_it: int
) -> None:
    text = program(way, [9092, 9093])
    for port in (9092, 9093):
        assert carried_out(text, packet(40_000, port)) == to_it
        assert carried_out(text, packet(port, 40_000)) == from_it
    assert carried_out(text, packet(40_000, 9094)) == PASS


def test_what_is_not_tcp_passes() -> None:
    text = program(Direction.BOTH, [9092])
    assert carried_out(text, packet(9092, 9092, protocol=17)) == PASS
    assert carried_out(text, packet(9092, 9092, ethertype=0x86DD)) == PASS
