"""The collector for prometheus-client, on the embedded broker."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aiokafkawire.admin import Admin
from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.prometheus import JAVA_NAMES, KafkaCollector
from aiokafkawire.share import ShareConsumer
from aiokafkawire.worker import Worker

WITHIN_S = 20.0


@pytest.fixture
async def servers() -> Any:
    async with Broker(group_min_session_timeout_ms=500) as broker:
        await broker.create_topic("orders", partitions=1)
        yield broker.bootstrap_servers


async def scrape(collector: KafkaCollector) -> dict[str, dict[str, float]]:
    """Return the values by name and by the text of the labels, scraped in another thread."""
    registry = CollectorRegistry()
    registry.register(collector)
    text = await anyio.to_thread.run_sync(generate_latest, registry)
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def test_metrics_of_a_producer_and_a_consumer(servers: str):
    collector = KafkaCollector(java_names=True)
    async with (
        Producer(bootstrap_servers=servers, client_id="p") as producer,
        Consumer(
            "orders", bootstrap_servers=servers, client_id="c", auto_offset_reset="earliest"
        ) as consumer,
    ):
        collector.add("api", producer)
        collector.add("billing", consumer)
        await producer.send_many("orders", [b"1", b"2"])
        await producer.flush()
        with anyio.fail_after(WITHIN_S):
            await consumer.getone()
        collector.update()
        found = await scrape(collector)
        of_producer, of_consumer = "client=api,client_id=p", "client=billing,client_id=c"
        assert found["kafka_producer_records_delivered_total"] == {of_producer: 2}
        assert found["kafka_consumer_records_consumed_total"] == {of_consumer: 1}
        lag = {f"{of_consumer},partition=0,topic=orders": 1}
        assert found["kafka_consumer_records_lag"] == lag
        assert found["kafka_consumer_fetch_manager_records_lag"] == lag
        for prefix, names in JAVA_NAMES.items():
            for ours, java in names.items():
                assert found[prefix + ours] == found[prefix + java], ours
        collector.remove("api")
        collector.remove("unknown")
        assert "kafka_producer_records_delivered_total" not in await scrape(collector)
    collector.update()
    assert await scrape(collector) == {}


async def test_metrics_of_workers_and_share_consumers_are_kept_fresh(servers: str):
    collector = KafkaCollector()
    worker = Worker(bootstrap_servers=servers, group_id="billing", client_id="w")

    @worker.on("orders")
    async def bill(record: Any) -> None:
        pass

    collector.add("worker", worker)
    async with (
        ShareConsumer("orders", bootstrap_servers=servers, group_id="queue") as consumer,
        Admin(bootstrap_servers=servers, client_id="a") as admin,
        worker,
        anyio.create_task_group() as tasks,
    ):
        collector.add("queue", consumer)
        collector.add("ops", admin)
        tasks.start_soon(collector.run, 0.01)
        found: dict[str, Any] = {}
        with anyio.fail_after(WITHIN_S):
            while "kafka_worker_assigned_partitions" not in found:
                await anyio.sleep(0.01)
                found = await scrape(collector)
        tasks.cancel_scope.cancel()
    for name in ("kafka_worker_running_records", "kafka_consumer_connections_open"):
        assert list(found[name]) == ["client=worker,client_id=w"]
    assert found["kafka_consumer_group_protocol"] == {
        "client=worker,client_id=w,protocol=classic": 1
    }
    assert list(found["kafka_share_consumer_connections_open"]) == [
        "client=queue,client_id=aiokafkawire"
    ]
    assert list(found["kafka_admin_connections_open"]) == ["client=ops,client_id=a"]
    assert "kafka_consumer_connection_count" not in found


def test_wrong_clients_and_names_are_refused():
    collector = KafkaCollector()
    wrong: Any = "h:9092"
    with pytest.raises(TypeError, match="has no metrics"):
        collector.add("ops", wrong)
    producer = Producer(bootstrap_servers="h:9092")
    collector.add("api", producer)
    collector.add("api", producer)
    with pytest.raises(ValueError, match="another client has the name 'api'"):
        collector.add("api", Producer(bootstrap_servers="h:9092"))
