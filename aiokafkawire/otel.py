"""Traces and metrics for OpenTelemetry, by the semantic conventions for messaging.

It needs the extra `otel`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Token
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider

from aiokafkawire._version import __version__
from aiokafkawire.hooks import (
    ClientInfo,
    Processing,
    RecordsReceived,
    Sending,
    add_default_hook,
    remove_default_hook,
)
from aiokafkawire.records import Record

__all__ = ("AiokafkawireInstrumentor", "OpenTelemetry")

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

MAX_LINKS = 128
"""Limit of links of a span, which is also the default limit of OpenTelemetry's SDK."""

DURATION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Boundaries of the histograms of durations that the conventions recommend."""

Attributes = dict[str, str | int | bool]

AnyRecord = Record[Any, Any]


class StartedSpan(NamedTuple):
    """A span that has not ended, and what its metrics need."""

    span: Span
    began: float
    attributes: Attributes
    token: Token[Context] | None = None


class OpenTelemetry:
    """Hooks that make spans and metrics: `Producer(hooks=[OpenTelemetry()], ...)`.

    A producer makes a span `send <topic>` for each record, and writes its context into the headers.
    A consumer makes a span `poll <topic>` for each call that returns records, with links to the
    contexts in their headers. A worker makes a span `process <topic>` for each attempt. It is the
    current span in the handler, and the parent of spans of retries and dead letters. Its own parent
    is the context in the headers of the record; for a batch there are links instead.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        record_keys: bool = False,
    ) -> None:
        """Create the instruments.

        Args:
            tracer_provider: Makes spans. Defaults to the global one.
            meter_provider: Makes metrics. Defaults to the global one.
            propagator: Reads and writes contexts in headers. Defaults to the global one, which
                writes `traceparent`.
            record_keys: Add the keys of records to spans, as text. They may be personal data.
        """
        self._tracer = trace.get_tracer(
            "aiokafkawire", __version__, tracer_provider, schema_url=SCHEMA_URL
        )
        meter = metrics.get_meter(
            "aiokafkawire", __version__, meter_provider, schema_url=SCHEMA_URL
        )
        self._operation_duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of sending and of receiving records.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._process_duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Records that a producer sent."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Records that a consumer returned."
        )
        self._propagator = propagator
        self._record_keys = record_keys
        self._sending: dict[Sending, StartedSpan] = {}
        self._processing: dict[Processing, StartedSpan] = {}

    # --- producer ---

    def on_send_begun(self, client: ClientInfo, sending: Sending, /) -> None:
        """Start a span, and write its context into the headers.

        Without a current span, the context in the headers is the parent: a worker copies them.
        """
        parent: Context | None = None
        if not trace.get_current_span().get_span_context().is_valid:
            parent = self._extract(sending.headers)
        attributes = _attributes(client, "send", "send", sending.topic)
        span = self._tracer.start_span(
            f"send {sending.topic}", parent, SpanKind.PRODUCER, attributes
        )
        if span.is_recording():
            self._add_content(span, sending.key, sending.value)
        carrier: dict[str, str] = {}
        context = trace.set_span_in_context(span, parent)
        (self._propagator or propagate).inject(carrier, context)
        if carrier:
            sending.headers = [
                *(header for header in sending.headers if header[0] not in carrier),
                *((name, text.encode()) for name, text in carrier.items()),
            ]
        self._sending[sending] = StartedSpan(span, time.perf_counter(), attributes)

    def on_send_ended(self, client: ClientInfo, sending: Sending, /) -> None:
        """End the span with the partition and offset, or with the error."""
        started = self._sending.pop(sending, None)
        if started is None:
            return
        span, began, attributes, _ = started
        if sending.metadata is not None:
            span.set_attribute("messaging.destination.partition.id", str(sending.metadata[1]))
            span.set_attribute("messaging.kafka.offset", sending.metadata[2])
        elif sending.error is not None:
            _set_error(span, sending.error, attributes)
        span.end()
        self._operation_duration.record(time.perf_counter() - began, attributes)
        self._sent.add(1, attributes)

    # --- consumer ---

    def on_records_received(self, client: ClientInfo, event: RecordsReceived, /) -> None:
        """Make a span of the call, with links to the contexts in the headers."""
        topics = {tp.topic for tp in event.records}
        topic = topics.pop() if len(topics) == 1 else None
        attributes = _attributes(client, "poll", "receive", topic)
        self._operation_duration.record(event.duration_s, attributes)
        count = 0
        for tp, records in event.records.items():
            count += len(records)
            self._consumed.add(len(records), _attributes(client, "poll", "receive", tp.topic))
        span = self._tracer.start_span(
            f"poll {topic}" if topic else "poll",
            kind=SpanKind.CLIENT,
            attributes={**attributes, "messaging.batch.message_count": count},
            start_time=time.time_ns() - int(event.duration_s * 1e9),
        )
        if span.is_recording():
            self._add_links(span, (one for records in event.records.values() for one in records))
        span.end()

    # --- worker ---

    def on_process_begun(self, client: ClientInfo, processing: Processing, /) -> None:
        """Start a span and make it the current one."""
        started = self._begin_process(client, processing.records, is_batch=processing.is_batch)
        started.span.set_attribute("aiokafkawire.attempt", processing.attempt)
        self._processing[processing] = started

    def on_process_ended(self, client: ClientInfo, processing: Processing, /) -> None:
        """End the span, and make the one before it the current one again."""
        started = self._processing.pop(processing, None)
        if started is not None:
            self._end_process(started, processing.error)

    @contextmanager
    def process(
        self, records: AnyRecord | Sequence[AnyRecord], *, group_id: str | None = None
    ) -> Iterator[Span]:
        """Make a span for the processing of records, for consumers without a worker.

        ::

            async for record in consumer:
                with telemetry.process(record, group_id="billing"):
                    await bill(record)

        Args:
            records: A record, or records that are processed together.
            group_id: Consumer group, for the attributes.
        """
        is_batch = not isinstance(records, Record)
        client = ClientInfo("consumer", "", group_id)
        every = [records] if isinstance(records, Record) else records
        started = self._begin_process(client, every, is_batch=is_batch)
        error: BaseException | None = None
        try:
            yield started.span
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._end_process(started, error)

    def _begin_process(
        self, client: ClientInfo, records: Sequence[AnyRecord], *, is_batch: bool
    ) -> StartedSpan:
        topics = {record.topic for record in records}
        topic = topics.pop() if len(topics) == 1 else None
        context = Context() if is_batch else self._extract(records[0].headers)
        attributes = _attributes(client, "process", "process", topic)
        span = self._tracer.start_span(
            f"process {topic}" if topic else "process", context, SpanKind.CONSUMER, attributes
        )
        if span.is_recording():
            self._add_links(span, records)
            if is_batch:
                span.set_attribute("messaging.batch.message_count", len(records))
            else:
                record = records[0]
                span.set_attribute("messaging.destination.partition.id", str(record.partition))
                span.set_attribute("messaging.kafka.offset", record.offset)
                self._add_content(span, record.key, record.value)
        token = contexts.attach(trace.set_span_in_context(span, context))
        return StartedSpan(span, time.perf_counter(), attributes, token)

    def _end_process(self, started: StartedSpan, error: BaseException | None) -> None:
        span, began, attributes, token = started
        if token is not None:
            contexts.detach(token)
        if error is not None:
            _set_error(span, error, attributes)
        span.end()
        self._process_duration.record(time.perf_counter() - began, attributes)

    # --- records ---

    def _extract(self, headers: Iterable[tuple[str, bytes | None]]) -> Context:
        """Return the context in headers, empty if there is none."""
        carrier = {
            name: value.decode(errors="replace") for name, value in headers if value is not None
        }
        return (self._propagator or propagate).extract(carrier, Context())

    def _add_links(self, span: Span, records: Iterable[AnyRecord]) -> None:
        """Add a link to the context in the headers of each record."""
        left = MAX_LINKS
        for record in records:
            linked = trace.get_current_span(self._extract(record.headers)).get_span_context()
            if linked.is_valid:
                span.add_link(linked)
                left -= 1
                if not left:
                    return

    def _add_content(self, span: Span, key: object, value: object) -> None:
        if value is None:
            span.set_attribute("messaging.kafka.message.tombstone", True)
        if self._record_keys and key is not None:
            text = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
            span.set_attribute("messaging.kafka.message.key", text)


