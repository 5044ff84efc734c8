"""The pipeline as plain Structured Streaming: a job like any other.

    python streaming.py --servers localhost:9092 --place /tmp/pipeline --master 'local[2]'
    spark-submit streaming.py --servers kafka:9092 --place s3a://bucket/pipeline

Works off what the topic `events` has, and ends. The topics `page-counts`, `sessions` and
`dead-letters` must be there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import logic
from pyspark.sql import DataFrame, SparkSession

KAFKA = "aiokafkawire"

CONFIGURATION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
"""Where the command line and the cluster say nothing else."""


class Job:
    """Where everything is, and what reads and writes it."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        self._spark = spark
        self._given = given

    def start(self) -> list[Any]:
        """Begin the three queries."""
        return [
            self._start("dead-letters", self._dead_letters()),
            self._start("page-counts", self._to_both("page-counts", "page", logic.counts)),
            self._start("sessions", self._to_both("sessions", "user", logic.sessions)),
        ]

    def _raw(self, group: str) -> DataFrame:
        """The raw events; the group's lag shows how far behind this is."""
        reader = self._spark.readStream.format(KAFKA).option("subscribe", "events")
        reader = reader.option("kafka.bootstrap.servers", self._given.servers)
        reader = reader.option("kafka.group.id", f"pipeline-{group}")
        if self._given.rows_of_a_batch:
            reader = reader.option("maxOffsetsPerTrigger", self._given.rows_of_a_batch)
        return reader.option("startingOffsets", "earliest").load()

    def _dead_letters(self) -> Any:
        """Straight from topic to topic, each exactly once."""
        writer = logic.dead_letters(self._raw("dead-letters")).writeStream.format(KAFKA)
        writer = writer.option("kafka.bootstrap.servers", self._given.servers)
        return writer.option("topic", "dead-letters").option("exactlyOnce", "true")

    def _to_both(self, name: str, key: str, made: Callable[[DataFrame], DataFrame]) -> Any:
        """To a topic and to Parquet: the batch's number makes a repeat write nothing twice."""

        def write(rows: DataFrame, number: int) -> None:
            rows = rows.persist()
            writer = logic.as_records(rows, key).write.format(KAFKA).mode("append")
            writer = writer.option("kafka.bootstrap.servers", self._given.servers)
            writer = writer.option("topic", name).option("exactlyOnce", "true")
            writer.options(txnAppId=f"pipeline-{name}", txnVersion=str(number)).save()
            rows.write.mode("overwrite").parquet(f"{self._given.place}/{name}/batch={number}")
            rows.unpersist()

        return made(logic.events(self._raw(name))).writeStream.foreachBatch(write)

    def _start(self, name: str, writer: Any) -> Any:
        writer = writer.queryName(name).outputMode("append").trigger(availableNow=True)
        return writer.option(
            "checkpointLocation", f"{self._given.place}/checkpoints/{name}"
        ).start()


def session(master: str | None) -> SparkSession:
    """A session as the command line or spark-submit says."""
    builder = SparkSession.builder.appName("pipeline")
    if master is not None:
        builder = builder.master(master)
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", required=True, help="where Kafka is: HOST:PORT,…")
    parser.add_argument("--place", required=True, help="a folder that all of the cluster see")
    parser.add_argument("--master", help="the cluster; spark-submit says it else")
    parser.add_argument("--rows-of-a-batch", help="split the work into batches of so many events")
    given = parser.parse_args()
    began = time.monotonic()
    spark = session(given.master)
    spark.sparkContext.setLogLevel("ERROR")
    print(f"session after {time.monotonic() - began:.1f} s", flush=True)
    queries = Job(spark, given).start()
    for query in queries:
        query.awaitTermination()
        print(f"{query.name} done after {time.monotonic() - began:.1f} s", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
