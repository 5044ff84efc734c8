"""A broker without sockets on files whose writes fail, and a model of what it acknowledged.

    python -m tests.broker.storage_faults --seeds 500

One seed is one history of produces, commits, transactions, topics and restarts while writes fail by
chance, are cut short or find no room; then there is room again. Whatever was acknowledged must be
readable, at once and after every restart, and nothing may be readable that was never sent.
"""

from __future__ import annotations

import argparse
import errno
import logging
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiokafkawire.broker.apis import HANDLERS
from aiokafkawire.broker.authentication import CredentialStore
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.coordinator_loading import CoordinatorLoader
from aiokafkawire.broker.fetch_session_cache import FetchSessionCache
from aiokafkawire.broker.files import Files
from aiokafkawire.broker.groups import GroupCoordinator, OffsetStore
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.release_choice import resolve_release
from aiokafkawire.broker.request_context import BrokerState, ClientConnection, RequestContext
from aiokafkawire.broker.share.configs import ShareGroupConfigs
from aiokafkawire.broker.share.dead_letters import DeadLetterQueue
from aiokafkawire.broker.share.persister import SharePersister
from aiokafkawire.broker.share.share_partition_manager import SharePartitionManager
from aiokafkawire.broker.storage import DirectoryStore
from aiokafkawire.broker.transactions import TransactionCoordinator
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode, Request
from aiokafkawire.wire.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    init_producer_id,
    offset_commit,
)

from .raw_client import batch, only, produce_request
from .transactional_client import CLASSIC, NEWEST, TransactionalClient, fetched

E = ErrorCode
T = TypeVar("T")

PRODUCE_REFUSALS = {E.KAFKA_STORAGE_ERROR, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS}
COORDINATOR_REFUSALS = {
    E.NOT_COORDINATOR,
    E.CONCURRENT_TRANSACTIONS,
    E.COORDINATOR_LOAD_IN_PROGRESS,
}


# --- files that fail -----------------------------------------------------------------------------


class FaultyFiles(Files):
    """Asks `fails(operation)` before each system call that changes something.

    It answers None (let it through) or an errno. A write that fails may store a part before:
    `part(size)` says how much of it.
    """

    def __init__(
        self,
        fails: Callable[[str], int | None] = lambda operation: None,
        part: Callable[[int], int] = lambda size: 0,
    ) -> None:
        self.fails = fails
        self.part = part
        self.failures = 0

    def _check(self, operation: str) -> None:
        number = self.fails(operation)
        if number is not None:
            self.failures += 1
            raise OSError(number, f"injected: {operation}")

    def open(self, path: Path, flags: int) -> int:
        self._check("open")
        return super().open(path, flags)

    def write(self, descriptor: int, data: memoryview) -> int:
        try:
            self._check("write")
        except OSError:
            count = self.part(len(data))
            if not count:
                raise
            # A short write; the rest is another write, which may fail.
            return super().write(descriptor, data[:count])
        return super().write(descriptor, data)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self._check("close")

    def truncate(self, path: Path, size_bytes: int) -> None:
        self._check("truncate")
        super().truncate(path, size_bytes)

    def replace(self, source: Path, target: Path) -> None:
        self._check("replace")
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._check("unlink")
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._check("mkdir")
        super().mkdir(path)

    def rmtree(self, path: Path) -> None:
        self._check("rmtree")
        super().rmtree(path)


# --- a broker without sockets --------------------------------------------------------------------


class Clock:
    seconds = 1_000.0

    def now(self) -> float:
        return self.seconds

    def wall_ms(self) -> int:
        return int(self.seconds * 1000)

    async def sleep_until(self, deadline: float) -> None:
        raise AssertionError("nothing here sleeps")


def finished(awaitable: Awaitable[T]) -> T:
    """Run a coroutine that never waits."""
    step = awaitable.__await__()
    try:
        next(step)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("the request waits for something")


