"""Metrics in the protobuf format of OpenTelemetry (OTLP), as PushTelemetry carries them (KIP-714).

Only what clients push is encoded: sums and gauges with attributes. The message is `MetricsData` of
`opentelemetry/proto/metrics/v1/metrics.proto`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.primitives import Buffer

__all__ = (
    "AttributeValue",
    "Metric",
    "NumberDataPoint",
    "ResourceMetrics",
    "Temporality",
    "decode_metrics_data",
    "encode_metrics_data",
)

MAX_FIELDS = 1_000_000
"""Limit of fields in decoded metrics: an empty message takes two bytes there, an object here."""

AttributeValue = str | bool | int | float

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""

_FIXED64_BYTES, _FIXED32_BYTES = 8, 4
_MAX_VARINT_BYTES = 10


class Temporality(enum.IntEnum):
    """Start of the count of a sum: the previous export, or the start of the program."""

    DELTA = 1
    CUMULATIVE = 2


@dataclass(frozen=True, slots=True)
class NumberDataPoint:
    """A value of a metric.

    Attributes:
        value: The value; integers stay integers.
        attributes: Attributes that distinguish the values of one metric, such as `topic`.
        start_time_ns: Start of the time that a sum covers, in nanoseconds since 1970; 0 if unknown.
        time_ns: Time of the value, in nanoseconds since 1970.
    """

    value: int | float
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    start_time_ns: int = 0
    time_ns: int = 0


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with its values.

    Attributes:
        name: Name, such as `org.apache.kafka.producer.connection.creation.total`.
        points: Values. Empty for a decoded histogram or summary.
        temporality: That of a sum; None for a gauge.
        is_monotonic: True for a sum that never decreases.
    """

    name: str
    points: tuple[NumberDataPoint, ...] = ()
    temporality: Temporality | None = None
    is_monotonic: bool = False


@dataclass(frozen=True, slots=True)
class ResourceMetrics:
    """Metrics of one resource, here a client.

    Attributes:
        attributes: Attributes of the client, such as `group_id`.
        metrics: The metrics of all scopes.
    """

    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()


# --- encoding ---


def encode_metrics_data(resources: Iterable[ResourceMetrics]) -> bytes:
    """Encode metrics as `MetricsData`, with one scope for each resource."""
    return b"".join(_field(1, _encode_resource_metrics(resource)) for resource in resources)


def _encode_resource_metrics(resource: ResourceMetrics) -> bytes:
    attributes = b"".join(_encode_attributes(1, resource.attributes))
    metrics = b"".join(_field(2, _encode_metric(metric)) for metric in resource.metrics)
    return _field(1, attributes) + _field(2, metrics)


def _encode_metric(metric: Metric) -> bytes:
    points = b"".join(_field(1, _encode_point(point)) for point in metric.points)
    name = _field(1, metric.name.encode("utf-8", "replace"))
    if metric.temporality is None:
        return name + _field(5, points)
    flags = _number(2, metric.temporality) + _number(3, int(metric.is_monotonic))
    return name + _field(7, points + flags)


def _encode_point(point: NumberDataPoint) -> bytes:
    parts = [_fixed64(2, "<Q", point.start_time_ns)] if point.start_time_ns else []
    parts.append(_fixed64(3, "<Q", point.time_ns))
    if isinstance(point.value, int):
        parts.append(_fixed64(6, "<q", point.value))
    else:
        parts.append(_fixed64(4, "<d", point.value))
    parts.extend(_encode_attributes(7, point.attributes))
    return b"".join(parts)


def _encode_attributes(number: int, attributes: Mapping[str, AttributeValue]) -> Iterator[bytes]:
    for key, value in attributes.items():
        encoded = _field(2, _encode_value(value))
        yield _field(number, _field(1, key.encode("utf-8", "replace")) + encoded)


