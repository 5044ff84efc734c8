"""A conversation with a transaction coordinator, equal for real Kafka and the embedded broker.

What Kafka answered is kept in tests/vectors/transactions.json. To ask again, on this machine:

    python -m tests.broker.transactions.conversation 0.11.0.3 2.8.2 3.9.1 4.3.0
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from aiokafkawire.broker.apis import HANDLERS
from aiokafkawire.broker.releases import Release, get_release
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages import (
    describe_producers,
    describe_transactions,
    fetch,
    find_coordinator,
    list_offsets,
    list_transactions,
    offset_fetch,
)
from tests.broker.raw_client import RawClient, batch, only, produce_request
from tests.broker.transactional_client import TransactionalClient

E = ErrorCode
RECORDINGS = Path(__file__).parents[2] / "vectors" / "transactions.json"
RELEASES: Mapping[str, str] = {
    "0.11.0.3": "0.11",
    "1.1.1": "1.1",
    "2.8.2": "2.8",
    "3.9.1": "3.9",
    "4.3.0": "4.3",
}
"""The recorded releases, and the release as which the embedded broker must respond equally."""

LONG_MS, SHORT_MS = 60_000, 500
"""Transaction timeouts: a long one, and one that expires; real brokers need a while."""

WITHIN_S = 30.0
POLL_INTERVAL_S = 0.02
UNSETTLED = {
    E.CONCURRENT_TRANSACTIONS,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.NOT_ENOUGH_REPLICAS,
    E.UNSTABLE_OFFSET_COMMIT,
}

CLASSIC_CAPS = {ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4}
NEWEST_CAPS = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}
READING_CAPS = {ApiKey.FETCH: 12, ApiKey.OFFSET_FETCH: 7, ApiKey.FIND_COORDINATOR: 3}
ADD_CAP = 3

Note = list[Any]


def protocols(as_of: str) -> list[str]:
    """Transaction protocols that producers of a release may use."""
    return ["classic", "newest"] if get_release(as_of, HANDLERS).since("4.0") else ["classic"]


class Conversation:
    """`notes` are the steps and their results. Producer ids are numbered from the first one."""

    def __init__(self, client: RawClient, release: Release, protocol: str) -> None:
        self.client = client
        self.notes: list[Note] = []
        self.adds = protocol == "classic"
        self._release = release
        self._protocol = protocol
        self._caps = READING_CAPS | (CLASSIC_CAPS if self.adds else NEWEST_CAPS)
        self._ids: dict[int, int] = {}

    def version(self, key: ApiKey) -> int:
        return min(self._release.served[key].high, self._caps.get(key, 2**15))

    def producer(self, name: str) -> TransactionalClient:
        versions = {
            "init": self.version(ApiKey.INIT_PRODUCER_ID),
            "add": min(self.version(ApiKey.ADD_PARTITIONS_TO_TXN), ADD_CAP),
            "add_offsets": self.version(ApiKey.ADD_OFFSETS_TO_TXN),
            "produce": self.version(ApiKey.PRODUCE),
            "commit_offsets": self.version(ApiKey.TXN_OFFSET_COMMIT),
            "end": self.version(ApiKey.END_TXN),
        }
        made = TransactionalClient(self.client, f"{self._protocol}-{name}", versions)
        # With old timestamps a log would roll a segment at each marker.
        made.timestamp_ms = time.time_ns() // 1_000_000
        return made

    def group(self, name: str) -> str:
        return f"{self._protocol}-{name}"

    def note(self, what: str, *found: Any) -> None:
        self.notes.append([what, *(_plain(each) for each in found)])

    def who(self, me: ProducerIdAndEpoch) -> list[int]:
        number = self._ids.setdefault(me.producer_id, len(self._ids))
        return [number, me.epoch]

    async def settled(self, ask: Callable[[], Awaitable[int]]) -> int:
        """Return the response once the cluster, or the previous transaction, is ready."""
        code = await ask()
        with anyio.fail_after(WITHIN_S):
            while code in UNSETTLED:
                await anyio.sleep(POLL_INTERVAL_S)
                code = await ask()
        return code

    # --- asking ------------------------------------------------------------------------------

    async def found(self, *keys: tuple[str, int]) -> None:
        for key, kind in keys:
            request = find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
            version = self.version(ApiKey.FIND_COORDINATOR)

            async def ask(
                request: find_coordinator.FindCoordinatorRequest = request, version: int = version
            ) -> int:
                return int((await self.client.call(request, version)).error_code)

            assert await self.settled(ask) == E.NONE

    async def begun(self, producer: TransactionalClient, *partitions: int) -> None:
        """Add partitions where the protocol needs it, once the previous transaction has ended."""
        if self.adds:
            assert await self.settled(lambda: producer.add(*partitions)) == E.NONE

    async def wrote(self, producer: TransactionalClient, value: bytes) -> None:
        async def ask() -> int:
            return int((await producer.produce(value)).error_code)

        assert await self.settled(ask) == E.NONE

    async def read(self, *, isolated: bool, offset: int = 0) -> Note:
        """Return the values, the end and the aborted transactions of a fetch."""
        asked = fetch.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=2**20, log_start_offset=-1
        )
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(isolated),
            topics=[fetch.FetchTopic(topic="t", partitions=[asked])],
        )
        answer = only(await self.client.call(request, self.version(ApiKey.FETCH)))
        batches = [
            ["marker" if view.is_control else "data", view.base_offset, view.last_offset]
            for view in iter_batches(answer.records)
        ]
        aborted = answer.aborted_transactions
        firsts = None if aborted is None else sorted(each.first_offset for each in aborted)
        return [
            answer.error_code,
            answer.high_watermark,
            answer.last_stable_offset,
            batches,
            firsts,
        ]

    async def ends(self) -> list[int]:
        """Return the end of the partition for `read_committed` consumers, and the log's end."""
        found = []
        for isolated in (True, False):
            asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
            request = list_offsets.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(isolated),
                topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[asked])],
            )
            answer = await self.client.call(request, self.version(ApiKey.LIST_OFFSETS))
            found.append(int(only(answer).offset))
        return found

    async def stable(self, group: str, *, stable: bool = True) -> list[int]:
        """Return the error and the committed offset of a group."""
        version = self.version(ApiKey.OFFSET_FETCH)
        topic = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
        if version >= 7:
            request.require_stable = stable
        answer = await self.client.call(request, version)
        ((found,),) = (each.partitions for each in answer.topics)
        return [found.error_code, found.committed_offset]

    async def until_complete(self, high_watermark: int) -> None:
        """Wait for a marker, which real brokers write after their response."""

        async def ask() -> int:
            end = (await self.read(isolated=True))[2]
            return E.CONCURRENT_TRANSACTIONS if end < high_watermark else E.NONE

        await self.settled(ask)

    async def until_committed(self, group: str) -> None:
        """Wait for the first offset of a group: old brokers store it some time after the marker."""

        async def ask() -> int:
            return E.CONCURRENT_TRANSACTIONS if (await self.stable(group))[1] < 0 else E.NONE

        await self.settled(ask)

    async def described(self, producer: TransactionalClient) -> None:
        if ApiKey.DESCRIBE_TRANSACTIONS not in self._release.served:
            return
        names = [producer.name, f"{producer.name}-unknown", ""]
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=names)
        states = (await self.client.call(request, 0)).transaction_states
        with anyio.fail_after(WITHIN_S):
            while states[0].transaction_state.startswith("Prepare"):
                await anyio.sleep(POLL_INTERVAL_S)
                states = (await self.client.call(request, 0)).transaction_states
        for state in states:
            topics = {topic.topic: sorted(topic.partitions) for topic in state.topics}
            if "__consumer_offsets" in topics:
                topics["__consumer_offsets"] = []
            self.note(
                "described",
                state.error_code,
                state.transaction_state,
                {0: 0, LONG_MS: "long"}.get(state.transaction_timeout_ms, "short"),
                state.producer_epoch,
                topics,
            )
        version = self.version(ApiKey.LIST_TRANSACTIONS)
        for filters in ([], ["Ongoing"], ["Ongoing", "Gone"], ["Gone"]):
            listing = list_transactions.ListTransactionsRequest(
                state_filters=list(filters), producer_id_filters=[]
            )
            answer = await self.client.call(listing, version)
            found = {each.transactional_id: each for each in answer.transaction_states}
            mine = found.get(producer.name)
            unknown = answer.unknown_state_filters
            self.note("listed", answer.error_code, unknown, mine and mine.transaction_state)

    async def active_producers(self) -> None:
        if ApiKey.DESCRIBE_PRODUCERS not in self._release.served:
            return
        asked = describe_producers.DescribeProducersTopicRequest(name="t", partition_indexes=[0, 9])
        request = describe_producers.DescribeProducersRequest(topics=[asked])
        (topic,) = (await self.client.call(request, 0)).topics
        for partition in topic.partitions:
            producers = sorted(
                [
                    self.who(ProducerIdAndEpoch(each.producer_id, each.producer_epoch)),
                    each.last_sequence,
                    each.current_txn_start_offset,
                ]
                for each in partition.active_producers
            )
            self.note("active", partition.partition_index, partition.error_code, producers)


