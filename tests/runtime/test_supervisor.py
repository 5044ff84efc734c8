from __future__ import annotations

import asyncio
import gc
import logging
import signal
import warnings
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.runtime import (
    Supervisor,
    TaskHandle,
    current_task,
    is_being_cancelled,
    is_failure_of_callback,
)
from aiokafkawire.runtime.supervisor import CANCEL_GRACE_S

WITHIN_S = 5.0


async def wait_forever() -> None:
    await anyio.sleep_forever()


async def test_tasks_run_and_end_with_the_supervisor():
    supervisor = Supervisor("client")
    await supervisor.start()
    began = anyio.Event()
    ended = anyio.Event()

    async def work(number: int) -> None:
        assert number == 7
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    handle = supervisor.spawn(work, 7, name="work")
    await began.wait()
    assert supervisor.is_running
    assert not handle.done
    await supervisor.stop()
    assert ended.is_set()
    assert handle.done
    assert handle.error is None
    assert not supervisor.is_running


async def test_tasks_are_cancelled_in_the_order_of_spawning(monkeypatch: pytest.MonkeyPatch):
    supervisor = Supervisor("client")
    await supervisor.start()
    began: list[anyio.Event] = [anyio.Event() for _ in range(20)]
    ended: list[int] = []

    async def work(number: int) -> None:
        began[number].set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(number)

    for number in range(20):
        supervisor.spawn(work, number, name=f"work {number}")
    for event in began:
        await event.wait()
    cancelled: list[str] = []
    real_cancel = TaskHandle.cancel

    def cancel(handle: TaskHandle) -> None:
        cancelled.append(handle.name)
        real_cancel(handle)

    monkeypatch.setattr(TaskHandle, "cancel", cancel)
    await supervisor.stop()
    assert list(dict.fromkeys(cancelled)) == [f"work {number}" for number in range(20)]
    assert sorted(ended) == list(range(20))


async def test_one_task_may_be_cancelled_alone():
    supervisor = Supervisor("client")
    await supervisor.start()
    one = supervisor.spawn(wait_forever, name="one")
    other = supervisor.spawn(wait_forever, name="other")
    one.cancel()
    await one.wait()
    assert not other.done
    await supervisor.stop()
    assert other.done


async def test_a_failed_task_is_reported_and_the_others_continue():
    crashes: list[tuple[str, str]] = []
    reported = anyio.Event()

    def on_crash(handle: TaskHandle, error: Exception) -> None:
        crashes.append((handle.name, str(error)))
        reported.set()

    async def fail() -> None:
        raise ValueError("a defect")

    supervisor = Supervisor("client", on_crash)
    await supervisor.start()
    other = supervisor.spawn(wait_forever, name="other")
    supervisor.spawn(fail, name="broken")
    await reported.wait()
    assert crashes == [("broken", "a defect")]
    assert not other.done
    await supervisor.stop()


async def test_a_failed_task_without_a_callback_is_logged(caplog: pytest.LogCaptureFixture):
    async def fail() -> None:
        raise ValueError("a defect")

    supervisor = Supervisor("client")
    await supervisor.start()
    handle = supervisor.spawn(fail, name="broken")
    with caplog.at_level(logging.ERROR):
        await handle.wait()
        await supervisor.stop()
    assert "task broken failed" in caplog.text
    assert isinstance(handle.error, ValueError)


async def test_nothing_is_spawned_before_start_or_after_stop():
    supervisor = Supervisor("client")
    with pytest.raises(RuntimeError, match="is not running"):
        supervisor.spawn(wait_forever, name="early")
    await supervisor.start()
    await supervisor.stop()
    with pytest.raises(RuntimeError, match="is not running"):
        supervisor.spawn(wait_forever, name="late")


async def test_stop_without_start_and_twice():
    supervisor = Supervisor("client")
    await supervisor.stop()
    supervisor = Supervisor("client")
    await supervisor.start()
    await supervisor.stop()
    await supervisor.stop()
    assert not supervisor.is_running


async def test_a_task_that_does_not_end_does_not_block_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("aiokafkawire.runtime.supervisor.CANCEL_GRACE_S", 0.05)
    release = anyio.Event()
    began = anyio.Event()

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            began.set()
            await release.wait()

    supervisor = Supervisor("client")
    await supervisor.start()
    handle = supervisor.spawn(stubborn, name="stubborn")
    await began.wait()
    with caplog.at_level(logging.WARNING):
        await supervisor.stop()
    assert "s after cancellation: stubborn" in caplog.text
    release.set()
    await handle.wait()


