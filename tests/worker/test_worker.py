"""The worker on the embedded broker: faults, probes, signals and wrong use."""

from __future__ import annotations

import gc
import logging
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.admin import Admin
from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    ClientClosed,
    IllegalState,
    InvalidOption,
    KafkaError,
    NoBrokerAvailable,
    PartialFailure,
)
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import lifecycle, with_runtime
from aiokafkawire.testing import Answer, ApiKey, Close, ErrorCode
from aiokafkawire.testing.simulation import World
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import (
    BatchPolicy,
    RetryPolicy,
    Worker,
    WorkerHealth,
    executor,
    session,
)
from aiokafkawire.worker.metrics import collect_metrics
from tests.leaks import nothing_left
from tests.worker.helpers import ignore, record

TP = TopicPartition("orders", 0)
WITHIN_S = 20.0


@pytest.fixture
async def broker() -> Any:
    async with Broker(group_min_session_timeout_ms=500) as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                await producer.send("orders", value=b"%d" % number)
        yield broker


def make_worker(broker: Broker, **options: Any) -> Worker:
    return Worker(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        **({"commit_interval_ms": 50, "drain_timeout_ms": 2_000} | options),
    )


async def committed(broker: Broker) -> int | None:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
        found = (await consumer.committed(TP))[TP]
    return None if found is None else found.offset


async def wait_for(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the state of a worker has no event
        await anyio.sleep(0.02)


async def test_a_record_is_not_committed_until_its_dead_letter_is_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(executor, "WRITE_BACKOFF_S", 0.05)
    worker = make_worker(
        broker,
        stall_timeout_ms=1,
        producer_options={"delivery_timeout_ms": 300, "request_timeout_ms": 200},
    )
    attempts = 0

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    async def process(record: Any) -> None:
        nonlocal attempts
        attempts += 1
        if record.offset == 1:
            raise ValueError("broken")

    fault = broker.on(ApiKey.PRODUCE, Close())
    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: worker.metrics()["write_failures_total"] >= 2)
            await anyio.sleep(0.1)
            health = worker.health()
            assert await committed(broker) == 1
            fault.remove()
            await wait_for(lambda: worker.metrics()["records_processed_total"] == 4)
    assert not health.is_alive
    assert "failed records could not be written" in health.reasons[0]
    assert attempts == 5  # the handler is not called again
    assert await committed(broker) == 5


async def test_a_lost_partition_is_processed_again_after_the_member_has_joined_again(
    broker: Broker,
):
    worker = make_worker(
        broker,
        max_buffered_records=1,  # the partition is paused when it is lost
        consumer_options={
            "session_timeout_ms": 3_000,
            "heartbeat_interval_ms": 50,
            "max_poll_records": 2,
        },
    )
    processed: list[int] = []
    lost = anyio.Event()

    @worker.on("orders")
    async def process(record: Any) -> None:
        if not lost.is_set():
            broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
            await wait_for(lambda: record.is_lost)
            lost.set()
        processed.append(record.offset)

    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: len(processed) == 6)
            metrics = worker.metrics()
    assert processed == [0, 0, 1, 2, 3, 4]
    assert metrics["attempts_fenced_total"] == 1
    assert await committed(broker) == 5


async def test_a_partition_that_was_lost_a_moment_ago_is_not_paused(broker: Broker):
    worker = make_worker(broker, max_buffered_records=1)
    worker.on("orders")(ignore)
    async with worker:
        running = worker._lifecycle.session
        assert running is not None
        running.scheduler.partition(TopicPartition("orders", 7)).offsets.add([record(0)])
        running._update_pauses()


async def test_a_handler_that_hangs_is_reported_while_the_member_stays(broker: Broker):
    worker = make_worker(broker, stall_timeout_ms=200, drain_timeout_ms=0, health_port=0)

    @worker.on("orders")
    async def process(record: Any) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: worker.health().is_ready)
            await wait_for(lambda: not worker.health().is_alive)
            assert worker.health_address is not None
            async with await anyio.connect_tcp(*worker.health_address) as stream:
                await stream.send(b"GET /livez HTTP/1.1\r\n\r\n")
                response = await stream.receive()
            assert response.startswith(b"HTTP/1.1 503 ")
            assert b"process has been processing orders-0 offset 0" in response
            assert worker._lifecycle.session is not None
            assert TP in worker._lifecycle.session.clients.consumer.assignment()
    assert not worker.health().is_alive
    assert await committed(broker) in {None, 0}


