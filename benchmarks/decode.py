"""Compare Metadata decoding of 10,000 partitions with kafka-python, in one process on one core.

    python -m benchmarks.decode
    python -m benchmarks.decode --rounds 5

Each round decodes the same bytes with both, one right after the other, every second round in the
opposite order. The garbage collector runs before each, and as usual during it. Times are CPU time.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import MetadataResponse as TheirMetadataResponse

from aiokafkawire import wire
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PARTITIONS = 10_000
VERSIONS = (1, 9, 12)
NODES = 6
REPLICAS = 3
AIM = 5.0
"""Target: decode this many times as fast as kafka-python."""


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster; with `down`, a node is down and missing from the ISR of its partitions."""

    topics: int
    down: bool = False

    def __str__(self) -> str:
        name = f"{self.topics:,} topics of {PARTITIONS // self.topics:,} partitions"
        name = name.replace("1 topics", "1 topic") if self.topics == 1 else name
        return f"{name}, a node down" if self.down else name


CASES = (Case(1), Case(100), Case(1_000), Case(100, down=True))


def metadata(case: Case, version: int) -> bytes:
    def partition(index: int) -> MetadataResponsePartition:
        replicas = [(index + place) % NODES for place in range(REPLICAS)]
        in_sync = [node for node in replicas if node or not case.down]
        return MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=in_sync[0],
            leader_epoch=4,
            replica_nodes=replicas,
            isr_nodes=in_sync,
        )

    response = MetadataResponse(
        cluster_id="7rFV9ZEOQ8iBQ4yNHM3Ryw",
        controller_id=1,
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"kafka-{node}.example.com", port=9092)
            for node in range(NODES)
        ],
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=f"topic-{number:05}",
                partitions=[partition(index) for index in range(PARTITIONS // case.topics)],
            )
            for number in range(case.topics)
        ],
    )
    return wire.encode(response, version)


def read_all_leaders(response: Any) -> int:
    """Read the leader of every partition, as a client does."""
    return sum(entry.leader_id for topic in response.topics for entry in topic.partitions)


def cpu_ms(function: Callable[[], object]) -> float:
    """Return the CPU time of a call in milliseconds."""
    gc.collect()
    started = time.process_time()
    kept = function()
    stopped = time.process_time()
    del kept
    return (stopped - started) * 1e3


@dataclass(frozen=True, slots=True)
class Result:
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(
            theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)
        )

    def __str__(self) -> str:
        theirs, ours = statistics.median(self.theirs), statistics.median(self.ours)
        return f"{theirs:.1f} | {ours:.2f} | {self.ratio:.1f}"


def compare(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> Result:
    result = Result([], [])
    ours(), theirs()  # fill the caches of the first use
    for number in range(rounds):
        sides = [(ours, result.ours), (theirs, result.theirs)]
        for function, times in sides if number % 2 else reversed(sides):
            times.append(cpu_ms(function))
    return result


def rows(rounds: int) -> Iterator[tuple[str, Result, Result]]:
    """Yield case and version, decoding alone, and decoding with all leaders read."""
    for case in CASES:
        for version in VERSIONS:
            raw = metadata(case, version)

            def ours(raw: bytes = raw, version: int = version) -> MetadataResponse:
                return wire.decode(MetadataResponse, version, raw)

            def theirs(raw: bytes = raw, version: int = version) -> Any:
                return TheirMetadataResponse.decode(raw, version=version)

            assert read_all_leaders(ours()) == read_all_leaders(theirs())
            decoded = compare(ours, theirs, rounds)
            read_all = compare(
                lambda: read_all_leaders(ours()), lambda: read_all_leaders(theirs()), rounds
            )
            yield f"{case}, v{version}", decoded, read_all


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(
        "| | kafka-python, ms | aiokafkawire, ms | times as fast | … with all leaders read |  |  |"
    )
    print("|---|---|---|---|---|---|---|")
    missed = []
    for name, decoded, read_all in rows(options.rounds):
        print(f"| {name} | {decoded} | {read_all} |", flush=True)
        if decoded.ratio < AIM and "down" not in name:
            missed.append(name)
    print(f"\n{AIM:.0f} times as fast while all replicas are in sync: ", end="")
    print(f"MISSED by {'; '.join(missed)}" if missed else "reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
