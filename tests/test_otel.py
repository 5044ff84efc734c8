"""Traces and metrics for OpenTelemetry, on the embedded broker."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import anyio
import httpx
import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import BrokerError, RecordTooLarge
from aiokafkawire.otel import MAX_LINKS, AiokafkawireInstrumentor, OpenTelemetry
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.testing import Answer, ApiKey, ErrorCode
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import BatchPolicy, RetryPolicy, Worker

TP = TopicPartition("orders", 0)
WITHIN_S = 20.0


class Telemetry:
    """Keeps the spans and metrics of a test."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracer = self.tracer_provider.get_tracer("test")
        self.hook = self.make_hook()

    def make_hook(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(
            tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, **options
        )

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def metric(self, name: str) -> dict[tuple[str, str], int]:
        """Return the count of a metric, by operation and error."""
        data = self.reader.get_metrics_data()
        assert data is not None
        counts: Counter[tuple[str, str]] = Counter()
        for resource in data.resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                if metric.name != name:
                    continue
                for point in metric.data.data_points:
                    operation = str(point.attributes["messaging.operation.name"])
                    error = str(point.attributes.get("error.type", ""))
                    is_histogram = hasattr(point, "bucket_counts")
                    counts[operation, error] += point.count if is_histogram else point.value
        return dict(counts)


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracer_provider.shutdown()
    made.meter_provider.shutdown()


@pytest.fixture
async def broker() -> Any:
    async with Broker(group_min_session_timeout_ms=500) as broker:
        await broker.create_topic("orders", partitions=1)
        yield broker


@pytest.fixture
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def test_one_trace_from_an_http_request_to_the_dead_letter(
    servers: str, telemetry: Telemetry
):
    hooks = [telemetry.hook]
    producer = Producer(bootstrap_servers=servers, hooks=hooks)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        carrier = {name.decode(): value.decode() for name, value in scope["headers"]}
        with telemetry.tracer.start_as_current_span(
            "POST /orders", propagate.extract(carrier), SpanKind.SERVER
        ):
            await producer.send_and_wait("orders", b"book", b"7")
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body"})

    worker = Worker(bootstrap_servers=servers, group_id="billing", hooks=hooks)
    current: list[trace.SpanContext] = []

    @worker.on("orders", retries=RetryPolicy(attempts=1, delays_ms=(1_000,)))
    async def bill(record: Any) -> None:
        current.append(trace.get_current_span().get_span_context())
        raise ValueError("no such customer")

    async with (
        producer,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(application), base_url="http://shop"
        ) as browser,
    ):
        with telemetry.tracer.start_as_current_span("click") as click:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            response = await browser.post("/orders", headers=headers)
        assert response.status_code == 201
    results = await worker.run_until_idle()
    assert results.dead.values() == [b"book"]
    async with Consumer(
        "billing.dead", bootstrap_servers=servers, auto_offset_reset="earliest", hooks=hooks
    ) as consumer:
        with anyio.fail_after(WITHIN_S):
            letter = await consumer.getone()
        with telemetry.hook.process(letter, group_id="support"):
            pass

    path = [
        "click",
        "POST /orders",
        "send orders",
        "process orders",
        "send billing.retry.1s",
        "process billing.retry.1s",
        "send billing.dead",
        "process billing.dead",
    ]
    chain = [telemetry.spans(name)[0] for name in path]
    assert all(len(telemetry.spans(name)) == 1 for name in path)
    assert {span.context.trace_id for span in chain} == {click.get_span_context().trace_id}
    assert [parent_id(span) for span in chain[1:]] == [span.context.span_id for span in chain[:-1]]
    assert [context.span_id for context in current] == [
        chain[3].context.span_id,
        chain[5].context.span_id,
    ]
    for name in ("process orders", "process billing.retry.1s"):
        (failed,) = telemetry.spans(name)
        assert failed.status.status_code is StatusCode.ERROR
        assert failed.attributes["error.type"] == "ValueError"
        assert [link.context.span_id for link in failed.links] == [parent_id(failed)]
    # The letter has the context of its own span alone.
    assert len([value for name, value in letter.headers if name == "traceparent"]) == 1


