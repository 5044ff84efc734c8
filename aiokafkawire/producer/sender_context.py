"""The objects that all broker senders of a producer share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.producer_id import ProducerIdManager
from aiokafkawire.producer.transactions import TransactionManager
from aiokafkawire.runtime import Runtime, Supervisor

__all__ = ("SenderContext",)


@dataclass(frozen=True, slots=True)
class SenderContext:
    """The objects that all broker senders of a producer share.

    Attributes:
        fail: Fails the producer permanently.
        perform: Performs what follows from a call of the accumulator.
    """

    config: ProducerConfig
    runtime: Runtime
    supervisor: Supervisor
    cluster: Cluster
    accumulator: Accumulator
    transaction_manager: TransactionManager | None
    producer_ids: ProducerIdManager
    fail: Callable[[KafkaError], None]
    perform: Callable[[], None]