def _plain(value: Any) -> Any:
    return ErrorCode(value).name if isinstance(value, ErrorCode) else value


async def talk(client: RawClient, as_of: str, protocol: str, short_ms: int) -> list[Note]:
    """Run the whole conversation in one protocol, with a topic `t` of two partitions."""
    talking = Conversation(client, get_release(as_of, HANDLERS), protocol)
    await talking.found((f"{protocol}-tx", 1), (talking.group("g"), 0))
    await _beginning(talking)
    await _committing(talking)
    await _fencing(talking)
    await _offsets(talking)
    await _bumping(talking)
    await _timing_out(talking, short_ms)
    return talking.notes


async def _beginning(talking: Conversation) -> None:
    tx = talking.producer("tx")
    for timeout_ms in (0, -1, 900_001):
        talking.note("a timeout", timeout_ms, E(await tx.init(timeout_ms=timeout_ms)))
    nobody = talking.producer("x")
    nobody.name = ""
    talking.note("no name", E(await nobody.init()))
    half = ProducerIdAndEpoch(1, -1)
    if tx.versions["init"] >= 3:
        talking.note("half an identity", E(await tx.init(expected=half)))
    unknown = talking.producer("unknown")
    unknown.me = ProducerIdAndEpoch(10**6, 0)
    talking.note("an unknown one adds", E(await unknown.add(0)))
    talking.note("an unknown one ends", E(await unknown.end(commit=True)))
    code = await talking.settled(tx.init)
    talking.note("init", E(code), talking.who(tx.me))
    talking.note("commits nothing", E(await tx.end(commit=True)))
    talking.note("aborts nothing", E(await tx.end(commit=False)), talking.who(tx.me))
    code = await talking.settled(tx.init)
    talking.note("init", E(code), talking.who(tx.me))
    # 1.1 accepts a missing partition of the topic, and can never end the transaction then.
    unknown_topics = ("t", "nowhere") if tx.versions["add"] else ("nowhere",)
    for topic in unknown_topics:
        talking.note("adds what is not there", E(await tx.add(9, topic=topic)))
    stranger = talking.producer("tx")
    for me in (
        ProducerIdAndEpoch(tx.me.producer_id + 10**6, tx.me.epoch),
        ProducerIdAndEpoch(tx.me.producer_id, tx.me.epoch - 1),
    ):
        stranger.me = me
        talking.note("another adds", E(await stranger.add(0)))
        talking.note("another adds offsets", E(await stranger.add_offsets("g")))
        talking.note("another ends", E(await stranger.end(commit=True)))


