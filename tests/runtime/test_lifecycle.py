"""A client is entered and left as the caller likes: another task, any order, own exceptions."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from aiokafkawire.config import ClientConfig, make_config
from aiokafkawire.errors import ClientClosed, KafkaError, WrongEventLoop
from aiokafkawire.runtime import (
    NEVER,
    Address,
    Future,
    Lifecycle,
    RealRuntime,
    Session,
    Supervisor,
    Transport,
    checkpoint,
    client_label,
    lifecycle,
)
from aiokafkawire.runtime.client_state import ClientState
from tests.elapsed import ends_within

WITHIN_S = 3.0


class RecordingSession(Session):
    """Records its notifications."""

    def __init__(self) -> None:
        self.failures: list[KafkaError] = []
        self.losses: list[ClientClosed] = []
        self.on_loss: Callable[[], None] = lambda: None

    def on_task_failed(self, failure: KafkaError) -> None:
        self.failures.append(failure)

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        self.losses.append(error)
        self.on_loss()


class Client:
    """The least client there can be: one task, and a function that closes it."""

    def __init__(self, close_session: Callable[[], Awaitable[None]] | None = None) -> None:
        self.life: Lifecycle[Session] = Lifecycle("client")
        self.close_timeout_s = 5.0
        self.closed_gracefully = False
        self.session = RecordingSession()
        self._close_session = close_session

    async def __aenter__(self) -> Client:
        await self.life.start(self, self._start)
        return self

    async def __aexit__(self, *_: object) -> None:
        deadline = self.clock.now() + self.close_timeout_s
        await self.life.stop(self._leave, deadline)

    async def _start(self, supervisor: Supervisor) -> Session:
        self.clock = RealRuntime().clock
        self.task = supervisor.spawn(anyio.sleep_forever, name="work")
        return self.session

    async def _leave(self, session: Session) -> None:
        assert session is self.session
        if self._close_session is not None:
            await self._close_session()
        self.closed_gracefully = True


async def test_a_client_may_be_closed_in_another_task():
    client = Client()
    entered = anyio.Event()
    left = anyio.Event()

    async def enter() -> None:
        await client.__aenter__()
        entered.set()

    async def leave() -> None:
        await entered.wait()
        await client.__aexit__(None, None, None)
        left.set()

    async with anyio.create_task_group() as group:
        group.start_soon(leave)
        group.start_soon(enter)
    assert left.is_set()
    assert client.task.done
    assert client.closed_gracefully


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_clients_close_in_any_order(order: tuple[int, int]):
    clients = [Client(), Client()]
    for client in clients:
        await client.__aenter__()
    for number in order:
        await clients[number].__aexit__(None, None, None)
        assert clients[number].task.done
    assert all(client.closed_gracefully for client in clients)


class OwnError(Exception):
    pass


async def close_nothing(_: Session) -> None:
    await checkpoint()


async def test_the_bodys_exception_is_not_wrapped():
    error = OwnError("mine")
    with pytest.raises(OwnError) as caught:
        async with Client() as client:
            raise error
    assert caught.value is error
    assert client.task.done


async def test_a_cancellation_of_the_body_continues_after_closing():
    client = Client(close_session=anyio.lowlevel.checkpoint)
    with anyio.CancelScope() as scope:
        async with client:
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert client.closed_gracefully
    assert client.task.done


async def test_closing_is_cancelled_at_the_deadline():
    client = Client(close_session=anyio.sleep_forever)
    client.close_timeout_s = 0.05
    async with client:
        pass
    assert not client.closed_gracefully
    assert client.task.done


async def test_a_failing_start_leaves_nothing_behind():
    life: Lifecycle[Session] = Lifecycle("client")
    tasks: list[Any] = []

    async def start(supervisor: Supervisor) -> Session:
        tasks.append(supervisor.spawn(anyio.sleep_forever, name="work"))
        if len(tasks) == 1:
            raise OwnError("no broker")
        return RecordingSession()

    with pytest.raises(OwnError):
        await life.start(life, start)
    assert tasks[0].done
    with pytest.raises(ClientClosed, match="not started yet"):
        life.require_session()
    await life.start(life, start)
    life.require_session()
    assert not tasks[1].done
    await life.stop(close_nothing, NEVER)


async def test_a_cancelled_start_leaves_nothing_behind():
    life: Lifecycle[Session] = Lifecycle("client")
    tasks: list[Any] = []
    begun = anyio.Event()

    async def start(supervisor: Supervisor) -> Session:
        tasks.append(supervisor.spawn(anyio.sleep_forever, name="work"))
        begun.set()
        await anyio.sleep_forever()
        return RecordingSession()

    async with anyio.create_task_group() as group:
        group.start_soon(life.start, life, start)
        await begun.wait()
        group.cancel_scope.cancel()
    assert tasks[0].done
    assert life.state is ClientState.NEW


async def test_use_outside_of_the_block_is_reported():
    client = Client()
    with pytest.raises(ClientClosed, match="not started yet: use it inside 'async with'"):
        client.life.require_session()
    async with client:
        assert client.life.require_session() is client.session
        with pytest.raises(ClientClosed, match="running already"):
            await client.__aenter__()
    with pytest.raises(ClientClosed, match="closed: create a new one"):
        client.life.require_session()
    with pytest.raises(ClientClosed, match="closed: create a new one"):
        await client.__aenter__()


async def test_a_second_stop_waits_for_the_first():
    release = anyio.Event()
    client = Client(close_session=release.wait)
    await client.__aenter__()
    order: list[str] = []

    async def leave(name: str) -> None:
        await client.__aexit__(None, None, None)
        order.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(leave, "first")
        group.start_soon(leave, "second")
        await anyio.wait_all_tasks_blocked()
        assert order == []
        release.set()
    assert sorted(order) == ["first", "second"]
    assert client.task.done


async def test_abort_ends_the_tasks_without_closing_the_session():
    client = Client()
    await client.__aenter__()
    client.life.abort()
    await client.task.wait()
    await client.__aexit__(None, None, None)
    assert not client.closed_gracefully


async def test_an_unresponsive_peer_does_not_block_closing():
    """The peer accepts and never answers; closing waits for it, up to the deadline."""
    runtime = RealRuntime()
    listener = await runtime.listen(Address("127.0.0.1", 0))
    transport: Transport = await runtime.connect(listener.address)
    silent = await listener.accept()

    async def wait_for_an_answer() -> None:
        await transport.receive_into(memoryview(bytearray(10)))

    client = Client(close_session=wait_for_an_answer)
    client.close_timeout_s = 0.05
    async with client:
        pass
    assert client.task.done
    assert not client.closed_gracefully
    await transport.aclose()
    await silent.aclose()
    await listener.aclose()


def test_closing_does_not_block_the_end_of_the_loop() -> None:
    """asyncio.run cancels all tasks at once: those that would do closing, too."""
    client = Client(close_session=anyio.sleep_forever)
    client.close_timeout_s = WITHIN_S
    tasks: list[asyncio.Task[None]] = []

    async def use(entered: asyncio.Event) -> None:
        async with client:
            entered.set()
            await anyio.sleep_forever()

    async def main() -> None:
        entered = asyncio.Event()
        tasks.append(asyncio.get_running_loop().create_task(use(entered)))
        await entered.wait()
        await anyio.wait_all_tasks_blocked()

    with ends_within(WITHIN_S):
        asyncio.run(main())
    assert client.life.state is ClientState.CLOSED


def test_closing_ends_with_the_tasks() -> None:
    client = Client(close_session=anyio.sleep_forever)
    client.close_timeout_s = WITHIN_S

    async def main() -> None:
        await client.__aenter__()
        leaving = asyncio.get_running_loop().create_task(client.__aexit__())
        await anyio.wait_all_tasks_blocked()
        assert client.life.state is ClientState.CLOSING
        for task in asyncio.all_tasks() - {asyncio.current_task(), leaving}:
            task.cancel()
        await leaving

    with ends_within(WITHIN_S):
        asyncio.run(main())
    assert not client.closed_gracefully


def test_the_session_is_notified_when_its_tasks_are_cancelled() -> None:
    client = Client()

    async def main() -> None:
        await client.__aenter__()
        await anyio.wait_all_tasks_blocked()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        assert len(client.session.losses) == 1
        with pytest.raises(ClientClosed, match="tasks were cancelled by the application"):
            client.life.require_session()
        await client.__aexit__()

    asyncio.run(main())
    assert len(client.session.losses) == 1
    assert not client.closed_gracefully


async def test_stop_does_not_notify_the_session_of_a_cancellation():
    async with Client() as client:
        pass
    assert not client.session.losses


async def test_a_client_that_was_never_started_can_be_closed():
    client = Client()
    await client.life.stop(client._leave, NEVER)
    with pytest.raises(ClientClosed, match="closed"):
        await client.__aenter__()
    assert not client.closed_gracefully


async def test_stop_ends_a_running_start():
    life: Lifecycle[Session] = Lifecycle("client")
    begun = anyio.Event()
    errors: list[str] = []

    async def start(supervisor: Supervisor) -> Session:
        begun.set()
        await anyio.sleep_forever()
        return RecordingSession()

    async def enter() -> None:
        try:
            await life.start(life, start)
        except ClientClosed as error:
            errors.append(str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(enter)
        await begun.wait()
        await life.stop(close_nothing, NEVER)
    assert errors == ["the client was stopped while it was starting"]
    assert life.state is ClientState.CLOSED


async def test_stop_ends_a_start_that_is_about_to_start_a_task():
    life: Lifecycle[Session] = Lifecycle("client")
    begun = anyio.Event()
    connected: Future[None] = Future()
    errors: list[str] = []

    async def start(supervisor: Supervisor) -> Session:
        begun.set()
        await connected.wait()
        supervisor.spawn(anyio.sleep_forever, name="work")
        return RecordingSession()

    async def enter() -> None:
        try:
            await life.start(life, start)
        except ClientClosed as error:
            errors.append(str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(enter)
        await begun.wait()
        await anyio.wait_all_tasks_blocked()
        connected.set_result(None)
        await life.stop(close_nothing, NEVER)
    assert errors == ["the client was stopped while it was starting"]
    assert life.state is ClientState.CLOSED


# --- defects -------------------------------------------------------------------------------------


async def fail() -> None:
    raise OwnError("a defect")


async def test_a_failed_task_breaks_the_client(caplog: pytest.LogCaptureFixture):
    client = Client()
    async with client:
        task = client.life.supervisor.spawn(fail, name="odd")
        await task.wait()
        await anyio.wait_all_tasks_blocked()
        assert [str(failure) for failure in client.session.failures] == [
            "the client is broken: its task 'odd' failed: OwnError('a defect')"
        ]
        assert client.life.state is ClientState.FAILED
    failure = client.life.take_unreported_failure()
    assert failure is not None
    assert isinstance(failure.__cause__, OwnError)
    assert client.life.take_unreported_failure() is None
    assert client.closed_gracefully
    assert "task odd failed" in caplog.text


async def test_a_task_may_fail_because_the_client_is_closing(caplog: pytest.LogCaptureFixture):
    async def cut_off() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException:
            raise ClientClosed("the client is closed") from None

    client = Client()
    async with client:
        client.life.supervisor.spawn(cut_off, name="late")
        await anyio.wait_all_tasks_blocked()
    assert client.life.take_unreported_failure() is None
    assert "failed" not in caplog.text


async def test_a_client_closed_error_of_a_task_breaks_a_running_client():
    async def cut_off() -> None:
        raise ClientClosed("the client is closed")

    client = Client()
    async with client:
        await client.life.supervisor.spawn(cut_off, name="odd").wait()
        await anyio.wait_all_tasks_blocked()
        assert client.life.state is ClientState.FAILED
    assert client.life.take_unreported_failure() is not None


async def test_stop_raises_the_first_failure_and_not_that_of_closing(
    caplog: pytest.LogCaptureFixture,
):
    async def close_session() -> None:
        raise LookupError("the close's")

    async def fail() -> None:
        raise LookupError("the first")

    client = Client(close_session)
    with caplog.at_level("CRITICAL"):
        async with client:
            await client.life.supervisor.spawn(fail, name="odd").wait()
    unreported = client.life.take_unreported_failure()
    assert unreported is not None
    assert "the first" in str(unreported)
    with pytest.raises(LookupError, match="the close's"):
        async with Client(close_session):
            pass


async def test_a_failure_that_a_call_raised_counts_as_reported():
    client = Client()
    async with client:
        await client.life.supervisor.spawn(fail, name="odd").wait()
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            with pytest.raises(KafkaError, match="its task 'odd' failed"):
                client.life.require_session()
    assert client.life.take_unreported_failure() is None


async def test_a_task_that_fails_during_the_start_ends_the_start():
    life: Lifecycle[Session] = Lifecycle("client")

    async def start(supervisor: Supervisor) -> Session:
        supervisor.spawn(fail, name="odd")
        await anyio.sleep_forever()
        return RecordingSession()

    with pytest.raises(KafkaError, match="its task 'odd' failed"):
        await life.start(life, start)
    assert life.state is ClientState.NEW
    assert life.failure is None


async def test_a_task_that_fails_during_closing_ends_it():
    async def close_session() -> None:
        client.life.supervisor.spawn(fail, name="odd")
        await anyio.sleep_forever()

    client = Client(close_session)
    client.close_timeout_s = 60.0
    with anyio.fail_after(WITHIN_S):
        async with client:
            pass
    assert client.life.state is ClientState.CLOSED
    failure = client.life.take_unreported_failure()
    assert failure is not None
    assert isinstance(failure.__cause__, OwnError)


# --- clients that nobody closes ------------------------------------------------------------------


async def test_a_dropped_client_is_reported_and_its_tasks_end():
    client: Client | None = Client()
    assert client is not None
    await client.__aenter__()
    task = client.task
    with pytest.warns(
        ResourceWarning, match=r"client \(running\)> was never closed; .*test_lifecycle"
    ):
        client = drop(client)
    with anyio.fail_after(WITHIN_S):
        await task.wait()


def drop(client: Client) -> None:
    del client


async def test_the_session_of_a_dropped_client_ends_with_client_closed():
    clients = [Client()]
    await clients[0].__aenter__()
    session = clients[0].session
    threads: list[int] = []
    session.on_loss = lambda: threads.append(threading.get_ident())
    with pytest.warns(ResourceWarning, match="was never closed"):
        await anyio.to_thread.run_sync(clients.clear)
    await anyio.wait_all_tasks_blocked()
    assert [str(error) for error in session.losses] == [
        "the client was garbage-collected: keep a reference until it is closed"
    ]
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_session_whose_event_loop_is_closed_ends_too(uvloop: bool) -> None:
    """`loop.close()` cancels no task, and so has not ended the session itself."""
    clients = [Client()]
    session = clients[0].session

    async def start() -> None:
        await clients[0].__aenter__()
        await anyio.wait_all_tasks_blocked()

    loop = pytest.importorskip("uvloop").new_event_loop() if uvloop else asyncio.new_event_loop()
    loop.run_until_complete(start())
    loop.close()
    with pytest.warns(ResourceWarning, match=r"client \(running\)> was never closed"):
        clients.clear()
    assert len(session.losses) == 1


def test_a_session_that_ended_with_its_event_loop_is_not_ended_again() -> None:
    clients = [Client()]
    session = clients[0].session

    async def start() -> None:
        await clients[0].__aenter__()
        await anyio.wait_all_tasks_blocked()

    asyncio.run(start())
    with pytest.warns(ResourceWarning, match="was never closed"):
        clients.clear()
    assert [str(error) for error in session.losses] == ["the client's tasks were cancelled"]


async def test_dropping_a_closed_client_issues_no_warning():
    client = Client()
    async with client:
        pass
    del client
    gc.collect()


async def test_dropping_a_client_that_was_never_started_issues_no_warning():
    client = Client()
    del client
    gc.collect()


def test_a_client_that_outlives_its_event_loop_is_reported_too() -> None:
    clients = [Client()]

    async def main() -> None:
        await clients[0].__aenter__()
        await anyio.wait_all_tasks_blocked()

    asyncio.run(main())
    assert clients[0].life.state is ClientState.CANCELLED
    with pytest.warns(ResourceWarning, match=r"client \(cancelled\)> was never closed"):
        clients.clear()


def in_child(work: Callable[[], str]) -> str:
    """Return the output of a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as text:
        return text.read()


