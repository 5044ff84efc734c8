"""Log lines: fields, levels, request traces, and limits on repeated lines."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import aiokafkawire
from aiokafkawire import logs
from aiokafkawire.broker import Broker
from aiokafkawire.broker.faults import Answer, Close, Delay
from aiokafkawire.connection import ConnectionMetrics
from aiokafkawire.connection.request_observer import RequestObserver
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import ConnectionLost
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from aiokafkawire.share import ShareConsumer
from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.world import Backend
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode, error_for

PACKAGE = Path(aiokafkawire.__file__).parent
CLIENT_ROOMS = ("cluster", "connection", "consumer", "group", "kafka07", "producer", "runtime")
CALLS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
HOST = "10.0.0.1"
QUICK: dict[str, Any] = {
    "fetch_max_wait_ms": 50,
    "heartbeat_interval_ms": 50,
    "retry_backoff_ms": 10,
    "reconnect_backoff_ms": 10,
}


class Lines(logging.Handler):
    """Collects log records of the package from a level up."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, *parts: str) -> list[str]:
        texts = [record.getMessage() for record in self.records]
        return [text for text in texts if all(part in text for part in parts)]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Collect all log records of the package."""
    root, handler = logging.getLogger("aiokafkawire"), Lines(1)
    before = root.level
    root.addHandler(handler)
    root.setLevel(1)
    try:
        yield handler
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


def calls_of(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "logger"
            and node.func.attr in CALLS
        ):
            yield node


@pytest.mark.parametrize("room", CLIENT_ROOMS)
def test_every_log_call_of_a_client_has_extra_fields(room: str) -> None:
    without = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in (PACKAGE / room).rglob("*.py")
        for call in calls_of(path)
        if "extra" not in {keyword.arg for keyword in call.keywords}
    ]
    assert without == []


def test_no_field_collides_with_an_attribute_of_log_records() -> None:
    record = logging.makeLogRecord({})
    assert not set(logs.FIELDS) & {*vars(record), "message", "asctime"}
    assert all(re.fullmatch(r"kafka_[a-z_]+", name) for name in logs.FIELDS)


def test_fields_are_built_from_errors_and_partitions() -> None:
    error = ConnectionLost("reset", sent=True, broker="3 at h:9092", api="Produce", topic="t")
    assert logs.log_fields({"kafka_client_id": "c"}, error=error, partition=None) == {
        "kafka_client_id": "c",
        "kafka_error": "ConnectionLost",
        "kafka_broker": "3 at h:9092",
        "kafka_api": "Produce",
        "kafka_topic": "t",
    }
    assert logs.log_fields(error=ValueError(), tp=TopicPartition("t", 1)) == {
        "kafka_error": "ValueError",
        "kafka_topic": "t",
        "kafka_partition": 1,
    }
    with pytest.raises(KeyError, match="kafka_colour"):
        logs.log_fields(colour="red")


def test_an_error_code_is_a_plain_number() -> None:
    error = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, api="Fetch")
    found = logs.log_fields(error=error)
    assert json.loads(json.dumps(found))["kafka_error_code"] == -1


def test_lists_of_partitions_are_limited() -> None:
    partitions = [TopicPartition("t", n) for n in range(25)]
    assert logs.list_partitions([]) == "none"
    assert logs.list_partitions([TopicPartition("a", 1), TopicPartition("b", 0)]) == "a [1], b [0]"
    assert logs.list_partitions(partitions).endswith(", 19] and 5 more")
    assert logs.list_offsets({partitions[0]: 7, partitions[1]: 9}) == "t [0: 7, 1: 9]"
    assert logs.count_partitions(partitions[:1]) == "1 partition"
    assert logs.count_partitions(range(12_000)) == "12,000 partitions"


def test_a_rate_limit_logs_one_line_of_a_kind_per_interval() -> None:
    limit = logs.RateLimit(60.0, max_kinds=2)
    levels = [limit.level(logging.WARNING, "a", now) for now in (0.0, 1.0, 59.9, 60.0, 61.0)]
    assert [level == logging.WARNING for level in levels] == [True, False, False, True, False]
    assert limit.level(logging.WARNING, "b", 61.0) == logging.WARNING
    assert limit.level(logging.WARNING, "c", 61.0) == logging.WARNING  # and "a" is forgotten
    assert limit.level(logging.WARNING, "b", 62.0) == logging.DEBUG
    assert limit.level(logging.WARNING, "a", 62.0) == logging.WARNING


def test_a_failure_streak_is_logged_once_with_its_duration() -> None:
    streak = logs.FailureStreak()
    assert streak.ended(1.0) is None
    levels = [streak.failed(logging.WARNING, now) for now in (2.0, 3.0)]
    assert levels == [logging.WARNING, logging.DEBUG]
    assert streak.ended(7.0) == 5.0
    assert streak.failed(logging.WARNING, 8.0) == logging.WARNING


def rows(heading: str) -> dict[str, str]:
    """Return a table of docs/logging.md as a dict of its two columns."""
    page = (PACKAGE.parent / "docs" / "logging.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", section, re.MULTILINE))


def test_the_page_lists_all_fields_and_loggers() -> None:
    assert rows("Fields") == dict(logs.FIELDS)
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    names = re.findall(r'getLogger\("(aiokafkawire\.[\w.]+)"\)', "".join(sources))
    assert set(rows("Loggers")) == set(names)


async def read_one(broker: Broker, **options: Any) -> None:
    """Read a record as the only member of a group."""
    async with Consumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        client_id="reader",
        group_id="billing",
        **QUICK | options,
    ) as consumer:
        with anyio.fail_after(30):
            await consumer.getone()


@pytest.mark.anyio
async def test_group_lines_show_member_partitions_and_start_positions(
    lines: Lines,
) -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=3)
        options = {"bootstrap_servers": broker.bootstrap_servers, "client_id": "writer"}
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"v", partition=1)
        await read_one(broker, auto_offset_reset="earliest")
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"v", partition=1)
        await read_one(broker)
        cluster = broker.cluster_id
    info = [record for record in lines.records if record.levelno >= logging.INFO]
    logged = lines.texts("connected to cluster")
    assert len(logged) == 4
    assert re.fullmatch(
        rf"producer writer: connected to cluster {cluster}: 1 broker \(\d+ at 127.0.0.1:\d+\),"
        r" controller \d+",
        logged[0],
    )
    assert len(lines.texts("producer writer: producer id ", ", epoch 0")) == 2
    joined = lines.texts("Group billing: joined generation 1 as reader-", "leader, range")
    assert joined[0].endswith(": 3 partitions: t [0, 1, 2]")
    who = "consumer reader of group billing: "
    (start,) = lines.texts(who, "no committed offset")
    assert start == (
        f"{who}start position of 3 partitions (no committed offset: auto_offset_reset=earliest,"
        " beginning of the log): t [0: 0, 1: 0, 2: 0]"
    )
    (start,) = lines.texts(who, "(committed offset): t [")
    assert "1: 1" in start
    assert len(lines.texts("Group billing: revoked 3 partitions: t [0, 1, 2]")) == 2
    assert len(lines.texts("Group billing: left (")) == 2
    for record in info:
        if record.name.startswith("aiokafkawire.broker"):
            continue
        fields = {name: value for name, value in vars(record).items() if name in logs.FIELDS}
        assert fields["kafka_client_id"] in {"reader", "writer"}, record.getMessage()
        assert ("kafka_group" in fields) == (fields["kafka_client_id"] == "reader")
        assert json.loads(json.dumps(fields)) == fields
    (one,) = [r for r in info if "(committed offset)" in r.getMessage()]
    assert vars(one)["kafka_reset"] == "committed offset"
    joins = [vars(r) for r in info if ": joined generation" in r.getMessage()]
    assert joins[0]["kafka_partitions"] == 3
    assert joins[0]["kafka_generation"] == 1
    assert joins[0]["kafka_member_id"].startswith("reader-")


@pytest.mark.anyio
async def test_a_start_at_the_end_by_default_is_logged(lines: Lines) -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=2)
        async with Consumer(
            "t", bootstrap_servers=broker.bootstrap_servers, group_id="g", **QUICK
        ) as consumer:
            await consumer.getmany(timeout_ms=100)
            with anyio.fail_after(30):
                while not lines.texts("t [0: 0, 1: 0]"):
                    await consumer.getmany(timeout_ms=20)
    (logged,) = lines.texts("no committed offset")
    assert logged.endswith(
        ": start position of 2 partitions (no committed offset: auto_offset_reset=latest,"
        " end of the log, existing records are skipped): t [0: 0, 1: 0]"
    )
    levels = {record.levelno for record in lines.records if record.getMessage() == logged}
    assert levels == {logging.INFO}


@pytest.mark.anyio
async def test_a_first_seek_is_a_start_position_and_later_ones_are_not(lines: Lines) -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        async with Consumer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as consumer:
            consumer.assign(TopicPartition("t", 0))
            consumer.seek(TopicPartition("t", 0), 0)
            await consumer.getmany(timeout_ms=50)
            consumer.seek(TopicPartition("t", 0), 0)
            await consumer.getmany(timeout_ms=50)
    assert len(lines.texts("(set by seek()): t [0: 0]")) == 1


@pytest.mark.anyio
async def test_debug_lines_show_versions_metadata_coordinator_and_commits(lines: Lines) -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        options = {"bootstrap_servers": broker.bootstrap_servers}
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"v")
        await read_one(broker, auto_offset_reset="earliest")
    assert lines.texts("connected to broker", "versions:", "Produce 1", "Metadata 1")
    # Once for each address and broker of the two clients.
    assert len(lines.texts("connected to broker", "versions:")) == 4
    assert lines.texts("connected to broker", "(connection: produce)")
    assert lines.texts("metadata ", "topics added: t")
    assert lines.texts("Coordinator of group billing: broker ")
    assert lines.texts("Group billing: joining at broker ")
    assert lines.texts("Group billing: syncing generation 1")
    assert lines.texts("Group billing: committed t [0: 1]")


@pytest.mark.anyio
async def test_a_retried_batch_is_logged_at_debug(lines: Lines) -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        options = {"bootstrap_servers": broker.bootstrap_servers, "retry_backoff_ms": 10}
        async with Producer(**options) as producer:
            broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
            await producer.send_and_wait("t", b"v")
    (logged,) = lines.texts("batch for t-0, attempt 1: retrying in ")
    assert "NOT_LEADER" in logged


@pytest.mark.anyio
async def test_each_request_is_traced_with_its_latency(lines: Lines) -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        options = {"bootstrap_servers": broker.bootstrap_servers, "client_id": "writer"}
        async with Producer(**options) as producer:
            await producer.send_and_wait("t", b"v" * 300)
            count = producer.metrics()["responses_total"]
        async with Producer(**options, acks=0) as producer:
            await producer.send_and_wait("t", b"v")
    traced = [r for r in lines.records if r.name == "aiokafkawire.connection.requests"]
    assert {record.levelname for record in traced} == {"TRACE"}
    assert len([r for r in traced if "received" in r.getMessage()]) >= count
    first = next(r for r in traced if vars(r)["kafka_api"] == "Produce")
    fields = vars(first)
    assert re.fullmatch(
        rf"Produce v{fields['kafka_api_version']} to broker \d+ at 127.0.0.1:\d+, correlation id"
        rf" {fields['kafka_correlation_id']}: {fields['kafka_latency_ms']:.3f} ms,"
        rf" {fields['kafka_request_bytes']} bytes sent, {fields['kafka_response_bytes']} received",
        first.getMessage(),
    )
    assert fields["kafka_request_bytes"] > 300
    assert fields["kafka_client_id"] == "writer"
    assert lines.texts("Produce v", "bytes sent, no response expected")


@pytest.mark.anyio
async def test_a_failed_request_is_traced_with_the_reason(lines: Lines) -> None:
    async with Broker() as broker:
        await broker.create_topic("t", partitions=1)
        options = {"bootstrap_servers": broker.bootstrap_servers}
        async with Producer(**options, retry_backoff_ms=10) as producer:
            broker.on(ApiKey.PRODUCE, Close(), times=1)
            await producer.send_and_wait("t", b"v")
    (logged,) = lines.texts("Produce v", "failed after ")
    assert "the broker closed the connection" in logged


def test_requests_are_traced_only_at_level_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiokafkawire")
    assert not RequestObserver("1 at h:9092", ConnectionMetrics(), {}).is_traced
    caplog.set_level("TRACE", "aiokafkawire.connection.requests")
    assert RequestObserver("1 at h:9092", ConnectionMetrics(), {}).is_traced


OUTAGE_S = 600.0


def outage_lines(lines: Lines, outages: int, outage_s: float) -> Counter[str]:
    """Return lines at INFO and above of a producer and a group consumer during an outage."""
    world = World(7, backend="asyncio")
    broker = Broker(host=HOST, runtime=world.runtime(HOST))
    options = {"heartbeat_interval_ms": 3_000, "session_timeout_ms": 45_000}

    async def consume(consumer: Consumer) -> None:
        async for _ in consumer:
            pass

    async def produce(producer: Producer) -> None:
        for _ in range(int((outages * (outage_s + 10) + 60) / 0.5)):
            await producer.send("t", b"v")
            await anyio.sleep(0.5)

    async def main() -> None:
        async with broker:
            await broker.create_topic("t", partitions=6)
            servers = broker.bootstrap_servers
            (node,) = broker.nodes
            consumer = with_runtime(
                Consumer("t", bootstrap_servers=servers, group_id="g", **options),
                world.runtime("10.0.1.1"),
            )
            producer = with_runtime(
                Producer(bootstrap_servers=servers, delivery_timeout_ms=3_600_000),
                world.runtime("10.0.1.2"),
            )
            async with consumer, producer, anyio.create_task_group() as tasks:
                tasks.start_soon(consume, consumer)
                tasks.start_soon(produce, producer)
                await anyio.sleep(20)
                lines.records.clear()
                for _ in range(outages):
                    await broker.kill(node)
                    await anyio.sleep(outage_s)
                    await broker.restart(node)
                    await anyio.sleep(10)
                await anyio.sleep(20)
                tasks.cancel_scope.cancel()

    world.run(main)
    logged = [r for r in lines.records if r.levelno >= logging.INFO and "broker" not in r.name]
    return Counter(re.sub(r"\d[\d.:]*", "#", f"{r.levelname} {r.getMessage()}") for r in logged)


def test_a_long_outage_logs_few_lines(lines: Lines) -> None:
    counts = outage_lines(lines, outages=1, outage_s=OUTAGE_S)
    assert max(counts.values()) <= 2, counts
    assert counts.total() <= 30, counts
    assert any("can be reached again after" in text for text in counts), counts
    lengths = [
        vars(r)["kafka_outage_ms"] / 1_000
        for r in lines.records
        if "can be reached again after" in r.getMessage()
    ]
    assert all(OUTAGE_S - 15 < length < OUTAGE_S + 15 for length in lengths)


def test_a_flapping_broker_does_not_fill_the_log(lines: Lines) -> None:
    """Thirty outages of half a second in five minutes."""
    counts = outage_lines(lines, outages=30, outage_s=0.5)
    warnings = {text: n for text, n in counts.items() if text.startswith(("WARNING", "ERROR"))}
    assert all(n <= 6 for n in warnings.values()), warnings


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("outage_s", [15.0, 80.0])
@pytest.mark.parametrize("kind", ["producer", "consumer", "member"])
def test_an_outage_without_any_packet_is_logged_when_it_begins(
    lines: Lines, kind: str, outage_s: float, backend: Backend
) -> None:
    world = World(5, backend=backend)
    broker = Broker(host=HOST, runtime=world.runtime(HOST))
    client_host = "10.0.1.1"

    async def use(client: Consumer | Producer) -> None:
        while True:
            if isinstance(client, Producer):
                await client.send("t", b"v")
                await anyio.sleep(0.5)
            else:
                await client.getone(timeout_ms=500)

    async def main() -> None:
        servers = broker.bootstrap_servers
        client: Consumer | Producer = (
            Producer(bootstrap_servers=servers)
            if kind == "producer"
            else Consumer(
                "t", bootstrap_servers=servers, group_id="g" if kind == "member" else None
            )
        )
        with_runtime(client, world.runtime(client_host))
        async with client, anyio.create_task_group() as tasks:
            tasks.start_soon(use, client)
            await anyio.sleep(20)
            lines.records.clear()
            world.network.sever(HOST, client_host)
            await anyio.sleep(5)
            assert warnings_in(lines) == []
            await anyio.sleep(3.5)
            (text,) = warnings_in(lines)
            assert "no broker can be reached: no response to " in text
            await anyio.sleep(outage_s - 8.5)
            world.network.heal(HOST, client_host)
            await anyio.sleep(25)
            tasks.cancel_scope.cancel()

    async def run() -> None:
        async with broker:
            await broker.create_topic("t")
            await main()

    world.run(run)
    ends = [record for record in lines.records if hasattr(record, "kafka_outage_ms")]
    assert len([each for each in ends if "can be reached again" in each.getMessage()]) == 1
    for record in ends:
        if "broker" in record.getMessage():
            assert outage_s - 1 < record.kafka_outage_ms / 1_000 < outage_s + 15, (
                record.getMessage()
            )
    assert len(warnings_in(lines)) <= 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_member_that_waits_for_others_is_logged_once(lines: Lines, backend: Backend) -> None:
    world = World(9, backend=backend)
    broker = Broker(host=HOST, runtime=world.runtime(HOST))

    def member(number: int) -> Consumer:
        consumer = Consumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="billing",
            max_poll_interval_ms=60_000,
            client_id=f"c{number}",
        )
        return with_runtime(consumer, world.runtime(f"10.0.1.{number}"))

    async def main() -> None:
        async with broker:
            await broker.create_topic("t", partitions=2)
            async with member(1) as busy:
                await busy.getone(timeout_ms=10_000)
                async with member(2) as joining:
                    # The first member processes records for 40 s, and rejoins in its next poll.
                    await joining.getone(timeout_ms=4_900)
                    assert lines.texts("waiting") == []
                    await joining.getone(timeout_ms=35_100)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(partial(busy.getone, timeout_ms=20_000))
                        await joining.getone(timeout_ms=20_000)
                        tasks.cancel_scope.cancel()
                    assert joining.assignment()

    world.run(main)
    waits = [each for each in lines.records if "waiting for the" in each.getMessage()]
    texts = [each.getMessage() for each in waits]
    assert texts == ["Group billing: joining, waiting for the other members (for 5 s so far)"]
    assert [each.levelname for each in waits] == ["INFO"]
    assert vars(waits[0])["kafka_client_id"] == "c2"
    assert warnings_in(lines) == []


def test_a_rebalance_is_logged_with_its_reason_and_the_members_that_changed(lines: Lines) -> None:
    world = World(10)
    broker = Broker(host=HOST, runtime=world.runtime(HOST))

    def member(number: int) -> Consumer:
        consumer = Consumer(
            "t", bootstrap_servers=broker.bootstrap_servers, group_id="billing", **QUICK
        )
        return with_runtime(consumer, world.runtime(f"10.0.1.{number}"))

    async def main() -> None:
        async with broker:
            await broker.create_topic("t", partitions=2)
            async with member(1) as leader:
                await leader.getone(timeout_ms=5_000)
                async with member(2) as follower, anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(leader.getone, timeout_ms=5_000))
                    await follower.getone(timeout_ms=5_000)
                    assert follower.assignment()
                await leader.getone(timeout_ms=5_000)
                assert len(leader.assignment()) == 2

    world.run(main)
    info = [r for r in lines.records if r.levelno == logging.INFO and r.name.endswith(".group")]
    texts = [record.getMessage().removeprefix("Group billing: ") for record in info]
    assert texts.count("rejoining: the group is rebalancing") == 2
    (joined,) = [text for text in texts if text.startswith("members that joined: ")]
    assert joined.replace("joined", "left") in texts
    changes = [vars(record) for record in info if ": members that " in record.getMessage()]
    assert [fields["kafka_members"] for fields in changes] == [2, 1]


@pytest.mark.parametrize("client", [Consumer, ShareConsumer])
def test_a_fetch_that_waits_longer_than_the_limit_of_silence_is_no_outage(
    lines: Lines, client: type[Consumer] | type[ShareConsumer]
) -> None:
    world = World(7)
    broker = Broker(host=HOST, runtime=world.runtime(HOST))

    async def main() -> None:
        async with broker:
            await broker.create_topic("t", partitions=1)
            async with with_runtime(
                client(
                    "t",
                    bootstrap_servers=broker.bootstrap_servers,
                    group_id="g",
                    fetch_max_wait_ms=20_000,
                ),
                world.runtime("10.0.1.1"),
            ) as consumer:
                await consumer.getmany(timeout_ms=60_000)

    world.run(main)
    assert warnings_in(lines) == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_silent_broker_among_others_is_logged_when_its_silence_begins_and_ends(
    lines: Lines, backend: Backend
) -> None:
    world = World(6, backend=backend)
    broker = Broker(host=HOST, nodes=2, runtime=world.runtime(HOST))
    silenced_s = 20.0

    async def main() -> None:
        async with broker:
            await broker.create_topic("t", partitions=2)
            async with with_runtime(
                Producer(bootstrap_servers=broker.bootstrap_servers), world.runtime("10.0.1.1")
            ) as producer:
                deliveries = [await producer.send("t", b"v", partition=n) for n in (0, 1)]
                for delivery in deliveries:
                    await delivery
                lines.records.clear()
                leader = broker.leader("t", 1)
                broker.on(ApiKey.PRODUCE, Delay(silenced_s), times=1)
                slow = await producer.send("t", b"v", partition=1)
                await anyio.sleep(4.9)
                assert warnings_in(lines) == []
                await anyio.sleep(2.2)
                (text,) = warnings_in(lines)
                assert f"broker {leader} at " in text
                assert "does not respond: no response to Produce for " in text
                await producer.send_and_wait("t", b"v", partition=0)
                await slow
                await anyio.sleep(1)
        (record,) = [each for each in lines.records if hasattr(each, "kafka_outage_ms")]
        assert f"broker {leader} at " in record.getMessage()
        assert "responds again after" in record.getMessage()
        assert silenced_s <= record.kafka_outage_ms / 1_000 < silenced_s + 1
        assert warnings_in(lines) == [text]

    world.run(main)


ADVERTISED = "kafka"


@pytest.mark.parametrize("group_id", ["g", None])
@pytest.mark.parametrize("unreachable", ["unknown name", "refused", "no answer"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_unreachable_advertised_address_is_logged_once_per_outage(
    lines: Lines, backend: Backend, unreachable: str, group_id: str | None
) -> None:
    """Bootstrap succeeds, but the address of the leader is unreachable."""
    world = World(3, backend=backend)
    broker = Broker(host=HOST, advertised_host=ADVERTISED, runtime=world.runtime(HOST))
    # The first attempt to connect to a host that drops packets takes 10 s.
    limit_s = 12.0 if unreachable == "no answer" else 8.0

    async def main() -> None:
        async with broker:
            await broker.create_topic("t")
            port = broker.bootstrap_servers.rpartition(":")[2]
            consumer = Consumer(
                "t",
                bootstrap_servers=f"{HOST}:{port}",
                group_id=group_id,
                auto_offset_reset="earliest",
            )
            if unreachable != "unknown name":
                world.network.name(ADVERTISED, "10.0.0.9")
            if unreachable == "no answer":
                world.network.hang_connects("10.0.0.9")
            async with with_runtime(consumer, world.runtime("10.0.1.1")):
                assert await consumer.getone(timeout_ms=limit_s * 1_000) is None
                (text,) = warnings_in(lines)
                assert f"no connection to broker 1 at {ADVERTISED}:{port} for " in text
                assert "advertised.listeners" in text
                assert await consumer.getone(timeout_ms=170_000) is None
                assert warnings_in(lines) == [text]
                world.network.name(ADVERTISED, HOST)
                world.network.allow_connects("10.0.0.9")
                async with with_runtime(
                    Producer(bootstrap_servers=f"{HOST}:{port}"), world.runtime("10.0.1.2")
                ) as producer:
                    await producer.send_and_wait("t", b"v")
                record = await consumer.getone(timeout_ms=60_000)
                assert record is not None
                assert len(lines.texts(f"connected to broker 1 at {ADVERTISED}:{port} after")) == 1
        assert warnings_in(lines) == [text]

    world.run(main, limit_s=1_000)


def warnings_in(lines: Lines) -> list[str]:
    records = (r for r in lines.records if r.levelno >= logging.WARNING)
    return [record.getMessage() for record in records if "aiokafkawire.broker" not in record.name]
