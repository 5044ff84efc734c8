"""Log lines about acknowledgements that failed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.errors import GroupFailed, KafkaError, RequestTimedOut
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.share import ShareConsumer
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.acknowledger import Acknowledger


class CommittingConsumer:
    """A share consumer whose commit returns a failure by partition, or raises."""

    config = ShareConsumerConfig(bootstrap_servers="localhost:1", group_id="jobs")

    def __init__(self, outcome: dict[TopicPartition, KafkaError | None] | KafkaError) -> None:
        self.outcome = outcome

    async def commit(self) -> dict[TopicPartition, KafkaError | None]:
        if isinstance(self.outcome, KafkaError):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (GroupFailed("removed"), "acknowledgements failed"),
        (
            {TopicPartition("t", 0): RequestTimedOut("removed"), TopicPartition("t", 1): None},
            "acknowledgements of 1 partition failed",
        ),
    ],
)
async def test_a_failed_commit_is_logged(caplog: pytest.LogCaptureFixture, outcome: Any, text: str):
    caplog.set_level("INFO", "aiokafkawire.worker")
    consumer = cast("ShareConsumer", CommittingConsumer(outcome))
    acknowledger = Acknowledger(consumer, RealRuntime().clock, {}, rejects=False)
    await acknowledger.commit()
    assert acknowledger.failures == 1
    assert caplog.messages == [f"Group jobs: {text}; their records are delivered again: removed"]
