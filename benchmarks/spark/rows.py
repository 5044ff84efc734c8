"""The rows of the table: what both sides do in each, and what ours is to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.rows import OURS, Actor, Aim, Row

THEIRS = "JVM connector"

TRICKLE_PER_SECOND = 1_000


@dataclass(frozen=True, slots=True)
class Deed:
    """What a driver is asked to do (`benchmarks.spark.driver`), and with what."""

    name: str
    columns: str = ""
    options: tuple[tuple[str, str], ...] = ()


TUNED = (("kafka.batch.size", "524288"), ("kafka.linger.ms", "5"))
"""Batches as large as those that our sink makes unless it is told otherwise."""

DEEDS: Mapping[str, Deed] = {
    deed.name: deed
    for deed in (
        Deed("batch"),
        Deed("sum"),
        Deed("stream"),
        Deed("write"),
        Deed("copy"),
        Deed("trickle"),
    )
}
VALUE_ALONE = ".schema('value binary')"
LARGE = "batches of 512 KiB"

USES: Mapping[str, Deed] = {
    f"sum {VALUE_ALONE}": Deed("sum", columns="value binary"),
    f"write {LARGE}": Deed("write", options=TUNED),
    f"copy {LARGE}": Deed("copy", options=TUNED),
}
"""Other ways to do the same, by deed and use."""


def deed_of(actor: Actor) -> Deed:
    return USES.get(f"{actor.action} {actor.use}".strip()) or DEEDS[actor.action]


def _beside(deed: str, ratio: float, *more: Actor) -> tuple[tuple[Actor, ...], tuple[Aim, ...]]:
    measure = "p50" if deed == "trickle" else "rate"
    actors = (Actor(OURS, deed), Actor(THEIRS, deed), *more)
    return actors, (Aim(OURS, measure, beside=THEIRS, ratio=ratio),)  # type: ignore[arg-type]


ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        Row("batch", "batch read, to noop", True, 4_000_000, *_beside("batch", 1.3)),
        Row(
            "sum",
            "batch read, `sum(length(value))`",
            True,
            4_000_000,
            *_beside("sum", 1.3, Actor(OURS, "sum", VALUE_ALONE)),
        ),
        Row("stream", "AvailableNow stream, to noop", True, 16_000_000, *_beside("stream", 1.2)),
        Row(
            "write",
            "batch write, acks=all, idempotent",
            False,
            2_000_000,
            *_beside("write", 1.2, Actor(THEIRS, "write", LARGE)),
        ),
        Row(
            "copy",
            "AvailableNow stream, Kafka to Kafka",
            True,
            8_000_000,
            *_beside("copy", 1.2, Actor(THEIRS, "copy", LARGE)),
        ),
        Row(
            "trickle",
            f"{TRICKLE_PER_SECOND:,} messages a second, a micro-batch",
            True,
            20 * TRICKLE_PER_SECOND,
            *_beside("trickle", 1.3),
            waits=True,
        ),
    )
}