async def _committing(talking: Conversation) -> None:
    tx = talking.producer("tx")
    await talking.settled(tx.init)
    start = (await talking.ends())[1]
    await talking.begun(tx, 0)
    await talking.wrote(tx, b"a")
    talking.note("open", await talking.read(isolated=True, offset=start))
    talking.note("open", await talking.read(isolated=False, offset=start))
    talking.note("open", await talking.ends())
    await talking.described(tx)
    await talking.active_producers()
    answer = await tx.produce(b"v", partition=1)
    talking.note("writes to what it may not have added", E(answer.error_code))
    records = batch(
        b"v",
        producer_id=tx.me.producer_id,
        producer_epoch=tx.me.epoch,
        base_sequence=1,
    )
    plain = produce_request("t", 0, records)
    code = only(await talking.client.call(plain, tx.versions["produce"])).error_code
    talking.note("writes outside of its transaction", E(code))
    me = tx.me
    talking.note("commits", E(await tx.end(commit=True)), talking.who(tx.me))
    await talking.until_complete(start + 2)
    after, tx.me = tx.me, me
    talking.note("commits again", E(await talking.settled(lambda: tx.end(commit=True))))
    talking.note("as", talking.who(tx.me))
    tx.me = me
    talking.note("aborts after it", E(await tx.end(commit=False)))
    tx.me = after
    talking.note("committed", await talking.read(isolated=True, offset=start))
    talking.note("committed", await talking.ends())
    await talking.described(tx)
    await talking.active_producers()
    if tx.versions["end"] >= 5:
        talking.note("commits nothing", E(await tx.end(commit=True)))
        talking.note("aborts nothing", E(await tx.end(commit=False)), talking.who(tx.me))
    code = await talking.settled(tx.init)
    await talking.begun(tx, 0)
    await talking.wrote(tx, b"x")
    talking.note("aborts", E(await tx.end(commit=False)), talking.who(tx.me))
    await talking.until_complete(start + 4)
    talking.note("aborted", await talking.read(isolated=True, offset=start))
    talking.note("aborted", await talking.read(isolated=True, offset=start + 3))
    talking.note("aborted", await talking.read(isolated=False, offset=start))


