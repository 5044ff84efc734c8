"""Delays, bandwidth and splitting of packets, and open directions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiokafkawire.testing.simulation.links import MAX_SINGLE_BYTES, Link, Links, NetworkOptions

ONE, OTHER, PORT, SECOND = "10.0.0.1", "10.0.0.2", "10.0.0.1:9092", "10.0.0.1:9093"
DATA = memoryview(bytes(range(256)))


def link(**options: Any) -> Link:
    return Link(NetworkOptions(**options), random.Random(1))


def links(**options: Any) -> Links:
    return Links(NetworkOptions(**options), random.Random)


@pytest.mark.parametrize(
    "options",
    [
        {"min_delay_s": 2.0, "max_delay_s": 1.0},
        {"min_delay_s": -1.0},
        {"max_slow_delay_s": -1.0},
        {"bandwidth_bytes_per_s": 0},
        {"slow_packets": 1.1},
        {"fragmented": -0.1},
        {"single_bytes": 2},
        {"max_fragments": 0},
    ],
)
def test_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        NetworkOptions(**options)


def test_a_delay_lies_between_its_bounds() -> None:
    usual = link(min_delay_s=0.1, max_delay_s=0.2)
    arrivals = [usual.arrival(10.0) for _ in range(1_000)]
    assert 10.1 <= min(arrivals) < 10.11
    assert 10.19 < max(arrivals) <= 10.2


def test_a_few_packets_are_slow() -> None:
    slow = link(max_delay_s=0.01, slow_packets=0.01, max_slow_delay_s=5.0)
    delays = [slow.arrival(0.0) for _ in range(10_000)]
    late = [delay for delay in delays if delay > 0.01]
    assert 50 < len(late) < 200
    assert 4 < max(late) < 5.01


def test_bandwidth_is_shared() -> None:
    narrow = link(min_delay_s=0.5, max_delay_s=0.5, bandwidth_bytes_per_s=1_000)
    assert narrow.arrival(0.0, 1_000) == 1.5
    assert narrow.arrival(0.0, 500) == 2.0
    assert narrow.arrival(10.0, 1_000) == 11.5
    assert narrow.arrival(10.0) == 11.5


def sizes(link: Link, data: memoryview = DATA) -> list[int]:
    pieces = list(link.pieces(data))
    assert b"".join(pieces) == data
    return [len(piece) for piece in pieces]


def test_writes_are_cut() -> None:
    cut = link(fragmented=1.0, max_fragments=5)
    counts = {len(sizes(cut)) for _ in range(200)}
    assert counts <= {2, 3, 4, 5}
    assert len(counts) > 1
    assert sizes(cut, DATA[:1]) == [1]
    assert {tuple(sizes(cut, DATA[:2])) for _ in range(20)} == {(1, 1)}
    assert {len(sizes(link(fragmented=0.0))) for _ in range(20)} == {1}
    assert {len(sizes(link(fragmented=1.0, max_fragments=1))) for _ in range(20)} == {1}


def test_a_write_may_begin_with_single_bytes() -> None:
    cut = link(fragmented=0.0, single_bytes=1.0)
    most = 0
    for _ in range(200):
        *singles, _ = sizes(cut)
        assert set(singles) == {1}
        most = max(most, len(singles))
    assert most == MAX_SINGLE_BYTES
    assert set(sizes(cut, DATA[:1])) == {1}


def test_a_torn_write_is_never_whole() -> None:
    tearing = link()
    found = {len(tearing.partial_write(DATA[:4])) for _ in range(100)}
    assert found == {1, 2, 3}
    assert len(tearing.partial_write(DATA[:1])) == 0


def test_a_part_of_a_write_is_taken_at_once() -> None:
    full = link(partial_writes=1.0)
    assert {full.accepted_bytes(4) for _ in range(100)} == {0, 1, 2, 3}
    assert {link(partial_writes=0.0).accepted_bytes(4) for _ in range(100)} == {4}
    assert full.accepted_bytes(0) == 0
    assert full.accepted_bytes(-3) == -3


def test_two_endpoints_share_one_link() -> None:
    all_ways = links()
    assert all_ways.between(ONE, PORT) is all_ways.between(ONE, PORT)
    assert all_ways.between(OTHER, PORT) is not all_ways.between(PORT, OTHER)


def test_links_are_independent() -> None:
    one, other = links(), links()
    one.between(OTHER, SECOND).arrival(0.0)
    first = one.between(OTHER, PORT).arrival(0.0)
    assert other.between(OTHER, PORT).arrival(0.0) == first
    assert other.between(PORT, OTHER).arrival(0.0) != first


@pytest.mark.parametrize("early", [True, False])
def test_links_are_severed_by_host_and_by_port(early: bool) -> None:
    all_ways = links()

    def cut() -> list[bool]:
        between = all_ways.between
        return [
            between(OTHER, PORT).severed,
            between(PORT, OTHER).severed,
            between(OTHER, SECOND).severed,
        ]

    if early:
        assert cut() == [False, False, False]
    all_ways.sever(OTHER, PORT)
    assert cut() == [True, False, False]
    all_ways.sever(ONE, OTHER)
    assert cut() == [True, True, False]
    all_ways.heal(OTHER, PORT)
    assert cut() == [False, True, False]
    all_ways.lose(SECOND)
    assert cut() == [False, True, True]
    all_ways.lose(ONE)
    assert cut() == [True, True, True]
    all_ways.restore(ONE)
    assert cut() == [False, True, True]
    all_ways.heal_all()
    assert cut() == [False, False, False]


def test_the_closest_link_counts() -> None:
    all_ways = links()
    usual = all_ways.between(OTHER, PORT).options
    slow, slower = (NetworkOptions(max_delay_s=delay) for delay in (1.0, 2.0))
    all_ways.set_options(OTHER, ONE, slow)
    all_ways.set_options(SECOND, OTHER, slower)
    assert all_ways.between(OTHER, PORT).options is slow
    assert all_ways.between(PORT, OTHER).options is slow
    assert all_ways.between(OTHER, SECOND).options is slower
    all_ways.set_options(ONE, OTHER, None)
    assert all_ways.between(OTHER, PORT).options is usual
    all_ways.heal_all()
    assert all_ways.between(OTHER, SECOND).options is usual


def test_hosts_that_are_written_with_colons() -> None:
    all_ways = links()
    link = all_ways.between("fe80::1", "[fe80::2]:9092")
    all_ways.sever("fe80::1", "fe80::2")
    assert link.severed
    all_ways.heal("fe80::1", "fe80::2")
    all_ways.sever("fe80::1", "[fe80::2]:9092")
    assert link.severed
