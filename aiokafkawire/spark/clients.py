"""Clients that outlive the task that made them: a worker process does one task after another."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from aiokafkawire import blocking

__all__ = ("MAX_IDLE", "borrowed")

MAX_IDLE = 4
"""Clients that a process keeps while nobody uses them."""


class _Client(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


_Lent = TypeVar("_Lent", bound=_Client)

_Key = tuple[type[Any], tuple[tuple[str, str], ...]]

_lock = threading.Lock()
_idle: OrderedDict[_Key, Any] = OrderedDict()
_pid = 0


@contextmanager
def borrowed(make: Callable[..., _Lent], options: Mapping[str, Any]) -> Iterator[_Lent]:
    """A started client of this class with these options, an idle one if there is.

    It is kept for the next who asks for the like. One whose use raised is stopped instead: nobody
    knows what state it is in.
    """
    key = (make, tuple(sorted((name, repr(value)) for name, value in options.items())))
    client = _take(key)  # type: ignore[arg-type]
    if client is None:
        client = make(**options)
        blocking.call(client.start)
    try:
        yield client
    except GeneratorExit:
        # Spark needs no more rows.
        _keep(key, client)  # type: ignore[arg-type]
        raise
    except BaseException:
        with suppress(Exception):
            blocking.call(client.stop)
        raise
    _keep(key, client)  # type: ignore[arg-type]


def _take(key: _Key) -> Any:
    global _pid  # noqa: PLW0603 - whose clients they are
    with _lock:
        if _pid != os.getpid():
            # Those of the process that this one was forked from are not ours to stop.
            _idle.clear()
            _pid = os.getpid()
            blocking.at_exit(_stop_all)
        return _idle.pop(key, None)


def _keep(key: _Key, client: Any) -> None:
    with _lock:
        surplus = [_idle.pop(key, None)]
        _idle[key] = client
        if len(_idle) > MAX_IDLE:
            surplus.append(_idle.popitem(last=False)[1])
    for old in filter(None, surplus):
        with suppress(Exception):
            blocking.call(old.stop)


async def _stop_all() -> None:
    while _idle:
        with suppress(Exception):
            await _idle.popitem()[1].stop()
