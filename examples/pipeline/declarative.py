"""The pipeline as a Spark Declarative Pipeline.

    PYTHONPATH=$PWD spark-pipelines --remote 'local[2]' run --spec spark-pipeline.yaml

Processes all records of the topic `events`, and ends. The topics `page-counts`, `sessions` and
`dead-letters` must exist.
"""

from __future__ import annotations

import logic
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
SERVERS = spark.conf.get("pipeline.servers")
BATCH_ROWS = spark.conf.get("pipeline.batch-rows", "")


def raw(group: str) -> DataFrame:
    """Return the raw events. The group's lag shows the progress."""
    reader = spark.readStream.format("aiokafkawire").option("subscribe", "events")
    reader = reader.option("kafka.bootstrap.servers", SERVERS)
    reader = reader.option("kafka.group.id", f"pipeline-{group}")
    if BATCH_ROWS:
        reader = reader.option("maxOffsetsPerTrigger", BATCH_ROWS)
    return reader.option("startingOffsets", "earliest").load()


def topic(name: str) -> None:
    """Create a sink that writes each row to a topic exactly once."""
    options = {"kafka.bootstrap.servers": SERVERS, "topic": name, "exactlyOnce": "true"}
    dp.create_sink(f"{name.replace('-', '_')}_topic", "aiokafkawire", options)


@dp.table(comment="Events and words per page and window")
def page_counts() -> DataFrame:
    return logic.counts(logic.events(raw("page-counts")))


@dp.table(comment="Reading sessions per user")
def sessions() -> DataFrame:
    return logic.sessions(logic.events(raw("sessions")))


topic("page-counts")
topic("sessions")
topic("dead-letters")


@dp.append_flow(target="page_counts_topic")
def page_counts_out() -> DataFrame:
    return logic.as_records(spark.readStream.table("page_counts"), "page")


@dp.append_flow(target="sessions_topic")
def sessions_out() -> DataFrame:
    return logic.as_records(spark.readStream.table("sessions"), "user")


@dp.append_flow(target="dead_letters_topic")
def dead_letters_out() -> DataFrame:
    return logic.dead_letters(raw("dead-letters"))
