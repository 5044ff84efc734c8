"""The pipeline from end to end on this machine, in both of its forms, and beside a count by hand.

    python run.py                   plain Structured Streaming, then as a Declarative Pipeline
    python run.py --cluster         the former on a cluster that loses a worker half way

Ends with 1 if a result is another one than that which is counted without Spark.
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
import straight
import yaml
from outputs import cut_of, dead_letter, parquet_rows, row, table_files, topic_rows
from processes import SPARK_HOME, Failed, cluster, configure, running, until
from raw_events import PARTITIONS, RawEvent, raw_events

from aiokafkawire import Broker, Producer
from aiokafkawire.cli.demo.inputs import default_files, files_at
from aiokafkawire.cli.error_text import CommandFailed

HERE = Path(__file__).resolve().parent

KEYS = {"page-counts": "page", "sessions": "user"}
COUNTERS = {"page-counts": straight.counts, "sessions": straight.sessions}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    events: int
    rows_of_a_batch: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """Where a form of the pipeline has put what."""

    checkpoints: dict[str, Path]
    parquet: dict[str, Counter[straight.Row]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table; the columns are without Spark, the topic's, and Parquet's."""

    what: str
    numbers: tuple[int | None, ...]
    differing: int | None = None


# --- the forms -----------------------------------------------------------------------------------


async def streaming(servers: str, place: Path, settings: Settings) -> Written:
    """On a Spark inside of the driver."""
    configure(place)
    with running(_job(servers, place, settings, "local[2]"), place, "driver") as driver:
        await driver.end(settings.deadline_s)
    return _written_by_the_job(place)


async def on_a_cluster(servers: str, place: Path, settings: Settings) -> Written:
    """On two workers, of which one is killed when half of the batches are done."""
    configure(place)
    half = settings.events / settings.rows_of_a_batch / 2
    commits = place / "checkpoints" / "page-counts" / "commits"
    async with cluster(place) as spark:
        with running(_job(servers, place, settings, spark.url), place, "driver") as driver:
            await until(
                lambda: driver.code is not None or _batches_in(commits) >= half,
                settings.deadline_s,
            )
            if driver.code is not None or _batches_in(commits) < half:
                raise driver.failed("came to no half way at which a worker could be killed")
            spark.workers[0].kill()
            print(f"killed worker-1 after {_batches_in(commits)} batches", flush=True)
            await driver.end(settings.deadline_s)
            if spark.workers[1].code is not None:
                raise spark.workers[1].failed("is gone as well")
    return _written_by_the_job(place)


def _job(servers: str, place: Path, settings: Settings, master: str) -> list[str | Path]:
    command: list[str | Path] = [sys.executable, HERE / "streaming.py", "--servers", servers]
    size = str(settings.rows_of_a_batch)
    return [*command, "--place", place, "--master", master, "--rows-of-a-batch", size]


def _batches_in(folder: Path) -> int:
    return sum(path.name.isdigit() for path in folder.iterdir()) if folder.exists() else 0


def _written_by_the_job(place: Path) -> Written:
    return Written(
        {name: place / "checkpoints" / name for name in KEYS},
        {name: parquet_rows([place / name], key) for name, key in KEYS.items()},
    )


async def declarative(servers: str, place: Path, settings: Settings) -> Written:
    """With the specification that lies here, but for what belongs to this run."""
    configure(place)
    specification: dict[str, Any] = yaml.safe_load((HERE / "spark-pipeline.yaml").read_text())
    specification["storage"] = (place / "storage").as_uri()
    specification["configuration"] |= {
        "pipeline.servers": servers,
        "pipeline.rows-of-a-batch": str(settings.rows_of_a_batch),
    }
    (place / "spark-pipeline.yaml").write_text(yaml.safe_dump(specification))
    shutil.copy(HERE / "declarative.py", place)
    command = [SPARK_HOME / "bin" / "spark-pipelines", "--remote", "local[2]", "run"]
    with running([*command, "--spec", place / "spark-pipeline.yaml"], place, "pipeline") as driver:
        await driver.end(settings.deadline_s)
    tables = {name: name.replace("-", "_") for name in KEYS}
    flows = place / "storage" / "_checkpoints" / "spark_catalog" / "default"
    return Written(
        {name: flows / table / table / "0" for name, table in tables.items()},
        {
            name: parquet_rows(table_files(place / "warehouse" / table), KEYS[name])
            for name, table in tables.items()
        },
    )


