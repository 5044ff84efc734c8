"""The lag of a stream of Spark's, in our own tool and in Kafka's, on real Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from typing import Any

import pytest

from aiokafkawire import Producer, blocking
from tests.brokers.kafka import JAVA_OPTIONS, Kafka
from tests.brokers.releases import fetch, java_for
from tests.spark.queries.conftest import spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
ROWS = 40
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOOL_S = 60
SOON_S = 30.0

Lags = dict[int, tuple[int, int, int]]
"""By partition: what is committed, where it ends, and the lag."""


@pytest.fixture(scope="module")
def topic(kafka_43_server: Kafka) -> str:
    name = f"lag-{uuid.uuid4()}"
    kafka_43_server.create_topic(name, partitions=PARTITIONS)
    return name


def append(servers: str, topic: str, rows: int) -> None:
    """Append this many rows to each partition."""

    async def send() -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            for partition in range(PARTITIONS):
                await producer.send_many(topic, [b"x"] * rows, partition=partition)
            await producer.flush()

    blocking.call(send)


def in_our_tool(servers: str, group: str) -> Lags:
    command = [sys.executable, "-m", "aiokafkawire", "groups", "describe", "--json", "-q"]
    done = subprocess.run(
        [*command, "-b", servers, group], capture_output=True, check=True, timeout=TOOL_S
    )
    found = json.loads(done.stdout)["offsets"]
    return {one["partition"]: (one["committed"], one["end"], one["lag"]) for one in found}


def in_kafkas_tool(kafka: Kafka, group: str) -> Lags:
    release = kafka.release
    command = [str(java_for(release)), *JAVA_OPTIONS, "-cp", f"{fetch(release)}/*", TOOL]
    command += ["--bootstrap-server", kafka.bootstrap_servers, "--describe", "--group", group]
    done = subprocess.run(command, capture_output=True, check=True, timeout=TOOL_S, text=True)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(group)]
    assert lines, done.stdout + done.stderr
    # The columns: group, topic, partition, current offset, end of the log, lag.
    return {int(line[2]): (int(line[3]), int(line[4]), int(line[5])) for line in lines}


def stream(spark: Any, servers: str, topic: str, group: str) -> Any:
    reader = spark.readStream.format("aiokafkawire").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("kafka.group.id", group).load().writeStream.format("noop")


def test_after_the_last_batch_there_is_no_lag_in_any_tool(spark, kafka_43_server, topic, tmp_path):
    servers, group = kafka_43_server.bootstrap_servers, f"lag-{uuid.uuid4()}"
    append(servers, topic, ROWS)
    writer = stream(spark, servers, topic, group).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    done = dict.fromkeys(range(PARTITIONS), (ROWS, ROWS, 0))
    assert in_our_tool(servers, group) == done
    assert in_kafkas_tool(kafka_43_server, group) == done
    append(servers, topic, 2)
    behind = dict.fromkeys(range(PARTITIONS), (ROWS, ROWS + 2, 2))
    assert in_our_tool(servers, group) == behind
    assert in_kafkas_tool(kafka_43_server, group) == behind


def test_the_lag_of_a_stream_that_runs_on_goes_as_its_batches_do(
    spark, kafka_43_server, topic, tmp_path
):
    servers, group = kafka_43_server.bootstrap_servers, f"lag-{uuid.uuid4()}"
    writer = stream(spark, servers, topic, group).option("checkpointLocation", str(tmp_path))
    query = writer.start()
    try:
        query.processAllAvailable()
        append(servers, topic, 1)
        query.processAllAvailable()
        end = time.monotonic() + SOON_S
        found = in_our_tool(servers, group)
        while any(lag for _, _, lag in found.values()):
            assert time.monotonic() < end, found
            time.sleep(0.2)
            found = in_our_tool(servers, group)
        assert sorted(found) == list(range(PARTITIONS))
        assert in_kafkas_tool(kafka_43_server, group) == found
    finally:
        query.stop()
