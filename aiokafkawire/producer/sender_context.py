"""The objects and settings that all broker senders of a producer share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.produce_request import ProduceParams
from aiokafkawire.producer.producer_id import ProducerIdManager
from aiokafkawire.producer.transactions import TransactionManager, concurrent_transactions_backoff
from aiokafkawire.records import Compression
from aiokafkawire.runtime import Runtime, Supervisor

__all__ = ("ProduceSettings", "SenderContext")


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """Options for the Produce requests of a producer.

    Attributes:
        params: Fields of each request.
        expects_response: False with acks=0.
        compresses: True if batches are compressed.
        max_in_flight: Most requests in flight to a broker.
        max_request_bytes: Largest request.
        request_timeout_s: Longest wait for a response.
        backoff: Backoff of batches and brokers.
        concurrent_transactions_backoff: Backoff of batches after CONCURRENT_TRANSACTIONS.
    """

    params: ProduceParams
    expects_response: bool
    compresses: bool
    max_in_flight: int
    max_request_bytes: int
    request_timeout_s: float
    backoff: Backoff
    concurrent_transactions_backoff: Backoff

    @classmethod
    def from_config(cls, config: ProducerConfig, compression: Compression) -> ProduceSettings:
        """Return the settings for the options of a producer."""
        params: ProduceParams = {
            # mutation: acks-one-instead-of-all
            "acks": config.required_acks,
            "timeout_ms": config.request_timeout_ms,
            "transactional_id": config.transactional_id,
        }
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        return cls(
            params,
            expects_response=config.required_acks != 0,
            compresses=compression is not Compression.NONE,
            max_in_flight=config.max_in_flight_requests_per_connection,
            max_request_bytes=config.max_request_size_bytes,
            request_timeout_s=config.request_timeout_ms / 1_000,
            backoff=backoff,
            concurrent_transactions_backoff=concurrent_transactions_backoff(backoff),
        )


@dataclass(frozen=True, slots=True)
class SenderContext:
    """The objects that all broker senders of a producer share.

    Attributes:
        fail: Fails the producer permanently.
        perform: Performs what follows from a call of the accumulator.
    """

    settings: ProduceSettings
    runtime: Runtime
    supervisor: Supervisor
    cluster: Cluster
    accumulator: Accumulator
    transaction_manager: TransactionManager | None
    producer_ids: ProducerIdManager
    fail: Callable[[KafkaError], None]
    perform: Callable[[], None]
