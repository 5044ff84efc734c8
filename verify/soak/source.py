"""An idempotent producer in a process of its own, at a steady rate, which reports every outcome.

    python -m verify.soak.source BOOTSTRAP TOPIC PARTITIONS MESSAGES_PER_SECOND [MESSAGES]

Message n is the number n, sent to partition n modulo PARTITIONS. Lines of JSON: `outcomes` with
`acknowledged` ([number, partition, offset] each), `unknown` and `failed` (with the error). Without
MESSAGES it goes on until SIGTERM; then it flushes, prints `done` and ends.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import deque

from aiokafkawire import Delivery, KafkaError, Producer
from aiokafkawire.errors import DeliveryUnknown

TICK_SECONDS = 0.02
OUTCOMES_PER_LINE = 2_000


class Outcomes:
    """Outcome of each message, reported in the order of sending."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Delivery]] = deque()
        self._acknowledged: list[tuple[int, int, int]] = []
        self._unknown: list[tuple[int, str]] = []
        self._failed: list[tuple[int, str]] = []

    def sent(self, number: int, delivery: Delivery) -> None:
        self._waiting.append((number, delivery))

    def not_sent(self, number: int, error: KafkaError) -> None:
        self._failed.append((number, repr(error)))

    async def emit(self, *, all_of_them: bool = False) -> None:
        while self._waiting and (all_of_them or self._waiting[0][1].done):
            number, delivery = self._waiting.popleft()
            try:
                receipt = await delivery
            except DeliveryUnknown as error:
                self._unknown.append((number, repr(error)))
            except KafkaError as error:
                self._failed.append((number, repr(error)))
            else:
                self._acknowledged.append((number, receipt.partition, receipt.offset))
            if len(self._acknowledged) >= OUTCOMES_PER_LINE:
                self._print()
        self._print()

    def _print(self) -> None:
        kinds = {
            "acknowledged": self._acknowledged,
            "unknown": self._unknown,
            "failed": self._failed,
        }
        if any(kinds.values()):
            line = {"at": time.monotonic(), "what": "outcomes"} | kinds
            print(json.dumps(line), flush=True)
        for kind in (self._acknowledged, self._unknown, self._failed):
            kind.clear()


async def work(servers: str, topic: str, partitions: int, rate: int, messages: int | None) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    outcomes = Outcomes()
    async with Producer(bootstrap_servers=servers) as producer:
        began = time.monotonic()
        number = 0
        while not stop.is_set() and (messages is None or number < messages):
            due = int((time.monotonic() - began) * rate)
            if messages is not None:
                due = min(due, messages)
            while number < due:
                try:
                    delivery = await producer.send(
                        topic, b"%d" % number, partition=number % partitions
                    )
                except KafkaError as error:
                    outcomes.not_sent(number, error)
                else:
                    outcomes.sent(number, delivery)
                number += 1
            await outcomes.emit()
            await asyncio.sleep(TICK_SECONDS)
        await outcomes.emit(all_of_them=True)
    print(json.dumps({"at": time.monotonic(), "what": "done", "sent": number}), flush=True)


if __name__ == "__main__":
    servers, topic, *counts = sys.argv[1:]
    partitions, rate, *messages = map(int, counts)
    asyncio.run(work(servers, topic, partitions, rate, messages[0] if messages else None))
