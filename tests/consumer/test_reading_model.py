"""A partition, its planner and its fetcher against a log whose leaders change and lose records.

In any sequence of events each offset is delivered once and in order, from one seek, reset or
truncation to the next, and in the end the delivered records are those of the log.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.cluster.metadata import LeaderAndEpoch
from aiokafkawire.config import ConsumerConfig, make_config
from aiokafkawire.consumer.assignment import ConsumerAssignment
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.fetch_planner import FetchLimits, FetchPlan
from aiokafkawire.consumer.fetcher import Fetcher
from aiokafkawire.consumer.notifier import Notifier
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import (
    EpochEndFetched,
    Fetching,
    LookupFailed,
    OffsetListed,
    Resetting,
    Seek,
    Validating,
)
from aiokafkawire.errors import LogTruncated, NoOffsetForPartition
from aiokafkawire.records import assign_offsets, iter_batches
from aiokafkawire.runtime import Supervisor
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from tests.broker.raw_client import batch

from .record_data import P0, Planner

pytestmark = pytest.mark.slow

CONFIG = make_config(ConsumerConfig, {"bootstrap_servers": "b", "retry_backoff_ms": 1})
FULL_STEPS = 60


class Stored(NamedTuple):
    epoch: int
    value: bytes


class Log:
    """The leader's log. All values differ, so that records can be identified."""

    def __init__(self) -> None:
        self.records: list[Stored] = []
        self.epoch = 1
        self.node = 1
        self._next_value = 0

    def append(self, count: int) -> None:
        for _ in range(count):
            self._next_value += 1
            self.records.append(Stored(self.epoch, b"%d" % self._next_value))

    def move(self, cut_to: int | None = None) -> None:
        self.epoch += 1
        self.node = self.node % 3 + 1
        if cut_to is not None:
            del self.records[cut_to:]

    def error_code(self, leader_epoch: int) -> ErrorCode:
        if leader_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if leader_epoch > self.epoch else ErrorCode.NONE

    def end_of(self, epoch: int) -> tuple[int, int]:
        if epoch > self.epoch:
            return -1, -1
        before = [index for index, record in enumerate(self.records) if record.epoch <= epoch]
        if epoch == self.epoch or not before:
            return epoch, len(self.records) if epoch == self.epoch else 0
        return self.records[before[-1]].epoch, before[-1] + 1

    def read(self, offset: int, count: int) -> bytes:
        """Return batches of one record each, from `offset` on."""
        data = b""
        for at in range(offset, min(offset + count, len(self.records))):
            (view,) = iter_batches(batch(self.records[at].value))
            data += assign_offsets(view, at, self.records[at].epoch)
        return data