async def test_a_cancelled_run_cancels_handlers(broker: Broker):
    worker = make_worker(broker, drain_timeout_ms=60_000)
    running = anyio.Event()

    @worker.on("orders")
    async def process(record: Any) -> None:
        running.set()
        await anyio.sleep_forever()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await running.wait()
            group.cancel_scope.cancel()


async def test_a_slow_stop_names_the_handlers(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(lifecycle, "SLOW_CLOSE_S", 0.02)
    worker = make_worker(broker, drain_timeout_ms=60_000)
    text = "worker of group billing: still closing: waiting up to "

    @worker.on("orders")
    async def process(record: Any) -> None:
        worker.request_stop()
        await wait_for(lambda: text in caplog.text)

    with anyio.fail_after(WITHIN_S):
        await worker.run()
    (message,) = [message for message in caplog.messages if message.startswith(text)]
    assert message.endswith("s more for 1 running handler; Ctrl-C stops the wait")


async def test_a_stop_while_the_worker_connects_ends_run():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        worker = Worker(
            bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", group_id="billing"
        )
        worker.on("orders")(ignore)
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                await anyio.sleep(0.2)
                worker.request_stop()


async def test_a_stop_at_the_end_of_the_start_ends_run(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    worker = make_worker(broker)
    worker.on("orders")(ignore)
    start = session.WorkerSession.start

    async def start_and_request_stop(self: session.WorkerSession) -> None:
        await start(self)
        worker.request_stop()  # as a signal does while the task is about to go on

    monkeypatch.setattr(session.WorkerSession, "start", start_and_request_stop)
    with anyio.fail_after(WITHIN_S):
        await worker.run()


@pytest.mark.parametrize("kind", ["decorated", "generator"])
async def test_a_function_that_returns_an_awaitable_is_awaited(broker: Broker, kind: str):
    worker = make_worker(broker)
    processed: list[int] = []

    async def process(record: Any) -> None:
        await anyio.lowlevel.checkpoint()
        processed.append(record.offset)

    def generate(record: Any) -> Any:
        yield processed.append(record.offset)

    wrapped = {"decorated": process, "generator": generate}[kind]

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    def decorate(record: Any) -> Any:
        return wrapped(record)

    with anyio.fail_after(WITHIN_S):
        async with worker:
            total = {"decorated": "records_processed_total", "generator": "records_dead_total"}
            await wait_for(lambda: worker.metrics()[total[kind]] == 5)
    assert processed == ([0, 1, 2, 3, 4] if kind == "decorated" else [])


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


async def test_an_exception_without_text_becomes_a_dead_letter(broker: Broker):
    worker = make_worker(broker)

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    async def process(record: Any) -> None:
        if record.offset == 1:
            raise Unprintable

    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: worker.metrics()["records_processed_total"] == 4)
            assert worker.metrics()["records_dead_total"] == 1
    assert await committed(broker) == 5


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
async def test_no_lag_remains_behind_the_marker_of_a_transaction(
    broker: Broker, isolation_level: str
):
    worker = make_worker(broker, consumer_options={"isolation_level": isolation_level})
    worker.on("orders")(ignore)

    async def wait_until_committed(offset: int) -> None:
        while await committed(broker) != offset:  # noqa: ASYNC110 - a broker gives no sign
            await anyio.sleep(0.05)

    with anyio.fail_after(WITHIN_S):
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="writer"
        ) as producer:
            async with worker:
                async with producer.transaction():
                    await producer.send_and_wait("orders", value=b"six")
                # A marker is behind the six records.
                await wait_until_committed(7)
            await producer.begin_transaction()
            await producer.send_and_wait("orders", value=b"aborted")
            await producer.abort_transaction()
            if isolation_level == "read_committed":
                # Nothing to process is left for this worker.
                worker = make_worker(broker, consumer_options={"isolation_level": isolation_level})
                worker.on("orders")(ignore)
                async with worker:
                    await wait_until_committed(9)


