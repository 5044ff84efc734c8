"""Values and names of pushed metrics."""

from __future__ import annotations

import dataclasses

import pytest

from aiokafkawire.connection import ConnectionMetrics
from aiokafkawire.runtime.durations import Durations
from aiokafkawire.telemetry.collector import MetricsCollector, MetricsSource
from aiokafkawire.telemetry.events import TelemetrySubscription
from aiokafkawire.telemetry.java_names import ADMIN, CONSUMER, PRODUCER, SHARE_CONSUMER, ClientKind
from aiokafkawire.types import NodeId
from aiokafkawire.wire.otlp import Metric, ResourceMetrics, Temporality, decode_metrics_data

PREFIX = "org.apache.kafka.producer."
DELTAS = TelemetrySubscription(1, 60.0, 0, 1_000, delta_temporality=True, requested_metrics=("",))
TOTALS = dataclasses.replace(DELTAS, delta_temporality=False)


class Client:
    """A client with a clock of its own: the wall clock shows a thousand seconds more."""

    def __init__(self, kind: ClientKind = PRODUCER) -> None:
        self.time = 100.0
        self.metrics: dict[str, int | float] = {}
        self.nodes: dict[NodeId | None, ConnectionMetrics] = {}
        self.queue_time = Durations()
        self.rebalance_latency = Durations()
        self.polling_s = 0.0
        source = MetricsSource(
            kind,
            lambda: self.metrics,
            lambda: {"group_id": "billing", "client_rack": "", "group_instance_id": None},
            {
                "record.queue.time": self.queue_time,
                "coordinator.rebalance.latency": self.rebalance_latency,
            }
            if kind == CONSUMER
            else {"record.queue.time": self.queue_time},
            {"poll.idle.ratio.avg": lambda: self.polling_s} if kind == CONSUMER else {},
        )
        self.collector = MetricsCollector(source, self.nodes, self)

    def now(self) -> float:
        return self.time

    def wall_ns(self) -> int:
        return round((self.time + 1_000) * 1_000_000_000)

    def wall_ms(self) -> int:
        raise NotImplementedError

    async def sleep_until(self, deadline: float) -> None:
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Measure that a batch waited."""
        self.queue_time.count += 1
        self.queue_time.sum_s += seconds
        self.queue_time.latest_max_s = max(self.queue_time.latest_max_s, seconds)

    def collect(self, subscription: TelemetrySubscription = DELTAS) -> ResourceMetrics:
        (resource,) = decode_metrics_data(self.collector.collect(subscription))
        return resource

    def values(self, subscription: TelemetrySubscription = DELTAS) -> dict[str, list[int | float]]:
        """Return the values by their names without the prefix."""
        return {
            metric.name.removeprefix(PREFIX): [point.value for point in metric.points]
            for metric in self.collect(subscription).metrics
        }


def test_sums_are_deltas_or_count_from_the_start() -> None:
    for subscription, seen in ((DELTAS, [3, 2, 0]), (TOTALS, [3, 5, 5])):
        client = Client()
        for total, expected in zip((3, 5, 5), seen, strict=True):
            client.metrics["records_failed_total"] = total
            assert client.values(subscription) == {"record.error.total": [expected]}


def test_a_sum_has_its_temporality_and_times() -> None:
    for subscription, temporality, first_s, second_s in (
        (DELTAS, Temporality.DELTA, 1_100, 1_110),
        (TOTALS, Temporality.CUMULATIVE, 1_100, 1_100),
    ):
        client = Client()
        client.metrics["records_failed_total"] = 1
        for since_s in (first_s, second_s):
            client.time += 10
            metric, rate = client.collect(subscription).metrics
            assert (rate.temporality, rate.points[0].start_time_ns) == (None, 0)
            assert (metric.temporality, metric.is_monotonic) == (temporality, True)
            (point,) = metric.points
            assert point.start_time_ns == since_s * 1_000_000_000
            assert point.time_ns == client.wall_ns()


def test_a_gauge_is_its_value() -> None:
    client = Client()
    client.metrics["buffer_size_bytes"] = 7
    for _ in range(2):
        (metric,) = client.collect().metrics
        assert metric == Metric(f"{PREFIX}buffer.total.bytes", metric.points)
        assert (metric.points[0].value, metric.points[0].start_time_ns) == (7, 0)


def test_a_refused_push_is_contained_in_the_next_one() -> None:
    client = Client()
    client.metrics["records_failed_total"] = 3
    assert client.values() == {"record.error.total": [3]}
    client.metrics["records_failed_total"] = 5
    client.wait(0.5)
    client.values()
    client.collector.discard()
    client.metrics["records_failed_total"] = 6
    client.wait(0.25)
    assert client.values() == {
        "record.error.total": [3],
        "record.queue.time.avg": [375.0],
        "record.queue.time.max": [500.0],
    }
    client.wait(0.25)
    assert client.values()["record.queue.time.max"] == [250.0]


def test_rates_since_the_last_push() -> None:
    client = Client()
    for made, rate in ((4, 0.4), (5, 0.1), (5, 0.0)):
        client.time += 10
        client.metrics["connections_made_total"] = made
        assert client.values()["connection.creation.rate"] == [rate]
    assert "connection.creation.rate" not in client.values()  # no time has passed


def test_the_rate_of_rebalances_is_per_hour() -> None:
    client = Client(CONSUMER)
    client.time += 1_800
    client.metrics["rebalances_total"] = 4
    metrics = {metric.name: metric.points for metric in client.collect().metrics}
    name = "org.apache.kafka.consumer.coordinator.rebalance.rate.per.hour"
    assert metrics[name][0].value == 8


def test_latencies_since_the_last_push() -> None:
    client = Client()
    one = client.nodes[NodeId(1)] = ConnectionMetrics()
    other = client.nodes[None] = ConnectionMetrics(responses=1, latency_sum_s=0.9)
    other.latency_max_s = 0.9
    for responses, sum_s, max_s, by_node, of_all in (
        (2, 0.3, 0.2, [150, 200], [400, 900]),
        (3, 0.4, 0.1, [100, 100], [100, 100]),
    ):
        one.responses, one.latency_sum_s, one.latency_max_s = responses, sum_s, max_s
        metrics = {metric.name: metric.points for metric in client.collect().metrics}
        points = [metrics[f"{PREFIX}node.request.latency.{end}"][0] for end in ("avg", "max")]
        assert [point.value for point in points] == pytest.approx(by_node)
        assert [point.attributes for point in points] == [{"node_id": "node-1"}] * 2
        points = [metrics[f"{PREFIX}request.latency.{end}"][0] for end in ("avg", "max")]
        assert [point.value for point in points] == pytest.approx(of_all)
    assert not [name for name in client.values() if "latency" in name]
    assert one.snapshot()["request_latency_ms_max"] == 200


def test_totals_by_node() -> None:
    client = Client()
    client.nodes[None] = ConnectionMetrics(requests=9)
    client.nodes[NodeId(1)] = ConnectionMetrics(requests=4, bytes_sent=300)
    client.nodes[NodeId(2)] = ConnectionMetrics(requests=6)
    values = client.values()
    assert values["node.request.total"] == [4, 6]
    assert values["node.outgoing.byte.total"] == [300, 0]
    client.time += 10
    client.nodes[NodeId(2)].requests = 11
    assert client.values()["node.request.rate"] == [0, 0.5]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PRODUCER, "org.apache.kafka.producer.produce.throttle.time"),
        (CONSUMER, "org.apache.kafka.consumer.fetch.manager.fetch.throttle.time"),
        (SHARE_CONSUMER, "org.apache.kafka.consumer.share.fetch.manager.fetch.throttle.time"),
    ],
)
def test_throttle_times_since_the_last_push(kind: ClientKind, name: str) -> None:
    client = Client(kind)
    one, other = ConnectionMetrics(), ConnectionMetrics()
    client.nodes.update({NodeId(1): one, NodeId(2): other})
    for throttle_ms, expected in ((300, [100, 300]), (0, [0, 0])):
        one.responses += 2
        other.responses += 1
        one.record_throttle(throttle_ms / 1_000)
        metrics = {metric.name: metric.points for metric in client.collect().metrics}
        points = [metrics[f"{name}.{end}"][0] for end in ("avg", "max")]
        assert [point.value for point in points] == pytest.approx(expected)
    assert not [metric for metric in client.collect().metrics if "throttle" in metric.name]


def test_measured_times_since_the_last_push() -> None:
    client = Client()
    assert client.values() == {}
    for seconds in (0.1, 0.3):
        client.wait(seconds)
    assert client.values() == {
        "record.queue.time.avg": [pytest.approx(200)],
        "record.queue.time.max": [300],
    }
    assert client.values() == {}
    assert (client.queue_time.max_s, client.queue_time.average_s) == (0.3, pytest.approx(0.2))


def test_a_measured_time_with_a_total() -> None:
    for subscription, seen in ((DELTAS, [250, 500]), (TOTALS, [250, 750])):
        client = Client(CONSUMER)
        for seconds, total in zip((0.25, 0.5), seen, strict=True):
            client.rebalance_latency.add(seconds)
            metrics = {metric.name: metric for metric in client.collect(subscription).metrics}
            values = [
                metrics[f"org.apache.kafka.consumer.coordinator.rebalance.latency.{end}"]
                for end in ("avg", "max", "total")
            ]
            assert [each.points[0].value for each in values] == [seconds * 1_000] * 2 + [total]
            assert [each.is_monotonic for each in values] == [False, False, True]


def test_a_ratio_of_the_time_since_the_last_push() -> None:
    client = Client(CONSUMER)
    name = "org.apache.kafka.consumer.poll.idle.ratio.avg"
    for polling_s, ratio in ((4.0, 0.4), (14.0, 1.0), (0.0, 0.0)):
        client.time += 10
        client.polling_s = polling_s
        metrics = {metric.name: metric.points for metric in client.collect().metrics}
        assert metrics[name][0].value == ratio


def test_only_requested_metrics_are_pushed() -> None:
    client = Client()
    client.metrics.update(records_failed_total=1, batches_split_total=2, connections_open=3)
    requested = (f"{PREFIX}record", f"{PREFIX}connection.count")
    subscription = dataclasses.replace(DELTAS, requested_metrics=requested)
    assert client.values(subscription) == {"record.error.total": [1], "connection.count": [3]}


def test_metrics_without_a_java_name_are_left_out() -> None:
    client = Client()
    client.metrics.update(topics_in_use=1, request_latency_ms_avg=2.0)
    assert client.values() == {}


def test_labels_are_attributes() -> None:
    client = Client(CONSUMER)
    client.metrics['records_lag{topic="orders",partition="3"}'] = 5
    client.metrics['records_lag{topic="orders",partition="4"}'] = 6
    resource = client.collect()
    assert resource.attributes == {"group_id": "billing"}
    metric = resource.metrics[0]
    assert metric.name == "org.apache.kafka.consumer.fetch.manager.records.lag"
    assert [(point.value, point.attributes) for point in metric.points] == [
        (5, {"topic": "orders", "partition": "3"}),
        (6, {"topic": "orders", "partition": "4"}),
    ]


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (PRODUCER, "org.apache.kafka.producer."),
        (CONSUMER, "org.apache.kafka.consumer."),
        (SHARE_CONSUMER, "org.apache.kafka.consumer."),
        (ADMIN, "org.apache.kafka.admin.client."),
    ],
)
def test_each_client_has_its_prefix(kind: ClientKind, prefix: str) -> None:
    client = Client(kind)
    client.metrics["connections_open"] = 1
    assert client.collect().metrics[0].name == f"{prefix}connection.count"
