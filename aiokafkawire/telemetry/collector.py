"""Values of the metrics that a client pushes, under the names of the Java client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from aiokafkawire.connection import ConnectionMetrics
from aiokafkawire.runtime import Clock
from aiokafkawire.runtime.durations import Durations
from aiokafkawire.types import NodeId
from aiokafkawire.wire.otlp import (
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    Temporality,
    encode_metrics_data,
)

from .events import TelemetrySubscription
from .java_names import (
    JAVA_NAMES,
    PREFIXES,
    REQUEST_LATENCIES,
    THROTTLE_TIMES,
    ClientKind,
    split_labels,
)

__all__ = ("MetricsCollector", "MetricsSource")

NODE_LATENCY = "node.request.latency"

NODE_TOTALS = {
    "requests": "node.request.total",
    "responses": "node.response.total",
    "bytes_sent": "node.outgoing.byte.total",
    "bytes_received": "node.incoming.byte.total",
}
"""Totals by node, by the attribute of `ConnectionMetrics`."""

RATES_PER_HOUR = {"coordinator.rebalance.total": "coordinator.rebalance.rate.per.hour"}
"""Names of the rates that are per hour; all others are per second."""

WITH_TOTAL = frozenset({"coordinator.rebalance.latency"})
"""Durations with a total besides average and maximum."""

_SINCE_START = ("_ms_avg", "_ms_max")
"""Suffixes of public metrics that cover the time since the start, not since the last push."""

Labels = Mapping[str, str]
Number = int | float
_Value = tuple[str, Number, Labels]


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Metrics and labels of a client.

    Attributes:
        kind: Kind of the client.
        read: Returns the metrics of the client, by their public names.
        labels: Returns the attributes of the client, such as `group_id`. Empty ones are left out.
        durations: Durations by the name of their metrics, without `.avg` and `.max`.
        ratios: Functions that return the total time of a state, in seconds, by the name of the
            metric: the ratio of that time to all time.
    """

    kind: ClientKind
    read: Callable[[], Mapping[str, Number]]
    labels: Callable[[], Mapping[str, str | None]] = dict
    durations: Mapping[str, Durations] = field(default_factory=dict)
    ratios: Mapping[str, Callable[[], float]] = field(default_factory=dict)


@dataclass(slots=True)
class _Collection:
    """Time of a collection, and the totals at that time.

    `refused_maxima` are those of later collections that brokers have refused.
    """

    at: float
    wall_ns: int
    totals: dict[tuple[str, ...], Number] = field(default_factory=dict)
    refused_maxima: dict[tuple[str, ...], float] = field(default_factory=dict)


