"""Metrics that clients push, by the client metrics subscriptions of the cluster (KIP-714)."""

from __future__ import annotations

import logging
import random
import re
import uuid
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.configs import ConfigResourceType, DynamicConfigs
from aiokafkawire.errors import CorruptRecord, MalformedMessage
from aiokafkawire.records.compression import Compression, decompress
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.otlp import ResourceMetrics, decode_metrics_data

__all__ = (
    "ACCEPTED_COMPRESSION_TYPES",
    "TELEMETRY_MAX_BYTES",
    "ClientAttributes",
    "ClientMetrics",
    "ClientTelemetry",
    "Subscription",
)

logger = logging.getLogger("aiokafkawire.broker")

TELEMETRY_MAX_BYTES = 1_048_576
"""Kafka's default of `telemetry.max.bytes`."""

MAX_DECOMPRESSED_BYTES = 16 * TELEMETRY_MAX_BYTES

DEFAULT_INTERVAL_MS = 300_000

ACCEPTED_COMPRESSION_TYPES = (
    Compression.ZSTD,
    Compression.LZ4,
    Compression.GZIP,
    Compression.SNAPPY,
)
"""In the order of preference."""

ALL_METRICS = "*"

MAX_INSTANCES = 16_384
"""Limit of client instances; the one idle for longest is dropped first."""

MAX_PUSHES = 100
"""Number of pushes that are kept."""


@dataclass(frozen=True, slots=True)
class ClientAttributes:
    """Attributes that a subscription can match."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def matches(self, instance_id: UUID, patterns: Mapping[str, str]) -> bool:
        """Return True if all patterns match the client."""
        values = {
            "client_instance_id": str(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }
        return all(
            re.fullmatch(pattern, values.get(name, "")) is not None
            for name, pattern in patterns.items()
        )


@dataclass(frozen=True, slots=True)
class Subscription:
    """Metrics that one client pushes, and how often."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetrics:
    """Metrics that a client pushed.

    Attributes:
        client_instance_id: Id of the client instance.
        client_id: Client id of the connection.
        node_id: Node that received them.
        terminating: The client was closing.
        metrics: Decompressed metrics in the protobuf format of OpenTelemetry.
    """

    client_instance_id: UUID
    client_id: str
    node_id: int
    terminating: bool
    metrics: bytes

    def decode(self) -> tuple[ResourceMetrics, ...]:
        """Return the metrics with their values.

        Raises:
            MalformedMessage: The client pushed something else; Kafka stores that too.
        """
        return decode_metrics_data(self.metrics)


@dataclass(slots=True)
class _ClientInstance:
    """State of a client. It may push from `next_push_at` on, in seconds, and after it has asked."""

    next_push_at: float = float("-inf")
    is_terminating: bool = False


class ClientTelemetry:
    """Client instances of the cluster, and the metrics that they pushed last."""

    def __init__(self, configs: DynamicConfigs, rng: random.Random) -> None:
        self.pushes: deque[ClientMetrics] = deque(maxlen=MAX_PUSHES)
        self._configs = configs
        self._rng = rng
        self._instances: OrderedDict[UUID, _ClientInstance] = OrderedDict()

    def new_instance_id(self) -> UUID:
        """Return an id for a client that has none yet."""
        return uuid.UUID(int=self._rng.getrandbits(128), version=4)

    def subscribe(self, instance_id: UUID, client: ClientAttributes, now: float) -> Subscription:
        """Return the metrics that a client instance pushes from now on."""
        self._instance(instance_id).next_push_at = now
        return self._subscription(instance_id, client)

    def push(
        self,
        pushed: ClientMetrics,
        subscription_id: int,
        compression_type: int,
        client: ClientAttributes,
        now: float,
    ) -> None:
        """Keep pushed metrics.

        Raises:
            ApiError: The push is invalid, too early, too large, or the subscription changed.
        """
        instance_id = pushed.client_instance_id
        if instance_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(instance_id)
        subscription = self._subscription(instance_id, client)
        if pushed.terminating and instance.is_terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if now < instance.next_push_at and not pushed.terminating:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.next_push_at = now + subscription.interval_ms / 1000
        instance.is_terminating = pushed.terminating
        if subscription_id != subscription.subscription_id:
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if compression_type not in (Compression.NONE, *ACCEPTED_COMPRESSION_TYPES):
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(pushed.metrics) > TELEMETRY_MAX_BYTES:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE)
        kept = _decompressed(pushed, compression_type)
        self.pushes.append(kept)
        _log(kept)

    def _instance(self, instance_id: UUID) -> _ClientInstance:
        instance = self._instances.setdefault(instance_id, _ClientInstance())
        self._instances.move_to_end(instance_id)
        if len(self._instances) > MAX_INSTANCES:
            self._instances.popitem(last=False)
        return instance

    def _subscription(self, instance_id: UUID, client: ClientAttributes) -> Subscription:
        matching = [
            configs
            for configs in self._all_configs()
            if client.matches(instance_id, _patterns(configs.get("match", "")))
        ]
        metrics = tuple(
            dict.fromkeys(
                name for configs in matching for name in _split(configs.get("metrics", ""))
            )
        )
        intervals = [int(each.get("interval.ms", DEFAULT_INTERVAL_MS)) for each in matching]
        content = repr((sorted(metrics), sorted(intervals), instance_id.hex)).encode()
        number = zlib.crc32(content)
        return Subscription(
            subscription_id=number - 2**32 if number >= 2**31 else number,
            interval_ms=min(intervals, default=DEFAULT_INTERVAL_MS),
            metrics=(ALL_METRICS,) if ALL_METRICS in metrics else metrics,
        )

    def _all_configs(self) -> Iterator[Mapping[str, str]]:
        for name in self._configs.names(ConfigResourceType.CLIENT_METRICS):
            yield self._configs.of(ConfigResourceType.CLIENT_METRICS, name)


def _log(pushed: ClientMetrics) -> None:
    """Log a push at INFO, and each of its values at DEBUG."""
    if not logger.isEnabledFor(logging.INFO):
        return
    client = f"Client {pushed.client_id} ({pushed.client_instance_id})"
    try:
        metrics = [metric for resource in pushed.decode() for metric in resource.metrics]
    except MalformedMessage as error:
        logger.info("%s: pushed metrics that cannot be decoded: %s", client, error)
        return
    when = " while closing" if pushed.terminating else ""
    logger.info("%s: pushed %d metrics%s", client, len(metrics), when)
    for metric in metrics:
        for point in metric.points:
            labels = ",".join(f"{key}={value}" for key, value in point.attributes.items())
            logger.debug("%s: %s{%s} = %s", client, metric.name, labels, point.value)


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _patterns(match: str) -> dict[str, str]:
    """Return the patterns of a subscription by attribute."""
    pairs = (each.partition("=") for each in _split(match))
    return {name.strip(): pattern.strip() for name, _, pattern in pairs}


def _decompressed(pushed: ClientMetrics, compression_type: int) -> ClientMetrics:
    if compression_type == Compression.NONE:
        return pushed
    try:
        data = decompress(compression_type, pushed.metrics, MAX_DECOMPRESSED_BYTES)
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD) from error
    return ClientMetrics(
        client_instance_id=pushed.client_instance_id,
        client_id=pushed.client_id,
        node_id=pushed.node_id,
        terminating=pushed.terminating,
        metrics=bytes(data),
    )