@pytest.mark.parametrize("result", ["raises", "has no hash"])
async def test_records_that_cannot_be_ordered_become_dead_letters(broker: Broker, result: str):
    worker = make_worker(broker)

    def key(record: Any) -> Any:
        if record.offset != 1:
            return record.value
        if result == "raises":
            raise KeyError("customer")
        return []

    worker.on("orders", order_by=key)(ignore)
    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: worker.metrics()["records_processed_total"] == 4)
            await wait_for(lambda: worker.metrics()["records_dead_total"] == 1)
    assert await committed(broker) == 5


async def test_a_dead_letter_that_is_too_large_keeps_its_origin_alone(broker: Broker):
    worker = make_worker(broker)

    @worker.on("large", retries=RetryPolicy(attempts=1))
    async def process(record: Any) -> None:
        raise ValueError("x" * 10_000)

    await broker.create_topic("large", partitions=1)
    servers = broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("large", value=bytes(1_048_000))
    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: worker.metrics()["records_dead_total"] == 1)
        async with Consumer(
            "billing.dead", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            letter = await consumer.getone()
    assert [name for name, _ in letter.headers] == [
        "__dlq.errors.topic",
        "__dlq.errors.partition",
        "__dlq.errors.offset",
    ]


class Stop(BaseException):
    """A library's exception that is no Exception."""


async def test_a_handler_that_raises_a_base_exception_fails_the_worker(broker: Broker):
    worker = make_worker(broker, on_exhausted="stop")

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    async def process(record: Any) -> None:
        raise Stop

    with anyio.fail_after(WITHIN_S), pytest.raises(KafkaError, match="a handler raised Stop"):
        await worker.run()


@pytest.mark.parametrize("arguments", [{}, {"batch": BatchPolicy()}], ids=["record", "batch"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_a_handler_that_exits_stops_the_worker(
    broker: Broker, arguments: dict[str, Any], is_async: bool
):
    worker = make_worker(broker)

    def process(record: Any) -> None:
        sys.exit(3)

    async def process_async(record: Any) -> None:
        sys.exit(3)

    worker.on("orders", **arguments)(process_async if is_async else process)
    with anyio.fail_after(WITHIN_S), pytest.raises(KafkaError, match="SystemExit") as raised:
        await worker.run()
    assert isinstance(raised.value.__cause__, SystemExit)
    assert raised.value.__cause__.code == 3
    assert await committed(broker) in {None, 0}


async def test_a_worker_does_not_read_what_it_writes(broker: Broker):
    worker = make_worker(broker)
    worker.on("billing.dead")(ignore)
    with pytest.raises(IllegalState, match=r"reads billing\.dead, where this worker writes"):
        await worker.start()


async def test_metrics_are_served_while_the_worker_stops(broker: Broker):
    worker = make_worker(broker)
    worker.on("orders")(ignore)
    async with worker:
        running = worker._lifecycle.session
        assert running is not None
        await running.clients.producer.stop()
        assert collect_metrics(running).keys() == {"kafka_worker_", "kafka_consumer_"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"producer_options": {"acks": 1}}, "needs acks='all'"),
        ({"producer_options": {"transactional_id": "t"}}, "exactly_once_v2"),
        ({"producer_options": {"value_serializer": str}}, "takes no value_serializer"),
        ({"consumer_options": {"key_deserializer": str}}, "takes no key_deserializer"),
        ({"consumer_options": {"enable_auto_commit": True}}, "sets 'enable_auto_commit' itself"),
        ({"drain_timeout_ms": 300_000}, "must be below max_poll_interval_ms"),
        ({"dead_letter_topic": "not/valid"}, "dead_letter_topic"),
        ({"dead_letter_topic": "billing.retry.5m"}, "is named like a retry topic"),
    ],
)
def test_options_with_which_records_could_be_lost_are_refused(options: dict[str, Any], text: str):
    with pytest.raises(InvalidOption, match=text):
        Worker(bootstrap_servers="localhost:1", group_id="billing", **options)


