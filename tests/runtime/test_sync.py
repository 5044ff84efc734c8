from __future__ import annotations

import asyncio
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire import runtime
from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.runtime.supervisor import running_on_trio


async def test_a_set_before_the_wait_is_kept_once():
    signal = runtime.AutoResetEvent()
    signal.set()
    signal.set()
    assert await signal.wait()
    assert not await signal.wait(anyio.current_time() + 0.01)


async def test_set_wakes_all_waiting_tasks():
    signal = runtime.AutoResetEvent()
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await signal.wait(anyio.current_time() + 20))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        signal.set()
    assert woken == [True, True]


async def test_a_timer_fires_when_rescheduled_to_now():
    timer = runtime.Timer()
    timer.reschedule(5.0)  # nobody waits
    assert timer.deadline == runtime.AT_ONCE
    async with anyio.create_task_group() as group:
        group.start_soon(timer.wait, runtime.NEVER)
        await anyio.wait_all_tasks_blocked()
        assert timer.deadline == runtime.NEVER
        with anyio.fail_after(5):
            timer.reschedule(runtime.AT_ONCE)
            # Once moved to now it goes, wherever it is moved to after that.
            timer.reschedule(runtime.NEVER)
            while timer.deadline == runtime.NEVER:
                await anyio.lowlevel.checkpoint()
    assert timer.deadline == runtime.AT_ONCE


async def test_the_callback_of_a_timer_may_reschedule_it():
    rung: list[float] = []

    def ring() -> None:
        rung.append(anyio.current_time())
        if len(rung) < 3:
            timer.reschedule(rung[-1] + 0.01)

    timer = runtime.Timer(ring)
    began = anyio.current_time()
    await timer.wait(began + 0.01)
    if running_on_trio():
        assert rung == []
        return
    assert len(rung) == 3
    assert all(later >= earlier + 0.01 for earlier, later in pairwise([began, *rung]))
    assert timer.deadline == runtime.AT_ONCE


async def test_the_callback_of_a_timer_runs_before_its_task_wakes():
    """Also if the timer fires early and re-arms."""
    times = iter((0.9, 1.1, 1.2))
    events: list[str] = []

    class Clock:
        def time(self) -> float:
            return next(times)

        def call_at(self, at: float, callback: object, *_: object) -> None:
            events.append(f"a timer for {at}")

    class Waiting:
        def done(self) -> bool:
            return False

        def get_loop(self) -> Clock:
            return Clock()

        def set_result(self, _: bool) -> None:
            events.append("woken")

    timer = runtime.Timer(lambda: events.append("rung"))
    timer.deadline = 1.0
    future: Any = Waiting()
    timer._on_timer(future)
    timer._on_timer(future)
    assert events == ["a timer for 1.0", "rung", "woken"]


async def test_an_exception_of_the_callback_is_raised_in_the_waiting_task():
    def ring() -> None:
        raise ArithmeticError("a defect")

    timer = runtime.Timer(ring)
    deadline = anyio.current_time() + 0.01
    if running_on_trio():
        await timer.wait(deadline)
        return
    with pytest.raises(ArithmeticError):
        await timer.wait(deadline)
    assert timer.deadline == runtime.AT_ONCE


async def test_a_timer_fires_at_its_new_deadline():
    timer = runtime.Timer()
    async with anyio.create_task_group() as group:
        group.start_soon(timer.wait, anyio.current_time() + 3_600)
        await anyio.wait_all_tasks_blocked()
        timer.reschedule(runtime.NEVER)
        assert timer.deadline == runtime.NEVER
        goes_at = anyio.current_time() + 0.03
        timer.reschedule(goes_at)
    # uvloop counts whole milliseconds.
    assert goes_at - 0.002 < anyio.current_time() < goes_at + 60


async def test_a_future_passes_its_result_to_all_waiters():
    future: runtime.Future[int] = runtime.Future()
    got: list[int] = []

    async def wait() -> None:
        got.append(await future.wait())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        future.set_result(3)
        future.set_result(4)
        future.set_exception(ValueError())
    assert got == [3, 3]
    assert await future.wait() == 3
    assert future.result() == 3


