"""Calls that wait for a transaction end at their deadlines, which one task watches."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine
from aiokafkawire.producer.transactions.waiting_calls import WaitingCalls


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[WaitingCalls, TransactionStateMachine]]:
    machine = TransactionStateMachine("id", Backoff.from_ms(10, 20))
    calls = WaitingCalls(machine, time.monotonic)

    async def watch() -> None:
        while True:
            await calls.watch_deadlines()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        with anyio.fail_after(10):
            yield calls, machine
        group.cancel_scope.cancel()


class Condition:
    """A condition of a waiting call: when it was asked first, and whether it holds."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.holds = False

    def __call__(self) -> bool:
        self.asked.set()
        return self.holds


async def test_a_call_ends_when_its_condition_holds() -> None:
    async with watched() as (calls, _), anyio.create_task_group() as group:
        condition = Condition()
        group.start_soon(calls.wait_until, condition, time.monotonic() + 10, "not ended")
        await condition.asked.wait()
        assert calls.any_waiting
        condition.holds = True
        calls.state_changed.set()
    assert not calls.any_waiting


async def test_a_call_with_an_earlier_deadline_than_the_others_ends_at_it() -> None:
    async with watched() as (calls, machine), anyio.create_task_group() as group:
        slow = Condition()
        group.start_soon(calls.wait_until, slow, time.monotonic() + 100, "slow")
        await slow.asked.wait()
        machine.last_error = KafkaError("not ready")
        with pytest.raises(RequestTimedOut, match="timed out waiting: quick; last error: not"):
            await calls.wait_until(Condition(), time.monotonic() + 0.02, "quick")
        assert calls.any_waiting
        group.cancel_scope.cancel()
    assert not calls.any_waiting


async def test_a_condition_that_holds_needs_no_wait() -> None:
    async with watched() as (calls, _):
        await calls.wait_until(lambda: True, 0.0, "never")
