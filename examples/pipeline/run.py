"""Run the pipeline end to end on this machine, and compare it with a computation without Spark.

    python run.py                   as plain Structured Streaming, then as a Declarative Pipeline
    python run.py --cluster         the former on a cluster that loses a worker half way

Exits with 1 if a result differs from the one computed without Spark.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import without_spark
import yaml
from outputs import dead_letter, parquet_rows, read_batch_ends, row, table_files, topic_rows
from processes import SPARK_HOME, ProcessFailed, configure, run_process, start_cluster, wait_until
from raw_events import PARTITIONS, RawEvent, raw_events

from aiokafkawire import Broker, Producer
from aiokafkawire.cli.demo.inputs import default_files, find_files
from aiokafkawire.cli.error_text import CommandFailed

HERE = Path(__file__).resolve().parent

KEYS = {"page-counts": "page", "sessions": "user"}
COUNTERS = {"page-counts": without_spark.counts, "sessions": without_spark.sessions}


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the command line."""

    events: int
    batch_rows: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Outputs:
    """The results of one form of the pipeline."""

    checkpoints: dict[str, Path]
    parquet: dict[str, Counter[without_spark.Row]]


@dataclass(frozen=True, slots=True)
class TableLine:
    """One line of the table: without Spark, in the topic, in Parquet."""

    what: str
    numbers: tuple[int | None, ...]
    differing: int | None = None


# --- forms ---


async def streaming(servers: str, folder: Path, settings: Settings) -> Outputs:
    """Run on a Spark inside of the driver."""
    configure(folder)
    with run_process(_job(servers, folder, settings, "local[2]"), folder, "driver") as driver:
        await driver.end(settings.deadline_s)
    return _job_outputs(folder)


async def on_a_cluster(servers: str, folder: Path, settings: Settings) -> Outputs:
    """Run on two workers, and kill one after half of the batches."""
    configure(folder)
    half = settings.events / settings.batch_rows / 2
    commits = folder / "checkpoints" / "page-counts" / "commits"
    async with start_cluster(folder) as spark:
        with run_process(_job(servers, folder, settings, spark.url), folder, "driver") as driver:
            await wait_until(
                lambda: driver.code is not None or _count_batches(commits) >= half,
                settings.deadline_s,
            )
            if driver.code is not None or _count_batches(commits) < half:
                raise driver.failed("ended before half of the batches, at which a worker is killed")
            spark.workers[0].kill()
            print(f"killed worker-1 after {_count_batches(commits)} batches", flush=True)
            await driver.end(settings.deadline_s)
            if spark.workers[1].code is not None:
                raise spark.workers[1].failed("ended as well")
    return _job_outputs(folder)


def _job(servers: str, folder: Path, settings: Settings, master: str) -> list[str | Path]:
    command: list[str | Path] = [sys.executable, HERE / "streaming.py", "--servers", servers]
    size = str(settings.batch_rows)
    return [*command, "--folder", folder, "--master", master, "--batch-rows", size]


def _count_batches(folder: Path) -> int:
    return sum(path.name.isdigit() for path in folder.iterdir()) if folder.exists() else 0


def _job_outputs(folder: Path) -> Outputs:
    return Outputs(
        {name: folder / "checkpoints" / name for name in KEYS},
        {name: parquet_rows([folder / name], key) for name, key in KEYS.items()},
    )


async def declarative(servers: str, folder: Path, settings: Settings) -> Outputs:
    """Run the specification in this folder, with the settings of this run."""
    configure(folder)
    specification: dict[str, Any] = yaml.safe_load((HERE / "spark-pipeline.yaml").read_text())
    specification["storage"] = (folder / "storage").as_uri()
    specification["configuration"] |= {
        "pipeline.servers": servers,
        "pipeline.batch-rows": str(settings.batch_rows),
    }
    (folder / "spark-pipeline.yaml").write_text(yaml.safe_dump(specification))
    shutil.copy(HERE / "declarative.py", folder)
    command = [SPARK_HOME / "bin" / "spark-pipelines", "--remote", "local[2]", "run"]
    with run_process(
        [*command, "--spec", folder / "spark-pipeline.yaml"], folder, "pipeline"
    ) as driver:
        await driver.end(settings.deadline_s)
    tables = {name: name.replace("-", "_") for name in KEYS}
    flows = folder / "storage" / "_checkpoints" / "spark_catalog" / "default"
    return Outputs(
        {name: flows / table / table / "0" for name, table in tables.items()},
        {
            name: parquet_rows(table_files(folder / "warehouse" / table), KEYS[name])
            for name, table in tables.items()
        },
    )


