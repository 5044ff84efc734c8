"""Compare transactions with confluent-kafka on real Kafka, in interleaved pairs.

    python -m benchmarks.transactions                   # the second part of `make bench`
    python -m benchmarks.transactions --pairs 1 --only transaction-100

Transactions of 1, 100 and 10,000 records, and the loop: consume, transform, produce and commit the
offsets in one transaction of up to 500 records. Cores and processes are as in `table`. A
`read_committed` consumer checks what was written.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import (
    BROKER_JAVA_OPTIONS,
    BROKER_PROPERTIES,
    Bench,
    Result,
    cores,
    in_memory,
    pinned,
    spread,
)
from benchmarks.load import LINGER_MS, MAX_RECORDS, PARTITIONS, VALUE
from benchmarks.transacting import LOOP, SIZES, results_topic
from tests.brokers.kafka import Kafka
from verify.soak.confluent_reader import messages

THEIRS, OURS = "confluent-kafka", "aiokafkawire"
RECORDS = {
    "transaction-1": 2_000,
    "transaction-100": 100_000,
    "transaction-10000": 500_000,
    LOOP: 200_000,
}
PER_TRANSACTION = SIZES | {LOOP: MAX_RECORDS}

Found = dict[str, list[dict[str, Result]]]


class TransactionBench(Bench):
    """Measures a side and checks what it wrote. `about` has the version of each client."""

    def __init__(self, kafka: Kafka, core: int | None) -> None:
        super().__init__(kafka, core)
        self.about: dict[str, str] = {}

    def transact(self, client: str, action: str, *, profile: bool = False) -> Result:
        records = RECORDS[action]
        if action == LOOP:
            source = self.new_topic_with(records)
            written = results_topic(source)
            self.create(written)
        else:
            source = written = self.new_topic()
        result = self.measure(client, action, source, records, profile=profile)
        self.about[client] = result.about
        stored = sum(1 for _ in messages(self.bootstrap_servers, written, committed=True))
        if stored < records or (action == LOOP and stored > records):
            raise RuntimeError(f"{client} wrote {stored} records instead of {records}")
        for topic in {source, written}:
            self.delete(topic)
        return result


def compare(bench: TransactionBench, actions: Sequence[str], pairs: int) -> Found:
    found: Found = {action: [] for action in actions}
    for number in range(pairs):
        for action in actions:
            order = (THEIRS, OURS) if number % 2 == 0 else (OURS, THEIRS)
            one = {client: bench.transact(client, action) for client in order}
            found[action].append(one)
            shown = ", ".join(f"{who} {rate(one[who], action):,.1f}/s" for who in (THEIRS, OURS))
            print(f"{action} {number + 1}/{pairs}: {shown}", file=sys.stderr, flush=True)
    return found


def rate(result: Result, action: str) -> float:
    """Return transactions per second."""
    return result.per_second / PER_TRANSACTION[action]


def table(found: Found) -> list[str]:
    lines = ["| | transactions/s | CPU us/record |", "|---|---|---|"]
    outcomes = []
    for action, pairs in found.items():
        for client in (THEIRS, OURS):
            rates = spread([rate(one[client], action) for one in pairs], ",.1f")
            cpu = spread([one[client].cpu_us_per_message for one in pairs], ",.2f")
            lines.append(f"| {action}, {client} | {rates} | {cpu} |")
        speeds = [one[OURS].per_second / one[THEIRS].per_second for one in pairs]
        costs = [one[OURS].cpu_us_per_message / one[THEIRS].cpu_us_per_message for one in pairs]
        reached = statistics.median(speeds) >= 1 and statistics.median(costs) < 1
        outcomes.append(
            f"{action}: {spread(speeds, '.2f')} of {THEIRS}'s transactions a second,"
            f" {spread(costs, '.2f')} of its CPU a record; aim: no slower, less CPU:"
            f" {'reached' if reached else 'MISSED'}"
        )
    return [*lines, "", *outcomes]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=list(RECORDS), action="append")
    parser.add_argument("--profile", nargs=2, metavar=("CLIENT", "ACTION"))
    options = parser.parse_args()
    broker_core, client_core = cores()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=in_memory()) as directory:
        kafka = Kafka(
            directory=Path(directory),
            properties=BROKER_PROPERTIES,
            java_options=BROKER_JAVA_OPTIONS,
        )
        try:
            pinned(kafka.start, broker_core)
            bench = TransactionBench(kafka, client_core)
            bench.warm_up()
            if options.profile:
                bench.transact(*options.profile, profile=True)
                return 0
            lines = table(compare(bench, options.only or list(RECORDS), options.pairs))
        finally:
            kafka.close()
    about = "; ".join(f"{client} {version}" for client, version in bench.about.items())
    print(
        f"Kafka {kafka.release.version}, {len(VALUE)}-byte values, {PARTITIONS} partitions,"
        f" linger {LINGER_MS} ms; {about}\n"
    )
    print("\n".join(lines))
    print(f"\n{options.pairs} pairs in {time.monotonic() - began:.0f} s")
    return 1 if any("MISSED" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
