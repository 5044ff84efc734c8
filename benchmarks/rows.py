"""The rows of the table: the sides of each row, and the aims of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.load import REQUESTS_PER_SECOND, SLOW_HANDLER_S, SLOW_HANDLERS

OURS = "aiokafkawire"
Measure = Literal["cpu", "rate", "p50"]


@dataclass(frozen=True, slots=True)
class Actor:
    """One side of a row.

    Attributes:
        client: The client.
        action: The action of the client's module.
        use: How the client is used, if one name is not enough.
        share: Share of the row's messages, so that slow clients also take only seconds.
        loop: The event loop.
        tls: Whether the client connects with TLS.
    """

    client: str
    action: str
    use: str = ""
    share: float = 1.0
    loop: str = "asyncio"
    tls: bool = False

    @property
    def name(self) -> str:
        return f"{self.client} {self.use}".strip()


@dataclass(frozen=True, slots=True)
class Aim:
    """A limit for our client: at most µs of CPU or ms, or at least messages per second.

    `ratio` is the figure divided by that of `beside` in the same run. It also counts, because
    absolute figures depend on the machine.
    """

    of: str
    measure: Measure
    figure: float | None = None
    beside: str = ""
    ratio: float | None = None

    @property
    def at_least(self) -> bool:
        return self.measure == "rate"

    def met_by(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit

    def part_of(self, value: float, limit: float) -> float:
        """Return how much of the limit a value reaches; 1 and more means reached."""
        return value / limit if self.at_least else limit / value


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    title: str
    reads: bool
    messages: int
    actors: tuple[Actor, ...]
    aims: tuple[Aim, ...]
    waits: bool = False
    """The row measures latency: the rate and an idle core say little."""

    def quick(self) -> Row:
        """Return the row with a quarter of the messages."""
        return replace(self, messages=self.messages // 4)


def _ours(action: str, use: str, loop: str = "asyncio", *, tls: bool = False) -> Actor:
    return Actor(OURS, action, use, loop=loop, tls=tls)


ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        Row(
            "produce",
            "produce, message by message, each delivery known",
            False,
            1_200_000,
            (
                _ours("send_nowait", "send_nowait"),
                _ours("send", "await send"),
                Actor("confluent-kafka", "produce"),
                Actor("aiokafka", "send", share=0.4),
                Actor("kafka-python", "send", share=0.1),
                Actor("Java", "produce"),
            ),
            (
                Aim(f"{OURS} send_nowait", "cpu", 1.7, "aiokafka", 1.7 / 8.8),
                Aim(f"{OURS} send_nowait", "rate", beside="confluent-kafka", ratio=1.1),
                Aim(f"{OURS} await send", "cpu", 2.5, "aiokafka", 2.5 / 8.8),
            ),
        ),
        Row(
            "send-many",
            "produce, columns (send_many)",
            False,
            1_600_000,
            (
                _ours("send_many", "send_many"),
                Actor("confluent-kafka", "produce_batch", "produce_batch"),
            ),
            (Aim(f"{OURS} send_many", "cpu", 0.4),),
        ),
        Row(
            "consume",
            "consume in lists, each value touched",
            True,
            4_000_000,
            (
                _ours("getmany", "getmany"),
                _ours("getmany-values", "Records.values()"),
                Actor("confluent-kafka", "consume", share=0.5),
                Actor("aiokafka", "getmany", share=0.5),
                Actor("kafka-python", "poll", share=0.2),
                Actor("Java", "consume"),
            ),
            (
                Aim(f"{OURS} getmany", "cpu", 0.35, "aiokafka", 0.35 / 1.69),
                Aim(f"{OURS} getmany", "rate", 1_500_000, "aiokafka", 1.5 / 0.57),
            ),
        ),
        Row(
            "consume-one",
            "consume one by one",
            True,
            2_000_000,
            (
                _ours("async-for", "async for"),
                Actor("confluent-kafka", "poll", "poll", share=0.5),
                Actor("aiokafka", "async-for", "async for", share=0.4),
            ),
            (Aim(f"{OURS} async for", "cpu", 0.8, "aiokafka async for", 0.8 / 4.4),),
        ),
        Row(
            "share",
            "consume as a member of a share group, implicit mode",
            True,
            2_000_000,
            (
                _ours("share-getmany", "getmany"),
                _ours("share-getmany-values", "Records.values()"),
                _ours("share-async-for", "async for"),
                Actor("confluent-kafka", "share", "ShareConsumer", share=0.5),
                Actor("Java", "share", share=0.15),
            ),
            (
                Aim(f"{OURS} getmany", "cpu", beside="confluent-kafka ShareConsumer", ratio=0.5),
                Aim(
                    f"{OURS} Records.values()",
                    "cpu",
                    beside="confluent-kafka ShareConsumer",
                    ratio=0.5,
                ),
                Aim(f"{OURS} async for", "cpu", beside="confluent-kafka ShareConsumer", ratio=0.5),
            ),
        ),
        Row(
            "worker",
            "process with a worker, a handler that does nothing",
            True,
            600_000,
            (
                _ours("async-for", "async for"),
                _ours("worker-partition", 'order_by="partition"'),
                _ours("worker-key", "any order"),
            ),
            (Aim(f'{OURS} order_by="partition"', "cpu", beside=f"{OURS} async for", ratio=2.0),),
        ),
        Row(
            "worker-slow",
            f"process by key, {SLOW_HANDLERS} handlers of {SLOW_HANDLER_S * 1000:g} ms at a time",
            True,
            40_000,
            (
                _ours("worker-slow", "by key"),
                _ours("tasks", "tasks that wait, without Kafka"),
            ),
            (
                Aim(
                    f"{OURS} by key",
                    "rate",
                    0.95 * SLOW_HANDLERS / SLOW_HANDLER_S,
                    f"{OURS} tasks that wait, without Kafka",
                    0.95,
                ),
            ),
        ),
        Row(
            "arrow",
            "consume to Arrow",
            True,
            4_000_000,
            (
                _ours("arrow", "batches().to_arrow()"),
                Actor("confluent-kafka", "arrow", "pyarrow.array", share=0.4),
            ),
            (
                Aim(f"{OURS} batches().to_arrow()", "cpu", 0.1),
                Aim(f"{OURS} batches().to_arrow()", "rate", 3_000_000),
            ),
        ),
        Row(
            "one-at-a-time",
            "one send at a time, linger 0",
            False,
            12_000,
            (
                _ours("one-at-a-time", "asyncio"),
                _ours("one-at-a-time", "uvloop", "uvloop"),
                Actor("confluent-kafka", "one-at-a-time"),
                Actor("aiokafka", "one-at-a-time", share=0.6),
                Actor("kafka-python", "one-at-a-time", share=0.6),
            ),
            (
                Aim(f"{OURS} asyncio", "p50", beside="confluent-kafka", ratio=1.1),
                Aim(f"{OURS} asyncio", "cpu", 110, "confluent-kafka", 110 / 93),
                Aim(f"{OURS} uvloop", "p50", beside="confluent-kafka", ratio=1.0),
                Aim(f"{OURS} uvloop", "cpu", beside="confluent-kafka", ratio=1.0),
            ),
            waits=True,
        ),
        Row(
            "requests",
            f"{REQUESTS_PER_SECOND:,} requests a second, each awaiting its send",
            False,
            16_000,
            (
                _ours("requests", "asyncio"),
                _ours("requests", "uvloop", "uvloop"),
                Actor("confluent-kafka", "requests", "AIOProducer"),
                Actor("aiokafka", "requests"),
            ),
            (
                Aim(f"{OURS} asyncio", "p50", 4.2, "aiokafka", 1.0),
                Aim(f"{OURS} asyncio", "cpu", 55, "aiokafka", 55 / 119),
            ),
            waits=True,
        ),
        Row(
            "tls-produce",
            "produce over TLS",
            False,
            800_000,
            (
                _ours("send_nowait", "TLS", tls=True),
                _ours("send_nowait", "plaintext"),
                Actor("confluent-kafka", "produce", "TLS", tls=True),
                Actor("aiokafka", "send", "TLS", share=0.4, tls=True),
            ),
            (
                Aim(f"{OURS} TLS", "cpu", beside=f"{OURS} plaintext", ratio=1.15),
                Aim(f"{OURS} TLS", "cpu", beside="confluent-kafka TLS", ratio=0.9),
            ),
        ),
        Row(
            "tls-consume",
            "consume in lists over TLS",
            True,
            2_000_000,
            (
                _ours("getmany", "TLS", tls=True),
                _ours("getmany", "plaintext"),
                Actor("confluent-kafka", "consume", "TLS", share=0.5, tls=True),
                Actor("aiokafka", "getmany", "TLS", share=0.5, tls=True),
            ),
            (
                Aim(f"{OURS} TLS", "cpu", beside=f"{OURS} plaintext", ratio=1.15),
                Aim(f"{OURS} TLS", "cpu", beside="confluent-kafka TLS", ratio=0.9),
            ),
        ),
        Row(
            "tls-one-at-a-time",
            "one send at a time over TLS, linger 0",
            False,
            12_000,
            (
                _ours("one-at-a-time", "TLS", tls=True),
                _ours("one-at-a-time", "plaintext"),
                Actor("confluent-kafka", "one-at-a-time", "TLS", tls=True),
                Actor("aiokafka", "one-at-a-time", "TLS", share=0.6, tls=True),
            ),
            (Aim(f"{OURS} TLS", "p50", beside=f"{OURS} plaintext", ratio=1.15),),
            waits=True,
        ),
    )
}