async def test_a_forked_child_needs_a_client_of_its_own():
    client = Client()

    def use() -> str:
        try:
            client.life.require_session()
        except ClientClosed as error:
            return str(error)
        return "no error"

    async with client:
        text = in_child(use)
        assert "unusable after a fork: it runs in the parent process" in text
        client.life.require_session()
    assert "closed" in in_child(use)


async def test_a_forked_child_does_not_close_what_is_the_parents():
    client = Client()

    def close() -> str:
        asyncio.run(client.__aexit__())  # type: ignore[arg-type]
        return f"{client.life.state.name} {client.closed_gracefully}"

    async with client:
        assert in_child(close) == "FORKED False"
    assert client.closed_gracefully


# --- other event loops ---------------------------------------------------------------------------


def in_another_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run something in a loop of another thread; what it gave, or raised."""
    text: list[Any] = []

    def run() -> None:
        try:
            text.append(anyio.run(work))
        except KafkaError as error:
            text.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return text[0]


async def test_a_client_belongs_to_one_event_loop():
    client = Client()

    async def use() -> None:
        client.life.require_session_in_loop()

    async def close() -> None:
        await client.life.stop(close_nothing, NEVER)

    async with client:
        assert client.life.require_session_in_loop() is client.session
        for work in (use, close):
            assert isinstance(in_another_loop(work), WrongEventLoop)
        client.life.require_session_in_loop()
    assert client.closed_gracefully


async def test_errors_distinguish_another_event_loop_from_none():
    async def use() -> None:
        client.life.require_session_in_loop()

    def use_without_a_loop() -> str:
        with pytest.raises(WrongEventLoop) as caught:
            client.life.require_session_in_loop()
        return str(caught.value)

    async with Client() as client:
        in_another = str(in_another_loop(use))
        assert "the client was started in another event loop" in in_another
        assert "start one in this loop" in in_another
        in_none = await anyio.to_thread.run_sync(use_without_a_loop)
        assert "no event loop runs in this thread" in in_none
        assert "anyio.from_thread.run(" in in_none
        assert "start one" not in in_none
        # What the text says works.
        await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(use))


def test_a_client_whose_event_loop_is_gone_may_be_closed_in_another() -> None:
    client = Client()

    async def start() -> None:
        await client.__aenter__()
        await anyio.wait_all_tasks_blocked()

    async def close() -> None:
        with pytest.raises(ClientClosed, match=r"make a new one in the event loop that uses it$"):
            client.life.require_session_in_loop()
        await client.__aexit__()

    asyncio.run(start())
    asyncio.run(close())
    assert client.life.state is ClientState.CLOSED


# --- names ---------------------------------------------------------------------------------------


def test_a_label_identifies_the_client() -> None:
    config = make_config(ClientConfig, {"bootstrap_servers": "one:1,[::1]:2", "client_id": "mine"})
    life: Lifecycle[Session] = Lifecycle("producer", client_label("Producer", config))
    assert str(life) == (
        "<Producer client_id='mine' bootstrap_servers='one:1,[::1]:2' (not started yet)>"
    )


@pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
async def test_slow_closing_is_logged(
    slow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(lifecycle, "SLOW_CLOSE_S", 0.02 if slow else 60.0)

    async def close_session() -> None:
        while slow and not caplog.records:
            await checkpoint()

    client = Client(close_session)
    with ends_within(WITHIN_S):
        async with client:
            pass
    text = "client: still closing: waiting up to 5 s more for brokers; Ctrl-C stops the wait"
    assert caplog.messages == ([text] if slow else [])


async def test_slow_closing_names_the_end_of_the_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A session may wait for less than the time that closing may take."""
    monkeypatch.setattr(lifecycle, "SLOW_CLOSE_S", 0.02)

    class Waiting(RecordingSession):
        @property
        def close_waits_until(self) -> float:
            return client.clock.now() + 60.2

    async def close_session() -> None:
        while not caplog.records:
            await checkpoint()

    client = Client(close_session)
    client.session, client.close_timeout_s = Waiting(), 600.0
    with ends_within(WITHIN_S):
        async with client:
            pass
    text = "client: still closing: waiting up to 60 s more for brokers; Ctrl-C stops the wait"
    assert caplog.messages == [text]


@pytest.mark.parametrize("when", ["before", "during"])
async def test_the_owner_of_a_client_ends_its_close(when: str):
    closing = anyio.Event()

    async def close_session() -> None:
        closing.set()
        await anyio.sleep_forever()

    client = Client(close_session)
    client.close_timeout_s = 600.0
    with ends_within(WITHIN_S):
        async with anyio.create_task_group() as group:
            await client.__aenter__()
            limit = client.life.close_deadline
            if when == "before":
                limit.end_by(client.clock.now() + 0.1)
            group.start_soon(client.__aexit__)
            await closing.wait()
            if when == "during":
                limit.end_by(client.clock.now() + 0.1)
                limit.end_by(client.clock.now() + 600)  # later than before: without effect
    assert client.life.state is ClientState.CLOSED
    assert client.task.done


async def test_slow_closing_is_not_logged_after_its_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(lifecycle, "SLOW_CLOSE_S", 0.02)
    client = Client(anyio.sleep_forever)
    client.close_timeout_s = 0.1
    with ends_within(WITHIN_S):
        async with client:
            pass
    assert caplog.messages == []