def _encode_value(value: AttributeValue) -> bytes:
    match value:
        case bool():
            return _number(2, int(value))
        case int():
            return _number(3, value)
        case float():
            return _fixed64(4, "<d", value)
    return _field(1, value.encode("utf-8", "replace"))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _fixed64(number: int, code: str, value: float) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack(code, value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# --- decoding ---


def decode_metrics_data(data: Buffer) -> tuple[ResourceMetrics, ...]:
    """Decode `MetricsData`. Unknown fields are ignored.

    Raises:
        MalformedMessage: The bytes are no such message, or it has more than `MAX_FIELDS` fields.
    """
    return _Decoder(data).metrics_data()


class _Decoder:
    """Decodes one `MetricsData`. A message is a range of positions of `_data`."""

    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._field_count = 0

    def metrics_data(self) -> tuple[ResourceMetrics, ...]:
        return tuple(
            self._resource_metrics(nested) for nested in self._nested((0, len(self._data)), 1)
        )

    def _resource_metrics(self, message: tuple[int, int]) -> ResourceMetrics:
        attributes: dict[str, AttributeValue] = {}
        metrics: list[Metric] = []
        for number, value in self._fields(message):
            match number, value:
                case 1, (int(), int()):
                    attributes.update(self._attributes(value, 1))
                case 2, (int(), int()):
                    metrics += map(self._metric, self._nested(value, 2))
        return ResourceMetrics(attributes, tuple(metrics))

    def _metric(self, message: tuple[int, int]) -> Metric:
        name, points, temporality, is_monotonic = "", [], None, False
        for number, value in self._fields(message):
            match number, value:
                case 1, (int(), int()):
                    name = self._text(value)
                case 5, (int(), int()):
                    points = [*map(self._point, self._nested(value, 1))]
                case 7, (int(), int()):
                    points = [*map(self._point, self._nested(value, 1))]
                    temporality, is_monotonic = self._sum_flags(value)
        return Metric(name, tuple(points), temporality, is_monotonic)

    def _sum_flags(self, message: tuple[int, int]) -> tuple[Temporality | None, bool]:
        flags: dict[int, Any] = dict(self._fields(message))
        kind = flags.get(2, 0)
        temporality = Temporality(kind) if kind in {*Temporality} else None
        return temporality, bool(flags.get(3))

    def _point(self, message: tuple[int, int]) -> NumberDataPoint:
        times = {2: 0, 3: 0}
        number_value: int | float = 0
        attributes: dict[str, AttributeValue] = {}
        for number, value in self._fields(message):
            match number, value:
                case (2 | 3, bytes()):
                    times[number] = struct.unpack("<Q", value)[0]
                case 4, bytes():
                    number_value = struct.unpack("<d", value)[0]
                case 6, bytes():
                    number_value = struct.unpack("<q", value)[0]
                case 7, (int(), int()):
                    attributes.update(self._attribute(value))
        return NumberDataPoint(number_value, attributes, times[2], times[3])

    def _attributes(self, message: tuple[int, int], number: int) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {}
        for nested in self._nested(message, number):
            attributes.update(self._attribute(nested))
        return attributes

    def _attribute(self, message: tuple[int, int]) -> dict[str, AttributeValue]:
        """Return the key and the value of a `KeyValue`; nothing if it is an array, map or bytes."""
        key, result = "", None
        for number, value in self._fields(message):
            match number, value:
                case 1, (int(), int()):
                    key = self._text(value)
                case 2, (int(), int()):
                    result = self._any_value(value)
        return {} if result is None else {key: result}

    def _any_value(self, message: tuple[int, int]) -> AttributeValue | None:
        result: AttributeValue | None = None
        for number, value in self._fields(message):
            match number, value:
                case 1, (int(), int()):
                    result = self._text(value)
                case 2, int():
                    result = bool(value)
                case 3, int():
                    result = value - (1 << 64) if value >> 63 else value
                case 4, bytes():
                    result = struct.unpack("<d", value)[0]
        return result

    # --- protobuf ---

    def _nested(self, message: tuple[int, int], wanted: int) -> Iterator[tuple[int, int]]:
        """Return the nested messages of one field."""
        for number, value in self._fields(message):
            if number == wanted and isinstance(value, tuple):
                yield value

    def _fields(self, message: tuple[int, int]) -> Iterator[tuple[int, Any]]:
        """Return number and value of each field: an int, 8 bytes, or a range of positions.

        The value is None for a field of 4 bytes, which no field of these messages has.
        """
        position, end = message
        while position < end:
            self._field_count += 1
            if self._field_count > MAX_FIELDS:
                raise self._malformed(f"more than {MAX_FIELDS} fields", position)
            start = position
            tag, position = self._read_varint(position, end)
            number, wire_type = tag >> 3, tag & 7
            value: Any
            if wire_type == _VARINT:
                value, position = self._read_varint(position, end)
            elif wire_type == _LENGTH_DELIMITED:
                size, position = self._read_varint(position, end)
                value = position, position + size
                position += size
            elif wire_type == _FIXED64:
                value = self._data[position : position + _FIXED64_BYTES]
                position += _FIXED64_BYTES
            elif wire_type == _FIXED32:
                value = None
                position += _FIXED32_BYTES
            else:
                raise self._malformed(f"invalid wire type {wire_type}", start)
            if position > end:
                raise self._malformed(f"field {number} exceeds its message", start)
            yield number, value

    def _read_varint(self, position: int, end: int) -> tuple[int, int]:
        start, result = position, 0
        while position < end and position - start < _MAX_VARINT_BYTES:
            byte = self._data[position]
            result |= (byte & 0x7F) << 7 * (position - start)
            position += 1
            if byte < 0x80:
                return result & 0xFFFF_FFFF_FFFF_FFFF, position
        raise self._malformed("invalid varint", start)

    def _text(self, message: tuple[int, int]) -> str:
        try:
            return self._data[slice(*message)].decode()
        except UnicodeDecodeError as error:
            raise self._malformed("invalid UTF-8", message[0]) from error

    def _malformed(self, reason: str, position: int) -> MalformedMessage:
        return MalformedMessage(reason, message="MetricsData", position=position)
