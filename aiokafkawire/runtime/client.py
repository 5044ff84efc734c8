"""Base class of the clients: `start`, `stop` and `async with`."""

from __future__ import annotations

import functools
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar

from aiokafkawire.config.name_hints import AbsentAttribute
from aiokafkawire.hooks import Hook
from aiokafkawire.logs import NO_FIELDS
from aiokafkawire.runtime.interfaces import Runtime
from aiokafkawire.runtime.lifecycle import Lifecycle, Session
from aiokafkawire.runtime.real_runtime import RealRuntime
from aiokafkawire.runtime.supervisor import Supervisor

__all__ = ("BaseClient", "with_runtime")

S = TypeVar("S", bound=Session)


class _ClientType(ABCMeta):
    """Class of the client classes: keeps `AbsentAttribute` names out of `dir()` and `help()`."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not cls.is_absent(name)]

    def is_absent(cls, name: str) -> bool:
        """Return whether a name exists only to raise an error with a hint."""
        found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        return isinstance(found, AbsentAttribute)


class BaseClient(Generic[S], metaclass=_ClientType):
    """A client with a session of type `S` between start and stop.

    A subclass implements `_start` and `_close`. It may override `start` and `stop` to document
    them; `async with` calls `start`, and `_close` as `stop` does.
    """

    def __init_subclass__(cls, absent: Mapping[str, str] = {}, **arguments: Any) -> None:
        """Define a class of clients.

        Args:
            absent: Hints by names that other Kafka clients have: how to do the same here.
            **arguments: For other base classes.
        """
        super().__init_subclass__(**arguments)
        for name, hint in absent.items():
            setattr(cls, name, AbsentAttribute(name, hint))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not type(self).is_absent(name)]

    def __init__(
        self,
        name: str,
        label: str,
        runtime: Runtime | None = None,
        log_prefix: str = "",
        fields: Mapping[str, object] = NO_FIELDS,
        *,
        hooks: Sequence[Hook] = (),
    ) -> None:
        """Create a client that is not started.

        Args:
            name: Kind of client, for errors: "producer".
            label: Text of `repr`, without the state.
            runtime: Network and clock. Defaults to the real ones.
            log_prefix: Start of the client's log lines. Defaults to `name`.
            fields: `extra` of the client's log lines.
            hooks: The option `hooks`.
        """
        self._custom_runtime = runtime
        self._lifecycle: Lifecycle[S] = Lifecycle(name, label, log_prefix, fields, hooks)

    def __repr__(self) -> str:
        return str(self._lifecycle)

    async def start(self) -> None:
        """Connect to the cluster. Same as entering `async with`; the caller must call `stop`.

        May be called again after it failed. A stopped client cannot be started again.
        """
        runtime = self._custom_runtime or RealRuntime()
        await self._lifecycle.start(self, functools.partial(self._start, runtime))

    async def stop(self) -> None:
        """Close the client. May be called more than once.

        Raises:
            KafkaError: A failure that no earlier call has raised.
        """
        failure = await self._close(None)
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Same as `stop`."""
        await self.stop()

    # Type checkers do not see them, so that they report a plain `with`.
    if not TYPE_CHECKING:

        def __enter__(self) -> Never:
            """Raise `TypeError`: a client needs `async with`."""
            name = type(self).__name__
            raise TypeError(f"use 'async with {name}(…)': {name} is an asynchronous client")

        def __exit__(self, *_: object) -> None:
            """Do nothing: a `with` statement needs it before it calls `__enter__`."""

    async def __aenter__(self) -> Self:
        """Same as `start`."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Same as `stop`, but add its error as a note to an exception of the body."""
        failure = await self._close(error)
        if failure is None:
            return
        if error is None:
            raise failure
        error.add_note(str(failure))

    @abstractmethod
    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> S:
        """Create the session and start its tasks in `supervisor`.

        Must release everything before it raises.
        """

    @abstractmethod
    async def _close(self, body_error: BaseException | None) -> Exception | None:
        """Close the session.

        Args:
            body_error: Exception that left the body of `async with`; None from `stop`.

        Returns:
            The error that `stop` raises, or None.
        """


_Client = TypeVar("_Client", bound="BaseClient[Any]")


def with_runtime(client: _Client, runtime: Runtime) -> _Client:
    """Replace the network and clock of a client.

    Args:
        client: A client that is not started yet.
        runtime: The replacement, such as `World.runtime(host)` of the simulation.

    Returns:
        The same client.
    """
    client._custom_runtime = runtime
    return client
