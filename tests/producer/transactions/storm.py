"""Transactions under random faults: `python -m tests.producer.transactions.storm`.

    python -m tests.producer.transactions.storm 0 50 4.3     # seeds 0 to 49 on such a broker

Responses get lost, connections close, requests are rejected, leaders move, coordinators stop and
restart, calls are cancelled. In the end a `read_committed` consumer reads each record of each
committed transaction exactly once, none of any other, and the group has the last committed offset.
"""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

import anyio

from aiokafkawire import GroupMetadata, Producer, TopicPartition
from aiokafkawire.broker import Answer, Broker, Close, Drop, SeenRequest
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, ProducerFenced
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.producer.transactions.conftest import QUICK, visible

TRANSACTIONS = 12
PARTITIONS = 3
SHARE = 0.12
"""Share of the requests with a fault."""

COORDINATED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
CODES: dict[ApiKey, tuple[ErrorCode, ...]] = {
    ApiKey.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
    ApiKey.INIT_PRODUCER_ID: COORDINATED,
    ApiKey.ADD_PARTITIONS_TO_TXN: (*COORDINATED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ApiKey.ADD_OFFSETS_TO_TXN: COORDINATED,
    ApiKey.TXN_OFFSET_COMMIT: (*COORDINATED, ErrorCode.ILLEGAL_GENERATION),
    ApiKey.END_TXN: COORDINATED,
    ApiKey.PRODUCE: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_RECORD,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
}


class Storm:
    """A series of producers under random faults, and what they committed."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        self.certain: list[bytes] = []
        self.possible: list[bytes] = []
        self.offset = 0
        self.number = 0
        self.down: int | None = None

    async def weather(self, seen: SeenRequest) -> Any:
        rng = self.rng
        if rng.random() > SHARE:
            return None
        fault = rng.randrange(5)
        if fault == 0:
            return Close()
        if fault == 1:
            return Close(carried_out=True)
        if fault == 2:
            return Drop(carried_out=rng.random() < 0.5)
        return Answer(rng.choice(CODES[ApiKey(seen.api_key)]))

    async def disturb(self) -> None:
        """Move a leader, or stop or restart a node."""
        broker, rng = self.broker, self.rng
        if self.down is not None:
            await broker.restart(self.down)
            self.down = None
        elif rng.random() < 0.3:
            self.down = rng.choice(broker.live_nodes)
            await broker.kill(self.down)
        else:
            partition = rng.randrange(PARTITIONS)
            broker.move_leader("t", partition, rng.choice(broker.live_nodes))

    async def run(self) -> None:
        for api_key in CODES:
            self.broker.on(api_key, self.weather)
        producer = await self.started()
        for _ in range(TRANSACTIONS):
            if self.rng.random() < 0.4:
                await self.disturb()
            try:
                await self.transact(producer)
            except ProducerFenced:
                raise
            except KafkaError:
                if self.rng.random() < 0.3 or not await self.usable(producer):
                    producer = await self.started(producer)
        self.broker.clear_faults()
        if self.down is not None:
            await self.broker.restart(self.down)
        with contextlib.suppress(KafkaError):  # what it could not say before
            await producer.stop()
        await (await self.started()).stop()  # ends what is open

    async def started(self, before: Producer | None = None) -> Producer:
        if before is not None:
            with contextlib.suppress(KafkaError):
                await before.stop()
        while True:
            options = QUICK | {"request_timeout_ms": 150, "close_timeout_ms": 100}
            producer = Producer(bootstrap_servers=self.broker.bootstrap_servers, **options)
            try:
                await producer.start()
            except KafkaError:
                continue
            return producer

    async def usable(self, producer: Producer) -> bool:
        """Abort an open transaction; return False if that fails."""
        try:
            async with producer.transaction():
                pass
        except KafkaError:
            return False
        return True

    async def transact(self, producer: Producer) -> None:
        rng = self.rng
        values = []
        offset = self.offset
        ended = "open"
        with anyio.CancelScope() as scope:
            try:
                async with producer.transaction():
                    for _ in range(rng.randrange(1, 8)):
                        self.number += 1
                        values.append(b"%05d" % self.number)
                        await producer.send("t", values[-1], partition=rng.randrange(PARTITIONS))
                        if rng.random() < 0.2:
                            await producer.flush()
                    if rng.random() < 0.5:
                        offset = self.number
                        await producer.send_offsets_to_transaction(
                            {GROUP_TP: offset}, GroupMetadata("g")
                        )
                    if rng.random() < 0.15:
                        raise KeyError("own")
                    if rng.random() < 0.15:
                        scope.cancel()
                    ended = "asked to commit"
                ended = "committed"
            except KeyError:
                return
            finally:
                if ended == "asked to commit":
                    with anyio.CancelScope(shield=True):
                        ended = await self.outcome(producer)
                if ended == "committed":
                    self.certain += values
                    self.offset = offset
                elif ended == "unknown":
                    self.possible += values

    async def outcome(self, producer: Producer) -> str:
        """Return the outcome of a commit that was cancelled or timed out."""
        try:
            await producer.commit_transaction()
        except KafkaError as error:
            text = str(error)
            unknown = "committed or not" in text or "not known" in text
            return "unknown" if unknown else "failed"
        return "committed"

    async def check(self) -> None:
        seen = [value or b"" for value in await visible(self.broker)]
        assert len(seen) == len(set(seen)), "a record is there twice"
        missing = set(self.certain) - set(seen)
        assert not missing, f"committed, and not there: {sorted(missing)}"
        strange = set(seen) - set(self.certain) - set(self.possible)
        assert not strange, f"there, and not committed: {sorted(strange)}"
        if not self.possible:
            async with Consumer(
                bootstrap_servers=self.broker.bootstrap_servers, group_id="g"
            ) as consumer:
                consumer.assign(GROUP_TP)
                found = (await consumer.committed(GROUP_TP))[GROUP_TP]
            assert (found.offset if found else 0) == self.offset


GROUP_TP = TopicPartition("t", 0)


async def storm(seed: int, release: str) -> Storm:
    """Run one series of transactions; the seed determines all faults."""
    async with Broker(nodes=3, as_of=release, auto_create_topics=False) as broker:
        await broker.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        found = Storm(broker, seed)
        with anyio.fail_after(120):
            await found.run()
            await found.check()
        return found


def main(first: int, count: int, release: str) -> None:
    for seed in range(first, first + count):
        try:
            found = anyio.run(storm, seed, release)
        except BaseException:
            print(f"seed {seed} on {release}", flush=True)
            raise
        print(seed, len(found.certain), "committed,", len(found.possible), "unknown", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
