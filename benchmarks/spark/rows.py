"""The rows of the table: the work of both sides, and the aims of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.rows import OURS, Actor, Aim, Row

THEIRS = "JVM connector"

TRICKLE_PER_SECOND = 1_000


@dataclass(frozen=True, slots=True)
class DriverAction:
    """An action of the driver (`benchmarks.spark.driver`) and its parameters."""

    name: str
    columns: str = ""
    options: tuple[tuple[str, str], ...] = ()


TUNED = (("kafka.batch.size", "524288"), ("kafka.linger.ms", "5"))
"""Batches as large as our sink's default."""

ACTIONS: Mapping[str, DriverAction] = {
    action.name: action
    for action in (
        DriverAction("batch"),
        DriverAction("sum"),
        DriverAction("stream"),
        DriverAction("write"),
        DriverAction("copy"),
        DriverAction("trickle"),
    )
}
VALUE_ALONE = ".schema('value binary')"
LARGE = "batches of 512 KiB"

USES: Mapping[str, DriverAction] = {
    f"sum {VALUE_ALONE}": DriverAction("sum", columns="value binary"),
    f"write {LARGE}": DriverAction("write", options=TUNED),
    f"copy {LARGE}": DriverAction("copy", options=TUNED),
}
"""Variants of an action, by action and use."""


def driver_action(actor: Actor) -> DriverAction:
    return USES.get(f"{actor.action} {actor.use}".strip()) or ACTIONS[actor.action]


def _beside(action: str, ratio: float, *more: Actor) -> tuple[tuple[Actor, ...], tuple[Aim, ...]]:
    measure = "p50" if action == "trickle" else "rate"
    actors = (Actor(OURS, action), Actor(THEIRS, action), *more)
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
