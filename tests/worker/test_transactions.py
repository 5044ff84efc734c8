"""The worker with `processing_guarantee="exactly_once_v2"` on the embedded broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    ClientClosed,
    IllegalState,
    InvalidOption,
    ProducerFenced,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokafkawire.producer import Producer
from aiokafkawire.testing import Answer, ApiKey, Delay, Drop, ErrorCode
from aiokafkawire.testing.simulation import World, with_runtime
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import BatchPolicy, FailedAt, RetryPolicy, Worker
from aiokafkawire.worker import Drop as DropRecord
from aiokafkawire.worker import session as worker_session

ORDERS = TopicPartition("orders", 0)
ALL_BILLS: list[bytes | None] = [b"bill %d" % number for number in range(5)]


@pytest.fixture
async def broker() -> Any:
    async with Broker() as broker:
        for topic in ("orders", "bills", "billing.dead"):
            await broker.create_topic(topic, partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                await producer.send_and_wait("orders", b"%d" % number, key=b"k%d" % (number % 2))
        yield broker


def make_worker(broker: Broker, **options: Any) -> Worker:
    return Worker(
        bootstrap_servers=broker.bootstrap_servers,
        **(
            {
                "group_id": "billing",
                "processing_guarantee": "exactly_once_v2",
                "commit_interval_ms": 50,
                "drain_timeout_ms": 2_000,
            }
            | options
        ),
    )


def billing_worker(broker: Broker, **options: Any) -> Worker:
    worker = make_worker(broker, **options)

    @worker.on("orders")
    async def bill(record: Any) -> None:
        record.send("bills", b"bill " + record.value, key=record.key)

    return worker


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - nothing says when
        await anyio.sleep(0.01)


def transactional_id(worker: Worker) -> str:
    session = worker._lifecycle.open_session
    assert session is not None
    return session.clients.producer.config.transactional_id or ""


async def fence(broker: Broker, transactional_id: str) -> None:
    async with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id
    ):
        pass


async def values(
    broker: Broker, topic: str, level: Literal["read_committed", "read_uncommitted"]
) -> list[bytes | None]:
    tp = TopicPartition(topic, 0)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, isolation_level=level
    ) as consumer:
        consumer.assign([tp])
        await consumer.seek_to_beginning()
        found: list[bytes | None] = []
        end = (await consumer.end_offsets(tp))[tp]
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += [record.value for record in records]
        return found


async def committed(broker: Broker) -> int | None:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
        found = (await consumer.committed(ORDERS))[ORDERS]
    return None if found is None else found.offset


async def until_committed(broker: Broker, offset: int) -> None:
    while await committed(broker) != offset:  # noqa: ASYNC110 - nothing says when
        await anyio.sleep(0.05)


async def test_output_and_offsets_are_committed_together(broker: Broker):
    with anyio.fail_after(20):
        results = await billing_worker(broker).run_until_idle()
    assert len(results.processed) == 5
    assert await values(broker, "bills", "read_committed") == ALL_BILLS
    assert await committed(broker) == 5


async def test_a_clean_stop_names_no_uncommitted_records(
    broker: Broker, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "aiokafkawire")
    with anyio.fail_after(20):
        await billing_worker(broker).run_until_idle()
    assert "revoked 1 partition: orders [0]" in caplog.text
    assert "uncommitted" not in caplog.text


async def test_output_between_a_write_and_a_crash_is_seen_once(broker: Broker):
    unended = broker.on(ApiKey.END_TXN, Drop())
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            crashed = billing_worker(
                broker, close_timeout_ms=1_000, producer_options={"transaction_timeout_ms": 1_000}
            )
            tasks.start_soon(crashed.run)
            await until(lambda: unended.hits > 0)
            tasks.cancel_scope.cancel()
        unended.remove()
        await billing_worker(broker).run_until_idle()
    assert await values(broker, "bills", "read_committed") == ALL_BILLS
    assert await values(broker, "bills", "read_uncommitted") == ALL_BILLS * 2
    assert await committed(broker) == 5


async def test_an_aborted_transaction_is_repeated_without_the_handlers(broker: Broker):
    broker.on(ApiKey.TXN_OFFSET_COMMIT, Answer(ErrorCode.ILLEGAL_GENERATION), times=2)
    worker = billing_worker(broker)
    with anyio.fail_after(20):
        results = await worker.run_until_idle()
    assert len(results.processed) == 5
    assert await values(broker, "bills", "read_committed") == ALL_BILLS


async def test_output_of_a_cancelled_commit_is_not_written_again(broker: Broker):
    slow = broker.on(ApiKey.END_TXN, Delay(0.5))
    worker = billing_worker(broker, commit_interval_ms=60_000)
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                await until(lambda: slow.hits > 0)
                scope.cancel()

            tasks.start_soon(cancel)
            await worker.run_until_idle()
    assert await values(broker, "bills", "read_committed") == ALL_BILLS


@pytest.mark.parametrize("is_carried_out", [False, True])
async def test_the_outcome_of_a_commit_is_awaited(broker: Broker, is_carried_out: bool):
    broker.on(ApiKey.END_TXN, Drop(carried_out=is_carried_out), times=1)
    worker = billing_worker(
        broker, producer_options={"max_block_ms": 300, "request_timeout_ms": 1_000}
    )
    with anyio.fail_after(20):
        results = await worker.run_until_idle()
    assert len(results.processed) == 5
    assert await values(broker, "bills", "read_committed") == ALL_BILLS


async def test_output_of_failed_attempts_is_not_written(broker: Broker):
    worker = make_worker(broker)

    @worker.on("orders", retries=RetryPolicy(attempts=2, backoff_ms=0))
    def bill(record: Any) -> None:  # in a thread
        record.send("bills", b"%s, attempt %d" % (record.value, record.attempt))
        if record.offset == 1 and record.attempt == 1:
            raise ConnectionError
        if record.offset == 2:
            raise DropRecord
        if record.offset == 3:
            raise ValueError("broken")

    with anyio.fail_after(20):
        await worker.run_until_idle()
    bills = await values(broker, "bills", "read_uncommitted")
    assert bills == [b"0, attempt 1", b"1, attempt 2", b"4, attempt 1"]
    assert await values(broker, "billing.dead", "read_committed") == [b"3"]


async def test_retries_and_dead_letters_are_written_once(
    broker: Broker, caplog: pytest.LogCaptureFixture
):
    worker = make_worker(broker)

    @worker.on("orders", retries=RetryPolicy(attempts=1, delays_ms=(60_000,)))
    async def bill(record: Any) -> None:
        if record.value == b"3" or (record.value == b"1" and record.attempt == 1):
            raise ConnectionError

    broker.on(ApiKey.TXN_OFFSET_COMMIT, Answer(ErrorCode.ILLEGAL_GENERATION), times=1)
    with anyio.fail_after(20):
        results = await worker.run_until_idle()
    assert await values(broker, "billing.retry.1m", "read_committed") == [b"1", b"3"]
    assert await values(broker, "billing.dead", "read_committed") == [b"3"]
    assert results.processed.values() == [b"0", b"2", b"4", b"1"]
    (line,) = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert "written to billing.dead at attempt 2 (all attempts failed)" in line


async def test_output_behind_an_unfinished_record_waits(broker: Broker):
    worker, go = make_worker(broker), anyio.Event()
    handled: list[int] = []

    @worker.on("orders", order_by="key")
    async def bill(record: Any) -> None:
        record.send("bills", b"bill " + record.value)
        if record.offset == 1:  # 3 has the same key
            await go.wait()
        handled.append(record.offset)

    with anyio.fail_after(20):
        async with worker:
            await until(lambda: len(handled) == 3)
            await until_committed(broker, 1)
            assert await values(broker, "bills", "read_uncommitted") == [b"bill 0"]
            go.set()
            await until(lambda: len(handled) == 5)
    assert sorted(await values(broker, "bills", "read_committed")) == ALL_BILLS
    assert handled == [0, 2, 4, 1, 3]


async def test_output_that_cannot_be_committed_pauses_the_partitions(broker: Broker):
    broker.on(ApiKey.TXN_OFFSET_COMMIT, Answer(ErrorCode.ILLEGAL_GENERATION))
    worker = make_worker(broker, max_buffered_bytes=100_000)

    @worker.on("orders")
    async def bill(record: Any) -> None:
        record.send("bills", headers=[("bill", bytes(1_000))])

    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(20):
            for _ in range(100):
                await producer.send("orders", b"")
            await producer.flush()
    with anyio.fail_after(20):
        async with worker:
            await until(lambda: worker.metrics()["paused_partitions"] > 0)
            assert worker.metrics()["buffered_bytes"] >= 100_000


async def test_batches_send_for_the_records_that_are_done(broker: Broker):
    worker = make_worker(broker)

    @worker.on(
        "orders", batch=BatchPolicy(max_records=5, max_wait_ms=0), retries=RetryPolicy(attempts=1)
    )
    async def bill(batch: Any) -> None:
        for index, record in enumerate(batch):
            record.send("bills", b"bill " + record.value)
            if record.offset == 2:
                raise FailedAt(index) from ValueError("broken")

    with anyio.fail_after(20):
        await worker.run_until_idle()
    bills = await values(broker, "bills", "read_uncommitted")
    assert bills == [b"bill 0", b"bill 1", b"bill 3", b"bill 4"]
    assert await values(broker, "billing.dead", "read_committed") == [b"2"]


async def test_a_single_record_that_fails_like_a_batch_has_failed(broker: Broker):
    worker = make_worker(broker)

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    async def bill(record: Any) -> None:
        record.send("bills", b"bill " + record.value)
        if record.offset == 1:
            raise FailedAt(2)

    with anyio.fail_after(20):
        results = await worker.run_until_idle()
    assert results.dead.values() == [b"1"]
    bills = await values(broker, "bills", "read_committed")
    assert bills == [b"bill 0", b"bill 2", b"bill 3", b"bill 4"]


async def test_refused_output_makes_a_dead_letter(broker: Broker):
    await broker.create_topic("small", partitions=1, configs={"max.message.bytes": "1000"})
    worker = make_worker(broker, producer_options={"max_block_ms": 500})

    @worker.on("orders")
    async def bill(record: Any) -> None:
        if record.offset == 1:
            record.send("bills", b"bill", partition=7)
        elif record.offset == 3:
            record.send("small", bytes(2_000))
        else:
            record.send("bills", b"bill " + record.value)

    with anyio.fail_after(20):
        results = await worker.run_until_idle()
    assert results.dead.values() == [b"1", b"3"]
    assert {result.reason for result in results.dead} == {"its output is refused"}
    bills = await values(broker, "bills", "read_committed")
    assert bills == [b"bill 0", b"bill 2", b"bill 4"]
    assert await values(broker, "billing.dead", "read_committed") == [b"1", b"3"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "no topic!"},
        {"topic": "x" * 300},
        {"topic": "bills", "headers": [("\ud800", b"")]},
    ],
)
async def test_output_with_an_invalid_name_is_a_failed_attempt(broker: Broker, arguments: Any):
    worker = make_worker(broker)

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    async def bill(record: Any) -> None:
        record.send(**(arguments if record.offset == 1 else {"topic": "bills"}), value=record.value)


async def test_output_in_the_batch_of_refused_output_is_written(broker: Broker):
    worker = make_worker(broker)

    @worker.on("orders")
    async def bill(record: Any) -> None:
        record.send("bills", record.value, timestamp_ms=2**62 if record.offset == 1 else None)

    with anyio.fail_after(20):
        results = await worker.run_until_idle()
    assert results.dead.values() == [b"1"]
    assert await values(broker, "bills", "read_committed") == [b"0", b"2", b"3", b"4"]


async def test_output_for_the_same_missing_partition_is_refused_together(broker: Broker):
    worker = make_worker(broker, producer_options={"max_block_ms": 500})

    @worker.on("orders")
    async def bill(record: Any) -> None:
        record.send("bills", record.value, partition=7 if record.offset else 0)

    with anyio.fail_after(20):
        async with worker:
            await until_committed(broker, 5)
            assert worker.metrics()["commit_failures_total"] == 1
            assert worker.metrics()["records_dead_total"] == 4
    assert await values(broker, "bills", "read_committed") == [b"0"]


async def test_refused_output_stops_a_worker_without_dead_letters(broker: Broker):
    worker = make_worker(broker, on_exhausted="stop", producer_options={"max_block_ms": 300})

    @worker.on("orders")
    async def bill(record: Any) -> None:
        record.send("bills", b"bill", partition=7 if record.offset == 1 else 0)

    with anyio.fail_after(20), pytest.raises(UnknownTopic):
        await worker.run()
    assert await committed(broker) is None


def test_a_stop_does_not_wait_for_the_outcome_of_a_transaction():
    world = World(seed=1)

    async def main() -> float:
        async with Broker(host="10.0.0.1", runtime=world.runtime("10.0.0.1")) as broker:
            for topic in ("orders", "bills"):
                await broker.create_topic(topic, partitions=1)
            runtime = world.runtime("10.0.0.2")
            clock = runtime.clock
            producer = Producer(bootstrap_servers=broker.bootstrap_servers)
            async with with_runtime(producer, runtime) as producer:
                await producer.send_and_wait("orders", b"0")
            unended = broker.on(ApiKey.END_TXN, Drop())
            worker = billing_worker(broker, drain_timeout_ms=25_000, close_timeout_ms=30_000)
            async with with_runtime(worker, runtime):
                while not unended.hits:
                    await clock.sleep_until(clock.now() + 0.1)
                stopped_at = clock.now()
            return clock.now() - stopped_at

    assert world.run(main) <= 55


# --- fenced producers and lost partitions ---


async def test_a_fenced_worker_reads_again_from_the_committed_offsets(broker: Broker):
    worker = billing_worker(broker)
    with anyio.fail_after(20):
        async with worker:
            await until_committed(broker, 5)
            await fence(broker, transactional_id(worker))
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"5")
            await until_committed(broker, 6)
    assert await values(broker, "bills", "read_committed") == [*ALL_BILLS, b"bill 5"]


async def test_a_fenced_worker_without_a_commit_skips_nothing(broker: Broker):
    uncommitted = broker.on(ApiKey.TXN_OFFSET_COMMIT, Answer(ErrorCode.ILLEGAL_GENERATION))
    worker = billing_worker(broker, consumer_options={"auto_offset_reset": "latest"})
    with anyio.fail_after(20):
        async with worker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            session = worker._lifecycle.open_session
            assert session is not None
            await until(lambda: bool(session.clients.consumer.assignment()))
            await session.clients.consumer.position(ORDERS)
            await producer.send_and_wait("orders", b"5")
            await until(lambda: uncommitted.hits > 0)
            await fence(broker, transactional_id(worker))
            uncommitted.remove()
            await producer.send_and_wait("orders", b"6")
            await until_committed(broker, 7)
    assert await values(broker, "bills", "read_committed") == [b"bill 5", b"bill 6"]


async def test_a_fenced_worker_skips_no_first_record_of_a_partition(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker_session, "POLL_TIMEOUT_MS", 3_600_000)
    await broker.create_topic("returns", partitions=1)
    returns = TopicPartition("returns", 0)
    uncommitted = broker.on(ApiKey.TXN_OFFSET_COMMIT, Answer(ErrorCode.ILLEGAL_GENERATION))
    worker = make_worker(broker, consumer_options={"auto_offset_reset": "latest"})
    processed: list[bytes] = []

    @worker.on("orders", "returns")
    async def bill(record: Any) -> None:
        processed.append(record.value)

    with anyio.fail_after(60):
        async with worker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            session = worker._lifecycle.require_session()
            await until(lambda: len(session.clients.consumer.assignment()) == 2)
            for tp in (ORDERS, returns):
                await session.clients.consumer.position(tp)
            seek_to_committed = session._seek_to_committed

            async def send_and_seek() -> None:
                await producer.send_and_wait("returns", b"returned")
                await seek_to_committed()

            monkeypatch.setattr(session, "_seek_to_committed", send_and_seek)
            await producer.send_and_wait("orders", b"5")
            await until(lambda: uncommitted.hits > 0)
            await fence(broker, transactional_id(worker))
            await until(lambda: session._producer_failure is not None)
            uncommitted.remove()
            await producer.send_and_wait("orders", b"6")  # ends the poll
            await until_committed(broker, 7)
            await until(lambda: b"returned" in processed)


async def test_a_worker_with_the_id_of_another_one_stops(broker: Broker):
    worker = billing_worker(broker, producer_options={"transactional_id": "billing-0"})

    async def run_until_fenced() -> None:
        async with worker:
            await until_committed(broker, 5)
            await fence(broker, "billing-0")
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"5")
            await until(lambda: not worker.health().is_alive)

    with anyio.fail_after(20), pytest.raises(ProducerFenced):
        await run_until_fenced()
    assert await values(broker, "bills", "read_committed") == ALL_BILLS


async def test_results_of_a_lost_partition_are_not_committed(broker: Broker):
    slow = broker.on(ApiKey.TXN_OFFSET_COMMIT, Delay(0.5))
    worker = billing_worker(broker, consumer_options={"heartbeat_interval_ms": 50})
    with anyio.fail_after(30):
        async with worker:
            await until(lambda: slow.hits > 0)
            broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
            slow.remove()
            await until_committed(broker, 5)
    assert await values(broker, "bills", "read_committed") == ALL_BILLS


async def test_offsets_of_partitions_lost_during_the_writes_are_not_committed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    writing, lost = anyio.Event(), anyio.Event()
    worker = billing_worker(broker, commit_interval_ms=60_000)
    with anyio.fail_after(60):
        async with worker:
            session = worker._lifecycle.require_session()
            await until(lambda: worker.metrics()["records_processed_total"] == 5)
            send = session.clients.producer.send

            async def wait_and_send(*record: Any) -> Any:
                writing.set()
                await lost.wait()
                return await send(*record)

            monkeypatch.setattr(session.clients.producer, "send", wait_and_send)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.committer.commit)
                await writing.wait()
                session.on_partitions_lost([ORDERS])
                lost.set()
    assert await committed(broker) is None
    assert await values(broker, "bills", "read_committed") == []


async def test_a_transaction_may_end_while_the_consumer_is_closed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    """`close` waits for a transaction no longer than half of `close_timeout_ms`."""

    def is_closing(_: object) -> None:
        raise ClientClosed("the consumer is closing")

    worker = billing_worker(broker, commit_interval_ms=60_000)
    with anyio.fail_after(60):
        async with worker:
            session = worker._lifecycle.require_session()
            await until(lambda: worker.metrics()["records_processed_total"] == 5)
            monkeypatch.setattr(session.clients.consumer, "mark_committed", is_closing)
            await session.committer.commit()
            assert not session.scheduler.offsets_to_commit()
    assert await committed(broker) == 5


# --- truncated logs ---


async def replace_end(broker: Broker) -> None:
    """Replace the orders 3 and 4 by another one, as an unclean leader election may do."""
    broker.truncate("orders", 0, 3)
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"new")


async def test_unfinished_records_before_a_truncation_are_processed(broker: Broker):
    worker = make_worker(broker, processing_guarantee="at_least_once")
    hangs, release, processed = anyio.Event(), anyio.Event(), []

    @worker.on("orders")
    async def bill(record: Any) -> None:
        if record.value == b"1":
            hangs.set()
            await release.wait()
        processed.append(record.value)

    with anyio.fail_after(20):
        async with worker:
            await hangs.wait()
            await until(lambda: worker.metrics()["buffered_records"] == 4)
            work = worker._lifecycle.require_session().scheduler.partition(ORDERS)
            await replace_end(broker)
            await until(lambda: work.is_fenced)
            release.set()
            await until_committed(broker, 4)
    assert processed == [b"0", b"1", b"1", b"2", b"new"]


async def test_uncommitted_output_before_a_truncation_is_written(broker: Broker):
    worker = billing_worker(broker, commit_interval_ms=60_000)
    with anyio.fail_after(60):
        async with worker:
            await until(lambda: worker.metrics()["records_processed_total"] == 5)
            await replace_end(broker)
            await until(lambda: worker.metrics()["records_processed_total"] == 9)
    assert await committed(broker) == 4
    expected = [*ALL_BILLS[:3], b"bill new"]
    assert await values(broker, "bills", "read_committed") == expected


async def test_output_of_a_transaction_during_a_truncation_is_written_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    worker = billing_worker(broker, commit_interval_ms=60_000)
    sent, release = anyio.Event(), anyio.Event()
    with anyio.fail_after(60):
        async with worker:
            session = worker._lifecycle.require_session()
            await until(lambda: worker.metrics()["records_processed_total"] == 5)
            send_offsets = session.clients.producer.send_offsets_to_transaction

            async def send_and_wait(*arguments: Any) -> None:
                await send_offsets(*arguments)
                sent.set()
                await release.wait()

            monkeypatch.setattr(
                session.clients.producer, "send_offsets_to_transaction", send_and_wait
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.committer.commit)
                await sent.wait()
                await replace_end(broker)
                await until(lambda: session.committer._lock.statistics().tasks_waiting == 1)
                release.set()
            await until(lambda: worker.metrics()["records_processed_total"] == 6)
    assert await committed(broker) == 4
    assert await values(broker, "bills", "read_committed") == [*ALL_BILLS, b"bill new"]


# --- wrong use ---


async def test_brokers_before_2_5_are_refused():
    async with Broker(as_of="2.4") as broker:
        worker = billing_worker(broker)
        with anyio.fail_after(20), pytest.raises(UnsupportedVersion, match=r"needs Kafka 2\.5"):
            await worker.run()


async def test_uncommitted_records_must_not_be_read(broker: Broker):
    with pytest.raises(InvalidOption, match="read_committed"):
        make_worker(broker, consumer_options={"isolation_level": "read_uncommitted"})


async def test_send_needs_transactions_and_an_attempt(broker: Broker):
    worker = make_worker(broker, processing_guarantee="at_least_once")
    errors: list[str] = []
    kept: list[Any] = []

    @worker.on("orders")
    async def bill(record: Any) -> None:
        try:
            record.send("bills", b"")
        except IllegalState as error:
            errors.append(str(error))

    again = make_worker(broker, group_id="again")
    again.on("orders")(kept.append)
    with anyio.fail_after(20):
        await worker.run_until_idle()
        await again.run_until_idle()
    assert len(errors) == 5
    assert "exactly_once_v2" in errors[0]
    with pytest.raises(IllegalState, match="has ended"):
        kept[0].send("bills", b"")
