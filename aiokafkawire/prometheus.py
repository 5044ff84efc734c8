"""A collector of metrics for prometheus-client.

It needs the extra `prometheus`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

import anyio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aiokafkawire.admin import Admin
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.share import ShareConsumer
from aiokafkawire.telemetry import java_names
from aiokafkawire.telemetry.java_names import CONSUMER, PRODUCER, split_labels
from aiokafkawire.types import require_timeout
from aiokafkawire.worker import Worker
from aiokafkawire.worker.metrics import MeteredClient, client_metrics, collect_metrics

__all__ = ("JAVA_NAMES", "KafkaCollector")

AnyClient = MeteredClient | Worker

Numbers = Mapping[str, int | float]

JAVA_NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        f"kafka_{kind}_": {
            name: java_name.replace(".", "_")
            for name, java_name in java_names.JAVA_NAMES[kind].items()
        }
        for kind in (PRODUCER, CONSUMER)
    }
)
"""Names of the same metrics of the Java client, as Micrometer exports them, by prefix."""


class KafkaCollector(Collector):
    """Exports the metrics of clients; any thread may scrape it.

    ::

        collector = KafkaCollector()
        collector.add("billing", consumer)
        REGISTRY.register(collector)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.run)

    `metrics()` of a client is for its event loop, and a scrape comes from another thread: it
    exports what `update` has read last. Names are those of `metrics()`, after `kafka_producer_`,
    `kafka_consumer_`, `kafka_share_consumer_`, `kafka_admin_` or `kafka_worker_`. The metrics of a
    worker include those of its consumer and producer.
    """

    def __init__(self, *, java_names: bool = False) -> None:
        """Create a collector without clients.

        Args:
            java_names: Export the metrics of `JAVA_NAMES` under those names too, for dashboards of
                Java clients.
        """
        self._java_names = java_names
        self._clients: dict[str, AnyClient] = {}
        self._snapshots: Mapping[tuple[str, str], tuple[str, Numbers]] = {}

    def add(self, name: str, client: AnyClient) -> None:
        """Export the metrics of a client with the label `client=name`.

        Raises:
            TypeError: The argument is no client with metrics.
            ValueError: The name is taken.
        """
        if not isinstance(client, Producer | Consumer | ShareConsumer | Admin | Worker):
            raise TypeError(f"{client!r:.80} has no metrics")
        if self._clients.setdefault(name, client) is not client:
            raise ValueError(f"another client has the name {name!r}")

    def remove(self, name: str) -> None:
        """Do not export the metrics of a client any more."""
        self._clients.pop(name, None)
        self.update()

    def update(self) -> None:
        """Read the metrics of all clients. Call it in their event loop.

        A client that does not run is left out.
        """
        snapshots: dict[tuple[str, str], tuple[str, Numbers]] = {}
        for name, client in self._clients.items():
            with suppress(KafkaError):
                for prefix, numbers in _read(client).items():
                    snapshots[prefix, name] = client.config.client_id, numbers
        self._snapshots = snapshots

    async def run(self, interval_s: float = 5.0) -> None:
        """Update at intervals, until the call is cancelled.

        Args:
            interval_s: Interval in seconds.

        Raises:
            TypeError: `interval_s` is not a number.
        """
        require_timeout("interval_s", interval_s)
        while True:
            self.update()
            await anyio.sleep(interval_s)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last update, for the registry."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for (prefix, client), (client_id, numbers) in self._snapshots.items():
            aliases = JAVA_NAMES.get(prefix, {}) if self._java_names else {}
            for full_name, number in numbers.items():
                name, own_labels = split_labels(full_name)
                labels = {"client": client, "client_id": client_id, **own_labels}
                for exported in (name, aliases.get(name)):
                    if exported is not None:
                        family = _family(families, prefix + exported, [*labels])
                        family.add_metric([*labels.values()], number)
        return families.values()


def _read(client: AnyClient) -> Mapping[str, Numbers]:
    """Return the metrics of a client by prefix."""
    if isinstance(client, Worker):
        return collect_metrics(client._lifecycle.require_session())
    return client_metrics(client)


def _family(
    families: dict[str, CounterMetricFamily | GaugeMetricFamily], name: str, labels: list[str]
) -> CounterMetricFamily | GaugeMetricFamily:
    known = families.get(name)
    if known is None:
        make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        known = families[name] = make(name, f"{name.replace('_', ' ')}.", labels=labels)
    return known
