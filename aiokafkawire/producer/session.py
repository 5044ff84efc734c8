"""A running producer: its cluster client, sender and appender."""

from __future__ import annotations

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import ClientClosed, InvalidTxnState, KafkaError
from aiokafkawire.producer.record_appender import RecordAppender
from aiokafkawire.producer.sender import Sender
from aiokafkawire.producer.transactions import TransactionManager
from aiokafkawire.runtime import NEVER, Runtime, Session, Supervisor
from aiokafkawire.telemetry import PRODUCER, ClientTelemetryReporter, MetricsSource

__all__ = ("ProducerSession",)


class ProducerSession(Session):
    """The parts of a running producer; their tasks run in a supervisor."""

    def __init__(self, config: ProducerConfig, runtime: Runtime, supervisor: Supervisor) -> None:
        self.config = config
        self.runtime = runtime
        self.cluster = Cluster(config, runtime, supervisor)
        self.sender = Sender(config, runtime, supervisor, self.cluster)
        self.appender = RecordAppender(self.sender)
        source = MetricsSource(
            PRODUCER,
            self.metrics,
            lambda: {
                "client_rack": config.client_rack,
                "transactional_id": config.transactional_id,
            },
            {"record.queue.time": self.sender.accumulator.totals.queue_time},
        )
        self.telemetry = ClientTelemetryReporter(self.cluster, runtime, supervisor, source)

    async def start(self, deadline: float) -> None:
        """Connect by the deadline, start the tasks and get the transactional producer id."""
        await self.cluster.start(deadline)
        self.sender.start()
        if self.sender.transaction_manager is not None:
            await self.sender.transaction_manager.init_transactions(
                wait=self.config.connect_on_start
            )

    async def close_gracefully(self) -> None:
        """End the transaction, send the buffered records and close the connections."""
        if self.sender.transaction_manager is not None:
            await self.sender.transaction_manager.close()
        await self.sender.flush(deadline=NEVER)
        await self.telemetry.close()
        await self.cluster.aclose()

    def metrics(self) -> dict[str, int | float]:
        """Return the metrics of the producer and its connections."""
        return self.sender.metrics() | self.cluster.metrics()

    def require_transaction_manager(self) -> TransactionManager:
        """Return the transaction manager.

        Raises:
            InvalidTxnState: The producer has no `transactional_id`.
            KafkaError: The producer failed permanently.
        """
        self.sender.raise_if_failed()
        if self.sender.transaction_manager is None:
            raise InvalidTxnState("transactions need a transactional_id: pass one to Producer")
        return self.sender.transaction_manager

    def on_task_failed(self, failure: KafkaError) -> None:
        self.sender.abort_all(failure)

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        self.sender.abort_all(error)
