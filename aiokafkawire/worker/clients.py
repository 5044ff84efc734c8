"""The clients of a running worker."""

from __future__ import annotations

from aiokafkawire.admin import Admin
from aiokafkawire.config import WorkerConfig
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import ClientClosed, UnsupportedVersion
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import Runtime, with_runtime
from aiokafkawire.share import ShareConsumer
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.client_options import ClientOptionSets

__all__ = ("WorkerClients",)


class WorkerClients:
    """The consumer and the present producer of a worker.

    Attributes:
        reader: Reads as a member of the group.
        producer: Writes failed records and, in transactions, the output of handlers.
    """

    def __init__(self, config: WorkerConfig, options: ClientOptionSets, runtime: Runtime) -> None:
        self._config = config
        self._options = options
        self._runtime = runtime
        self.reader: Consumer | ShareConsumer
        if config.is_share:
            self.reader = with_runtime(options.make_share_consumer(config), runtime)
        else:
            self.reader = with_runtime(options.make_consumer(config), runtime)
        self.producer = self._make_producer()

    @property
    def consumer(self) -> Consumer:
        """The reader of a consumer group."""
        assert isinstance(self.reader, Consumer)
        return self.reader

    @property
    def share_consumer(self) -> ShareConsumer:
        """The reader of a share group."""
        assert isinstance(self.reader, ShareConsumer)
        return self.reader

    def _make_producer(self) -> Producer:
        instance = f"{self._runtime.rng.getrandbits(64):016x}"
        return with_runtime(self._options.make_producer(self._config, instance), self._runtime)

    def make_admin(self) -> Admin:
        """Return an admin client that is not started."""
        return with_runtime(self._options.make_admin(), self._runtime)

    @property
    def max_output_bytes(self) -> int | None:
        """Limit of the records that handlers send in transactions; None without transactions."""
        if not self._config.is_exactly_once:
            return None
        limits = self.producer.config
        return min(limits.max_request_size_bytes, limits.buffer_memory_bytes)

    @property
    def has_fixed_transactional_id(self) -> bool:
        """True if the application gives the transactional id."""
        return self._options.producer.get("transactional_id") is not None

    async def start(self) -> None:
        """Start the clients."""
        await self.producer.start()
        await self.reader.start()

    def replace_producer(self) -> Producer:
        """Return a producer that is not started, with another transactional id."""
        self.producer = self._make_producer()
        return self.producer

    async def require_group_metadata(self, topic: str) -> None:
        """Check that brokers refuse the offsets of former members (KIP-447).

        Raises:
            UnsupportedVersion: They do not.
        """
        try:
            await self.consumer.committed(TopicPartition(topic, 0), stable=True)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(
                "processing_guarantee='exactly_once_v2' needs Kafka 2.5 (KIP-447): upgrade the"
                " brokers, or use 'at_least_once' with idempotent handlers",
                api=error.api,
                group=self._config.group_id,
            ) from error

    async def stop(self) -> None:
        """Stop the clients."""
        try:
            await self.reader.stop()
        finally:
            await self.producer.stop()

    def close_by(self, deadline: float) -> None:
        """Let `stop`, also one that runs, end at `deadline` or earlier."""
        for client in (self.reader, self.producer):
            client._lifecycle.close_deadline.end_by(deadline)

    def abort(self, error: ClientClosed) -> None:
        """Close the clients whose tasks were cancelled."""
        # Nobody else does it: their tasks keep references to them.
        for client in (self.reader, self.producer):
            client._lifecycle.abort(error)
