"""A driver that does what a line of JSON on its input asks for, and answers with one on its output.

It runs in either environment, and so imports PySpark and the standard library alone. It lives as
long as the whole run: each side has its Spark, warm, while the other one is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import __version__
from pyspark.sql import SparkSession

TIMEOUT_S = 170
"""The longest that a query may take."""

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}

WRITTEN = "cast(repeat('x', 100) as binary) as value"
"""Rows to be written, of 100 bytes as those that are read."""

WARM_UP_BATCHES = 5
"""Micro-batches of a trickle that do not count."""

SETTLING_S = 10
"""So long a stream that is to be idle may still be busy with its start."""

Asked = dict[str, Any]
Answer = dict[str, Any]


class Driver:
    """Spark, and how this side's data source is named."""

    def __init__(self, spark: SparkSession, name: str, servers: str) -> None:
        self._spark = spark
        self._name = name
        self._servers = servers

    def batch(self, asked: Asked) -> Answer:
        """All rows, to nowhere."""
        self._read(asked).write.format("noop").mode("overwrite").save()
        return {"rows": asked["rows"]}

    def sum(self, asked: Asked) -> Answer:
        """All rows, of which the lengths of the values are looked at."""
        row = (
            self._read(asked).selectExpr("sum(length(value)) as bytes", "count(*) as rows").first()
        )
        assert row is not None
        if row.bytes != 100 * row.rows:
            raise ValueError(f"{row.rows} rows of 100 bytes are not {row.bytes} bytes")
        return {"rows": row.rows}

    def stream(self, asked: Asked) -> Answer:
        """All rows that are there, as a stream to nowhere."""
        writer = self._stream(asked).writeStream.format("noop")
        return self._until_done(writer, asked)

    def write(self, asked: Asked) -> Answer:
        """Rows made by Spark."""
        rows = self._spark.range(0, asked["rows"], 1, asked["partitions"]).selectExpr(WRITTEN)
        self._to(rows.write, asked).mode("append").save()
        return {"rows": asked["rows"]}

    def copy(self, asked: Asked) -> Answer:
        """All rows that are there, as a stream to another topic."""
        frame = self._stream(asked).select("key", "value")
        return self._until_done(self._to(frame.writeStream, asked), asked)

    def trickle(self, asked: Asked) -> Answer:
        """What comes, as it comes."""
        frame = self._stream(asked, starting="latest")
        with tempfile.TemporaryDirectory() as place:
            writer = frame.writeStream.format("noop").option("checkpointLocation", place)
            query = writer.start()
            while len(progress := batches_of(query)) < WARM_UP_BATCHES:
                query.awaitTermination(0.2)
            began = len(progress)
            query.awaitTermination(asked["seconds"])
            progress = batches_of(query)[began:]
            query.stop()
        took = [one["durationMs"]["triggerExecution"] for one in progress]
        parts: dict[str, float] = {}
        for part in progress[0]["durationMs"]:
            parts[part] = statistics.median(one["durationMs"].get(part, 0) for one in progress)
        cuts = statistics.quantiles(took, n=100)
        rows = sum(one["numInputRows"] for one in progress)
        return {"rows": rows, "p50_ms": cuts[49], "p99_ms": cuts[98], "parts": parts}

    def idle(self, asked: Asked) -> Answer:
        """Nothing comes. What it uses of a core, and Python's share of that."""
        with tempfile.TemporaryDirectory() as place:
            writer = self._stream(asked, starting="latest").writeStream.format("noop")
            query = writer.option("checkpointLocation", place).start()
            found = shares_of_a_core(query.awaitTermination, asked["seconds"])
            query.stop()
        return found

    def rest(self, asked: Asked) -> Answer:
        """The same where no query runs at all."""
        return shares_of_a_core(time.sleep, asked["seconds"])

    def _read(self, asked: Asked) -> Any:
        return self._source(self._spark.read, asked, "earliest")

    def _stream(self, asked: Asked, starting: str = "earliest") -> Any:
        return self._source(self._spark.readStream, asked, starting)

    def _source(self, reader: Any, asked: Asked, starting: str) -> Any:
        reader = reader.format(self._name).option("kafka.bootstrap.servers", self._servers)
        reader = reader.option("subscribe", asked["topic"]).option("startingOffsets", starting)
        reader = reader.options(**asked["options"])
        if asked["columns"]:
            reader = reader.schema(asked["columns"])
        return reader.load()

    def _to(self, writer: Any, asked: Asked) -> Any:
        writer = writer.format(self._name).option("kafka.bootstrap.servers", self._servers)
        return writer.option("topic", asked["sink"]).options(**asked["options"])

    def _until_done(self, writer: Any, asked: Asked) -> Answer:
        place = tempfile.mkdtemp()
        try:
            writer = writer.option("checkpointLocation", place)
            query = writer.trigger(availableNow=True).start()
            if not query.awaitTermination(TIMEOUT_S):
                query.stop()
                raise TimeoutError(f"no end after {TIMEOUT_S} s")
            return {"rows": sum(one["numInputRows"] for one in query.recentProgress)}
        finally:
            shutil.rmtree(place)


def batches_of(query: Any) -> list[Any]:
    """What is told of the micro-batches that had rows, as long as the query lives."""
    if (error := query.exception()) is not None:
        raise error
    return [one for one in query.recentProgress if one["numInputRows"]]


def cpu_seconds(command: str = "") -> float:
    """What this process and all that it has started have used so far; of one command alone."""
    ticks = 0
    children: dict[int, list[tuple[int, str, int]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            used = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append((int(entry.name), name, used))
    waiting = [os.getpid()]
    while waiting:
        for pid, name, used in children.get(waiting.pop(), []):
            ticks += used if name == command or not command else 0
            waiting.append(pid)
    own = 0.0 if command else time.process_time()
    return own + ticks / os.sysconf("SC_CLK_TCK")


def shares_of_a_core(wait: Callable[[float], object], seconds: float) -> Answer:
    """What is used while one waits for so long, once all has settled."""
    wait(SETTLING_S)
    began, java_began = cpu_seconds(), cpu_seconds("java")
    wait(seconds)
    used, java = cpu_seconds() - began, cpu_seconds("java") - java_began
    share = {"all": used, "java": java, "python": used - java}
    return {"rows": 0, "busy": {name: cpu / seconds for name, cpu in share.items()}}


def measured(deed: Callable[[Asked], Answer], asked: Asked) -> Answer:
    cpu_began, java_began, began = cpu_seconds(), cpu_seconds("java"), time.perf_counter()
    answer = deed(asked)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_began
    java = cpu_seconds("java") - java_began
    return {"seconds": seconds, "cpu_seconds": cpu, "java_cpu_seconds": java, **answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="what the data source is called")
    parser.add_argument("servers")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    # The output is for answers alone, whatever Spark and its JVM print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    conf = dict(each.split("=", 1) for each in given.conf)
    for name, value in (CONFIGURATION | conf).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    driver = Driver(spark, given.name, given.servers)
    print(json.dumps({"about": f"PySpark {__version__}"}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = measured(getattr(driver, asked["deed"]), asked)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
