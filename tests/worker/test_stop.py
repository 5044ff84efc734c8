"""The stop of a worker whose brokers are away: one deadline for all of its stages."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.testing.simulation import World, with_runtime
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import RetryPolicy, Worker
from tests.worker.helpers import until

BROKER_HOST, HOST = "10.0.0.1", "10.0.0.2"
TP = TopicPartition("orders", 0)
DRAIN_S, CLOSE_S = 25.0, 30.0  # defaults of drain_timeout_ms and close_timeout_ms
CANCELLED_S = 2.0
HEARTBEAT_S = 3.0  # default of heartbeat_interval_ms
ONCE = RetryPolicy(attempts=1)
WITHIN_S = 60.0

# --- in virtual time ---


class Scene:
    """A broker with the orders 0 and 1, and the host of a worker.

    Attributes:
        is_away: True from `take_away` on.
    """

    def __init__(self, world: World, broker: Broker, how: Literal["refused", "silent"]) -> None:
        self.is_away = False
        self.runtime: Any = world.runtime(HOST)
        self._network, self._how = world.network, how
        self._servers = broker.bootstrap_servers

    def worker(self, **options: Any) -> Worker:
        made = Worker(bootstrap_servers=self._servers, group_id="billing", **options)
        return with_runtime(made, self.runtime)

    async def send(self, *values: bytes) -> None:
        producer = Producer(bootstrap_servers=self._servers)
        async with with_runtime(producer, self.runtime):
            for value in values:
                await producer.send_and_wait("orders", value)

    def take_away(self) -> None:
        """Let the broker respond no more, or refuse connections."""
        self.is_away = True
        if self._how == "silent":
            self._network.sever(BROKER_HOST, HOST)
        else:
            self._network.refuse_connects(BROKER_HOST)
            self._network.reset(BROKER_HOST, HOST)

    async def stop_duration_s(self, worker: Worker) -> float:
        """Return how long a running worker takes to stop."""
        now = self.runtime.clock.now
        started = now()
        await worker.stop()
        return now() - started

    async def committed(self) -> int | None:
        """Return the committed offset, when brokers can be reached again."""
        self._network.heal_all()
        consumer = Consumer(bootstrap_servers=self._servers, group_id="billing")
        async with with_runtime(consumer, self.runtime):
            found = (await consumer.committed(TP))[TP]
        return None if found is None else found.offset

    async def delivered_again(self) -> list[bytes | None]:
        """Return what another worker of the group processes."""
        after = self.worker()

        @after.on("orders")
        async def bill(record: Any) -> None:
            """Succeed."""

        return (await after.run_until_idle()).processed.values()


@pytest.fixture(params=["refused", "silent"])
def how(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["asyncio", "trio"])
def simulate(
    request: pytest.FixtureRequest, how: Any
) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    def run(script: Callable[[Scene], Awaitable[None]]) -> None:
        world = World(seed=1, backend=request.param)

        async def main() -> None:
            runtime = world.runtime(BROKER_HOST)
            async with Broker(host=BROKER_HOST, runtime=runtime) as broker:
                await broker.create_topic("orders", partitions=1)
                scene = Scene(world, broker, how)
                await scene.send(b"0", b"1")
                await script(scene)

        world.run(main)
        assert world.left_behind() == []

    return run


def test_a_dead_letter_that_cannot_be_written_delays_the_stop_by_both_timeouts_at_most(
    simulate: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "aiokafkawire")

    async def script(scene: Scene) -> None:
        worker = scene.worker()

        @worker.on("orders", retries=ONCE)
        async def bill(record: Any) -> None:
            if record.offset == 1:
                scene.take_away()
            raise ValueError

        await worker.start()
        await until(lambda: worker.metrics()["attempts_failed_total"] == 2)
        assert DRAIN_S <= await scene.stop_duration_s(worker) <= DRAIN_S + CLOSE_S + 0.1
        assert await scene.committed() in {None, 1}
        assert (await scene.delivered_again())[-1] == b"1"

    simulate(script)
    write = "the write of 1 failed record"
    stopping = "Group billing: worker stops: "
    assert f"{stopping}waiting up to 25.0 s for {write}" in caplog.messages
    closing = "worker of group billing: still closing: waiting up to "
    assert f"{closing}23 s more for {write}; Ctrl-C stops the wait" in caplog.messages
    assert f"Group billing: {write} did not end within 25.0 s; the records are delivered again" in (
        caplog.messages
    )
    failed = [line for line in caplog.messages if "writing the failed record failed" in line]
    assert failed
    assert all("; the record is delivered again: " in line for line in failed)


def test_a_commit_without_response_leaves_time_to_leave_the_group(
    simulate: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "aiokafkawire")

    async def script(scene: Scene) -> None:
        worker = scene.worker()

        @worker.on("orders")
        async def bill(record: Any) -> None:
            scene.take_away()

        await worker.start()
        await until(lambda: worker.metrics()["records_processed_total"] == 2)
        # The periodic commit waits for a response, too.
        await scene.runtime.clock.sleep_until(scene.runtime.clock.now() + 10)
        assert await scene.stop_duration_s(worker) <= CLOSE_S / 2 + 2
        assert await scene.committed() in {None, 2}

    simulate(script)
    assert "Group billing: worker stops: no handler runs" in caplog.messages
    assert "in a rebalance" not in caplog.text
    assert "the client is closed" not in caplog.text
    left = [line for line in caplog.messages if "s more for" in line]
    assert left[0].endswith(": waiting up to 28 s more for brokers; Ctrl-C stops the wait")
    assert (
        "Group billing: no response to the last commit of 1 partition within 15.0 s; records since"
        " the committed offsets may be delivered again"
    ) in caplog.messages


def test_acknowledgements_without_response_end_with_the_stop(simulate: Any):
    async def script(scene: Scene) -> None:
        worker = scene.worker(group_type="share")

        @worker.on("orders", order_by=None)
        async def bill(record: Any) -> None:
            scene.take_away()

        await worker.start()
        await until(lambda: not worker.health().reasons)
        await scene.send(b"2")  # a share group begins with the records after its first fetch
        await until(lambda: worker.metrics()["records_processed_total"] == 1)
        assert await scene.stop_duration_s(worker) <= CLOSE_S + 0.1

    simulate(script)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_cancelled_run_does_not_wait_for_brokers(simulate: Any, guarantee: str):
    async def script(scene: Scene) -> None:
        worker = scene.worker(processing_guarantee=guarantee)
        now = scene.runtime.clock.now

        @worker.on("orders", retries=ONCE)
        async def bill(record: Any) -> None:
            scene.take_away()
            raise ValueError

        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await until(lambda: scene.is_away)
            await scene.runtime.clock.sleep_until(now() + 10)
            group.cancel_scope.cancel()
            cancelled = now()
        assert now() - cancelled <= CANCELLED_S
        assert await scene.committed() in {None, 0}

    simulate(script)


@pytest.mark.parametrize("how", ["silent"])
def test_a_cancellation_during_a_stop_ends_the_wait_for_handlers(simulate: Any):
    async def script(scene: Scene) -> None:
        worker = scene.worker()
        now, cancelled, hangs = scene.runtime.clock.now, anyio.CancelScope(), anyio.Event()

        @worker.on("orders")
        async def bill(record: Any) -> None:
            if record.offset == 1:
                hangs.set()
                await anyio.sleep_forever()

        async def serve() -> None:
            with cancelled:
                async with worker:
                    await anyio.sleep_forever()

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await hangs.wait()
            group.start_soon(worker.stop)
            await scene.runtime.clock.sleep_until(now() + 1)
            cancelled.cancel()
            started = now()
        assert now() - started <= CANCELLED_S
        assert await scene.committed() == 1

    simulate(script)


@pytest.mark.parametrize("simulate", ["asyncio"], indirect=True)
def test_a_cancelled_task_does_not_wait_for_brokers_in_stop(simulate: Any):
    """asyncio's `cancel` ignores shields."""

    async def script(scene: Scene) -> None:
        worker = scene.worker()
        now = scene.runtime.clock.now

        @worker.on("orders", retries=ONCE)
        async def bill(record: Any) -> None:
            scene.take_away()
            raise ValueError

        await worker.start()
        await until(lambda: scene.is_away)
        stop = asyncio.create_task(worker.stop())
        await scene.runtime.clock.sleep_until(now() + 5)
        stop.cancel()
        cancelled = now()
        with pytest.raises(asyncio.CancelledError):
            await stop
        assert now() - cancelled <= CANCELLED_S

    simulate(script)


