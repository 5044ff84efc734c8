"""What every client does to be started, stopped, and used in `async with`."""

from __future__ import annotations

import functools
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from aiokafkawire.config.name_hints import AbsentAttribute
from aiokafkawire.logs import NO_FIELDS
from aiokafkawire.runtime.interfaces import Runtime
from aiokafkawire.runtime.lifecycle import Lifecycle, Session
from aiokafkawire.runtime.real_runtime import RealRuntime
from aiokafkawire.runtime.supervisor import Supervisor

__all__ = ("Client", "with_runtime")

S = TypeVar("S", bound=Session)


class _ClientType(ABCMeta):
    """Class of the client classes: keeps `AbsentAttribute` names out of `dir()` and `help()`."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not cls.is_absent(name)]

    def is_absent(cls, name: str) -> bool:
        """Whether a name is there for its hint alone."""
        found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        return isinstance(found, AbsentAttribute)


class Client(Generic[S], metaclass=_ClientType):
    """A client that is entered and left as its user likes, with a session of kind `S` in between.

    A subclass says how to make the session and how to end it. It may override `start` and `stop` to
    say in their docstrings what they mean for it; `async with` goes through `start`, and through
    the same `_close` as `stop`.
    """

    def __init_subclass__(cls, absent: Mapping[str, str] = {}, **arguments: Any) -> None:
        """`absent`: names of other Kafka clients, and what stands for each here."""
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
    ) -> None:
        """`name` says what it is, `label` all that `repr` shows, `who` what lines of the log do,
        and `fields` their `extra`."""
        self._custom_runtime = runtime
        self._lifecycle: Lifecycle[S] = Lifecycle(name, label, log_prefix, fields)

    def __repr__(self) -> str:
        return str(self._lifecycle)

    async def start(self) -> None:
        """Connect. The same as entering `async with`; `stop` is then up to the caller.

        After a failure it may be called again. A client that was stopped stays so.
        """
        runtime = self._custom_runtime or RealRuntime()
        await self._lifecycle.start(self, functools.partial(self._start, runtime))

    async def stop(self) -> None:
        """Close. Raises what went wrong that no call has raised yet. May be called again."""
        failure = await self._close(None)
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """The same as `stop`."""
        await self.stop()

    async def __aenter__(self) -> Self:
        """The same as `start`."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """As `stop`; what that would raise becomes a note of the body's own exception."""
        failure = await self._close(error)
        if failure is None:
            return
        if error is None:
            raise failure
        error.add_note(str(failure))

    @abstractmethod
    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> S:
        """Make the session, whose tasks live in `host`; nothing may stay behind if this raises."""

    @abstractmethod
    async def _close(self, body_error: BaseException | None) -> Exception | None:
        """End the session; what `stop` is to raise.

        `left_with` is what the body of `async with` raised; None of `stop`.
        """


_Client = TypeVar("_Client", bound="Client[Any]")


def with_runtime(client: _Client, runtime: Runtime) -> _Client:
    """Give a client another network and clock than the real ones, before it is started.

    Args:
        client: A client that is not started yet.
        runtime: As `World.runtime` of the simulation makes it.

    Returns:
        The same client.
    """
    client._custom_runtime = runtime
    return client
