from __future__ import annotations

import asyncio
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.runtime import NEVER, Alarm, Promise, Signal, copy_of, wait_until
from aiokafkawire.runtime.host import on_trio


async def test_a_signal_set_before_the_wait_is_kept_once():
    signal = Signal()
    signal.set()
    signal.set()
    assert await signal.wait()
    assert not await signal.wait(anyio.current_time() + 0.01)


async def test_a_signal_wakes_all_who_wait():
    signal = Signal()
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await signal.wait(anyio.current_time() + 20))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        signal.set()
    assert woken == [True, True]


async def test_an_alarm_goes_when_it_is_moved_to_now():
    alarm = Alarm()
    alarm.move(5.0)  # nobody waits
    assert alarm.at == -NEVER
    async with anyio.create_task_group() as group:
        group.start_soon(alarm.wait, NEVER)
        await anyio.wait_all_tasks_blocked()
        assert alarm.at == NEVER
        with anyio.fail_after(5):
            alarm.move(-NEVER)
            # Once moved to now it goes, wherever it is moved to after that.
            alarm.move(NEVER)
            while alarm.at == NEVER:
                await anyio.lowlevel.checkpoint()
    assert alarm.at == -NEVER


async def test_what_an_alarm_rings_may_let_its_task_sleep_on():
    rung: list[float] = []

    def ring() -> None:
        rung.append(anyio.current_time())
        if len(rung) < 3:
            alarm.move(rung[-1] + 0.01)

    alarm = Alarm(ring)
    began = anyio.current_time()
    await alarm.wait(began + 0.01)
    if on_trio():
        assert rung == []
        return
    assert len(rung) == 3
    assert all(later >= earlier + 0.01 for earlier, later in pairwise([began, *rung]))
    assert alarm.at == -NEVER


async def test_an_alarm_rings_before_its_task_wakes_whenever_the_time_comes():
    """Also between two looks at the clock, the first of which was too early."""
    times = iter((0.9, 1.1, 1.2))
    told: list[str] = []

    class Clock:
        def time(self) -> float:
            return next(times)

        def call_at(self, at: float, callback: object, *_: object) -> None:
            told.append(f"a timer for {at}")

    class Waiting:
        def done(self) -> bool:
            return False

        def get_loop(self) -> Clock:
            return Clock()

        def set_result(self, _: bool) -> None:
            told.append("woken")

    alarm = Alarm(lambda: told.append("rung"))
    alarm.at = 1.0
    future: Any = Waiting()
    alarm._came(future)
    alarm._came(future)
    assert told == ["a timer for 1.0", "rung", "woken"]


async def test_what_an_alarm_rings_may_raise_where_its_task_waits():
    def ring() -> None:
        raise ArithmeticError("a defect")

    alarm = Alarm(ring)
    deadline = anyio.current_time() + 0.01
    if on_trio():
        await alarm.wait(deadline)
        return
    with pytest.raises(ArithmeticError):
        await alarm.wait(deadline)
    assert alarm.at == -NEVER


async def test_an_alarm_goes_at_the_time_to_which_it_is_moved():
    alarm = Alarm()
    async with anyio.create_task_group() as group:
        group.start_soon(alarm.wait, anyio.current_time() + 3_600)
        await anyio.wait_all_tasks_blocked()
        alarm.move(NEVER)
        assert alarm.at == NEVER
        goes_at = anyio.current_time() + 0.03
        alarm.move(goes_at)
    # uvloop counts whole milliseconds.
    assert goes_at - 0.002 < anyio.current_time() < goes_at + 60


async def test_a_promise_gives_its_value_to_all():
    promise: Promise[int] = Promise()
    got: list[int] = []

    async def wait() -> None:
        got.append(await promise.wait())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        promise.resolve(3)
        promise.resolve(4)
        promise.fail(ValueError())
    assert got == [3, 3]
    assert await promise.wait() == 3
    assert promise.result() == 3


async def test_a_promise_is_waited_for_inside_of_what_is_awaited():
    promise: Promise[int] = Promise()
    got: list[int] = []

    class Waiting:
        def __await__(self) -> Generator[Any, Any, int]:
            place = promise.place()
            try:
                yield from place.__await__()
            except BaseException:
                promise.leave(place)
                raise
            return promise.result()

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
        promise.resolve(3)
    assert got == [3, 3]


async def test_who_left_word_is_called_back_where_the_outcome_is_told():
    heard: list[object] = []
    promise: Promise[int] = Promise()
    promise.when_done(lambda told: heard.append(told.result()))
    assert heard == []
    promise.resolve(3)
    promise.resolve(4)
    assert heard == [3]
    promise.when_done(lambda told: heard.append(told.error))
    assert heard == [3, None]


async def test_each_waiter_raises_an_error_of_its_own():
    promise: Promise[int] = Promise()
    error = KafkaError("broken", broker="1 (localhost:9092)")
    error.__cause__ = ConnectionResetError("reset by peer")
    promise.fail(error)
    errors = []
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            await promise.wait()
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1]) == "broken (broker 1 (localhost:9092))"
    assert errors[0].__cause__ is errors[1].__cause__ is error.__cause__


async def test_a_promise_times_out_at_its_deadline_and_may_still_come():
    promise: Promise[int] = Promise()
    with pytest.raises(TimeoutError):
        await promise.wait(anyio.current_time() + 0.01)
    promise.resolve(1)
    assert await promise.wait(anyio.current_time() - 1) == 1


async def test_wait_until_prefers_the_event_to_the_deadline():
    event = anyio.Event()
    assert not await wait_until(event, anyio.current_time())
    event.set()
    assert await wait_until(event, anyio.current_time() - 1)


def test_a_request_timeout_is_a_timeout():
    assert issubclass(RequestTimedOut, TimeoutError)


def test_an_error_for_one_more_caller_is_a_copy_with_its_context_and_cause():
    error = KafkaError("reason", topic="t")
    error.__cause__ = ValueError("why")
    copied = copy_of(error)
    assert copied is not error
    assert (copied.topic, copied.__cause__) == ("t", error.__cause__)


def test_an_outcome_that_comes_with_the_deadline_is_not_lost():
    async def main() -> int:
        loop = asyncio.get_running_loop()
        promise: Promise[int] = Promise()
        deadline = loop.time() + 0.01
        waiter = asyncio.ensure_future(promise.wait(deadline))
        await asyncio.sleep(0)
        loop.call_at(deadline, promise.resolve, 5)
        return await waiter

    assert asyncio.run(main()) == 5


def test_a_signal_that_comes_with_the_deadline_is_not_missed():
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        signal = Signal()
        deadline = loop.time() + 0.01
        waiter = asyncio.ensure_future(signal.wait(deadline))
        await asyncio.sleep(0)
        loop.call_at(deadline, signal.set)
        return await waiter

    assert asyncio.run(main())


@pytest.mark.parametrize("waits_by", [Signal, Alarm])
def test_nobody_is_told_of_a_deadline_before_it_comes(waits_by: type[Signal | Alarm]):
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop._clock_resolution = 0.2  # it rings so much too early
        deadline = loop.time() + 0.05
        loop.call_soon(int)  # else it sleeps until then
        await waits_by().wait(deadline)
        assert loop.time() >= deadline

    asyncio.run(main())


def test_a_waiter_whose_event_loop_is_closed_does_not_stop_an_outcome() -> None:
    first: Promise[int] = Promise()
    done: list[Promise[int]] = []
    first.when_done(done.append)
    loop = asyncio.new_event_loop()
    task = loop.create_task(first.wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    first.resolve(7)
    assert first.result() == 7
    assert done == [first]
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