@pytest.mark.parametrize("how", ["silent"])
def test_a_run_that_is_cancelled_during_a_revocation_leaves_the_group(simulate: Any):
    async def script(scene: Scene) -> None:
        options = {"partition_assignment_strategy": ["range"]}  # revokes all partitions
        first, second = (scene.worker(consumer_options=options) for _ in range(2))
        now, hangs, delivered_again = scene.runtime.clock.now, anyio.Event(), anyio.Event()

        @first.on("orders")
        async def hang(record: Any) -> None:
            hangs.set()
            await anyio.sleep_forever()

        @second.on("orders")
        async def bill(record: Any) -> None:
            delivered_again.set()

        async with anyio.create_task_group() as group:
            group.start_soon(first.run)
            await hangs.wait()
            running = first._lifecycle.require_session()
            await second.start()
            await until(lambda: running.close_waits_for == "1 running handler")
            group.cancel_scope.cancel()
            cancelled = now()
        await delivered_again.wait()
        assert now() - cancelled <= CANCELLED_S + HEARTBEAT_S
        await second.stop()

    simulate(script)


# --- signals ---

PROGRAM = """
import sys, time, anyio
from aiokafkawire.worker import RetryPolicy, Worker
servers, backend, kind = sys.argv[1:]
minutes = 10 * 60_000
worker = Worker(bootstrap_servers=servers, group_id="billing", drain_timeout_ms=minutes - 60_000,
    close_timeout_ms=minutes, default_api_timeout_ms=minutes,
    consumer_options={"max_poll_interval_ms": minutes})
async def process(record):
    print("started", flush=True)
    sys.stdin.readline()
    if kind == "dead letter":
        raise ValueError
def block(record):
    print("started", flush=True)
    time.sleep(minutes)
worker.on("orders", retries=RetryPolicy(attempts=1))(block if kind == "thread" else process)
options = {"use_uvloop": True} if backend == "uvloop" else {}
worker.run_forever(backend="trio" if backend == "trio" else "asyncio", backend_options=options)
"""

SERVER = """
import anyio
from aiokafkawire import Broker, Producer
async def main():
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send("orders", b"0")
        print(broker.bootstrap_servers, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """A process with an embedded broker, whose first line has its address."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize(
    ("kind", "how"), [("thread", "refused"), ("dead letter", "silent"), ("commit", "silent")]
)
def test_a_second_signal_ends_a_stop_without_brokers(
    server: subprocess.Popen[str], backend: str, kind: str, how: str
):
    assert server.stdout is not None
    servers = server.stdout.readline().strip()
    command = [sys.executable, "-c", PROGRAM, servers, backend, kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "started\n"
            if how == "silent":
                server.send_signal(signal.SIGSTOP)
            else:
                server.kill()
                server.wait()
            process.stdin.write("\n")
            process.stdin.flush()
            process.send_signal(signal.SIGTERM)
            # The event loop must see the first signal before the second one comes.
            assert process.stderr is not None
            while "still closing" not in process.stderr.readline():
                pass
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WITHIN_S)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in errors
