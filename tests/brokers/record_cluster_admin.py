"""Record the responses of three nodes of Kafka 4.3.0 to requests about the cluster.

    python -m tests.brokers.record_cluster_admin

tests/broker/test_cluster_admin_recorded.py compares the embedded broker with them.
"""

from __future__ import annotations

import json
from typing import Any

import anyio

from aiokafkawire.runtime import Address
from tests.broker.cluster_admin_cases import RECORDING, SETTLE_S, cluster_responses
from tests.brokers.kafka import Kafka


def real_responses() -> dict[str, Any]:
    """Return the responses of a real cluster with three nodes."""
    with Kafka(nodes=3) as kafka:
        return anyio.run(cluster_responses, Address(*kafka.nodes[0].address), SETTLE_S)


if __name__ == "__main__":
    RECORDING.write_text(json.dumps(real_responses(), indent=1) + "\n", "utf-8")