async def _fencing(talking: Conversation) -> None:
    older, newer = talking.producer("tx"), talking.producer("tx")
    await talking.settled(older.init)
    start = (await talking.ends())[1]
    await talking.begun(older, 0)
    await talking.wrote(older, b"x")
    talking.note("a newer one", E(await newer.init()))
    talking.note("a newer one", E(await talking.settled(newer.init)))
    talking.note("so much newer", newer.me.epoch - older.me.epoch)
    talking.note("the older adds", E(await older.add(0)))
    talking.note("the older adds offsets", E(await older.add_offsets("g")))
    talking.note("the older writes", E((await older.produce(b"y")).error_code))
    group = talking.group("g")
    if talking.adds is False or older.versions["commit_offsets"] >= 4:
        talking.note("the older commits offsets", E(await older.commit_offsets(group, 1)))
    for commit in (True, False):
        talking.note("the older ends", E(await older.end(commit=commit)))
    if older.versions["init"] >= 3:
        talking.note("the older goes on", E(await older.init(expected=older.me)))
    await talking.begun(newer, 0)
    await talking.wrote(newer, b"b")
    talking.note("the newer commits", E(await newer.end(commit=True)))
    await talking.until_complete(start + 4)
    talking.note("after it", await talking.read(isolated=True, offset=start))


async def _offsets(talking: Conversation) -> None:
    tx = talking.producer("tx")
    group = talking.group("g")
    await talking.settled(tx.init)
    if talking.adds and tx.versions["commit_offsets"] >= 4:
        code = await tx.commit_offsets(talking.group("h"), 1)
        talking.note("commits offsets of what it did not add", E(code))
        await talking.settled(lambda: tx.end(commit=False))
        await talking.settled(tx.init)
    for offset, commit in ((5, False), (7, True)):
        if talking.adds:
            code = await talking.settled(lambda: tx.add_offsets(group))
            talking.note("adds offsets", E(code))
        code = await talking.settled(lambda offset=offset: tx.commit_offsets(group, offset))  # type: ignore[misc]
        talking.note("commits offsets", E(code))
        talking.note("pending", await talking.stable(group))
        talking.note("pending", await talking.stable(group, stable=False))
        if tx.versions["commit_offsets"] >= 3:
            member = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
            code = await tx.commit_offsets(group, 9, **member)
            talking.note("a stranger commits offsets", E(code))
        talking.note("ends", E(await tx.end(commit=commit)))
        # The markers are complete only when the next transaction may begin.
        await talking.settled(tx.init)
        if commit:
            await talking.until_committed(group)
        talking.note("ended", await talking.stable(group))


