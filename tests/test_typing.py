"""Type checkers accept the documented usage and reject invalid usage."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

pytestmark = pytest.mark.slow

USAGE = Path(__file__).with_name("typed_usage.py")

WRONG = """
from aiokafkawire import Consumer, Producer, Record, RecordMetadata, TopicPartition

async def wrong(consumer: Consumer, producer: Producer, record: Record) -> None:
    Producer("localhost:9092")
    Producer({"bootstrap.servers": "localhost:9092"})
    Producer(bootstrap_servers="localhost:9092", enable_idempotence="false")
    Consumer("orders", bootstrap_servers="localhost:9092", rebalance_timeout_ms=1)
    consumer.poll(1.0)
    await producer.send_offsets(consumer)
    await consumer.commit({("orders", "0"): 5})
    consumer.seek("orders", 5)
    print(record.timestamp)
    print(record.timestmp)
    print((await producer.send_and_wait("orders", b"")).timestamp)
"""


def errors_of(path: Path) -> list[int]:
    """Check a file strictly; return the lines with errors."""
    shown, problems, _ = api.run(["--strict", "--no-error-summary", str(path)])
    assert not problems, problems
    return [int(line) for line in re.findall(rf"{path.name}:(\d+): error", shown)]


def test_the_usage_of_the_documentation_has_its_types() -> None:
    assert errors_of(USAGE) == []


def test_invalid_usage_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    expected = [
        number for number, line in enumerate(WRONG.splitlines(), 1) if line.startswith("    ")
    ]
    assert sorted({*errors_of(path)}) == expected
