from __future__ import annotations

import logging

import anyio
import pytest

from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.notifier import Notifier
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import Fetching
from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.runtime import RealRuntime, Supervisor

from .record_data import P0, P1


def notifier() -> Notifier:
    return Notifier(RealRuntime().clock, Supervisor("test"))


async def test_notify_all_wakes_all_waiting_tasks() -> None:
    it = notifier()
    assert not await it.wait(0.0)
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await it.wait(float("inf")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        it.notify_all()
    assert woken == [True, True]


async def test_changed_partitions_are_taken_once() -> None:
    it = notifier()
    first, second = (AssignedPartition(tp, "none", Fetching(FetchBuffer(0))) for tp in (P0, P1))
    it.positions_changed([first, second])
    it.to_fetch.add([first])
    assert it.to_fetch.take() == [first, second]
    assert it.to_fetch.take() == it.to_resolve.take() == []
    it.to_fetch.check_all = it.to_resolve.check_all = False
    it.state_changed()
    assert it.to_fetch.check_all
    assert it.to_resolve.check_all


async def test_an_error_is_raised_once_and_further_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = notifier()
    it.raise_in_next_call(LookupError("first"))
    with caplog.at_level(logging.WARNING):
        it.raise_in_next_call(LookupError("second"))
    assert str(it.take_error()) == "first"
    assert it.take_error() is None
    assert "second" in caplog.text


async def test_an_outage_and_its_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    it = notifier()
    it.outage.record(RequestTimedOut("silent"), RealRuntime().clock.now() - 61)
    with caplog.at_level(logging.INFO):
        it.request_finished(RequestTimedOut("silent"))
        it.request_finished(None)
    assert "test: no broker was reachable" in caplog.text
    assert "test: brokers respond again after" in caplog.text
