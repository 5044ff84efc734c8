"""Cases for both connectors: each has a name, and is data alone.

Topics are those of `World.make_shared`; a case that changes one makes it first. `OUT` is a topic of
the case's own, another one for each connector.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

OUT = "OUT"

NO_ERROR = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something done to Kafka: a method of `World`."""

    what: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """Patterns of the errors of both connectors, so that both fail for the expected reason.

    `NO_ERROR` stands for a connector that does not fail.
    """

    ours: str
    theirs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question to both: a method of `Answerer`.

    `differs`: why the answers are not equal, a key of `differences.DIFFERENCES`.
    """

    do: str
    arguments: dict[str, Any]
    fails: Fails | None = None
    differs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    steps: tuple[Ask | Change, ...]
    partitions: int = field(default=1)
    """Of the topic `OUT`."""


def by_partition(topic: str, **numbers: int) -> str:
    """`by_partition("t", p0=1)`: {"t": {"0": 1}}."""
    return json.dumps({topic: {name[1:]: number for name, number in numbers.items()}})


# Nobody waits long for what is not there.
QUICK = {
    "kafka.default.api.timeout.ms": "3000",
    "kafka.request.timeout.ms": "2000",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "10",
}


def reading(
    name: str, *, differs: str | None = None, where: str | None = None, **options: Any
) -> Case:
    ask = Ask(do="read", arguments={"options": options, "where": where}, differs=differs)
    return Case(name=f"read: {name}", steps=(ask,))


def no_reading(
    name: str,
    ours: str,
    theirs: str,
    *,
    differs: str | None = None,
    where: str | None = None,
    **options: Any,
) -> Case:
    arguments = {"options": options, "where": where}
    fails = Fails(ours=ours, theirs=theirs)
    ask = Ask(do="read", arguments=arguments, fails=fails, differs=differs)
    return Case(name=f"read fails: {name}", steps=(ask,))


def stream(
    *, trigger: Any = None, fails: Fails | None = None, differs: str | None = None, **options: Any
) -> Ask:
    arguments = {"options": options, "trigger": trigger}
    return Ask(do="stream", arguments=arguments, fails=fails, differs=differs)


def streaming(name: str, *steps: Ask | Change) -> Case:
    return Case(name=f"stream: {name}", steps=steps)


def no_streaming(
    name: str, ours: str, theirs: str, *, differs: str | None = None, **options: Any
) -> Case:
    ask = stream(fails=Fails(ours=ours, theirs=theirs), differs=differs, **options)
    return Case(name=f"stream fails: {name}", steps=(ask,))


def change(what: str, *arguments: Any) -> Change:
    return Change(what=what, arguments=arguments)


def writing(
    name: str,
    schema: str,
    *rows: tuple[str, ...],
    partitions: int = 1,
    fails: tuple[str, str] | None = None,
    differs: str | None = None,
    mode: str | None = "append",
    topic: str | None = OUT,
    **options: str,
) -> Case:
    given = options if topic is None else {"topic": topic, **options}
    arguments = {"schema": schema, "rows": rows, "options": given, "mode": mode}
    failing = Fails(ours=fails[0], theirs=fails[1]) if fails else None
    ask = Ask(do="write", arguments=arguments, fails=failing, differs=differs)
    kind = "write fails" if fails else "write"
    return Case(name=f"{kind}: {name}", steps=(ask,), partitions=partitions)


def k(**options: str) -> dict[str, str]:
    """Options of the client: `k(isolation_level="read_committed")`."""
    return {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