class SocketlessBroker:
    """One node without sockets; requests go directly to the handlers."""

    def __init__(
        self, directory: Path, files: Files, clock: Clock, seed: int = 0, **options: Any
    ) -> None:
        self._rng = random.Random(seed)
        self.store = DirectoryStore(directory, files)
        self.store.open()
        try:
            self.state = self._loaded(clock, BrokerConfig(**options))
        except BaseException:
            self.store.close()
            raise

    def _loaded(self, clock: Any, options: BrokerConfig) -> BrokerState:
        cluster = ClusterState([1], self.store, options, self._rng)
        offsets = OffsetStore(self.store)
        offsets.delete_missing_topics(cluster.topics)
        cluster.on_topic_deletion.append(offsets.delete_topic)
        cluster.before_topic_creation.append(offsets.flush_deletions)
        groups = GroupCoordinator(options, clock, random.Random(2), offsets)
        transactions = TransactionCoordinator(
            options, clock, cluster, offsets, self.store, bumps_epoch=lambda: True
        )
        coordinator_loader = CoordinatorLoader(cluster, groups, transactions, clock, load_s=0)
        share_configs = ShareGroupConfigs(cluster.dynamic_configs)
        return BrokerState(
            options=options,
            clock=clock,
            cluster=cluster,
            group_coordinator=groups,
            transaction_coordinator=transactions,
            coordinator_loader=coordinator_loader,
            share_partitions=SharePartitionManager(
                cluster,
                SharePersister(self.store, clock),
                clock,
                share_configs,
                max_sessions=10,
                dead_letters=DeadLetterQueue(
                    cluster,
                    share_configs,
                    clock,
                    is_enabled=lambda: False,
                    leader_replica=lambda partition: partition,
                ),
            ),
            releases={1: resolve_release(None, replicate=False)},
            credentials=CredentialStore(None, random.Random(4)),
            rng=random.Random(5),
            fetch_sessions={1: FetchSessionCache(random.Random(3), 10)},
        )

    def stop(self) -> None:
        self.state.cluster.save_if_possible()
        self.store.close()

    async def call(self, message: Request[Any], version: int) -> Any:
        context = RequestContext(
            state=self.state,
            node_id=1,
            version=version,
            client_id="",
            connection=ClientConnection("here"),
        )
        return await HANDLERS[message.api_key].handle(context, message)


# --- what it acknowledged ------------------------------------------------------------------------