async def test_new_waiter_can_be_awaited_in_a_custom_await():
    future: runtime.Future[int] = runtime.Future()
    got: list[int] = []

    class Waiting:
        def __await__(self) -> Generator[Any, Any, int]:
            place = future.new_waiter()
            try:
                yield from place.__await__()
            except BaseException:
                future.discard(place)
                raise
            return future.result()

    async def wait() -> None:
        got.append(await Waiting())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        gone = anyio.CancelScope()
        with gone:
            gone.cancel()
            await Waiting()
        assert gone.cancelled_caught
        assert got == []
        future.set_result(3)
    assert got == [3, 3]


async def test_the_done_callback_runs_inside_set_result():
    results: list[object] = []
    future: runtime.Future[int] = runtime.Future()
    future.set_done_callback(lambda done: results.append(done.result()))
    assert results == []
    future.set_result(3)
    future.set_result(4)
    assert results == [3]
    future.set_done_callback(lambda done: results.append(done.error))
    assert results == [3, None]


async def test_each_waiter_raises_a_copy_of_the_error():
    future: runtime.Future[int] = runtime.Future()
    error = KafkaError("broken", broker="1 (localhost:9092)")
    error.__cause__ = ConnectionResetError("reset by peer")
    future.set_exception(error)
    errors = []
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            await future.wait()
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1]) == "broken (broker 1 (localhost:9092))"
    assert errors[0].__cause__ is errors[1].__cause__ is error.__cause__


async def test_a_future_may_be_resolved_after_a_timed_out_wait():
    future: runtime.Future[int] = runtime.Future()
    with pytest.raises(TimeoutError):
        await future.wait(anyio.current_time() + 0.01)
    future.set_result(1)
    assert await future.wait(anyio.current_time() - 1) == 1


async def test_wait_until_prefers_the_event_to_the_deadline():
    event = anyio.Event()
    assert not await runtime.wait_until(event, anyio.current_time())
    event.set()
    assert await runtime.wait_until(event, anyio.current_time() - 1)


def test_a_request_timeout_is_a_timeout():
    assert issubclass(RequestTimedOut, TimeoutError)


def test_copy_error_keeps_context_and_cause():
    error = KafkaError("reason", topic="t")
    error.__cause__ = ValueError("why")
    copied = runtime.copy_error(error)
    assert copied is not error
    assert (copied.topic, copied.__cause__) == ("t", error.__cause__)


def test_a_result_at_the_deadline_is_not_lost():
    async def main() -> int:
        loop = asyncio.get_running_loop()
        future: runtime.Future[int] = runtime.Future()
        deadline = loop.time() + 0.01
        waiter = asyncio.ensure_future(future.wait(deadline))
        await asyncio.sleep(0)
        loop.call_at(deadline, future.set_result, 5)
        return await waiter

    assert asyncio.run(main()) == 5


def test_a_set_at_the_deadline_is_not_missed():
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        signal = runtime.AutoResetEvent()
        deadline = loop.time() + 0.01
        waiter = asyncio.ensure_future(signal.wait(deadline))
        await asyncio.sleep(0)
        loop.call_at(deadline, signal.set)
        return await waiter

    assert asyncio.run(main())


def test_a_notification_at_the_deadline_is_not_missed():
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        waiters = runtime.Waiters()
        deadline = loop.time() + 0.01
        waiter = asyncio.ensure_future(waiters.wait_notified(deadline))
        await asyncio.sleep(0)
        loop.call_at(deadline, waiters.notify_all)
        return await waiter

    assert asyncio.run(main())


@pytest.mark.parametrize("waits_by", [runtime.AutoResetEvent, runtime.Timer])
def test_no_wait_ends_before_its_deadline(waits_by: type[runtime.AutoResetEvent | runtime.Timer]):
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop._clock_resolution = 0.2  # it rings so much too early
        deadline = loop.time() + 0.05
        loop.call_soon(int)  # else it sleeps until then
        await waits_by().wait(deadline)
        assert loop.time() >= deadline

    asyncio.run(main())


def test_a_waiter_of_a_closed_event_loop_does_not_block_set_result() -> None:
    first: runtime.Future[int] = runtime.Future()
    done: list[runtime.Future[int]] = []
    first.set_done_callback(done.append)
    loop = asyncio.new_event_loop()
    task = loop.create_task(first.wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    first.set_result(7)
    assert first.result() == 7
    assert done == [first]
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
