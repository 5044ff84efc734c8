"""A thread with an event loop that runs an embedded broker."""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio

from aiokafkawire.broker import Broker, Close, SeenRequest
from aiokafkawire.broker.faults import Action, Outcome
from aiokafkawire.errors import ClientClosed
from aiokafkawire.runtime import NEVER, AutoResetEvent, Supervisor
from aiokafkawire.runtime.supervisor import get_call_soon_threadsafe

__all__ = ("BrokerThread",)

START_TIMEOUT_S = 30.0
"""Time limit for the broker to listen, which usually takes milliseconds."""

CALL_TIMEOUT_S = 30.0
"""Time limit of calls other than those with a timeout of their own."""

CLOSE_TIMEOUT_S = 15.0
"""Time limit of closing, longer than the broker takes to drop connections."""

T = TypeVar("T")


class _BrokerLoop:
    """Event loop of the thread: runs a broker, and calls from other threads."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._calls: deque[Callable[[], Awaitable[None]] | None] = deque()
        self._called = AutoResetEvent()
        self._notify = get_call_soon_threadsafe()

    def call(self, function: Callable[[], Awaitable[None]] | None) -> None:
        """Run a function in the thread, each call in its own task; None ends the program."""
        self._calls.append(function)
        self._notify(self._called.set)

    async def serve(self) -> None:
        # Calls start from a task, because a callback has the context of the calling thread.
        supervisor = Supervisor("kafka_broker")
        await supervisor.start()
        try:
            while await self._called.wait(NEVER):
                while self._calls:
                    function = self._calls.popleft()
                    if function is None:
                        return
                    supervisor.spawn(function, name="call")
        finally:
            await supervisor.stop()


class BrokerThread:
    """Runs a broker in a background thread, and calls it from other threads.

    Args:
        make: Makes the broker in the thread.
    """

    def __init__(self, make: Callable[[], Broker]) -> None:
        self._make = make
        self._thread = threading.Thread(target=self._run, name="kafka_broker", daemon=True)
        self._ready = threading.Event()
        self._loop: _BrokerLoop | None = None
        self._waiting: set[Future[Any]] = set()
        self._failure: BaseException | None = None
        self._raised: list[BaseException] = []
        self._bootstrap_servers = ""

    def start(self) -> None:
        """Start to listen, as entering `with` does.

        Raises:
            InvalidOption: An argument or option is unknown or out of range.
            OSError: The broker cannot listen on a port.
            TimeoutError: The broker did not start in time.
        """
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start in {START_TIMEOUT_S:.0f} s")
        if self._failure is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        """Close all nodes and end the thread. Further calls have no effect.

        Raises:
            Exception: An exception of a function passed to `on`.
            TimeoutError: A function passed to `on` blocks the broker's thread.
        """
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call(None)
            self._thread.join(CLOSE_TIMEOUT_S)
            if self._thread.is_alive():
                raise TimeoutError(
                    f"the broker did not close in {CLOSE_TIMEOUT_S:.0f} s: is a function that was"
                    " passed to on() still running?"
                )
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._raise()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self._bootstrap_servers if self.running else "not running"
        return f"<{type(self).__name__} {state}>"

    def _run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()
            for future in list(self._waiting):
                future.cancel()

    async def _serve(self) -> None:
        async with self._make() as broker:
            self._loop = loop = _BrokerLoop(broker)
            self._bootstrap_servers = broker.bootstrap_servers
            self._ready.set()
            await loop.serve()

    def _call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function in the broker's thread, or directly from a function passed to `on`."""
        if threading.current_thread() is self._thread:
            return function(*arguments, **named)

        async def call() -> T:
            return function(*arguments, **named)

        return self._await(call)

    def _await(self, function: Callable[[], Awaitable[T]], waits_s: float = 0.0) -> T:
        """Await a coroutine in the broker's thread, with `waits_s` for its own timeout."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a function passed to on() cannot wait for the broker that calls it")
        loop, future = self._loop, Future[T]()
        if loop is None:
            raise ClientClosed("the embedded broker is not running")

        async def run() -> None:
            try:
                future.set_result(await function())
            except anyio.get_cancelled_exc_class():
                future.cancel()
                raise
            except BaseException as error:
                future.set_exception(error)

        self._waiting.add(future)
        try:
            loop.call(run)
            return future.result(waits_s + CALL_TIMEOUT_S)
        except CancelledError:
            raise ClientClosed("the embedded broker was closed during the call") from None
        finally:
            self._waiting.discard(future)

    @property
    def running(self) -> bool:
        """True between start and close."""
        return self._loop is not None

    @property
    def _running_broker(self) -> Broker:
        if self._loop is None:
            raise ClientClosed("the embedded broker is not running")
        return self._loop.broker

    def _raise(self) -> None:
        if self._raised:
            error = self._raised[0]
            self._raised.clear()
            raise error

    def _guarded(self, function: Callable[[SeenRequest], Any]) -> Action:
        async def guarded(seen: SeenRequest) -> Outcome:
            try:
                outcome = function(seen)
                if inspect.isawaitable(outcome):
                    outcome = await outcome
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                # BaseException, because pytest.fail and pytest.skip do not raise an Exception.
                self._raised.append(error)
                return Close()
            return cast("Outcome", outcome)

        return guarded

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, comma-separated, for clients."""
        return self._bootstrap_servers