class World:
    def __init__(self, policy: str) -> None:
        self.log = Log()
        self.now = 0.0
        self.partition = AssignedPartition(P0, policy, Fetching(FetchBuffer(0)))
        self.planner = Planner(FetchLimits(10_000, 500))
        self.leader = LeaderAndEpoch(1, 1)
        self.fetches: list[tuple[FetchPlan, FetchResponse | None]] = []
        self.queries: list[tuple[Any, EpochEndFetched | OffsetListed | LookupFailed | None]] = []
        self.delivered: dict[int, bytes] = {}
        self.expected = 0
        self.lowest_truncation = 10_000
        assignment = ConsumerAssignment()
        assignment.add(self.partition)
        runtime: Any = SimpleNamespace(
            clock=SimpleNamespace(now=lambda: self.now), rng=random.Random(1)
        )
        supervisor = Supervisor("test")
        self.fetcher = Fetcher(
            SimpleNamespace(  # type: ignore[arg-type]
                request_update=lambda: None,
                update_leader=lambda *args: None,
                metadata=SimpleNamespace(topic_id=lambda topic: ZERO_UUID),
            ),
            runtime,
            supervisor,
            CONFIG,
            assignment=assignment,
            notifier=Notifier(runtime.clock, supervisor),
        )

    # --- the application ---

    def take(self, count: int) -> None:
        self.take_error()
        self.notice_reset()
        buffer = self.partition.readable_buffer
        records = None if buffer is None else buffer.take(count, "a")
        for record in records or ():
            assert record.offset == self.expected
            assert record.value is not None
            self.delivered[record.offset] = record.value
            self.expected += 1
        if buffer is not None:
            buffer.mark_processed("a")

    def take_error(self) -> None:
        error = self.partition.take_error()
        if error is None:
            return
        assert isinstance(error, LogTruncated | NoOffsetForPartition)
        assert self.lowest_truncation < self.expected
        known = getattr(error, "diverging_offset", None)
        self.seek(min(known or 0, len(self.log.records)))

    def agrees(self) -> bool:
        """Return whether all delivered records are those of the log."""
        return all(
            offset < len(self.log.records) and self.log.records[offset].value == value
            for offset, value in self.delivered.items()
        )

    def notice_reset(self) -> None:
        """Accept a position that moved back: only a truncation may do so."""
        position = self.partition.position
        if position is not None and position != self.expected:
            assert self.lowest_truncation < self.expected
            self.expected = position
            self.delivered = {at: value for at, value in self.delivered.items() if at < position}

    def seek(self, offset: int) -> None:
        """Seek without a leader epoch, so that truncations before it are not detected."""
        self.partition.handle(Seek(offset))
        self.delivered.clear()
        self.expected = offset
        self.lowest_truncation = 10_000

    def pause(self) -> None:
        self.partition.paused = not self.partition.paused

    def truncate(self, offset: int) -> None:
        """Elect an unclean leader, which lacks the records from `offset` on."""
        self.log.move(min(offset, len(self.log.records)))
        self.lowest_truncation = min(self.lowest_truncation, len(self.log.records))

    # --- the client and the network ---

    def update_metadata(self) -> None:
        """Update the metadata."""
        self.leader = LeaderAndEpoch(self.log.node, self.log.epoch)
        self.partition.update_leader(self.leader)

    def send(self) -> None:
        plans = self.planner.plan([self.partition], lambda tp: self.leader, self.now)
        self.fetches += [(plan, None) for plan in plans]
        state = self.partition.state
        asked = [query[0] for query in self.queries]
        if isinstance(state, Validating | Resetting) and state not in asked:
            self.queries.append((state, None))

    def serve(self, index: int) -> None:
        """Have a broker handle a request. The response is not received yet."""
        if index < len(self.fetches):
            plan, _ = self.fetches[index]
            self.fetches[index] = (plan, self.response(plan))
        elif self.queries:
            index %= len(self.queries)
            state, _ = self.queries[index]
            self.queries[index] = (state, self.answer(state))

    def response(self, plan: FetchPlan) -> FetchResponse:
        (part,) = plan.parts
        data = FetchPartitionData(
            partition_index=0, error_code=0, high_watermark=len(self.log.records), records=b""
        )
        code = self.log.error_code(part.leader_epoch)
        epoch, end = (
            self.log.end_of(part.last_fetched_epoch) if part.last_fetched_epoch >= 0 else (-1, 0)
        )
        if code:
            data.error_code = code
        elif part.last_fetched_epoch >= 0 and (
            epoch < part.last_fetched_epoch or end < part.offset
        ):
            data.diverging_epoch = DivergingEpoch(epoch=epoch, end_offset=end)
        elif part.offset > len(self.log.records):
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data.records = self.log.read(part.offset, 5)
        return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[data])])

    def answer(
        self, state: Validating | Resetting
    ) -> EpochEndFetched | OffsetListed | LookupFailed:
        if isinstance(state, Resetting):
            end = 0 if state.timestamp == -2 else len(self.log.records)
            return OffsetListed(state, end, -1)
        code = self.log.error_code(state.leader.epoch)
        if code:
            return LookupFailed(state, error_for(code), self.now)
        return EpochEndFetched(state, *self.log.end_of(state.buffer.last_fetched_epoch))

    def deliver(self, index: int) -> None:
        """Receive a response, in any order; a lost fetch ends without one."""
        if index < len(self.fetches):
            plan, response = self.fetches.pop(index)
            if response is not None:
                deque(self.fetcher._handle_response(plan, response, {}))
            self.planner.finished(plan)
        elif self.queries:
            _, answer = self.queries.pop(index % len(self.queries))
            if answer is not None:
                self.partition.handle(answer)

    def flow(self) -> None:
        """Exchange all requests and responses without loss or delay."""
        self.now += 10
        self.update_metadata()
        self.send()
        for index in range(len(self.fetches) + len(self.queries)):
            self.serve(index)
        while self.fetches or self.queries:
            self.deliver(0)

    def settle(self) -> None:
        """Read to the end of the log without further events."""
        self.partition.paused = False
        for _ in range(FULL_STEPS):
            self.flow()
            self.take(100)
            if self.expected == len(self.log.records) and self.agrees():
                return
        raise AssertionError(f"stuck at {self.expected} in {self.partition.state}")


Step = Callable[[World, int], object]

STEPS: dict[str, tuple[int, Step]] = {
    "append": (3, lambda world, number: world.log.append(number % 6 + 1)),
    "move": (1, lambda world, number: world.log.move()),
    "truncate": (2, lambda world, number: world.truncate(number)),
    "update_metadata": (2, lambda world, number: world.update_metadata()),
    "send": (3, lambda world, number: world.send()),
    "serve": (3, lambda world, number: world.serve(number % 3)),
    "deliver": (3, lambda world, number: world.deliver(number % 3)),
    "flow": (2, lambda world, number: world.flow()),
    "take": (4, lambda world, number: world.take(number % 8 + 1)),
    "seek": (1, lambda world, number: world.seek(number % (len(world.log.records) + 1))),
    "pause": (1, lambda world, number: world.pause()),
}
"""The weight and the function of each step."""

NAMES = st.sampled_from([name for name, (weight, _) in STEPS.items() for _ in range(weight)])


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["earliest", "latest", "none"]),
    st.lists(st.tuples(NAMES, st.integers(0, 30)), min_size=30, max_size=80),
)
def test_each_offset_is_delivered_once_with_the_record_of_the_log(
    policy: str, steps: list[tuple[str, int]]
) -> None:
    world = World(policy)
    world.log.append(6)
    world.flow()
    for name, number in steps:
        world.now += 0.01
        STEPS[name][1](world, number)
    world.log.append(2)  # a later record shows where the log was truncated
    world.settle()