async def _bumping(talking: Conversation) -> None:
    tx = talking.producer("tx")
    if tx.versions["init"] < 3:
        return
    await talking.settled(tx.init)
    me = tx.me
    for _ in range(2):
        talking.note("bumps", E(await tx.init(expected=me)), tx.me.epoch - me.epoch)
    talking.note("bumps", E(await tx.init(expected=tx.me)), tx.me.epoch - me.epoch)
    talking.note("an old one bumps", E(await tx.init(expected=me)))
    talking.note("another bumps", E(await tx.init(expected=ProducerIdAndEpoch(10**6, 0))))
    await talking.begun(tx, 0)
    await talking.wrote(tx, b"x")
    talking.note("bumps while it is open", E(await tx.init(expected=tx.me)))
    code = await talking.settled(lambda: tx.init(expected=tx.me))
    talking.note("bumps after that", E(code))
    await talking.settled(tx.init)


async def _timing_out(talking: Conversation, short_ms: int) -> None:
    tx = talking.producer("late")
    await talking.found((tx.name, 1))
    start = (await talking.ends())[1]
    await talking.settled(lambda: tx.init(timeout_ms=short_ms))
    await talking.begun(tx, 0)
    await talking.wrote(tx, b"x")
    await talking.until_complete(start + 2)
    await talking.described(tx)
    talking.note("late, it writes", E((await tx.produce(b"y")).error_code))
    me = tx.me
    for commit in (True, False):
        code = await talking.settled(lambda commit=commit: tx.end(commit=commit))  # type: ignore[misc]
        talking.note("late, it ends", E(code), tx.me.epoch - me.epoch)
    if tx.versions["init"] >= 3:
        tx.me = me
        code = await talking.settled(lambda: tx.init(expected=me))
        talking.note("late, it goes on", E(code), tx.me.epoch - me.epoch)
    talking.note("a new one", E(await talking.settled(tx.init)), tx.me.epoch - me.epoch)
    talking.note("after it", await talking.read(isolated=True, offset=start))


async def ask(address: Address, as_of: str, short_ms: int = SHORT_MS) -> dict[str, list[Note]]:
    """Run the conversation in every protocol of a broker."""
    found = {}
    for protocol in protocols(as_of):
        transport = await RealRuntime().connect(address)
        try:
            found[protocol] = await talk(RawClient(transport), as_of, protocol, short_ms)
        finally:
            await transport.aclose()
    return found


def record(version: str) -> dict[str, list[Note]]:
    """Record the responses of real Kafka."""
    from tests.brokers.kafka import Kafka

    properties = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "group.initial.rebalance.delay.ms": "0",
    }
    with Kafka(version, properties=properties) as kafka:
        kafka.create_topic("t", partitions=2)
        host, port = kafka.bootstrap_servers.split(":")
        return anyio.run(ask, Address(host, int(port)), RELEASES[version])


def recordings() -> dict[str, dict[str, list[Note]]]:
    return dict(json.loads(RECORDINGS.read_text("utf-8"))) if RECORDINGS.exists() else {}


if __name__ == "__main__":
    for release in sys.argv[1:] or RELEASES:
        kept = recordings() | {release: record(release)}
        rows = (
            f'"{name}": {{\n'
            + ",\n".join(
                f'"{protocol}": [\n' + ",\n".join(json.dumps(note) for note in notes) + "\n]"
                for protocol, notes in talks.items()
            )
            + "\n}"
            for name, talks in sorted(kept.items())
        )
        RECORDINGS.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
        print(release, {protocol: len(notes) for protocol, notes in kept[release].items()})
