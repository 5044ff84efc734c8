"""The pipeline as a Spark Declarative Pipeline: what there is to be, and not how it is run.

    PYTHONPATH=$PWD spark-pipelines --remote 'local[2]' run --spec spark-pipeline.yaml

Works off what the topic `events` has, and ends. The topics `page-counts`, `sessions` and
`dead-letters` must be there.
"""

from __future__ import annotations

import logic
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
SERVERS = spark.conf.get("pipeline.servers")
ROWS_OF_A_BATCH = spark.conf.get("pipeline.rows-of-a-batch", "")


def raw(group: str) -> DataFrame:
    """The raw events; the group's lag shows how far behind this is."""
    reader = spark.readStream.format("aiokafkawire").option("subscribe", "events")
    reader = reader.option("kafka.bootstrap.servers", SERVERS)
    reader = reader.option("kafka.group.id", f"pipeline-{group}")
    if ROWS_OF_A_BATCH:
        reader = reader.option("maxOffsetsPerTrigger", ROWS_OF_A_BATCH)
    return reader.option("startingOffsets", "earliest").load()


def topic(name: str) -> None:
    """A topic as a sink, which gets each row exactly once."""
    options = {"kafka.bootstrap.servers": SERVERS, "topic": name, "exactlyOnce": "true"}
    dp.create_sink(f"{name.replace('-', '_')}_topic", "aiokafkawire", options)


@dp.table(comment="What was read of each page in each window")
def page_counts() -> DataFrame:
    return logic.counts(logic.events(raw("page-counts")))


@dp.table(comment="What each user read without a pause")
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