FORMS = {
    "Structured Streaming": streaming,
    "Declarative Pipeline": declarative,
    "a cluster that loses a worker": on_a_cluster,
}


# --- comparison ---


async def compare(servers: str, log: without_spark.Log, written: Outputs) -> list[TableLine]:
    """Compare all results with those computed without Spark."""
    expected = without_spark.dead_letters(log)
    found = await topic_rows(servers, "dead-letters", dead_letter)
    lines = [
        TableLine(
            "dead letters",
            (len(expected), found.total(), None),
            _count_differences(expected, found),
        )
    ]
    for name in KEYS:
        cut = read_batch_ends(written.checkpoints[name], "events")
        if cut[-1] != {number: len(values) for number, values in log.items()}:
            raise ProcessFailed(f"{name}: the last batch ends at {cut[-1]}")
        results = COUNTERS[name](log, cut)
        outputs = [await topic_rows(servers, name, row), written.parquet[name]]
        differing = sum(_count_differences(results.rows, rows) for rows in outputs)
        each = [results.rows, *outputs]
        lines += [
            TableLine(f"{name}: rows", tuple(rows.total() for rows in each), differing),
            TableLine(f"{name}: events", tuple(_sum(rows, 3) for rows in each)),
            TableLine(f"{name}: words", tuple(_sum(rows, 4) for rows in each)),
            TableLine(f"{name}: dropped as late", (results.late, None, None)),
        ]
        kept = _sum(results.rows, 3)
        if results.parsed != kept + results.late + results.open:
            raise ProcessFailed(f"{name}: the computation without Spark does not add up")
    return lines


def _count_differences(one: Counter[Any], other: Counter[Any]) -> int:
    return (one - other).total() + (other - one).total()


def _sum(rows: Counter[without_spark.Row], column: int) -> int:
    return sum(int(one[column]) * times for one, times in rows.items())


def print_table(lines: Sequence[TableLine]) -> None:
    print(f"{'':32} {'without Spark':>14} {'topic':>10} {'Parquet':>10}  differing rows")
    for line in lines:
        numbers = ["-" if number is None else f"{number:,}" for number in line.numbers]
        differing = "" if line.differing is None else line.differing
        print(f"{line.what:32} {numbers[0]:>14} {numbers[1]:>10} {numbers[2]:>10}  {differing}")


# --- run ---


async def run(form: str, events: Sequence[RawEvent], settings: Settings) -> bool:
    """Run one form with its own broker and folder; return True if all results are equal."""
    log: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    folder = Path(tempfile.mkdtemp(prefix="aiokafkawire-pipeline-"))
    try:
        async with Broker() as broker:
            for topic in ("events", "dead-letters", *KEYS):
                await broker.create_topic(topic, partitions=PARTITIONS)
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for event in events:
                    log[event.partition].append(event.value)
                    await producer.send(
                        "events", value=event.value, key=event.key, partition=event.partition
                    )
            began = time.monotonic()
            written = await FORMS[form](broker.bootstrap_servers, folder, settings)
            took_s = time.monotonic() - began
            lines = await compare(broker.bootstrap_servers, log, written)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{form}: {len(events):,} events, {took_s:.0f} s")
    print_table(lines)
    return not any(line.differing for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--input", help="a text file, or a folder of them; default: Python's standard library"
    )
    parser.add_argument("--events", type=int, default=200_000, help="most lines to use")
    parser.add_argument(
        "--batches", type=int, default=12, help="approximate number of micro-batches"
    )
    parser.add_argument(
        "--deadline", type=float, default=600, help="time limit per form, in seconds"
    )
    parser.add_argument("--cluster", action="store_true")
    arguments = parser.parse_args()
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit("Spark needs Java 17 or later: install one, or set JAVA_HOME")
    # Spark's processes are ended on SIGTERM too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        files = find_files(Path(arguments.input)) if arguments.input else default_files()
        events = raw_events(files, arguments.events)
        settings = Settings(len(events), len(events) // arguments.batches + 1, arguments.deadline)
        forms = list(FORMS)[2:] if arguments.cluster else list(FORMS)[:2]
        equal = [anyio.run(run, form, events, settings) for form in forms]
    except (CommandFailed, ProcessFailed) as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        return 130
    print("\nall results are equal" if all(equal) else "\nRESULTS DIFFER")
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
