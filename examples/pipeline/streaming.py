"""The pipeline as plain Structured Streaming.

    python streaming.py --servers localhost:9092 --folder /tmp/pipeline --master 'local[2]'
    spark-submit streaming.py --servers kafka:9092 --folder s3a://bucket/pipeline

Processes all records of the topic `events`, and ends. The topics `page-counts`, `sessions` and
`dead-letters` must exist.
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
"""Defaults that the command line and the cluster override."""


class Job:
    """The three queries, with their sources and sinks."""

    def __init__(self, spark: SparkSession, arguments: argparse.Namespace) -> None:
        self._spark = spark
        self._given = arguments

    def start(self) -> list[Any]:
        """Start the three queries."""
        return [
            self._start("dead-letters", self._dead_letters()),
            self._start("page-counts", self._to_both("page-counts", "page", logic.counts)),
            self._start("sessions", self._to_both("sessions", "user", logic.sessions)),
        ]

    def _raw(self, group: str) -> DataFrame:
        """Return the raw events. The group's lag shows the progress."""
        reader = self._spark.readStream.format(KAFKA).option("subscribe", "events")
        reader = reader.option("kafka.bootstrap.servers", self._given.servers)
        reader = reader.option("kafka.group.id", f"pipeline-{group}")
        if self._given.batch_rows:
            reader = reader.option("maxOffsetsPerTrigger", self._given.batch_rows)
        return reader.option("startingOffsets", "earliest").load()

    def _dead_letters(self) -> Any:
        """Write from topic to topic, exactly once."""
        writer = logic.dead_letters(self._raw("dead-letters")).writeStream.format(KAFKA)
        writer = writer.option("kafka.bootstrap.servers", self._given.servers)
        return writer.option("topic", "dead-letters").option("exactlyOnce", "true")

    def _to_both(self, name: str, key: str, made: Callable[[DataFrame], DataFrame]) -> Any:
        """Write to a topic and to Parquet; the batch number makes a repeated batch idempotent."""

        def write(rows: DataFrame, number: int) -> None:
            rows = rows.persist()
            writer = logic.as_records(rows, key).write.format(KAFKA).mode("append")
            writer = writer.option("kafka.bootstrap.servers", self._given.servers)
            writer = writer.option("topic", name).option("exactlyOnce", "true")
            writer.options(txnAppId=f"pipeline-{name}", txnVersion=str(number)).save()
            rows.write.mode("overwrite").parquet(f"{self._given.folder}/{name}/batch={number}")
            rows.unpersist()

        return made(logic.events(self._raw(name))).writeStream.foreachBatch(write)

    def _start(self, name: str, writer: Any) -> Any:
        writer = writer.queryName(name).outputMode("append").trigger(availableNow=True)
        return writer.option(
            "checkpointLocation", f"{self._given.folder}/checkpoints/{name}"
        ).start()


def session(master: str | None) -> SparkSession:
    """Return a session for the master of the command line or of spark-submit."""
    builder = SparkSession.builder.appName("pipeline")
    if master is not None:
        builder = builder.master(master)
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", required=True, help="bootstrap servers: HOST:PORT,…")
    parser.add_argument(
        "--folder", required=True, help="a folder that the whole cluster can access"
    )
    parser.add_argument("--master", help="the cluster; default: that of spark-submit")
    parser.add_argument("--batch-rows", help="most events per batch")
    arguments = parser.parse_args()
    began = time.monotonic()
    spark = session(arguments.master)
    spark.sparkContext.setLogLevel("ERROR")
    print(f"session after {time.monotonic() - began:.1f} s", flush=True)
    queries = Job(spark, arguments).start()
    for query in queries:
        query.awaitTermination()
        print(f"{query.name} done after {time.monotonic() - began:.1f} s", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