async def test_attributes_of_spans(servers: str, telemetry: Telemetry):
    hooks = [telemetry.make_hook(record_keys=True)]
    options: dict[str, Any] = {"bootstrap_servers": servers, "client_id": "shop", "hooks": hooks}
    async with Producer(**options) as producer:
        await producer.send_and_wait("orders", None, b"7", headers=[("kind", b"book")])
    worker = Worker(group_id="billing", **options)

    @worker.on("orders")
    async def bill(record: Any) -> None:
        pass

    await worker.run_until_idle()
    (sent,), (processed,) = telemetry.spans("send orders"), telemetry.spans("process orders")
    (polled,) = telemetry.spans("poll orders")
    assert [span.kind for span in (sent, processed, polled)] == [
        SpanKind.PRODUCER,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    shared = {
        "messaging.system": "kafka",
        "messaging.destination.name": "orders",
        "messaging.client.id": "shop",
    }
    of_record = {
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "7",
        "messaging.kafka.message.tombstone": True,
    }
    of_group = {"messaging.consumer.group.name": "billing"}
    assert dict(sent.attributes) == {
        **shared,
        **of_record,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert dict(processed.attributes) == {
        **shared,
        **of_record,
        **of_group,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "aiokafkawire.attempt": 1,
    }
    assert dict(polled.attributes) == {
        **shared,
        **of_group,
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.batch.message_count": 1,
    }
    assert [link.context.span_id for link in polled.links] == [sent.context.span_id]
    assert polled.parent is None
    assert polled.start_time <= polled.end_time


async def test_a_batch_has_links_instead_of_a_parent(servers: str, telemetry: Telemetry):
    hooks = [telemetry.hook]
    async with Producer(bootstrap_servers=servers, hooks=hooks) as producer:
        await producer.send_many("orders", [b"%d" % number for number in range(MAX_LINKS + 2)])
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"without a context")
    sent = {span.context.span_id for span in telemetry.spans("send orders")}
    assert len(sent) == MAX_LINKS + 2
    worker = Worker(bootstrap_servers=servers, group_id="billing", hooks=hooks)

    @worker.on("orders", batch=BatchPolicy(max_records=1_000))
    async def bill(records: Any) -> None:
        pass

    await worker.run_until_idle()
    spans = telemetry.spans("process orders")
    assert all(span.parent is None and len(span.links) <= MAX_LINKS for span in spans)
    counts = [span.attributes["messaging.batch.message_count"] for span in spans]
    assert sum(counts) == MAX_LINKS + 3
    assert {link.context.span_id for span in spans for link in span.links} <= sent


async def test_metrics(broker: Broker, servers: str, telemetry: Telemetry):
    hooks = [telemetry.hook]
    async with Producer(bootstrap_servers=servers, hooks=hooks) as producer:
        await producer.send_many("orders", [b"good", b"bad"])
        await producer.flush()
        fault = broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD))
        with pytest.raises(BrokerError):
            await producer.send_and_wait("orders", b"refused")
        fault.remove()
    worker = Worker(bootstrap_servers=servers, group_id="billing", hooks=hooks)

    @worker.on("orders", retries=RetryPolicy(attempts=1, dead_on=(ValueError,)))
    async def bill(record: Any) -> None:
        if record.value == b"bad":
            raise ValueError

    await worker.run_until_idle()
    sent = telemetry.metric("messaging.client.sent.messages")
    assert sent == {("send", ""): 3, ("send", "BrokerError"): 1}  # with the dead letter
    assert telemetry.metric("messaging.client.consumed.messages") == {("poll", ""): 2}
    assert telemetry.metric("messaging.process.duration") == {
        ("process", ""): 1,
        ("process", "ValueError"): 1,
    }
    durations = telemetry.metric("messaging.client.operation.duration")
    assert durations["send", ""] == 3
    assert durations["poll", ""] >= 1


async def test_a_failed_record_is_in_its_span(broker: Broker, servers: str, telemetry: Telemetry):
    async with Producer(bootstrap_servers=servers, hooks=[telemetry.hook]) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(RecordTooLarge):
            await producer.send("orders", b"x" * 2_000_000)
        delivery = await producer.send("orders", b"book")
        await delivery
    (span,) = telemetry.spans("send orders")  # an invalid record is not sent
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("headers", [[], [("traceparent", b"\xff")], [("traceparent", None)]])
def test_a_record_without_a_usable_context_begins_a_trace(telemetry: Telemetry, headers: Any):
    record = Record("orders", 0, 5, value=b"book", headers=headers)
    with telemetry.tracer.start_as_current_span("other") as other:
        with telemetry.hook.process(record) as span:
            assert trace.get_current_span() is span
        assert trace.get_current_span() is other
    (processed,) = telemetry.spans("process orders")
    assert (processed.parent, processed.links) == (None, ())


def test_processing_that_fails_is_an_error(telemetry: Telemetry):
    record = Record("orders", 0, 5, value=b"book")
    with pytest.raises(ValueError, match="bad"), telemetry.hook.process([record, record]):
        raise ValueError("bad")
    (processed,) = telemetry.spans("process orders")
    assert processed.status.description == "ValueError: bad"
    assert processed.attributes["messaging.batch.message_count"] == 2


async def test_the_instrumentor_traces_all_clients(servers: str, telemetry: Telemetry):
    (entry,) = entry_points(group="opentelemetry_instrumentor", name="aiokafkawire")
    instrumentor = entry.load()
    assert instrumentor is AiokafkawireInstrumentor
    assert instrumentor().instrumentation_dependencies() == ()
    instrumentor().instrument(skip_dep_check=True)
    instrumentor().instrument(
        skip_dep_check=True,
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
    )
    try:
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("orders", b"book")
    finally:
        instrumentor().uninstrument()
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"book")
    assert len(telemetry.spans("send orders")) == 1


async def test_without_a_provider_records_are_as_before(servers: str):
    hook = OpenTelemetry()
    async with (
        Producer(bootstrap_servers=servers, hooks=[hook]) as producer,
        Consumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send_and_wait("orders", b"book", headers=[("kind", b"a")])
        with anyio.fail_after(WITHIN_S):
            record = await consumer.getone()
    assert list(record.headers) == [("kind", b"a")]
    assert not hook._sending


def test_the_package_does_not_import_opentelemetry():
    code = "import sys, aiokafkawire; aiokafkawire.Worker; print('opentelemetry' in sys.modules)"
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert finished.stdout.strip() == "False"
