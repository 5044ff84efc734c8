"""Run the requests from standard input, a line of JSON each, and print a line of JSON per response.

It runs in either environment, and so imports only PySpark and the standard library. It runs for the
whole benchmark: each side's Spark stays warm while the other one is measured.
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
"""Longest duration of a query in seconds."""

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}

WRITTEN = "cast(repeat('x', 100) as binary) as value"
"""Rows to write, of 100 bytes like those that are read."""

WARM_UP_BATCHES = 5
"""Micro-batches of a trickle that are not measured."""

SETTLE_S = 10
"""Time in seconds that a stream needs to settle after its start."""

Request = dict[str, Any]
Answer = dict[str, Any]


class Driver:
    """A Spark session and the name of this side's data source."""

    def __init__(self, spark: SparkSession, name: str, servers: str) -> None:
        self._spark = spark
        self._name = name
        self._servers = servers

    def batch(self, request: Request) -> Answer:
        """Read all rows into the noop sink."""
        self._read(request).write.format("noop").mode("overwrite").save()
        return {"rows": request["rows"]}

    def sum(self, request: Request) -> Answer:
        """Read all rows and sum the lengths of their values."""
        row = (
            self._read(request)
            .selectExpr("sum(length(value)) as bytes", "count(*) as rows")
            .first()
        )
        assert row is not None
        if row.bytes != 100 * row.rows:
            raise ValueError(f"{row.rows} rows of 100 bytes are not {row.bytes} bytes")
        return {"rows": row.rows}

    def stream(self, request: Request) -> Answer:
        """Read all existing rows as a stream into the noop sink."""
        writer = self._stream(request).writeStream.format("noop")
        return self._until_done(writer, request)

    def write(self, request: Request) -> Answer:
        """Write rows that Spark generates."""
        rows = self._spark.range(0, request["rows"], 1, request["partitions"]).selectExpr(WRITTEN)
        self._to(rows.write, request).mode("append").save()
        return {"rows": request["rows"]}

    def copy(self, request: Request) -> Answer:
        """Copy all existing rows to another topic as a stream."""
        frame = self._stream(request).select("key", "value")
        return self._until_done(self._to(frame.writeStream, request), request)

    def trickle(self, request: Request) -> Answer:
        """Read new rows as they arrive."""
        frame = self._stream(request, starting="latest")
        with tempfile.TemporaryDirectory() as place:
            writer = frame.writeStream.format("noop").option("checkpointLocation", place)
            query = writer.start()
            while len(progress := nonempty_batches(query)) < WARM_UP_BATCHES:
                query.awaitTermination(0.2)
            began = len(progress)
            query.awaitTermination(request["seconds"])
            progress = nonempty_batches(query)[began:]
            query.stop()
        took = [one["durationMs"]["triggerExecution"] for one in progress]
        parts: dict[str, float] = {}
        for part in progress[0]["durationMs"]:
            parts[part] = statistics.median(one["durationMs"].get(part, 0) for one in progress)
        cuts = statistics.quantiles(took, n=100)
        rows = sum(one["numInputRows"] for one in progress)
        return {"rows": rows, "p50_ms": cuts[49], "p99_ms": cuts[98], "parts": parts}

    def idle(self, request: Request) -> Answer:
        """Run an idle stream; return its share of a core, and Python's part of it."""
        with tempfile.TemporaryDirectory() as place:
            writer = self._stream(request, starting="latest").writeStream.format("noop")
            query = writer.option("checkpointLocation", place).start()
            found = core_shares(query.awaitTermination, request["seconds"])
            query.stop()
        return found

    def rest(self, request: Request) -> Answer:
        """Return the share of a core without any query."""
        return core_shares(time.sleep, request["seconds"])

    def _read(self, request: Request) -> Any:
        return self._source(self._spark.read, request, "earliest")

    def _stream(self, request: Request, starting: str = "earliest") -> Any:
        return self._source(self._spark.readStream, request, starting)

    def _source(self, reader: Any, request: Request, starting: str) -> Any:
        reader = reader.format(self._name).option("kafka.bootstrap.servers", self._servers)
        reader = reader.option("subscribe", request["topic"]).option("startingOffsets", starting)
        reader = reader.options(**request["options"])
        if request["columns"]:
            reader = reader.schema(request["columns"])
        return reader.load()

    def _to(self, writer: Any, request: Request) -> Any:
        writer = writer.format(self._name).option("kafka.bootstrap.servers", self._servers)
        return writer.option("topic", request["sink"]).options(**request["options"])

    def _until_done(self, writer: Any, request: Request) -> Answer:
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


def nonempty_batches(query: Any) -> list[Any]:
    """Return the progress of micro-batches with rows; raise if the query failed."""
    if (error := query.exception()) is not None:
        raise error
    return [one for one in query.recentProgress if one["numInputRows"]]


def cpu_seconds(command: str = "") -> float:
    """Return the CPU seconds of this process and all its descendants; or of one command only."""
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


def core_shares(wait: Callable[[float], object], seconds: float) -> Answer:
    """Return the shares of a core used during `wait`, after a settling time."""
    wait(SETTLE_S)
    began, java_began = cpu_seconds(), cpu_seconds("java")
    wait(seconds)
    used, java = cpu_seconds() - began, cpu_seconds("java") - java_began
    share = {"all": used, "java": java, "python": used - java}
    return {"rows": 0, "busy": {name: cpu / seconds for name, cpu in share.items()}}


def measured(action: Callable[[Request], Answer], request: Request) -> Answer:
    cpu_began, java_began, began = cpu_seconds(), cpu_seconds("java"), time.perf_counter()
    answer = action(request)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_began
    java = cpu_seconds("java") - java_began
    return {"seconds": seconds, "cpu_seconds": cpu, "java_cpu_seconds": java, **answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of the data source")
    parser.add_argument("servers")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    # Standard output carries only responses, not the output of Spark and its JVM.
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
        request = json.loads(line)
        try:
            answer = measured(getattr(driver, request["action"]), request)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
