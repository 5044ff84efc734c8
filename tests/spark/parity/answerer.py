"""Run requests with one connector and one Spark session, and print the answers.

    python -P answerer.py --format kafka --jars a.jar,b.jar

A line of JSON in, a line of JSON out. It runs in an environment of its own, and so imports PySpark
alone.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

STREAM_S = 60
"""How long a stream may take."""

ERROR_CHARACTERS = 6_000


class Answerer:
    def __init__(self, spark, connector):
        self._spark = spark
        self._connector = connector

    def answer(self, asked):
        """Return the answer to a request, or `{"error": …}`."""
        try:
            return getattr(self, asked.pop("do"))(**asked)
        except Exception as error:  # all that it may be is the answer
            return {"error": f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]}

    def read(self, options, where=None):
        """The schema, the rows, and which offsets each task read.

        With predicates, filter pushdown is on, which Spark's own setting leaves off.
        """
        self._spark.conf.set(PUSHDOWN, str(where is not None).lower())
        frame = self._spark.read.format(self._connector).options(**options).load()
        schema = [[field.name, field.dataType.simpleString()] for field in frame.schema.fields]
        return {"schema": schema, **read(frame if where is None else frame.where(where))}

    def stream(self, options, checkpoint, trigger=None):
        """Return the rows of each micro-batch up to the current end, and the checkpoint."""
        batches = {}

        def keep(frame, number):
            batches[number] = read(frame)

        frame = self._spark.readStream.format(self._connector).options(**options).load()
        self._run(frame.writeStream.foreachBatch(keep), checkpoint, trigger)
        return {
            "batches": [batches[number] for number in sorted(batches)],
            **offsets_in(Path(checkpoint)),
        }

    def write(self, schema, rows, options, mode="append", select=("*",)):
        """Nothing but that it was done."""
        writer = self._frame(schema, rows).selectExpr(*select).write.format(self._connector)
        writer = writer.options(**options)
        if mode is not None:
            writer = writer.mode(mode)
        writer.save()
        return {}

    def copy(self, source, select, options, *, checkpoint, output="append", group=None):
        """A stream from Kafka to Kafka."""
        frame = self._spark.readStream.format(self._connector).options(**source).load()
        if group is not None:
            frame = frame.groupBy(group).count()
        frame = frame.selectExpr(*select)
        writer = frame.writeStream.format(self._connector).options(**options).outputMode(output)
        self._run(writer, checkpoint, None)
        return {}

    def _run(self, writer, checkpoint, trigger):
        trigger = {"availableNow": True} if trigger is None else trigger
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        try:
            if "processingTime" in trigger:
                query.processAllAvailable()
            elif not query.awaitTermination(STREAM_S):
                raise TimeoutError(f"the stream did not end within {STREAM_S} s")
        finally:
            query.stop()

    def _frame(self, schema, rows):
        """`rows` as JSON text of SQL's literals: no Python process has a part in it."""
        columns = [part.strip().split(" ", 1)[0] for part in split(schema)]
        if not rows:
            return self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), schema)
        text = ", ".join("(" + ", ".join(row) + ")" for row in rows)
        kinds = [part.strip().split(" ", 1)[1] for part in split(schema)]
        cast = [f"cast({c} as {k}) as {c}" for c, k in zip(columns, kinds, strict=True)]
        frame = self._spark.sql(f"select * from values {text} as t({', '.join(columns)})")
        return frame.selectExpr(*cast).coalesce(1)


def split(schema):
    """The columns of a schema as DDL has them, whose types may have commas in them."""
    parts, depth = [""], 0
    for character in schema:
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def read(frame):
    """The rows, and which offsets each task read."""
    columns = [
        "unix_micros(timestamp) as timestamp" if name == "timestamp" else name
        for name in frame.columns
    ]
    selected = frame.selectExpr(*columns, "spark_partition_id() as task")
    rows = [encoded(row) for row in selected.collect()]
    return {"rows": in_order(rows), "tasks": tasks(rows)}


def encoded(row):
    return {name: as_json(value) for name, value in row.asDict(recursive=True).items()}


def as_json(value):
    """Bytes one character each."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return value


def in_order(rows):
    rows = [{name: value for name, value in row.items() if name != "task"} for row in rows]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def tasks(rows):
    """The first and the last offset of each task that has any."""
    found = {}
    for row in rows:
        place = (row["task"], row["topic"], row["partition"])
        found.setdefault(place, []).append(row["offset"])
    spans = [[*place[1:], min(offsets), max(offsets)] for place, offsets in found.items()]
    return sorted(spans)


def offsets_in(checkpoint):
    """Return the offsets in a checkpoint: of the start, if present, and of each batch."""
    log = checkpoint / "offsets"
    numbers = sorted(int(p.name) for p in log.iterdir() if p.name.isdigit()) if log.exists() else []
    ends = [(log / str(number)).read_text().splitlines()[-1] for number in numbers]
    first = checkpoint / "sources" / "0" / "0"
    begin = first.read_text() if first.exists() else ""
    return {"ends": ends, "begin": begin[begin.find("{") :] if "{" in begin else None}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--format", required=True)
    parser.add_argument("--jars", default="")
    parser.add_argument("--place", required=True)
    arguments = parser.parse_args()
    # What others print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("parity")
    own = {"spark.sql.warehouse.dir": arguments.place, "spark.jars": arguments.jars}
    for name, value in (CONFIGURATION | own).items():
        if value:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    answerer = Answerer(spark, arguments.format)
    print(json.dumps({"pyspark": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answerer.answer(json.loads(line))), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
