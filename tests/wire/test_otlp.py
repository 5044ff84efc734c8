"""Encoding and decoding of metrics, compared with the classes that protobuf generates."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire import otlp
from aiokafkawire.wire.otlp import (
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    Temporality,
    decode_metrics_data,
    encode_metrics_data,
)

TOTAL = "org.apache.kafka.producer.connection.creation.total"
LATENCY = "org.apache.kafka.producer.node.request.latency.avg"


def generated() -> Any:
    """Return a message that is built with the generated classes alone."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    label = resource.resource.attributes.add(key="group_id")
    label.value.string_value = "billing"
    scope = resource.scope_metrics.add()
    total = scope.metrics.add(name=TOTAL)
    total.sum.is_monotonic = True
    total.sum.aggregation_temporality = 1
    point = total.sum.data_points.add(start_time_unix_nano=1_000, time_unix_nano=2_000)
    point.as_int = -3
    latency = scope.metrics.add(name=LATENCY)
    for node, value in (("1", 1.5), ("2", math.inf)):
        gauge = latency.gauge.data_points.add(time_unix_nano=2_000, as_double=value)
        gauge.attributes.add(key="node_id").value.string_value = node
    return data


def same_metrics() -> list[ResourceMetrics]:
    return [
        ResourceMetrics(
            {"group_id": "billing"},
            (
                Metric(TOTAL, (NumberDataPoint(-3, {}, 1_000, 2_000),), Temporality.DELTA, True),
                Metric(
                    LATENCY,
                    (
                        NumberDataPoint(1.5, {"node_id": "1"}, time_ns=2_000),
                        NumberDataPoint(math.inf, {"node_id": "2"}, time_ns=2_000),
                    ),
                ),
            ),
        )
    ]


def test_the_generated_classes_decode_what_is_encoded() -> None:
    assert MetricsData.FromString(encode_metrics_data(same_metrics())) == generated()


def test_what_the_generated_classes_encode_is_decoded() -> None:
    assert [*decode_metrics_data(generated().SerializeToString())] == same_metrics()


def test_no_metrics() -> None:
    assert encode_metrics_data([]) == b""
    assert decode_metrics_data(b"") == ()


def test_attributes_of_all_types() -> None:
    data = MetricsData()
    attributes = data.resource_metrics.add().resource.attributes
    attributes.add(key="text").value.string_value = "é"
    attributes.add(key="yes").value.bool_value = True
    attributes.add(key="count").value.int_value = -7
    attributes.add(key="ratio").value.double_value = 0.25
    attributes.add(key="ignored").value.array_value.values.add(int_value=1)
    values = {"text": "é", "yes": True, "count": -7, "ratio": 0.25}
    assert decode_metrics_data(data.SerializeToString())[0].attributes == values
    del attributes[-1]
    encoded = encode_metrics_data([ResourceMetrics(values)])
    assert MetricsData.FromString(encoded).resource_metrics[0].resource == (
        data.resource_metrics[0].resource
    )


def test_other_fields_are_ignored() -> None:
    data = generated()
    data.resource_metrics[0].schema_url = "x"
    data.resource_metrics[0].resource.dropped_attributes_count = 4
    scope = data.resource_metrics[0].scope_metrics[0]
    scope.scope.name = "kafka"
    total, latency = scope.metrics
    total.description, total.unit = "text", "1"
    total.sum.data_points[0].flags = 1
    total.sum.data_points[0].exemplars.add(as_int=3)
    latency.gauge.data_points[0].flags = 1
    assert [*decode_metrics_data(data.SerializeToString())] == same_metrics()


def test_a_histogram_has_no_points() -> None:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="h")
    metric.histogram.data_points.add(count=1)
    assert decode_metrics_data(data.SerializeToString())[0].metrics == (Metric("h"),)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # no length
        b"\x0a\x05",  # longer than the message
        b"\x80" * 11,  # a varint that does not end
        b"\x0b",  # a group
        b"\x09\x00",  # 8 bytes announced, one is there
        b"\x0a\x08\x12\x06\x12\x04\x0a\x02\xff\xff",  # a name that is not UTF-8
    ],
)
def test_malformed_messages(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="MetricsData"):
        decode_metrics_data(data)


def test_a_value_of_4_bytes_is_ignored() -> None:
    point = b"\x25" + bytes(4)  # as_double as fixed32
    message = point
    for number in (1, 5, 2, 2, 1):
        message = bytes([number << 3 | 2, len(message)]) + message
    assert decode_metrics_data(message)[0].metrics == (Metric("", (NumberDataPoint(0),)),)


def test_the_number_of_fields_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MAX_FIELDS", 10)
    assert len(decode_metrics_data(b"\x0a\x00" * 10)) == 10
    with pytest.raises(MalformedMessage, match="more than 10 fields"):
        decode_metrics_data(b"\x0a\x00" * 11)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_malformed(data: bytes) -> None:
    with suppress(MalformedMessage):
        decode_metrics_data(data)


@given(st.data())
def test_changed_bytes_are_decoded_or_malformed(data: st.DataObject) -> None:
    changed = bytearray(encode_metrics_data(same_metrics()))
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        decode_metrics_data(changed)