FORMS = {
    "Structured Streaming": streaming,
    "Declarative Pipeline": declarative,
    "a cluster that loses a worker": on_a_cluster,
}


# --- the comparison ------------------------------------------------------------------------------


async def compare(servers: str, log: straight.Log, written: Written) -> list[Line]:
    """Everything that was written, beside what is counted without Spark."""
    expected = straight.dead_letters(log)
    found = await topic_rows(servers, "dead-letters", dead_letter)
    lines = [
        Line("dead letters", (len(expected), found.total(), None), _differing(expected, found))
    ]
    for name in KEYS:
        cut = cut_of(written.checkpoints[name], "events")
        if cut[-1] != {number: len(values) for number, values in log.items()}:
            raise Failed(f"{name}: the last batch ends at {cut[-1]}")
        results = COUNTERS[name](log, cut)
        outputs = [await topic_rows(servers, name, row), written.parquet[name]]
        differing = sum(_differing(results.rows, rows) for rows in outputs)
        each = [results.rows, *outputs]
        lines += [
            Line(f"{name}: rows", tuple(rows.total() for rows in each), differing),
            Line(f"{name}: events", tuple(_sum(rows, 3) for rows in each)),
            Line(f"{name}: words", tuple(_sum(rows, 4) for rows in each)),
            Line(f"{name}: left out as late", (results.late, None, None)),
        ]
        kept = _sum(results.rows, 3)
        if results.parsed != kept + results.late + results.open:
            raise Failed(f"{name}: the count without Spark does not add up")
    return lines


def _differing(one: Counter[Any], other: Counter[Any]) -> int:
    return (one - other).total() + (other - one).total()


def _sum(rows: Counter[straight.Row], column: int) -> int:
    return sum(int(one[column]) * times for one, times in rows.items())


def tell(lines: Sequence[Line]) -> None:
    print(f"{'':32} {'without Spark':>14} {'topic':>10} {'Parquet':>10}  differing rows")
    for line in lines:
        numbers = ["-" if number is None else f"{number:,}" for number in line.numbers]
        differing = "" if line.differing is None else line.differing
        print(f"{line.what:32} {numbers[0]:>14} {numbers[1]:>10} {numbers[2]:>10}  {differing}")


# --- the run -------------------------------------------------------------------------------------


async def run(form: str, events: Sequence[RawEvent], settings: Settings) -> bool:
    """One form on a broker and in a folder of its own; gives whether all is equal."""
    log: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    place = Path(tempfile.mkdtemp(prefix="aiokafkawire-pipeline-"))
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
            written = await FORMS[form](broker.bootstrap_servers, place, settings)
            took_s = time.monotonic() - began
            lines = await compare(broker.bootstrap_servers, log, written)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"\n{form}: {len(events):,} events, {took_s:.0f} s")
    tell(lines)
    return not any(line.differing for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", help="a text or a folder of them; else Python's own library")
    parser.add_argument("--events", type=int, default=200_000, help="at most so many lines of it")
    parser.add_argument("--batches", type=int, default=12, help="about so many micro-batches")
    parser.add_argument("--deadline", type=float, default=600, help="seconds that a form may take")
    parser.add_argument("--cluster", action="store_true")
    given = parser.parse_args()
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit("Spark needs Java 17 or later: install one, or set JAVA_HOME")
    # Also then nobody of Spark stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        files = files_at(Path(given.input)) if given.input else default_files()
        events = raw_events(files, given.events)
        settings = Settings(len(events), len(events) // given.batches + 1, given.deadline)
        forms = list(FORMS)[2:] if given.cluster else list(FORMS)[:2]
        equal = [anyio.run(run, form, events, settings) for form in forms]
    except (CommandFailed, Failed) as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        return 130
    print("\nall results are equal" if all(equal) else "\nRESULTS DIFFER")
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