async def test_the_callers_cancellation_does_not_reach_the_tasks():
    supervisor = Supervisor("client")
    with anyio.CancelScope() as scope:
        await supervisor.start()
        handle = supervisor.spawn(wait_forever, name="work")
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
    assert scope.cancelled_caught
    assert not handle.done
    await supervisor.stop()
    assert handle.done


async def test_current_task_identifies_the_task() -> None:
    tasks = []

    async def note() -> None:
        tasks.append(current_task())

    async with anyio.create_task_group() as group:
        group.start_soon(note)
        group.start_soon(note)
    await note()
    assert tasks[2] is current_task()
    assert len({id(task) for task in tasks}) == 3


def test_a_supervisor_that_never_ran_blocks_no_caller() -> None:
    ended: list[bool] = []

    async def use() -> None:
        supervisor = Supervisor("unborn")
        try:
            await supervisor.start()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_GRACE_S / 2) as scope:
                await supervisor.stop()
            ended.append(not scope.cancelled_caught)

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(use())
        await anyio.lowlevel.checkpoint()
        task.cancel()
        for other in asyncio.all_tasks() - {asyncio.current_task(), task}:
            other.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert ended == [True]


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_task_that_is_cancelled_before_its_first_step_ends(uvloop: bool) -> None:
    """As by `asyncio.run`, when the main task raises right behind the start of a client."""
    handles: list[TaskHandle] = []
    supervisor = Supervisor("brief")

    async def main() -> None:
        await supervisor.start()
        handles.append(supervisor.spawn(wait_forever, name="unstarted"))
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        anyio.run(main, backend_options={"use_uvloop": uvloop})
        assert handles[0].done
        assert not supervisor.is_running
        handles.clear()
        gc.collect()
    assert not caught


async def test_on_stopping_is_called_when_the_tasks_begin_to_end():
    supervisor = Supervisor("reported")
    await supervisor.start()
    reported: list[bool] = []
    supervisor.on_stopping = lambda: reported.append(supervisor.is_running)
    supervisor.spawn(anyio.sleep_forever, name="work")
    await supervisor.stop()
    assert reported == [False]


async def test_is_being_cancelled_ignores_cancellations_of_other_tasks():
    reported: list[bool] = []
    stopped = anyio.get_cancelled_exc_class()

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        except stopped:
            reported.append(is_being_cancelled())
            raise

    with anyio.CancelScope() as scope:
        scope.cancel()
        await wait()
    assert reported == [True]
    if stopped is asyncio.CancelledError:
        try:
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            assert not is_being_cancelled()


# --- Ctrl-C on trio ------------------------------------------------------------------------------


def on_trio_until_interrupted(work: Callable[[], Awaitable[None]]) -> Supervisor:
    """Run `work` in a host, and let the main task wait for Ctrl-C; the host as it was then."""
    supervisor = Supervisor("interrupted")

    async def main() -> None:
        await supervisor.start()
        supervisor.spawn(anyio.sleep_forever, name="other")
        supervisor.spawn(work, name="work")
        with anyio.fail_after(WITHIN_S):
            try:
                await anyio.sleep_forever()
            finally:
                assert supervisor.is_running
                with anyio.CancelScope(shield=True):
                    await supervisor.stop()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(main, backend="trio")
    return supervisor


def test_an_interrupt_while_a_task_runs_goes_to_the_main_task() -> None:
    went_on: list[bool] = []

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(True)

    on_trio_until_interrupted(work)
    assert went_on == [True]


def test_an_interrupt_in_a_task_of_a_task_goes_to_the_main_task() -> None:
    async def child() -> None:
        signal.raise_signal(signal.SIGINT)

    async def work() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            group.start_soon(anyio.sleep_forever)

    assert not on_trio_until_interrupted(work).is_running


@pytest.mark.parametrize(
    ("error", "is_failure"),
    [
        (ValueError(), True),
        (BaseException(), True),
        (ExceptionGroup("several", [ValueError()]), True),
        (KeyboardInterrupt(), False),
        (SystemExit(), False),
        (GeneratorExit(), False),
        (BaseExceptionGroup("several", [ValueError(), SystemExit()]), False),
    ],
)
async def test_which_exceptions_of_an_application_are_failures_of_it(
    error: BaseException, is_failure: bool
) -> None:
    assert is_failure_of_callback(error) is is_failure


async def test_a_cancellation_of_the_running_task_is_no_failure() -> None:
    found: list[bool] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as error:
            found.append(is_failure_of_callback(error))
            raise
    assert found == [False]
