"""A broker of taskiq: tasks are records, and taskiq's workers are members of a consumer group.

It needs the extra `taskiq`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Unpack

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from aiokafkawire.config import ClientConfig, WorkerOptions
from aiokafkawire.producer import Producer
from aiokafkawire.worker import Worker, WorkerRecord

__all__ = ("TaskiqBroker",)

STOP_INTERVAL_S = 0.1
"""Interval at which a worker that has not ended is stopped again."""


class TaskiqBroker(AsyncBroker):
    """Broker of taskiq that sends tasks to a topic, and receives them with acknowledgements.

    A task that is not acknowledged, for example because its worker was killed, is executed again.
    Tasks run in any order, also those of one partition::

        broker = TaskiqBroker("tasks", bootstrap_servers="localhost:9092", group_id="taskiq")


        @broker.task
        async def send_mail(address: str) -> None: ...
    """

    def __init__(
        self,
        topic: str,
        *,
        consumer_options: Mapping[str, Any] | None = None,
        producer_options: Mapping[str, Any] | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Check the arguments. `startup` connects the producer, and `listen` the worker.

        Args:
            topic: Topic of the tasks.
            consumer_options: More options of the `Consumer` of taskiq's workers.
            producer_options: More options of the `Producer` that sends tasks.
            **options: Options of a `Worker`. `concurrency` limits the tasks of a process that are
                received and not acknowledged.

        Raises:
            InvalidOption: An option is unknown or invalid.
        """
        super().__init__()
        options.setdefault("create_topics", False)  # no task becomes a dead letter
        self._topic = topic
        self._worker = Worker(
            consumer_options=consumer_options, producer_options=producer_options, **options
        )
        self._worker.on(topic, order_by=None)(self._deliver)
        common = {field.name for field in dataclasses.fields(ClientConfig)}
        self._producer = Producer(
            **{name: value for name, value in options.items() if name in common},  # type: ignore[arg-type]
            **(producer_options or {}),
        )
        self._running: tuple[Worker, asyncio.Task[None]] | None = None
        self._messages: asyncio.Queue[AckableMessage | None]  # None: the worker has ended

    async def startup(self) -> None:
        """Connect the producer, and call taskiq's startup handlers.

        Raises:
            NoBrokerAvailable: No broker answered within `default_api_timeout_ms`.
        """
        await self._producer.start()
        await super().startup()

    async def shutdown(self) -> None:
        """Call taskiq's shutdown handlers, and close the clients.

        Tasks that were received and not acknowledged are left to other workers.
        """
        try:
            await super().shutdown()
        finally:
            if self._running is not None:
                worker, task = self._running
                while not task.done():
                    worker.cancel_handlers()  # has no effect on a task that has not begun to run
                    await asyncio.wait([task], timeout=STOP_INTERVAL_S)
            await self._producer.stop()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task, and wait until all in-sync replicas have it.

        Raises:
            KafkaError: The task cannot be sent; see `Producer.send_and_wait`.
        """
        await self._producer.send_and_wait(self._topic, message.message)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield tasks until `shutdown`.

        Raises:
            KafkaError: The worker failed permanently, or could not start.
        """
        messages = self._messages = asyncio.Queue()
        worker = self._worker.copy()
        # taskiq resumes this generator in another task each time, so it owns no task group.
        task = asyncio.create_task(worker.run())
        task.add_done_callback(lambda _: messages.put_nowait(None))
        self._running = worker, task
        while (message := await messages.get()) is not None:
            yield message
        await task

    async def _deliver(self, record: WorkerRecord[Any, Any]) -> None:
        """Handle a record: it is done once taskiq has acknowledged it."""
        acknowledged, finished = asyncio.Event(), asyncio.Event()

        async def acknowledge() -> None:
            acknowledged.set()
            await finished.wait()

        try:
            self._messages.put_nowait(AckableMessage(data=record.value or b"", ack=acknowledge))
            await acknowledged.wait()
        finally:
            finished.set()
