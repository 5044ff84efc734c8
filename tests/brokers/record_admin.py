"""Record the responses of Kafka 4.3.0 to the requests of admin clients.

    python -m tests.brokers.record_admin

tests/broker/test_admin_recorded.py compares the embedded broker with them.
"""

from __future__ import annotations

import json
from typing import Any

import anyio

from aiokafkawire.runtime import Address
from tests.broker.admin_cases import RECORDING, admin_responses
from tests.brokers.kafka import Kafka


def real_responses() -> dict[str, Any]:
    """Return the responses of a real broker with one node."""
    with Kafka() as kafka:
        return anyio.run(admin_responses, Address(*kafka.nodes[0].address))


if __name__ == "__main__":
    RECORDING.write_text(json.dumps(real_responses(), indent=1) + "\n", "utf-8")
