"""A stream from topic to topic, as a driver of its own that can be killed.

Ends with 0 when all that was there at its start is written, with 1 if the query failed, and with 2
if it did not even begin. Started by `tests.spark.jobs`.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from typing import Any

from pyspark.sql import SparkSession

TIMEOUT_S = 150
FAILED = 1
NOT_BEGUN = 2

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "512m",
    "spark.sql.streaming.pollingDelay": "10ms",
}


def main() -> int:
    writer = query()
    print("begins", flush=True)
    try:
        done = writer.start().awaitTermination(TIMEOUT_S)
    except Exception:
        traceback.print_exc()
        return FAILED
    print("done" if done else f"not done after {TIMEOUT_S} s", flush=True)
    return 0 if done else FAILED


def query() -> Any:
    """The query as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "source", "sink", "checkpoint", "master"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rows-of-a-batch", default="1000")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    builder = SparkSession.builder.master(given.master).appName("stream_job")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = (
        spark.readStream.format("aiokafkawire")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.rows_of_a_batch)
        .load()
    )
    return (
        frame.select("key", "value")
        .writeStream.format("aiokafkawire")
        .option("kafka.bootstrap.servers", given.servers)
        .option("topic", given.sink)
        .option("checkpointLocation", given.checkpoint)
        .options(**dict(option.split("=", 1) for option in given.option))
        .trigger(availableNow=True)
    )


if __name__ == "__main__":
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        code = NOT_BEGUN
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's own shutdown takes seconds; the parent kills the remaining processes.
    os._exit(code)
