"""Two workers copy a topic in transactions under faults: each record is copied once."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Drop
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CommitFailed, KafkaError, ProducerFenced, TransactionFailed
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.behaviour.support import fill
from tests.faults.support import IMPATIENT, MEMBER

pytestmark = pytest.mark.slow

PARTITIONS = 3
RECORDS = 240
FAULTS = 12
BETWEEN = 12
"""Records copied between two faults."""
AT_ONCE = 8
PATIENCE_S = 40.0

APIS = (
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN),
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT),
    *(ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR),
)
REFUSALS = (
    *((api, ErrorCode.NOT_COORDINATOR) for api in APIS[2:8]),
    *((api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) for api in APIS[2:8]),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS),
    (ApiKey.END_TXN, ErrorCode.CONCURRENT_TRANSACTIONS),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID),
    (ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    (ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID),
    (ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS),
)


class FaultSchedule:
    """Injects the faults. At least one node stays up."""

    def __init__(self, broker: Broker, topics: tuple[str, ...], rng: random.Random) -> None:
        self._broker, self._topics, self._rng = broker, topics, rng

    async def inject(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            *(self._kill, self._restart, self._restart, self._move_leaders),
            *(self._close, self._close, self._drop, self._refuse, self._refuse),
        ]
        await self._rng.choice(kinds)()

    async def clear(self) -> None:
        """Remove all faults."""
        self._broker.clear_faults()
        await self._restart()

    async def _kill(self) -> None:
        if len(self._broker.live_nodes) > 1:
            await self._broker.kill(self._rng.choice(self._broker.live_nodes))

    async def _restart(self) -> None:
        for node in self._broker.nodes:
            if node not in self._broker.live_nodes:
                await self._broker.restart(node)

    async def _move_leaders(self) -> None:
        for topic in self._topics:
            for partition in range(PARTITIONS):
                node = self._rng.choice(self._broker.live_nodes)
                self._broker.move_leader(topic, partition, node)

    async def _close(self) -> None:
        carried_out = self._rng.random() < 0.5
        self._broker.on(self._rng.choice(APIS), Close(carried_out=carried_out), times=2)

    async def _drop(self) -> None:
        carried_out = self._rng.random() < 0.5
        self._broker.on(self._rng.choice(APIS), Drop(carried_out=carried_out), times=1)

    async def _refuse(self) -> None:
        api, code = self._rng.choice(REFUSALS)
        self._broker.on(api, Answer(code), times=2)


class Copier:
    """The loop of a stream worker."""

    def __init__(self, servers: str, source: str, target: str, name: str) -> None:
        self.copied = 0
        self.troubles: list[KafkaError] = []
        self._servers, self._source, self._target, self._name = servers, source, target, name

    async def run(self) -> None:
        async with Consumer(
            self._source,
            bootstrap_servers=self._servers,
            group_id=f"{self._source}-copiers",
            isolation_level="read_committed",
            **MEMBER,
        ) as consumer:
            while True:
                try:
                    await self._with_a_producer(consumer)
                except ProducerFenced as error:
                    self.troubles.append(error)
                    await consumer.seek_to_committed()

    async def _with_a_producer(self, consumer: Consumer) -> None:
        options: dict[str, Any] = IMPATIENT | {"transactional_id": self._name}
        async with Producer(bootstrap_servers=self._servers, **options) as producer:
            while True:
                await self._turn(consumer, producer)

    async def _turn(self, consumer: Consumer, producer: Producer) -> None:
        batches = await consumer.getmany(timeout_ms=50, max_records=AT_ONCE)
        if not batches:
            return
        try:
            async with producer.transaction():
                for (_, partition), batch in batches.items():
                    for value in batch.values():
                        await producer.send(self._target, value, partition=partition)
                await producer.send_offsets_to_transaction(consumer)
        except (TransactionFailed, CommitFailed) as error:
            self.troubles.append(error)
            await consumer.seek_to_committed()
        else:
            self.copied += sum(map(len, batches.values()))


async def seen_in(broker: Broker, topic: str) -> dict[int, list[bytes | None]]:
    """Return the values that a `read_committed` consumer sees once no transaction is open."""
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign(tps)
        while True:
            for tp, some in (await consumer.getmany(timeout_ms=20)).items():
                found[tp.partition] += some.values()
            if [await consumer.position(tp) for tp in tps] == [
                broker.end_offset(*tp) for tp in tps
            ]:
                return found


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("as_of", ["2.8", "4.3"])
async def test_each_record_is_copied_once(as_of: str, seed: int):
    rng = random.Random(seed)
    async with Broker(
        nodes=3, as_of=as_of, default_replication_factor=3, group_min_session_timeout_ms=500
    ) as broker:
        source, target = "source", "target"
        values: list[list[bytes]] = []
        for topic in (source, target):
            await broker.create_topic(topic, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            values.append([b"%d/%04d" % (partition, n) for n in range(RECORDS // PARTITIONS)])
            await fill(broker.bootstrap_servers, source, values[partition], partition)
        copiers = [Copier(broker.bootstrap_servers, source, target, name) for name in "ab"]
        fault_schedule = FaultSchedule(broker, (source, target), rng)
        async with anyio.create_task_group() as tasks:
            for copier in copiers:
                tasks.start_soon(copier.run)
            await storm(fault_schedule, copiers)
            tasks.cancel_scope.cancel()
        await fault_schedule.clear()
        with anyio.fail_after(PATIENCE_S):
            found = await seen_in(broker, target)
        assert found == dict(enumerate(values)), [copier.troubles for copier in copiers]


async def storm(fault_schedule: FaultSchedule, copiers: list[Copier]) -> None:
    """Inject a fault after every few copied records, until all are copied."""
    faults = 0
    while (copied := sum(copier.copied for copier in copiers)) < RECORDS:
        with anyio.move_on_after(0.01):
            await anyio.Event().wait()
        if faults < FAULTS and copied >= faults * BETWEEN:
            faults += 1
            await fault_schedule.inject()
            deadline = anyio.current_time() + PATIENCE_S
        elif faults == FAULTS:
            await fault_schedule.clear()
            faults += 1
        if anyio.current_time() > deadline:
            pytest.fail(f"after {faults} faults {copied} are copied, and no more for long")
