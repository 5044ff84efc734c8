"""Compare Java's Admin with ours on real Kafka, and print the table of operations.

python -m tests.brokers.admin_parity [OPERATION ...]
"""

from __future__ import annotations

import sys

import anyio

from tests.brokers.admin_parity.cases import CASES
from tests.brokers.admin_parity.cluster import ParityKafka
from tests.brokers.admin_parity.comparison import OPERATIONS, run_on_kafka, table


def main(operations: list[str]) -> int:
    chosen = [case for case in CASES if not operations or case.operation in operations]
    with ParityKafka() as kafka:
        outcomes = anyio.run(run_on_kafka, kafka, chosen)
    print(table(outcomes, operations or OPERATIONS))
    return int(any(outcome.differences for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