def test_functions_that_cannot_be_handlers_are_refused():
    worker = Worker(bootstrap_servers="localhost:1", group_id="billing")

    async def stream(record: Any) -> Any:
        yield record

    async def key(record: Any) -> Any:
        return record.key

    with pytest.raises(TypeError, match="does not yield"):
        worker.on("orders")(stream)
    with pytest.raises(TypeError, match="not async"):
        worker.on("orders", order_by=key)(ignore)
    with pytest.raises(TypeError, match="pass a type or a function"):
        worker.on("orders", value=list[int])
    with pytest.raises(ValueError, match="timeout_ms must be positive"):
        worker.on("orders", timeout_ms=0)


async def test_a_worker_without_handlers_does_not_start(broker: Broker):
    with pytest.raises(IllegalState, match=r"decorate a function with @worker\.on"):
        await make_worker(broker).start()


def test_wrong_arguments_are_refused():
    worker = Worker(bootstrap_servers="localhost:1", group_id="billing")
    with pytest.raises(TypeError, match="needs a topic"):
        worker.on()
    with pytest.raises(ValueError, match="order_by"):
        worker.on("orders", order_by="topic")  # type: ignore[arg-type]
    worker.on("orders")(ignore)
    with pytest.raises(ValueError, match="'orders' has a handler already"):
        worker.on("refunds", "orders")(ignore)
    with pytest.raises(InvalidOption, match="group_id is missing"):
        Worker(bootstrap_servers="localhost:1")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="auto_offset_reset"):
        Worker(
            bootstrap_servers="localhost:1",
            group_id="billing",
            consumer_options={"auto_offset_reset": "first"},
        )


def test_the_consumer_protocol_needs_no_assignor():
    Worker(
        bootstrap_servers="localhost:1",
        group_id="billing",
        consumer_options={"group_protocol": "consumer"},
    )


async def test_a_topic_that_is_created_again_is_processed_from_its_start(broker: Broker):
    worker = make_worker(broker, metadata_max_age_ms=200, allow_auto_create_topics=False)
    processed: list[bytes] = []

    @worker.on("orders")
    async def process(record: Any) -> None:
        processed.append(record.value)

    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: len(processed) == 5)
            async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                await admin.delete_topics(["orders"])
                await broker.create_topic("orders", partitions=1)
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", value=b"new")
            await wait_for(lambda: processed[5:] == [b"new"])


def test_a_worker_that_does_not_run_is_not_alive():
    health = Worker(bootstrap_servers="localhost:1", group_id="billing").health()
    assert not health.is_alive
    assert "Worker" in health.reasons[0]


# --- wrong endings ---


@pytest.mark.parametrize("ending", ["garbage collection", "cancellation"])
@pytest.mark.filterwarnings("ignore:.*was never closed:ResourceWarning")
async def test_a_worker_that_nobody_stops_leaves_nothing_behind(broker: Broker, ending: str):
    processed: list[int] = []
    async with nothing_left(timers=False):
        worker = make_worker(broker, health_port=0)

        @worker.on("orders")
        async def process(record: Any) -> None:
            processed.append(record.offset)

        with anyio.fail_after(WITHIN_S):
            await worker.start()
            await wait_for(lambda: len(processed) == 5)
            if ending == "garbage collection":
                del worker
                gc.collect()
            else:
                worker._lifecycle.supervisor.abort()
                await wait_for(lambda: "cancelled" in repr(worker))
                with pytest.raises(ClientClosed, match="tasks were cancelled"):
                    await worker.stop()
            await anyio.sleep(0.2)


async def test_stop_in_a_handler_is_refused(broker: Broker):
    worker = make_worker(broker, drain_timeout_ms=60_000)
    refused: list[str] = []

    @worker.on("orders")
    async def process(record: Any) -> None:
        with pytest.raises(IllegalState) as info:
            await worker.stop()
        refused.append(str(info.value))
        worker.request_stop()

    with anyio.fail_after(WITHIN_S):
        await worker.run()
    assert refused[0] == "stop() waits for this handler: call request_stop() in handlers"


async def test_a_health_port_that_is_taken_is_found_before_the_clients_start(broker: Broker):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = make_worker(broker, health_port=port)
        worker.on("orders")(ignore)
        with pytest.raises(OSError, match=rf"health server at 127\.0\.0\.1:{port}: .*in use"):
            await worker.start()
    assert "billing.dead" not in broker.topics