class MetricsCollector:
    """Collects the values of one push after the other.

    Averages, maxima, rates and ratios cover the time since the last push. Totals do too if the
    broker wants deltas, and otherwise the time since the start (KIP-714).
    """

    def __init__(
        self,
        source: MetricsSource,
        nodes: Mapping[NodeId | None, ConnectionMetrics],
        clock: Clock,
    ) -> None:
        self._source = source
        self._nodes = nodes
        self._clock = clock
        self._names = JAVA_NAMES[source.kind]
        self._prefix = PREFIXES[source.kind]
        self._start = self._last = self._before = _Collection(clock.now(), clock.wall_ns())
        self._maxima: dict[tuple[str, ...], float] = {}  # of the last collection

    def collect(self, subscription: TelemetrySubscription) -> bytes:
        """Return the values that a subscription asks for, in OpenTelemetry's format.

        The next call counts from this one, unless `discard` is called.
        """
        self._before = self._last
        self._last = _Collection(self._clock.now(), self._clock.wall_ns())
        self._maxima = {}
        is_delta = subscription.delta_temporality
        start_ns = (self._before if is_delta else self._start).wall_ns
        temporality = Temporality.DELTA if is_delta else Temporality.CUMULATIVE
        points: dict[str, list[NumberDataPoint]] = {}
        values = (
            *self._counted(is_delta),
            *self._by_node(is_delta),
            *self._of_all_nodes(),
            *self._measured(is_delta),
            *self._ratios(),
        )
        for name, value, labels in values:
            if subscription.requests(self._prefix + name):
                since_ns = start_ns if _is_sum(name) else 0
                point = NumberDataPoint(value, labels, since_ns, self._last.wall_ns)
                points.setdefault(name, []).append(point)
        metrics = tuple(
            Metric(self._prefix + name, tuple(each), temporality, is_monotonic=True)
            if _is_sum(name)
            else Metric(self._prefix + name, tuple(each))
            for name, each in points.items()
        )
        labels = {name: value for name, value in self._source.labels().items() if value}
        return encode_metrics_data([ResourceMetrics(labels, metrics)])

    def discard(self) -> None:
        """Forget the last collection: the broker has refused it."""
        self._last = self._before
        self._last.refused_maxima = self._maxima

    def _counted(self, is_delta: bool) -> Iterator[_Value]:
        """Return the public metrics of the client that the Java client has too."""
        for full_name, value in self._source.read().items():
            name, labels = split_labels(full_name)
            java_name = self._names.get(name)
            if java_name is None or name.endswith(_SINCE_START):
                continue
            if not _is_sum(java_name):
                yield java_name, value, labels
                continue
            yield from self._total(java_name, (full_name,), value, labels, is_delta=is_delta)

    def _by_node(self, is_delta: bool) -> Iterator[_Value]:
        """Return totals and latencies of each node."""
        for node_id, node in self._nodes.items():
            if node_id is not None:
                node_name = f"node-{node_id}"
                labels = {"node_id": node_name}
                for attribute, name in NODE_TOTALS.items():
                    value = getattr(node, attribute)
                    yield from self._total(
                        name, (name, node_name), value, labels, is_delta=is_delta
                    )
                yield from self._average(
                    NODE_LATENCY, node.responses, node.latency_sum_s, node.latency_max_s, labels
                )

    def _of_all_nodes(self) -> Iterator[_Value]:
        """Return latencies and throttle times of all requests. Resets the maxima of all nodes."""
        nodes = self._nodes.values()
        responses = sum(node.responses for node in nodes)
        kind = self._source.kind
        longest_s = max((node.take_latency_max_s() for node in nodes), default=0.0)
        if (name := REQUEST_LATENCIES.get(kind)) is not None:
            sum_s = sum(node.latency_sum_s for node in nodes)
            yield from self._average(name, responses, sum_s, longest_s, {})
        longest_s = max((node.take_throttle_max_s() for node in nodes), default=0.0)
        if (name := THROTTLE_TIMES.get(kind)) is not None:
            sum_s = sum(node.throttle_s for node in nodes)
            yield from self._average(name, responses, sum_s, longest_s, {})

    def _measured(self, is_delta: bool) -> Iterator[_Value]:
        """Return averages and maxima of the durations of the source."""
        for name, times in self._source.durations.items():
            if name in WITH_TOTAL:
                sum_s = self._since_last((name,), times.sum_s) if is_delta else times.sum_s
                yield f"{name}.total", 1_000 * sum_s, {}
            longest_s = times.take_latest_max_s()
            yield from self._average(name, times.count, times.sum_s, longest_s, {})

    def _average(
        self, name: str, count: int, sum_s: float, longest_s: float, labels: Labels
    ) -> Iterator[_Value]:
        """Return average and maximum in milliseconds, if there are values since the last push."""
        key = (name, *labels.values())
        count_since_last = self._since_last((*key, "count"), count)
        sum_since_last_s = self._since_last(key, sum_s)
        longest_s = max(longest_s, self._before.refused_maxima.get(key, 0.0))
        self._maxima[key] = longest_s
        if count_since_last:
            yield f"{name}.avg", 1_000 * sum_since_last_s / count_since_last, labels
            yield f"{name}.max", 1_000 * longest_s, labels

    def _total(
        self, name: str, key: tuple[str, ...], value: Number, labels: Labels, *, is_delta: bool
    ) -> Iterator[_Value]:
        """Return a total, and its rate since the last push."""
        since_last = self._since_last(key, value)
        yield name, since_last if is_delta else value, labels
        elapsed_s = self._last.at - self._before.at
        if elapsed_s <= 0:
            return
        if (per_hour := RATES_PER_HOUR.get(name)) is not None:
            yield per_hour, 3_600 * since_last / elapsed_s, labels
        else:
            yield f"{name.removesuffix('total')}rate", since_last / elapsed_s, labels

    def _ratios(self) -> Iterator[_Value]:
        """Return ratios of the time since the last push, from 0 to 1."""
        elapsed_s = self._last.at - self._before.at
        for name, measure in self._source.ratios.items():
            # The total starts at 0 again when a consumer falls back to the classic protocol.
            seconds = max(0.0, self._since_last((name,), measure()))
            if elapsed_s > 0:
                yield name, seconds / elapsed_s, {}

    def _since_last(self, key: tuple[str, ...], total: Number) -> Number:
        """Return the growth of a total since the last push."""
        self._last.totals[key] = total
        return total - self._before.totals.get(key, 0)


def _is_sum(name: str) -> bool:
    return name.endswith(".total")
