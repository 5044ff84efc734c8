"""Streams from Kafka to Kafka."""

from __future__ import annotations

from typing import Any

from tests.spark.parity.case import (
    NO_ERROR,
    OUT,
    Ask,
    Case,
    Fails,
)

FROM = {"subscribe": "plain", "startingOffsets": "earliest"}


def copying(
    name: str,
    *select: str,
    fails: tuple[str, str] | None = None,
    differs: str | None = None,
    **more: Any,
) -> Case:
    options = more.pop("options", {"topic": OUT})
    arguments = {"source": FROM, "select": select, "options": options, **more}
    failing = Fails(ours=fails[0], theirs=fails[1]) if fails else None
    kind = "copy fails" if fails else "copy"
    ask = Ask(do="copy", arguments=arguments, fails=failing, differs=differs)
    return Case(name=f"{kind}: {name}", steps=(ask,), partitions=3)


COPIES = (
    copying("keys and partitions", "key", "value", "partition"),
    copying(
        "a column for the topic", "key", "value", f"'{OUT}' as topic", "1 as partition", options={}
    ),
    copying(
        "results that are complete",
        "cast(partition as string) as key",
        "cast(count as string) as value",
        output="complete",
        group="partition",
    ),
    copying(
        "results that are updated",
        "cast(partition as string) as key",
        "cast(count as string) as value",
        output="update",
        group="partition",
        fails=("does not support Update mode", NO_ERROR),
        differs="output mode",
    ),
    copying("no value", "key", fails=("column named value", "Required attribute 'value'")),
    copying("no topic", "value", options={}, fails=("option topic", "topic option required")),
)