@dataclass
class ModelPartition:
    """Acknowledged values by offset, and rejected ones."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)


@dataclass
class Pending:
    """One batch of an idempotent producer that is retried until it is acknowledged."""

    sequence: int
    value: bytes


@dataclass
class IdempotentProducer:
    producer_id: int
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    pending: dict[tuple[str, int], Pending] = field(default_factory=dict)


class Worker:
    """A transactional producer as a state machine; each `step` is one request."""

    def __init__(self, name: str, newest: bool, rng: random.Random) -> None:
        self.name = name
        self.newest = newest
        self.rng = rng
        self.producer: TransactionalClient | None = None
        self.started = False
        self.todo: list[str] = []
        self.values: list[bytes] = []
        self.offset = 0
        self.committed_values: list[bytes] = []
        self.other_values: set[bytes] = set()
        self.committed_offset = -1

    def plan(self, unique: Callable[[], bytes], offset: int) -> None:
        self.values = [unique() for _ in range(self.rng.randint(1, 3))]
        self.offset = offset
        adds = [] if self.newest else ["add", "add_offsets"]
        sends = ["send"] * len(self.values) + ["commit_offsets"]
        self.todo = [*adds, *sends, self.rng.choice(["commit", "commit", "abort"])]


class History:
    """Run one seed."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.directory = directory
        self.clock = Clock()
        self.mode = "healthy"
        self.files = FaultyFiles(self._fails, lambda size: rng.randint(0, size))
        self.counter = 0
        self.acknowledged = self.refused = self.restarts = 0
        self.topics: dict[str, list[ModelPartition]] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.maybe: dict[tuple[str, TopicPartition], set[int]] = {}
        self.producer_ids: set[int] = set()
        self.idempotent: list[IdempotentProducer] = []
        self.workers = [Worker(f"tx{n}", newest=n % 2 == 0, rng=rng) for n in range(2)]
        self.options = {
            "segment_bytes": rng.choice([250, 600, 2**20]),
            "transactional_id_expiration_ms": 10**12,
        }
        self.broker = self._started()
        self._create("t", 1)
        self.mode = rng.choice(["full", "failing"])

    def _started(self) -> SocketlessBroker:
        seed = self.rng.getrandbits(32)
        return SocketlessBroker(self.directory, self.files, self.clock, seed, **self.options)

    def _fails(self, operation: str) -> int | None:
        if self.mode == "healthy":
            return None
        if self.mode == "full":
            # Freeing space is possible, and existing names need none.
            fails = operation in {"write", "mkdir"} and self.rng.random() < 0.8
            return errno.ENOSPC if fails else None
        return errno.EIO if self.rng.random() < 0.25 else None

    def run(self, steps: int = 120) -> None:
        actions: list[tuple[Callable[[], None], int]] = [
            (self.produce, 20),
            (self.produce_idempotent, 20),
            (self.transact, 40),
            (self.commit, 15),
            (self.create, 4),
            (self.delete, 3),
            (self.enlarge, 2),
            (self.new_producer, 2),
            (self.restart, 4),
            (self.change_mode, 8),
            (self.pass_time, 6),
            (self.check, 4),
        ]
        functions, weights = zip(*actions, strict=True)
        try:
            for _ in range(steps):
                self.rng.choices(functions, weights)[0]()
            self.finish()
        finally:
            self.broker.store.close()

    def unique(self) -> bytes:
        self.counter += 1
        return b"%d." % self.counter + b"x" * self.rng.choice([0, 10, 150])

    def call(self, message: Request[Any], version: int) -> Any:
        return finished(self.broker.call(message, version))

    def somewhere(self) -> tuple[str, int]:
        name = self.rng.choice(list(self.topics))
        return name, self.rng.randrange(len(self.topics[name]))

    def judge(self, code: int, refusals: set[ErrorCode]) -> bool:
        """Return whether the record was acknowledged; an error must be retriable."""
        if code == E.NONE:
            self.acknowledged += 1
            return True
        assert code in refusals, E(code).name
        assert self.mode != "healthy" or code == E.CONCURRENT_TRANSACTIONS, E(code).name
        self.refused += 1
        return False

    # --- records ---

    def produce(self) -> None:
        name, index = self.somewhere()
        model, value = self.topics[name][index], self.unique()
        answer = only(self.call(produce_request(name, index, batch(value)), 9))
        if self.judge(answer.error_code, {E.KAFKA_STORAGE_ERROR}):
            model.acknowledged[answer.base_offset] = value
        else:
            model.refused.add(value)

    def produce_idempotent(self) -> None:
        if not self.idempotent:
            self.new_producer()
            return
        producer, where = self.rng.choice(self.idempotent), self.somewhere()
        model = self.topics[where[0]][where[1]]
        pending = producer.pending.get(where)
        if pending is None:
            pending = Pending(producer.sequences.get(where, 0), self.unique())
            producer.pending[where] = pending
        records = batch(
            pending.value,
            producer_id=producer.producer_id,
            producer_epoch=0,
            base_sequence=pending.sequence,
        )
        answer = only(self.call(produce_request(*where, records), 9))
        if self.judge(answer.error_code, {E.KAFKA_STORAGE_ERROR}):
            del producer.pending[where]
            producer.sequences[where] = pending.sequence + 1
            assert answer.base_offset not in model.acknowledged
            model.acknowledged[answer.base_offset] = pending.value
        else:
            model.refused.add(pending.value)

    def new_producer(self) -> None:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1_000
        )
        answer = self.call(request, 4)
        if self.judge(answer.error_code, {E.COORDINATOR_LOAD_IN_PROGRESS}):
            assert answer.producer_id not in self.producer_ids
            self.producer_ids.add(answer.producer_id)
            self.idempotent = [*self.idempotent[-2:], IdempotentProducer(answer.producer_id)]

    # --- transactions ---

    def transact(self) -> None:
        self.advance(self.rng.choice(self.workers))

    def advance(self, worker: Worker) -> None:
        if worker.producer is None:
            # The topic "t" is never deleted while a transaction may hold it.
            versions = NEWEST if worker.newest else CLASSIC
            worker.producer = TransactionalClient(self, worker.name, versions)  # type: ignore[arg-type]
        producer = worker.producer
        producer.client = _Client(self)  # type: ignore[assignment]
        if not worker.started:
            code = finished(producer.init())
            worker.started = self.judge(code, COORDINATOR_REFUSALS)
            if worker.started:
                self.producer_ids.add(producer.me.producer_id)
            return
        if not worker.todo:
            worker.plan(self.unique, self.counter)
        if self._done(worker, producer, worker.todo[0]):
            worker.todo.pop(0)

    def _done(self, worker: Worker, producer: TransactionalClient, what: str) -> bool:
        if what == "add":
            return self.judge(finished(producer.add(0)), COORDINATOR_REFUSALS)
        if what == "add_offsets":
            return self.judge(finished(producer.add_offsets(worker.name)), COORDINATOR_REFUSALS)
        if what == "commit_offsets":
            code = finished(producer.commit_offsets(worker.name, worker.offset))
            return self.judge(code, COORDINATOR_REFUSALS)
        if what == "send":
            value = worker.values[-worker.todo.count("send")]
            worker.other_values.add(value)
            answer = finished(producer.produce(value))
            return self.judge(answer.error_code, PRODUCE_REFUSALS)
        if not self.judge(finished(producer.end(commit=what == "commit")), COORDINATOR_REFUSALS):
            return False
        if what == "commit":
            worker.committed_values += worker.values
            worker.other_values.difference_update(worker.values)
            worker.committed_offset = worker.offset
        return True

    # --- offsets ---

    def commit(self) -> None:
        group, where = self.rng.choice("ab"), TopicPartition(*self.somewhere())
        key, offset = (group, where), self.rng.randrange(1_000)
        asked = offset_commit.OffsetCommitRequestPartition(
            partition_index=where.partition, committed_offset=offset, committed_metadata=""
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[offset_commit.OffsetCommitRequestTopic(name=where.topic, partitions=[asked])],
        )
        answer = only(self.call(request, 8))
        if self.judge(answer.error_code, {E.NOT_COORDINATOR}):
            self.offsets[key] = offset
            self.maybe.pop(key, None)
        else:
            self.maybe.setdefault(key, set()).add(offset)

    # --- topics ---

    def create(self) -> None:
        name = self.rng.choice("uvw")
        if name not in self.topics:
            self._create(name, self.rng.randint(1, 2))

    def _create(self, name: str, count: int) -> None:
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
        (answer,) = self.call(request, 5).topics
        if self.judge(answer.error_code, {E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR}):
            self.topics[name] = [ModelPartition() for _ in range(count)]

    def delete(self) -> None:
        name = self.rng.choice("uvw")
        if name not in self.topics:
            return
        request = delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000)
        (answer,) = self.call(request, 5).responses
        if self.judge(answer.error_code, {E.KAFKA_STORAGE_ERROR}):
            del self.topics[name]
            for known in (self.offsets, self.maybe):
                for key in [key for key in known if key[1].topic == name]:
                    del known[key]  # type: ignore[attr-defined]
            for producer in self.idempotent:
                for state in (producer.sequences, producer.pending):
                    for where in [where for where in state if where[0] == name]:
                        del state[where]  # type: ignore[attr-defined]
            return
        # On a full disk a topic may stay without its records.
        for partition, model in zip(
            self.broker.state.cluster.topics[name].partitions, self.topics[name], strict=True
        ):
            if partition.log.start_offset == partition.log.end_offset:
                model.acknowledged.clear()

    def enlarge(self) -> None:
        name = self.rng.choice(list(self.topics))
        count = len(self.topics[name]) + 1
        asked = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = create_partitions.CreatePartitionsRequest(
            topics=[asked], timeout_ms=1_000, validate_only=False
        )
        (answer,) = self.call(request, 3).results
        if self.judge(answer.error_code, {E.KAFKA_STORAGE_ERROR}):
            self.topics[name].append(ModelPartition())

    # --- what happens ---

    def change_mode(self) -> None:
        self.mode = self.rng.choice(["healthy", "full", "failing"])

    def pass_time(self) -> None:
        self.clock.seconds += 2
        self.broker.state.transaction_coordinator.tick()

    def restart(self) -> None:
        self.restarts += 1
        if self.rng.random() < 0.7:
            self.broker.stop()
        else:
            self.broker.store.close()  # as after SIGKILL
        self.broker = self._started()
        self.check(restarted=True)

    def finish(self) -> None:
        """With free space everything continues, and a restart finds all of it."""
        self.mode = "healthy"
        for name in list(self.topics):
            for index in range(len(self.topics[name])):
                answer = only(self.call(produce_request(name, index, batch(b"last")), 9))
                assert answer.error_code == E.NONE
                self.topics[name][index].acknowledged[answer.base_offset] = b"last"
        for worker in self.workers:
            for _ in range(30):
                if worker.started and not worker.todo:
                    break
                self.advance(worker)
                self.pass_time()
        self.pass_time()
        for _ in range(2):
            for transaction in self.broker.state.transaction_coordinator:
                assert not transaction.is_ending, transaction.state
            self.check_committed()
            self.restart()

    # --- checks ---

    def check(self, *, restarted: bool = False) -> None:
        state = self.broker.state
        assert set(state.cluster.topics) == set(self.topics)
        for name, models in self.topics.items():
            partitions = state.cluster.topics[name].partitions
            assert len(partitions) == len(models)
            transactional = [w for w in self.workers if name == "t"]
            for partition, model in zip(partitions, models, strict=True):
                self.check_log(partition.log, model, transactional if not partition.index else [])
        for key in {*self.offsets, *self.maybe}:
            found = state.group_coordinator.offsets.committed(key[0]).get(key[1])
            offset = None if found is None else found.offset
            allowed = {self.offsets.get(key)} | (self.maybe.get(key, set()) if restarted else set())
            assert offset in allowed, f"{key}: {offset} is not one of {allowed}"
            if restarted:
                # From now on the stored state counts.
                self.maybe.pop(key, None)
                if offset is not None:
                    self.offsets[key] = offset

    def check_log(self, log: Any, model: ModelPartition, workers: list[Worker]) -> None:
        found: dict[int, bytes | None] = {}
        offset = log.start_offset
        while offset < log.end_offset:
            content = log.read(offset, 2**30)
            assert content, f"{log.name}: nothing at {offset}, the end is {log.end_offset}"
            for view in iter_batches(content):
                view.check_crc()
                assert view.base_offset == offset, f"{view.base_offset} follows {offset}"
                offset = view.last_offset + 1
                if not view.is_control:
                    found[view.base_offset] = view.columns().value(0)
        for acknowledged, value in model.acknowledged.items():
            assert found.pop(acknowledged, None) == value, f"{log.name}: {value!r} is lost"
        known = set(model.refused)
        for worker in workers:
            known |= worker.other_values | set(worker.committed_values)
        rest = list(found.values())
        assert len(rest) == len(set(rest)), "a record is there twice"
        assert set(rest) <= known, "a record is there that nobody sent"
        # Rejected but stored: only possible in a log that could not be truncated before a restart.
        acknowledged_values = set(model.acknowledged.values()) - {b"last"}
        assert not acknowledged_values & set(rest), "an acknowledged record is there twice"

    def check_committed(self) -> None:
        """Committed transactions are visible, in order and once; aborted ones are not."""
        log, seen = self.broker.state.cluster.topics["t"].partitions[0].log, []
        offset = log.start_offset
        while offset < log.end_offset:
            answer = finished(fetched(_Client(self), offset))  # type: ignore[arg-type]
            assert answer.error_code == E.NONE
            views = list(iter_batches(answer.records))
            assert views, f"nothing at {offset}, the end is {log.end_offset}"
            aborted = {each.producer_id for each in answer.aborted_transactions or []}
            assert aborted <= {w.producer.me.producer_id for w in self.workers if w.producer}
            seen += _committed_values(answer)
            offset = views[-1].last_offset + 1
        for worker in self.workers:
            mine = set(worker.committed_values)
            assert [v for v in seen if v in mine] == worker.committed_values, worker.name
            assert not worker.other_values & set(seen), "an aborted record is visible"
            found = self.broker.state.group_coordinator.offsets.committed(worker.name).get(
                TopicPartition("t", 0)
            )
            assert (-1 if found is None else found.offset) == worker.committed_offset


