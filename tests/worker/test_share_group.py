"""The worker on a share group, on the embedded broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CorruptRecord, IllegalState, InvalidOption
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import Runtime, with_runtime
from aiokafkawire.share import ShareConsumer, ShareRecord
from aiokafkawire.testing import ApiKey, Close
from aiokafkawire.testing import Drop as DropRequest
from aiokafkawire.testing.simulation import World
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import BatchPolicy, DeadLetter, Drop, Retry, RetryPolicy, Worker, executor
from aiokafkawire.worker.metrics import collect_metrics
from tests.worker.helpers import ignore

GROUP = "jobs-group"
TP = TopicPartition("jobs", 0)
WITHIN_S = 60.0
TWICE = RetryPolicy(attempts=2, backoff_ms=1)

BROKER_OPTIONS: dict[str, Any] = {
    "as_of": "4.3",
    "group_share_min_heartbeat_interval_ms": 100,
    "group_share_heartbeat_interval_ms": 200,
    "group_share_assignment_interval_ms": 0,
}


async def fill(broker: Broker, runtime: Runtime | None, *values: bytes) -> None:
    """Write records, which the share group reads from the start."""
    await broker.create_topic("jobs", partitions=1)
    admin = Admin(bootstrap_servers=broker.bootstrap_servers)
    async with admin if runtime is None else with_runtime(admin, runtime) as admin:
        group = ConfigResource(ConfigResourceType.GROUP, GROUP)
        await admin.incremental_alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    async with producer if runtime is None else with_runtime(producer, runtime) as producer:
        for value in values:
            await producer.send("jobs", value)


@pytest.fixture
async def broker() -> Any:
    async with Broker(**BROKER_OPTIONS) as broker:
        yield broker


def make_worker(broker: Broker, **options: Any) -> Worker:
    defaults = {"commit_interval_ms": 50, "drain_timeout_ms": 2_000, "group_type": "share"}
    return Worker(
        bootstrap_servers=broker.bootstrap_servers, group_id=GROUP, **(defaults | options)
    )


async def lag(broker: Broker) -> int | None:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        info = (await admin.list_share_group_offsets([GROUP]))[GROUP].get(TP)
    return None if info is None else info.lag


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(WITHIN_S):
        while not await holds():  # noqa: ASYNC110 - the broker's state has no event
            await anyio.sleep(0.02)


async def wait_until_all_is_acknowledged(broker: Broker) -> None:
    async def is_acknowledged() -> bool:
        return await lag(broker) == 0

    await wait_until(is_acknowledged)


async def take(broker: Broker) -> ShareRecord:
    """Return the next record, which is released when the consumer stops."""
    consumer = ShareConsumer(
        "jobs",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=GROUP,
        share_acknowledgement_mode="explicit",
    )
    with anyio.fail_after(WITHIN_S):
        async with consumer:
            return await consumer.getone()


async def dead_letters(broker: Broker) -> list[tuple[bytes | None, dict[str, bytes | None]]]:
    async with Consumer(
        f"{GROUP}.dead",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
    ) as consumer:
        found = await consumer.getmany(timeout_ms=WITHIN_S * 1_000)
    return [(record.value, dict(record.headers)) for some in found.values() for record in some]


async def test_what_a_handler_does_decides_about_its_record(broker: Broker):
    await fill(broker, None, b"fine", b"once", b"drop", b"letter")
    worker = make_worker(broker)
    attempts: list[tuple[bytes, int]] = []

    @worker.on("jobs", order_by=None, retries=TWICE)
    async def process(record: Any) -> None:
        attempts.append((record.value, record.attempt))
        if record.value == b"once" and record.attempt == 1:
            raise Retry(0.01)
        if record.value == b"drop":
            raise Drop
        if record.value == b"letter":
            raise DeadLetter("rejected")

    async with worker:
        await wait_until_all_is_acknowledged(broker)
        metrics = worker.metrics()
        by_client = collect_metrics(worker._lifecycle.require_session())
        assert worker.health().is_ready
    assert sorted(attempts) == [
        (b"drop", 1),
        (b"fine", 1),
        (b"letter", 1),
        (b"once", 1),
        (b"once", 2),
    ]
    assert metrics["records_processed_total"] == 2
    assert metrics["records_dropped_total"] == metrics["records_dead_total"] == 1
    assert metrics["commit_failures_total"] == 0
    assert by_client.keys() == {"kafka_worker_", "kafka_share_consumer_", "kafka_producer_"}
    [(value, headers)] = await dead_letters(broker)
    assert value == b"letter"
    assert headers["__dlq.errors.topic"] == b"jobs"
    assert headers["__dlq.errors.delivery.count"] == b"1"


async def test_a_record_is_accepted_after_its_dead_letter_is_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(executor, "WRITE_BACKOFF_S", 0.05)
    await fill(broker, None, b"poison")
    worker = make_worker(
        broker, producer_options={"delivery_timeout_ms": 300, "request_timeout_ms": 200}
    )

    @worker.on("jobs", order_by=None)
    async def process(record: Any) -> None:
        raise DeadLetter("poison")

    async def has_failed_twice() -> bool:
        return worker.metrics()["write_failures_total"] >= 2

    fault = broker.on(ApiKey.PRODUCE, Close())
    async with worker:
        await wait_until(has_failed_twice)
        assert await lag(broker) != 0
        fault.remove()
        await wait_until_all_is_acknowledged(broker)
    assert {value for value, _ in await dead_letters(broker)} == {b"poison"}


async def test_records_without_attempts_left_are_rejected_if_the_broker_has_dead_letters(
    broker: Broker,
):
    await fill(broker, None, b"poison", b"fine")
    worker = make_worker(broker, on_exhausted="reject")

    @worker.on("jobs", order_by=None, retries=TWICE)
    async def process(record: Any) -> None:
        if record.value == b"poison":
            raise ValueError

    async with worker:
        reader = worker._lifecycle.require_session().clients.reader

        async def has_both_responses() -> bool:
            metrics = reader.metrics()
            types = ("accept", "reject")
            return [metrics[f'acknowledgements_total{{type="{name}"}}'] for name in types] == [1, 1]

        await wait_until(has_both_responses)
        assert worker.metrics()["records_dead_total"] == 1
    assert await lag(broker) == 0
    assert f"{GROUP}.dead" not in broker.topics


@pytest.mark.parametrize("ends_by", ["stop", "cancellation", "failure"])
async def test_a_worker_that_ends_releases_its_records(broker: Broker, ends_by: str):
    await fill(broker, None, b"job")
    worker = make_worker(broker, drain_timeout_ms=0, on_exhausted="stop")
    started = anyio.Event()

    @worker.on("jobs", order_by=None, retries=RetryPolicy(attempts=1))
    async def process(record: Any) -> None:
        started.set()
        if ends_by == "failure":
            raise ZeroDivisionError
        await anyio.sleep_forever()

    async def run() -> None:
        try:
            await worker.run()
        except ZeroDivisionError:
            assert ends_by == "failure"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(WITHIN_S):
            await started.wait()
        if ends_by == "stop":
            worker.request_stop()
        elif ends_by == "cancellation":
            tasks.cancel_scope.cancel()
    assert (await take(broker)).delivery_count == 2


async def test_deliveries_count_as_attempts(broker: Broker):
    await fill(broker, None, b"job")
    assert (await take(broker)).delivery_count == 1
    assert (await take(broker)).delivery_count == 2
    worker = make_worker(broker)
    attempts: list[int] = []

    @worker.on("jobs", order_by=None, retries=RetryPolicy(attempts=3))
    async def process(record: Any) -> None:
        attempts.append(record.attempt)
        raise ValueError

    async with worker:
        await wait_until_all_is_acknowledged(broker)
    assert attempts == [3]
    [(_, headers)] = await dead_letters(broker)
    assert headers["__dlq.errors.delivery.count"] == b"3"


def damage(broker: Broker, offset: int) -> None:
    """Flip a bit in the stored batch that begins at an offset."""
    log = broker._partition("jobs", 0).log
    read_before = log.read

    def read(at: int, max_bytes: int, before: int | None = None) -> bytes:
        data = bytearray(read_before(at, max_bytes, before))
        position = 0
        while position < len(data):
            if int.from_bytes(data[position : position + 8]) == offset:
                data[position + 67] ^= 1
            position += 12 + int.from_bytes(data[position + 8 : position + 12])
        return bytes(data)

    log.read = read  # type: ignore[method-assign]


@pytest.mark.parametrize("on_exhausted", ["dead_letter", "reject"])
async def test_records_of_a_corrupt_batch_are_failed_records(broker: Broker, on_exhausted: Any):
    await fill(broker, None, b"0")
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_many("jobs", [b"1", b"2"], partition=0)
        await producer.flush()
        await producer.send_and_wait("jobs", b"3")
    damage(broker, 1)
    processed: list[bytes] = []
    worker = make_worker(broker, on_exhausted=on_exhausted)

    @worker.on("jobs", order_by=None)
    async def process(record: Any) -> None:
        processed.append(record.value)

    async with worker:
        await wait_until_all_is_acknowledged(broker)
        assert worker.health().is_alive
        assert worker.metrics()["records_dead_total"] == 2
    assert sorted(processed) == [b"0", b"3"]
    if on_exhausted == "dead_letter":
        letters = await dead_letters(broker)
        assert [value for value, _ in letters] == [None, None]
        places = {headers["__dlq.errors.offset"] for _, headers in letters}
        assert places == {b"1", b"2"}


async def test_a_corrupt_batch_that_waits_does_not_fail_the_stop(broker: Broker):
    await fill(broker, None, b"job")
    worker = make_worker(broker, concurrency=1)
    started, finish = anyio.Event(), anyio.Event()

    @worker.on("jobs", order_by=None)
    async def process(record: Any) -> None:
        started.set()
        await finish.wait()

    with anyio.fail_after(WITHIN_S):
        async with worker:
            await started.wait()
            session = worker._lifecycle.require_session()
            reader = session.clients.share_consumer
            # The next call would raise it, but no handler is free.
            reader._running.sessions.raise_in_next_call(CorruptRecord("damaged", topic="jobs"))
            finish.set()
            session.ended.set()


async def test_a_corrupt_batch_stops_a_worker_without_dead_letters(broker: Broker):
    await fill(broker, None, b"0")
    damage(broker, 0)
    worker = make_worker(broker, on_exhausted="stop")
    worker.on("jobs", order_by=None)(ignore)
    with anyio.fail_after(WITHIN_S), pytest.raises(CorruptRecord):
        await worker.run()


async def test_a_worker_takes_no_more_records_than_handlers_may_run(broker: Broker):
    await fill(broker, None, *(b"%d" % number for number in range(20)))
    worker = make_worker(broker, concurrency=3)
    running = most = 0
    all_run = anyio.Event()

    @worker.on("jobs", order_by=None)
    async def process(record: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running, worker.metrics()["buffered_records"])
        if running == 3:
            all_run.set()
        await all_run.wait()
        await anyio.sleep(0.01)
        running -= 1

    async with worker:
        await wait_until_all_is_acknowledged(broker)
    assert most == 3


# --- locks, in virtual time ---


def simulate(
    process: Callable[[Any], Awaitable[None]], run_s: float, records: int = 1, **options: Any
) -> dict[str, Any]:
    """Run a worker with locks of a second in virtual time; return its metrics and the lag."""
    world, runtimes = World(seed=1), ("10.0.0.1", "10.0.0.2")

    async def main() -> dict[str, Any]:
        here, there = (world.runtime(host) for host in runtimes)
        async with Broker(
            host=runtimes[0],
            runtime=here,
            group_share_record_lock_duration_ms=1_000,
            group_share_min_record_lock_duration_ms=1_000,
            **BROKER_OPTIONS,
        ) as broker:
            await fill(broker, there, *[b"job"] * records)
            worker = with_runtime(make_worker(broker, **options), there)
            worker.on("jobs", order_by=None)(process)
            async with worker:
                await anyio.sleep(run_s)
                metrics = worker.metrics()
            admin = with_runtime(Admin(bootstrap_servers=broker.bootstrap_servers), there)
            async with admin:
                info = (await admin.list_share_group_offsets([GROUP]))[GROUP][TP]
            assert info is not None
            return {**metrics, "lag": info.lag}

    return world.run(main)


def test_locks_are_renewed_while_a_handler_runs_and_while_its_record_waits():
    calls: list[int] = []

    async def process(record: Any) -> None:
        calls.append(record.attempt)
        await anyio.sleep(20)
        assert not record.is_lost
        if len(calls) == 1:
            raise Retry(20)

    metrics = simulate(process, 70)
    assert calls == [1, 2]
    assert metrics["records_processed_total"] == 1
    assert metrics["commit_failures_total"] == metrics["lag"] == 0


@pytest.mark.parametrize("concurrency", [3, 30])
def test_no_record_is_locked_while_it_waits_for_a_handler(concurrency: int):
    attempts: list[int] = []

    async def process(record: Any) -> None:
        attempts.append(record.attempt)
        await anyio.sleep(5 + record.offset % 7 / 10)

    metrics = simulate(process, 150, records=70, concurrency=concurrency)
    assert attempts == [1] * 70
    assert metrics["commit_failures_total"] == metrics["lag"] == 0


def test_a_record_whose_lock_has_expired_is_not_tried_again_in_place():
    calls: list[int] = []

    async def process(record: Any) -> None:
        calls.append(record.attempt)
        if len(calls) == 1:
            raise Retry(5)

    metrics = simulate(process, 20, consumer_options={"share_renewal_limit_ms": 0})
    assert calls == [1, 2]  # the second is another delivery
    assert metrics["commit_failures_total"] == 1
    assert metrics["lag"] == 0


def test_a_handler_sees_that_its_lock_has_expired():
    lost: list[bool] = []

    async def process(record: Any) -> None:
        lost.append(record.is_lost)
        if len(lost) == 1:
            await anyio.sleep(5)
            lost.append(record.is_lost)

    metrics = simulate(process, 20, consumer_options={"share_renewal_limit_ms": 0})
    assert sorted(lost) == [False, False, True]
    assert metrics["commit_failures_total"] == 1
    assert metrics["lag"] == 0


# --- what a share group does not allow ---


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "order_by"),
        ({"order_by": "key"}, "order_by"),
        ({"order_by": len}, "order_by"),
        ({"order_by": None, "batch": BatchPolicy(max_records=2)}, "batch"),
        ({"order_by": None, "retries": RetryPolicy(delays_ms=(60_000,))}, "delays_ms"),
    ],
)
def test_arguments_that_a_share_group_does_not_allow_are_refused(
    arguments: dict[str, Any], text: str
):
    worker = Worker(bootstrap_servers="localhost:1", group_id=GROUP, group_type="share")
    with pytest.raises(ValueError, match=text):
        worker.on("jobs", **arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"group_type": "share", "processing_guarantee": "exactly_once_v2"},
        {"group_type": "share", "commit_finished_records": True},
        {"on_exhausted": "reject"},
        {"group_type": "share", "consumer_options": {"share_acknowledgement_mode": "implicit"}},
        {"group_type": "share", "consumer_options": {"max_poll_records": 5}},
        {"group_type": "share", "consumer_options": {"auto_offset_reset": "earliest"}},
        {"group_type": "streams"},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]):
    with pytest.raises(InvalidOption):
        Worker(bootstrap_servers="localhost:1", group_id=GROUP, **options)


async def test_a_share_group_is_never_known_to_be_idle_but_a_consumer_group_is(broker: Broker):
    worker = make_worker(broker)
    worker.on("jobs", order_by=None)(ignore)
    with pytest.raises(IllegalState, match=r"worker\.copy\(group_type='consumer'\)"):
        await worker.run_until_idle()
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait("jobs", b"1")
    with anyio.fail_after(WITHIN_S):
        results = await worker.copy(group_type="consumer").run_until_idle()
    assert results.processed.values() == [b"1"]


def test_a_broker_that_does_not_respond_leaves_time_for_the_others():
    world = World(seed=1)

    async def main() -> int:
        async with Broker(
            2, host="10.0.0.1", runtime=world.runtime("10.0.0.1"), **BROKER_OPTIONS
        ) as broker:
            await broker.create_topic("jobs", partitions=2)
            runtime, done = world.runtime("10.0.0.2"), 0
            clock = runtime.clock
            worker = with_runtime(make_worker(broker, concurrency=10), runtime)

            @worker.on("jobs", order_by=None)
            async def process(record: Any) -> None:
                nonlocal done
                done += 1
                await clock.sleep_until(clock.now() + 1)

            producer = Producer(bootstrap_servers=broker.bootstrap_servers)
            async with worker, with_runtime(producer, runtime) as producer:
                await clock.sleep_until(clock.now() + 5)
                broker.on(ApiKey.SHARE_FETCH, DropRequest(), node=2)
                for number in range(100):
                    await producer.send_and_wait("jobs", b"", partition=number % 2)
                await clock.sleep_until(clock.now() + 150)
                return done

    assert world.run(main) >= 50