def _attributes(
    client: ClientInfo, operation: str, operation_type: str, topic: str | None
) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation_type,
    }
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    if client.client_id:
        attributes["messaging.client.id"] = client.client_id
    if client.group_id is not None:
        attributes["messaging.consumer.group.name"] = client.group_id
    return attributes


def _set_error(span: Span, error: BaseException, attributes: Attributes) -> None:
    """Note an error in a span, and its class in the attributes of metrics."""
    attributes["error.type"] = name = type(error).__qualname__
    if span.is_recording():
        span.record_exception(error)
        span.set_attribute("error.type", name)
        span.set_status(StatusCode.ERROR, f"{name}: {error}")


class AiokafkawireInstrumentor:
    """Adds `OpenTelemetry` to all clients that start; `opentelemetry-instrument` uses it."""

    _hook: OpenTelemetry | None = None

    def instrument(self, **options: Any) -> None:
        """Trace all clients that start from now on.

        Args:
            **options: Options of `OpenTelemetry`. Others are ignored.
        """
        self.uninstrument()
        known = ("tracer_provider", "meter_provider", "propagator", "record_keys")
        hook = OpenTelemetry(**{name: options[name] for name in known if name in options})
        add_default_hook(hook)
        AiokafkawireInstrumentor._hook = hook

    def uninstrument(self, **options: Any) -> None:
        """Do not trace clients that start from now on."""
        hook, AiokafkawireInstrumentor._hook = AiokafkawireInstrumentor._hook, None
        if hook is not None:
            remove_default_hook(hook)

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what must be installed: nothing else."""
        return ()
