"""Hooks of the clients, on the embedded broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    DeliveriesFailed,
    InvalidOption,
    KafkaError,
    NoBrokerAvailable,
    RecordTooLarge,
    UnknownTopic,
)
from aiokafkawire.hooks import (
    ClientInfo,
    HookFunctions,
    Processing,
    RecordsReceived,
    Sending,
    add_default_hook,
    remove_default_hook,
)
from aiokafkawire.producer import Producer
from aiokafkawire.share import ShareConsumer
from aiokafkawire.testing import Answer, ApiKey, ErrorCode
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.messages.list_groups import ListGroupsResponse
from aiokafkawire.worker import BatchPolicy, RetryPolicy, Worker

TP = TopicPartition("orders", 0)
WITHIN_S = 20.0

EVENTS = tuple(HookFunctions.__dataclass_fields__)


class Recorder:
    """Keeps the events of all hooks, or of some of them."""

    def __init__(self, *names: str) -> None:
        self.calls: list[tuple[str, ClientInfo, Any]] = []
        for name in names or EVENTS:
            setattr(self, name, self._record(name))

    def _record(self, name: str) -> Callable[[ClientInfo, Any], None]:
        return lambda client, event: self.calls.append((name, client, event))

    def of(self, name: str) -> list[Any]:
        return [event for known, _, event in self.calls if known == name]


@pytest.fixture
async def broker() -> Any:
    async with Broker(group_min_session_timeout_ms=500) as broker:
        await broker.create_topic("orders", partitions=1)
        yield broker


@pytest.fixture
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


# --- connections ---


async def test_connections_and_requests_of_an_admin_client(servers: str):
    hook = Recorder()
    async with Admin(bootstrap_servers=servers, client_id="ops", hooks=[hook]) as admin:
        await admin.list_topics()
    assert {client for _, client, _ in hook.calls} == {ClientInfo("admin client", "ops", None)}
    assert all(event.error is None and event.duration_s >= 0 for event in hook.of("on_connect"))
    assert len(hook.of("on_connect")) == len(hook.of("on_disconnect")) > 0
    assert all(event.by_client for event in hook.of("on_disconnect"))
    requests = hook.of("on_request")
    assert {"ApiVersions", "Metadata"} <= {request.api for request in requests}
    for request in requests:
        assert request.latency_s is not None
        assert request.latency_s >= 0
        assert min(request.request_bytes, request.response_bytes) > 4


async def test_a_bootstrap_connection_ends_with_the_reason(servers: str):
    hook = Recorder()
    async with Admin(bootstrap_servers=servers, hooks=[hook]) as admin:
        await admin.list_topics()
        with anyio.fail_after(WITHIN_S):
            while not hook.of("on_disconnect"):  # noqa: ASYNC110 - a hook has no event
                await anyio.sleep(0.01)
        (bootstrap,) = hook.of("on_disconnect")
    assert "a bootstrap connection ends when the cluster's nodes are known" in str(bootstrap.error)


async def test_a_failed_attempt_to_connect_has_its_error():
    hook = Recorder()
    admin = Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=200, hooks=[hook])
    with pytest.raises(NoBrokerAvailable):
        await admin.start()
    assert all(isinstance(event.error, KafkaError) for event in hook.of("on_connect"))
    assert hook.of("on_connect")
    assert not hook.of("on_disconnect")


async def test_a_throttled_client(broker: Broker, servers: str):
    hook = Recorder("on_throttle")
    async with Admin(bootstrap_servers=servers, hooks=[hook]) as admin:
        response = ListGroupsResponse(throttle_time_ms=20, error_code=0, groups=[])
        broker.on(ApiKey.LIST_GROUPS, lambda _: response, times=1)
        await admin.list_groups()
    (event,) = hook.of("on_throttle")
    assert (event.api, event.throttle_s) == ("ListGroups", 0.02)


# --- producer ---


@pytest.mark.parametrize("call", ["send", "send_nowait", "send_and_wait", "send_many"])
async def test_a_record_begins_and_ends(servers: str, call: str):
    hook = Recorder()
    async with Producer(bootstrap_servers=servers, client_id="shop", hooks=[hook]) as producer:
        await producer.partitions_for("orders")
        if call == "send_many":
            await producer.send_many("orders", [b"book"], [b"7"])
        else:
            result = getattr(producer, call)("orders", b"book", b"7")
            if call != "send_nowait":
                await result
        await producer.flush()
        (begun,), (ended,) = hook.of("on_send_begun"), hook.of("on_send_ended")
        assert begun is ended
        assert (ended.topic, ended.value, ended.key, ended.error) == ("orders", b"book", b"7", None)
        assert ended.metadata[:3] == ("orders", 0, 0)
    (batch,) = hook.of("on_batch_written")
    assert (batch.topic, batch.partition, batch.base_offset) == ("orders", 0, 0)
    assert (batch.records, batch.attempts) == (1, 1)
    assert batch.size_bytes > 61
    assert {client for _, client, _ in hook.calls} == {ClientInfo("producer", "shop", None)}


async def test_a_hook_adds_headers(servers: str):
    class AddHeader:
        def on_send_begun(self, client: ClientInfo, sending: Sending) -> None:
            sending.headers.append(("trace", b"1"))

    async with (
        Producer(bootstrap_servers=servers, hooks=[AddHeader()]) as producer,
        Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send_and_wait("orders", b"book", headers=[("kind", b"a")])
        await producer.send_and_wait("orders", b"book")
        with anyio.fail_after(WITHIN_S):
            first, second = await consumer.getone(), await consumer.getone()
    assert list(first.headers) == [("kind", b"a"), ("trace", b"1")]
    assert list(second.headers) == [("trace", b"1")]


@pytest.mark.parametrize("headers", [[("trace", b"x" * 2_000)], [("trace", "text")], "wrong"])
async def test_unusable_headers_of_a_hook_are_left_out(
    servers: str, headers: Any, caplog: pytest.LogCaptureFixture
):
    class SetHeaders:
        def on_send_begun(self, client: ClientInfo, sending: Sending) -> None:
            sending.headers = headers

    async with Producer(
        bootstrap_servers=servers, hooks=[SetHeaders()], max_request_size_bytes=1_000
    ) as producer:
        for offset in range(2):
            assert (await producer.send_and_wait("orders", b"book")).offset == offset
    assert len([line for line in caplog.records if line.name == "aiokafkawire.hooks"]) == 1


async def test_failed_records_end_with_their_error(broker: Broker, servers: str):
    hook = Recorder("on_send_begun", "on_send_ended", "on_batch_written")
    async with Producer(bootstrap_servers=servers, hooks=[hook], max_block_ms=200) as producer:
        with pytest.raises(UnknownTopic):
            producer.send_nowait("orders", b"topic not known yet")
        with pytest.raises(UnknownTopic):
            await producer.send("orders", b"no such partition", partition=7)
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        delivery = await producer.send("orders", b"refused")
        with pytest.raises(DeliveriesFailed):
            await producer.flush()
        assert delivery.done
    ended = hook.of("on_send_ended")
    assert ended == hook.of("on_send_begun")
    assert [sending.value for sending in ended] == [
        b"topic not known yet",
        b"no such partition",
        b"refused",
    ]
    assert [type(sending.error).__name__ for sending in ended] == [
        "UnknownTopic",
        "UnknownTopic",
        "BrokerError",
    ]
    assert not hook.of("on_batch_written")


async def test_the_records_of_a_split_batch_end_with_their_parts(broker: Broker, servers: str):
    hook = Recorder("on_send_ended", "on_batch_written")
    async with Producer(bootstrap_servers=servers, hooks=[hook], linger_ms=1_000) as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.MESSAGE_TOO_LARGE), times=1)
        await producer.send_many("orders", [b"%d" % number for number in range(4)])
        await producer.flush()
    assert [(ended.value, ended.metadata.offset) for ended in hook.of("on_send_ended")] == [
        (b"0", 0),
        (b"1", 1),
        (b"2", 2),
        (b"3", 3),
    ]
    assert sum(batch.records for batch in hook.of("on_batch_written")) == 4


# --- consumers ---


def read_number(data: bytes) -> int:
    return int(data)


@pytest.mark.parametrize("call", ["getone", "getmany", "iterate", "batches"])
async def test_what_a_consumer_fetches_and_returns(servers: str, call: str):
    hook, values = Recorder(), []

    class ReadsValues:
        def on_records_received(self, client: ClientInfo, event: RecordsReceived) -> None:
            values.extend(record.value for record in event.records[TP])

    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_many("orders", [b"1", b"2"])
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        client_id="c",
        group_id="billing",
        auto_offset_reset="earliest",
        value_deserializer=read_number,
        hooks=[hook, ReadsValues()],
    ) as consumer:
        with anyio.fail_after(WITHIN_S):
            match call:
                case "getone":
                    assert (await consumer.getone()).value == 1
                case "getmany":
                    assert [r.value for r in (await consumer.getmany(timeout_ms=10_000))[TP]]
                case "iterate":
                    assert (await anext(aiter(consumer))).value == 1
                case "batches":
                    assert len(await anext(aiter(consumer.batches()))) == 2
        (fetched,) = hook.of("on_batch_fetched")
        assert (fetched.topic, fetched.first_offset, fetched.next_offset) == ("orders", 0, 2)
        assert fetched.size_bytes > 61
        (received,) = hook.of("on_records_received")
        assert received.duration_s >= 0
        assert values == [b"1", b"2"]
        kinds = [(event.kind, event.partitions) for event in hook.of("on_group_event")]
        assert kinds == [("joined", (TP,)), ("assigned", (TP,))]
    assert hook.of("on_group_event")[-1].kind == "revoked"
    assert {client for _, client, _ in hook.calls} == {ClientInfo("consumer", "c", "billing")}


@pytest.mark.parametrize("call", ["getmany", "iterate"])
async def test_what_a_share_consumer_fetches_and_returns(servers: str, call: str):
    hook = Recorder()
    async with (
        Producer(bootstrap_servers=servers) as producer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        group = ConfigResource(ConfigResourceType.GROUP, "billing")
        configs = {"share.auto.offset.reset": "earliest"}
        await admin.incremental_alter_configs({group: configs})
        await producer.send_many("orders", [b"1", b"2"])
    async with ShareConsumer(
        "orders", bootstrap_servers=servers, group_id="billing", hooks=[hook]
    ) as consumer:
        with anyio.fail_after(WITHIN_S):
            if call == "getmany":
                await consumer.getmany(timeout_ms=10_000)
            else:
                await anext(aiter(consumer))
        (fetched,) = hook.of("on_batch_fetched")
        assert (fetched.topic, fetched.first_offset, fetched.next_offset) == ("orders", 0, 2)
        (received,) = hook.of("on_records_received")
        assert [record.value for record in received.records[TP]] == [b"1", b"2"]
        assert [event.kind for event in hook.of("on_group_event")] == ["assigned"]


# --- worker ---


async def run_worker(servers: str, hook: Recorder, **options: Any) -> list[Processing]:
    worker = Worker(bootstrap_servers=servers, group_id="billing", hooks=[hook])

    @worker.on("orders", **options)
    async def handle(record: Any) -> None:
        if any(one.value == b"bad" for one in (record if "batch" in options else [record])):
            raise ValueError("bad")

    await worker.run_until_idle()
    return hook.of("on_process_ended")


async def test_attempts_of_a_worker(servers: str):
    hook = Recorder()
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_many("orders", [b"good", b"bad"])
    ended = await run_worker(servers, hook, retries=RetryPolicy(attempts=2))
    assert ended == hook.of("on_process_begun")
    assert [
        ([record.value for record in one.records], one.attempt, one.is_batch, repr(one.error))
        for one in ended
    ] == [
        ([b"good"], 1, False, "None"),
        ([b"bad"], 1, False, "ValueError('bad')"),
        ([b"bad"], 2, False, "ValueError('bad')"),
    ]
    # The dead letter is written within the last attempt.
    order = [name for name, _, _ in hook.calls if name in ("on_send_ended", "on_process_ended")]
    assert order[-2:] == ["on_send_ended", "on_process_ended"]


async def test_batches_of_a_worker(servers: str):
    hook = Recorder("on_process_ended")
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_many("orders", [b"good", b"bad"])
    ended = await run_worker(
        servers, hook, batch=BatchPolicy(max_records=2), retries=RetryPolicy(attempts=1)
    )
    assert [(len(one.records), one.is_batch, one.error is None) for one in ended] == [
        (2, True, False),
        (1, True, True),
        (1, True, False),
    ]


# --- failures of hooks, and wrong use ---


async def test_a_hook_that_raises_breaks_nothing(servers: str, caplog: pytest.LogCaptureFixture):
    class Raises:
        def __getattr__(self, name: str) -> Any:
            if name not in EVENTS:
                raise AttributeError(name)

            def method(client: ClientInfo, event: object) -> None:
                raise RuntimeError(f"{name} failed")

            return method

    after = Recorder()
    options: dict[str, Any] = {"bootstrap_servers": servers, "hooks": [Raises(), after]}
    async with Producer(**options) as producer:
        for _ in range(3):
            await producer.send_and_wait("orders", b"book")
    worker = Worker(group_id="billing", **options)
    handled = []

    @worker.on("orders")
    async def handle(record: Any) -> None:
        handled.append(record.value)

    await worker.run_until_idle()
    assert handled == [b"book"] * 3
    assert len(after.of("on_send_ended")) == len(after.of("on_process_ended")) == 3
    lines = [line for line in caplog.records if line.name == "aiokafkawire.hooks"]
    said = [(line.getMessage(), str(line.exc_info[1])) for line in lines if line.exc_info]
    assert len(said) == len(lines)
    producer_lines = [text for text in said if "of the producer" in text[0] and "send" in text[1]]
    assert sorted(text[1] for text in producer_lines) == [
        "on_send_begun failed",
        "on_send_ended failed",
    ]
    assert {line.levelno for line in lines} == {logging.WARNING}


async def test_hooks_that_end_something_are_called_in_reverse_order(servers: str):
    calls: list[str] = []

    @dataclass
    class Named:
        name: str
        seen: list[str] = field(default_factory=list)

        def on_send_begun(self, client: ClientInfo, sending: Sending) -> None:
            calls.append(f"begun {self.name}")

        def on_send_ended(self, client: ClientInfo, sending: Sending) -> None:
            calls.append(f"ended {self.name}")

    async with Producer(bootstrap_servers=servers, hooks=[Named("a"), Named("b")]) as producer:
        await producer.send_and_wait("orders", b"book")
    assert calls == ["begun a", "begun b", "ended b", "ended a"]


class Async:
    async def on_connect(self, client: ClientInfo, event: object) -> None:
        pass


@pytest.mark.parametrize(
    ("hooks", "text"),
    [
        (None, "hooks must be a list of hooks, not None"),
        (Recorder(), "hooks must be a list of hooks, not <tests"),
        ([object()], "which has none of the methods on_connect, "),
        ([Recorder], "hooks must be a list of objects: call the class Recorder"),
        ([Async()], "whose on_connect must be a plain method, not async"),
    ],
)
def test_wrong_hooks_are_refused(hooks: Any, text: str):
    with pytest.raises(InvalidOption, match=text):
        Producer(bootstrap_servers="h:9092", hooks=hooks)


@pytest.fixture
def default_hook() -> Iterator[Recorder]:
    hook = Recorder()
    add_default_hook(hook)
    add_default_hook(hook)
    yield hook
    with suppress(ValueError):
        remove_default_hook(hook)


async def test_default_hooks_are_used_by_all_clients(servers: str, default_hook: Recorder):
    producer = Producer(bootstrap_servers=servers, hooks=[default_hook])
    async with producer:
        await producer.send_and_wait("orders", b"book")
    assert len(default_hook.of("on_send_ended")) == 1
    remove_default_hook(default_hook)
    remove_default_hook(default_hook)
    before = len(default_hook.calls)
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.list_topics()
    assert len(default_hook.calls) == before


async def test_a_record_that_is_too_large_does_not_begin(servers: str):
    hook = Recorder("on_send_begun", "on_send_ended")
    async with Producer(
        bootstrap_servers=servers, max_request_size_bytes=1_000, hooks=[hook]
    ) as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send("orders", b"x" * 2_000)
    assert not hook.calls


async def test_without_hooks_a_producer_takes_the_fast_path(servers: str):
    async with Producer(bootstrap_servers=servers) as producer:
        session = producer._lifecycle.require_session()
        assert session.appender.observer is None
        assert session.appender._fast_topics is session.sender.accumulator.topics
        assert type(session.sender.accumulator).__name__ == "Accumulator"