async def test_probes_are_answered_while_the_worker_connects():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        worker = Worker(
            bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}",
            group_id="billing",
            connect_on_start=False,
            health_port=0,
            close_timeout_ms=200,
        )
        worker.on("orders")(ignore)
        with anyio.fail_after(WITHIN_S):
            async with worker:
                health = worker.health()
                assert worker.health_address is not None
                async with await anyio.connect_tcp(*worker.health_address) as stream:
                    await stream.send(b"GET /readyz HTTP/1.1\r\n\r\n")
                    response = await stream.receive()
    assert response.startswith(b"HTTP/1.1 503 ")
    assert health.is_alive
    assert health.reasons == ("no partitions have been assigned yet",)


async def test_a_worker_connects_in_the_background(broker: Broker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "CONNECT_BACKOFF_S", 0.05)
    worker = make_worker(broker, connect_on_start=False, default_api_timeout_ms=300)
    worker.on("orders")(ignore)
    fault = broker.on(ApiKey.CREATE_TOPICS, Close())
    with anyio.fail_after(WITHIN_S):
        async with worker:
            await wait_for(lambda: fault.hits > 0)
            await anyio.sleep(0.5)
            assert worker.metrics()["records_processed_total"] == 0
            fault.remove()
            await wait_for(lambda: worker.metrics()["records_processed_total"] == 5)


async def test_a_worker_that_may_not_connect_fails(broker: Broker):
    worker = make_worker(broker, connect_on_start=False)
    worker.on("orders")(ignore)
    broker.on(ApiKey.CREATE_TOPICS, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with anyio.fail_after(WITHIN_S), pytest.raises(PartialFailure):
        await worker.run()


async def test_retry_topics_of_removed_delays_are_read(broker: Broker):
    def register(worker: Worker, delays_ms: tuple[int, ...]) -> None:
        @worker.on("orders", retries=RetryPolicy(attempts=1, delays_ms=delays_ms))
        async def process(record: Any) -> None:
            if record.attempt == 1 and record.value == b"1":
                raise ValueError

    before = make_worker(broker)
    register(before, (2_000,))
    with anyio.fail_after(WITHIN_S):
        async with before:
            await wait_for(lambda: before.metrics()["records_delayed_total"] == 1)
        after = make_worker(broker)
        register(after, ())
        results = await after.run_until_idle()
    assert [result.record.topic for result in results.processed] == ["billing.retry.2s"]
    assert results.processed[0].attempts == 2


def test_a_worker_whose_brokers_are_away_is_alive_and_ready():
    """The probes mean progress, not connections: a restart would not bring the brokers back."""
    world = World(seed=1)

    async def main() -> tuple[WorkerHealth, WorkerHealth]:
        runtime = world.runtime("10.0.0.2")
        async with Broker(host="10.0.0.1", runtime=world.runtime("10.0.0.1")) as broker:
            await broker.create_topic("orders", partitions=1)
            worker = with_runtime(make_worker(broker, connect_on_start=False), runtime)
            worker.on("orders")(ignore)
            consumer = with_runtime(
                Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing"), runtime
            )
            async with worker, consumer:
                await anyio.sleep(10)
                assert worker.health().is_ready
                await broker.stop()
                await anyio.sleep(10 * worker.config.stall_timeout_ms / 1_000)
                with pytest.raises(NoBrokerAvailable):
                    await consumer.ping(timeout_ms=1_000)
                during = worker.health()
                worker.cancel_handlers()
            return during, worker.health()

    during, after = world.run(main)
    assert (during.is_alive, during.is_ready) == (True, True)
    assert (after.is_alive, after.is_ready) == (False, False)


def test_a_worker_that_starts_without_brokers_is_not_ready():
    world = World(seed=1)

    async def main() -> WorkerHealth:
        worker = Worker(bootstrap_servers="10.0.0.1:9092", group_id="g", connect_on_start=False)
        worker.on("orders")(ignore)
        async with with_runtime(worker, world.runtime("10.0.0.2")):
            await anyio.sleep(600)
            return worker.health()

    health = world.run(main)
    assert (health.is_alive, health.is_ready) == (True, False)
    assert health.reasons == ("no partitions have been assigned yet",)


# --- programs ---


def failing_worker(**options: Any) -> Worker:
    worker = Worker(
        group_id="billing",
        on_exhausted="stop",
        **{"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": 500} | options,
    )

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    async def process(record: Any) -> None:
        raise OSError("the disk is full")

    return worker


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_program_without_a_broker_logs_one_line(
    caplog: pytest.LogCaptureFixture, backend: Literal["asyncio", "trio"], level: str
):
    caplog.set_level(level, "aiokafkawire.worker")
    with pytest.raises(SystemExit) as caught:
        failing_worker().run_forever(backend=backend)
    assert caught.value.code == 1
    (line,) = [line for line in caplog.records if line.levelname == "ERROR"]
    # Without time for a last attempt, the line names the one before.
    assert re.match(
        "worker of group billing: cannot start, the process exits with code 1: no broker of"
        " bootstrap_servers could be used: 127.0.0.1:1: .*connection refused",
        line.getMessage(),
    )
    assert "check host and port" in line.getMessage()
    assert bool(line.exc_info) is (level == "DEBUG")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_whose_health_port_is_in_use_logs_one_line(
    caplog: pytest.LogCaptureFixture, backend: Literal["asyncio", "trio"]
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SystemExit) as caught:
            failing_worker(health_port=port).run_forever(backend=backend)
    assert caught.value.code == 1
    (line,) = [line for line in caplog.records if line.levelname == "ERROR"]
    assert f"health server at 127.0.0.1:{port}: " in line.getMessage()
    assert line.getMessage().endswith("; choose another health_port")
    assert not line.exc_info


def test_a_program_with_a_disabled_logger_prints_why_it_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging.getLogger("aiokafkawire.worker"), "disabled", True)
    with pytest.raises(SystemExit, match=r"cannot start: no broker .* check host and port"):
        failing_worker().run_forever()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_that_fails_later_raises_the_error(
    served: str, backend: Literal["asyncio", "trio"]
):
    worker = failing_worker(bootstrap_servers=served, default_api_timeout_ms=60_000)
    with pytest.raises(OSError, match="the disk is full"):
        worker.run_forever(backend=backend)


