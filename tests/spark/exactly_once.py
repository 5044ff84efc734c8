"""Streams to the sink, in runs by seed, while tasks, executors and drivers are killed.

    python -m tests.spark.exactly_once --runs 20 --seed 1

A kill comes with a request that the broker sees: anywhere in a task, between its write and the
driver's commit, and between two ends of transactions; before the request is carried out, or after.
A driver that is gone is started again, until the stream is done. Then a reader of committed records
must find every row once. Runs of the default sink follow, which must write some twice: that shows
that the others would have noticed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from aiokafkawire import Consumer, blocking
from aiokafkawire.broker import Close
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey
from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.spark.jobs import CLUSTER, LOCAL, Job, job
from tests.spark.kafka import create, fill
from tests.spark.stream_job import NOT_BEGUN

PARTITIONS = 4
ROWS = 4_000
BATCHES = 4
READ_S = 60.0
"""How long the rows may take to be read."""

MAX_STARTS = 12
"""A stream that needs more drivers than this goes nowhere."""

MOMENTS = {
    ApiKey.INIT_PRODUCER_ID: 12,
    ApiKey.PRODUCE: 14,
    ApiKey.TXN_OFFSET_COMMIT: 12,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 14,
}
"""Requests at which something is killed, and the last of them at which it is."""

PLAIN_MOMENTS = {ApiKey.PRODUCE: 14}

VICTIMS = ("task", "executor", "driver")


@dataclass(frozen=True, slots=True)
class Kill:
    """A process to kill, and the request at which to kill it."""

    victim: str
    api: ApiKey
    number: int
    carried_out: bool

    def __str__(self) -> str:
        when = "after" if self.carried_out else "before"
        return f"{self.victim} {when} {self.api.name} {self.number}"


@dataclass(slots=True)
class Result:
    """The result of a run."""

    kills: list[Kill]
    done: list[Kill] = field(default_factory=list)
    starts: int = 0
    missing: int = 0
    repeated: int = 0
    aborted: int = 0
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return not self.missing and not self.repeated


def kills_of(number: int, rng: random.Random, *, plain: bool) -> list[Kill]:
    """The kills of a run; each kind of victim comes in every third run."""
    moments = PLAIN_MOMENTS if plain else MOMENTS
    victims = [VICTIMS[number % 3], rng.choice(("task", "driver"))]
    kills = []
    for victim in victims:
        api = rng.choice(list(moments))
        kills.append(Kill(victim, api, rng.randint(1, moments[api]), rng.random() < 0.5))
    return kills


class Killer:
    """Kills one after another; sits in the broker, which sees all."""

    def __init__(self, kafka: ThreadedBroker, kills: list[Kill], rng: random.Random) -> None:
        self.job: Job | None = None
        self.done: list[Kill] = []
        self._waiting = list(reversed(kills))
        self._rng = rng
        self._seen = 0
        kafka.call(kafka.broker.on, None, self._look)

    def _look(self, request: Any) -> Any:
        if not self._waiting or self.job is None:
            return None
        kill = self._waiting[-1]
        if request.api_key != kill.api:
            return None
        self._seen += 1
        if self._seen < kill.number or not self._kill(self.job, kill.victim):
            return None
        self._seen = 0
        self.done.append(self._waiting.pop())
        return None if kill.carried_out else Close()

    def _kill(self, victim: Job, kind: str) -> bool:
        if kind == "task":
            return victim.kill_worker(self._rng)
        if kind == "executor":
            return victim.kill_executor(self._rng)
        victim.kill()
        return True


def run(
    kafka: ThreadedBroker, kills: list[Kill], rng: random.Random, place: Path, *, plain: bool
) -> Result:
    """One stream to its end, on a broker of its own."""
    began = time.monotonic()
    result = Result(kills)
    rows = [[f"{at}" for at in range(first, ROWS, PARTITIONS)] for first in range(PARTITIONS)]
    fill(kafka, "source", *rows)
    create(kafka, "sink", PARTITIONS)
    in_cluster = any(kill.victim == "executor" for kill in kills)
    arguments = {
        "servers": kafka.servers,
        "source": "source",
        "sink": "sink",
        "checkpoint": str(place / "checkpoint"),
        "master": CLUSTER if in_cluster else LOCAL,
        "rows-of-a-batch": str(ROWS // BATCHES),
    }
    options = {} if plain else {"exactlyOnce": "true"}
    killer = Killer(kafka, kills, rng)
    log = place / "log"
    code: int | None = None
    while code != 0:
        result.starts += 1
        if result.starts > MAX_STARTS or code == NOT_BEGUN:
            raise AssertionError(
                f"not done after {result.starts - 1} drivers; the last ended with {code}:"
                f"\n{log.read_text(errors='replace')[-8_000:]}"
            )
        with job(log, arguments, options) as started:
            killer.job = started
            code = started.wait()
            killer.job = None
    kafka.call(kafka.broker.clear_faults)
    result.done = killer.done
    found, stored = committed_rows(kafka, "sink")
    result.missing = sum(str(at) not in found for at in range(ROWS))
    result.repeated = sum(found.values()) - len(found)
    result.aborted = stored - sum(found.values())
    result.seconds = time.monotonic() - began
    return result


def committed_rows(kafka: ThreadedBroker, topic: str) -> tuple[Counter[str], int]:
    """Count each row that a reader of committed records finds, and all stored rows."""
    found = blocking.call(_rows, kafka.servers, topic, "read_committed")
    return found, sum(blocking.call(_rows, kafka.servers, topic, "read_uncommitted").values())


async def _rows(servers: str, topic: str, level: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    options: Any = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with Consumer(**options) as consumer:
        ends = await consumer.end_offsets(*tps)
    async with Consumer(**options, isolation_level=level) as consumer:
        consumer.assign(*tps)
        # A transaction that was left open would hold a reader up before the end.
        with anyio.fail_after(READ_S):
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found.update(bytes(value).decode() for value in records.values())
    return found


def report(number: int, result: Result) -> None:
    kills = ", ".join(map(str, result.done)) or "nobody was killed"
    print(
        f"{number:3}: {'right' if result.right else 'WRONG':5} {result.starts} drivers,"
        f" {result.missing} missing, {result.repeated} twice, {result.aborted} aborted,"
        f" {result.seconds:.0f} s; {kills}",
        flush=True,
    )


def runs(numbers: range, seed: int, *, plain: bool) -> list[Result]:
    """Run these and print each result."""
    results = []
    for number in numbers:
        # A broker and a folder for each: what one leaves open is no other one's.
        rng = random.Random(f"{seed} {number} {plain}")
        kills = kills_of(number, rng, plain=plain)
        with tempfile.TemporaryDirectory() as place, threaded_broker() as kafka:
            results.append(run(kafka, kills, rng, Path(place), plain=plain))
        report(number, results[-1])
    return results


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first run")
    parser.add_argument("--plain", type=int, default=3, help="runs of the default sink")
    given = parser.parse_args(arguments)
    print(f"exactlyOnce, {given.runs} runs of seed {given.seed}, {ROWS:,} rows each", flush=True)
    results = runs(range(given.first, given.first + given.runs), given.seed, plain=False)
    wrong = sum(not result.right for result in results)
    kills = Counter(kill.victim for result in results for kill in result.done)
    killed = ", ".join(f"{kind} {count}" for kind, count in sorted(kills.items()))
    print(f"{given.runs - wrong} of {given.runs} right; killed: {killed}", flush=True)
    if given.plain:
        print(f"the default sink, {given.plain} runs", flush=True)
        plain = runs(range(given.plain), given.seed, plain=True)
        missing, repeated = (
            sum(getattr(r, name) for r in plain) for name in ("missing", "repeated")
        )
        print(f"{missing} rows are missing, {repeated} are there more than once")
        if missing or not repeated:
            print("as it should not be: none may be missing, and some must be there twice")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