class _Client:
    """Adapter with the methods of a connection that `TransactionalClient` uses, for any broker."""

    def __init__(self, history: History) -> None:
        self._history = history

    async def call(self, message: Request[Any], version: int) -> Any:
        return await self._history.broker.call(message, version)


def _committed_values(answer: Any) -> list[bytes | None]:
    """Return the values of a Fetch response that a `read_committed` consumer keeps."""
    starts = sorted(
        (each.first_offset, each.producer_id) for each in answer.aborted_transactions or []
    )
    aborting: set[int] = set()
    kept: list[bytes | None] = []
    for view in iter_batches(answer.records):
        while starts and starts[0][0] <= view.last_offset:
            aborting.add(starts.pop(0)[1])
        if view.is_control:
            aborting.discard(view.producer_id)
        elif not (view.is_transactional and view.producer_id in aborting):
            kept += [view.columns().value(index) for index in range(view.count)]
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable()
    began, totals = time.monotonic(), [0, 0, 0, 0]
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        with tempfile.TemporaryDirectory() as directory:
            history = History(seed, Path(directory))
            try:
                history.run()
            except BaseException:
                print(f"seed {seed} failed", file=sys.stderr)
                raise
        for index, count in enumerate(
            (history.acknowledged, history.refused, history.files.failures, history.restarts)
        ):
            totals[index] += count
    print(
        f"{arguments.seeds} seeds in {time.monotonic() - began:.0f} s: {totals[0]} requests"
        f" acknowledged, {totals[1]} refused, {totals[2]} system calls failed,"
        f" {totals[3]} restarts, nothing acknowledged is lost"
    )


if __name__ == "__main__":
    main()
