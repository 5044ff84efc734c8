"""Run the conformance cases on real brokers, and compare the responses with the embedded one.

    python -m tests.brokers.compare_as_of 0.10.2.2 2.8.2    # compare; without names: all seven
    python -m tests.brokers.compare_as_of --record 4.3.0    # and keep the real broker's answers
    python -m tests.brokers.compare_as_of 2.1.1             # any release: with the embedded one

The recordings stand in tests/vectors/as_of; tests/broker/test_recorded.py holds the embedded broker
to them where there is no real one.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from aiokafkawire.runtime import Address
from tests.broker.conformance import (
    MIN_SESSION_TIMEOUT_MS,
    NODES,
    PARTITIONS,
    RELEASES,
    TOPICS,
    Recording,
    as_of,
    embedded,
    run_cases,
    supported,
)
from tests.brokers.kafka import Kafka


def recorded(version: str) -> Recording:
    """Return the recording of a real cluster of a release."""
    properties = {
        "num.partitions": str(PARTITIONS),
        "group.min.session.timeout.ms": str(MIN_SESSION_TIMEOUT_MS),
    }
    with Kafka(version, nodes=NODES, properties=properties) as kafka:
        for name, (replicas, configs) in TOPICS.items():
            kafka.create_topic(name, replicas=replicas, configs=configs)
        addresses = {node.node_id: Address(*node.address) for node in kafka.nodes}
        apis = anyio.run(supported, as_of(version), addresses[1])
        responses = anyio.run(run_cases, as_of(version), addresses)
        for node in kafka.nodes:
            # The data is not needed, so no orderly shutdown.
            node.kill()
        return Recording(version, apis, responses)


def compare(version: str, real: Mapping[str, Any], ours: Mapping[str, Any], which: str) -> int:
    """Print the differences; return the number of different cases."""
    differ = [name for name in real if real[name] != ours.get(name)]
    for name in differ:
        texts = [
            json.dumps(each.get(name), indent=1, sort_keys=True).splitlines()
            for each in (real, ours)
        ]
        print(f"--- {version}: {name}")
        print("\n".join(difflib.unified_diff(*texts, "real", which, lineterm="", n=4)))
    print(f"{version}: {len(real)} questions, {len(differ)} differ from what is {which}")
    return len(differ)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.compare_as_of")
    parser.add_argument("release", nargs="*", metavar="RELEASE")
    parser.add_argument("--record", action="store_true", help="keep the real broker's answers")
    options = parser.parse_args(arguments)
    differ = 0
    for version in options.release or RELEASES:
        real = recorded(version)
        if options.record:
            real.write()
        elif version in RELEASES:
            differ += compare(
                version, real.responses, Recording.read(version).responses, "recorded"
            )
        _, ours = anyio.run(embedded, version)
        compare(version, real.responses, ours, "embedded")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