# --- signals ---

PROGRAM = """
import sys, anyio
from aiokafkawire.worker import Worker
servers, seconds, backend = sys.argv[1:]
worker = Worker(bootstrap_servers=servers, group_id="billing")
@worker.on("orders", order_by=None)
async def process(record):
    print("started", flush=True)
    await anyio.sleep(float(seconds))
    print("finished", flush=True)
worker.run_forever(backend=backend)
print("stopped", flush=True)
"""


@pytest.fixture
def served() -> Iterator[str]:
    """An embedded broker in another process, with records."""
    code = (
        "import anyio\n"
        "from aiokafkawire import Broker, Producer\n"
        "async def main():\n"
        "    async with Broker(group_min_session_timeout_ms=500) as broker:\n"
        "        await broker.create_topic('orders', partitions=1)\n"
        "        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:\n"
        "            for n in range(5): await producer.send('orders', b'%d' % n)\n"
        "        print(broker.bootstrap_servers, flush=True)\n"
        "        await anyio.sleep(60)\n"
        "anyio.run(main)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def run_program(served: str, seconds: float, backend: str, signals: list[int]) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, served, str(seconds), backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            for number in signals:
                # The event loop must see the first signal before the second one comes.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
                process.send_signal(number)
            output, _ = process.communicate(timeout=30)
            return process.returncode, output
        finally:
            process.kill()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sigterm_finishes_running_handlers(served: str, backend: str):
    code, output = run_program(served, 0.5, backend, [signal.SIGTERM])
    assert code == 0
    assert output.splitlines().count("finished") == 5
    assert output.endswith("stopped\n")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sigterm_while_connecting_ends_the_program(backend: str):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", PROGRAM, servers, "0", backend]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                silent.settimeout(30)
                silent.accept()[0].close()
                process.send_signal(signal.SIGTERM)
                output, _ = process.communicate(timeout=30)
            finally:
                process.kill()
    assert (process.returncode, output) == (0, "stopped\n")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_second_signal_cancels_handlers(served: str, backend: str):
    code, output = run_program(served, 600, backend, [signal.SIGTERM, signal.SIGTERM])
    assert code == 128 + signal.SIGTERM
    assert "finished" not in output
