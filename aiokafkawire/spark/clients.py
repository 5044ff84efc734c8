"""A cache of started clients, which the tasks of one worker process share one after another."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from aiokafkawire import blocking
from aiokafkawire.config import ClientConfig, Secret

from .option_names import reword_errors
from .security_options import TaskTokenProvider

__all__ = ("MAX_IDLE_CLIENTS", "borrow_client", "start_client", "stop_idle_clients")

logger = logging.getLogger("aiokafkawire.spark")

MAX_IDLE_CLIENTS = 4
"""The most idle clients that a process keeps."""


WARN_AFTER_S = 1.0
"""Warn when no broker has answered for this long: a reachable one needs a few milliseconds."""


class _Client(Protocol):
    @property
    def config(self) -> ClientConfig: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


_ClientT = TypeVar("_ClientT", bound=_Client)

_Key = tuple[type[Any], frozenset[tuple[str, Hashable]]]

_lock = threading.Lock()
_idle: OrderedDict[_Key, Any] = OrderedDict()
_pid = 0


@contextmanager
def borrow_client(make: Callable[..., _ClientT], options: Mapping[str, Any]) -> Iterator[_ClientT]:
    """Lend a started client of this class with these options, an idle one if there is one.

    The client returns to the cache afterwards. If its use raised, it is stopped instead, because
    its state is unknown.
    """
    key = (make, frozenset((name, _identity(value)) for name, value in options.items()))
    client = _take_idle(key)  # type: ignore[arg-type]
    if client is None:
        client = make(**options)
        start_client(client)
    try:
        with reword_errors():
            yield client
    except GeneratorExit:
        # Spark needs no more rows; the client is in order.
        _return_to_cache(key, client)  # type: ignore[arg-type]
        raise
    except BaseException:
        with suppress(Exception):
            blocking.call(client.stop)
        raise
    _return_to_cache(key, client)  # type: ignore[arg-type]


def _identity(value: Any) -> Hashable:
    """Return what distinguishes a value; all secrets have the same `repr`."""
    return value if isinstance(value, Secret | TaskTokenProvider) else repr(value)


def start_client(client: _Client) -> None:
    """Start a client and wait until a broker has answered.

    Spark shows nothing while a query waits, so a warning names the addresses and the timeout.
    """
    warning = threading.Timer(WARN_AFTER_S, _log_waiting, (client.config,))
    warning.daemon = True
    warning.start()
    try:
        with reword_errors():
            blocking.call(client.start)
    finally:
        warning.cancel()


def _log_waiting(config: ClientConfig) -> None:
    servers = zip(config.bootstrap_servers, config.bootstrap_addresses, strict=True)
    addresses = [
        f"{host}:{port}" + ("" if given.endswith(f":{port}") else " (default port)")
        for given, (host, port) in servers
    ]
    logger.warning(
        "kafka.bootstrap.servers: no answer from %s within %g s; waiting up to %g s in all"
        " (kafka.default.api.timeout.ms)",
        ", ".join(addresses),
        WARN_AFTER_S,
        config.default_api_timeout_ms / 1000,
    )


def _take_idle(key: _Key) -> Any:
    global _pid  # noqa: PLW0603 - the process that owns the clients
    with _lock:
        if _pid != os.getpid():
            # This process was forked: the parent still uses its clients, so do not stop them.
            _idle.clear()
            _pid = os.getpid()
            blocking.at_exit(_stop_all)
        return _idle.pop(key, None)


def _return_to_cache(key: _Key, client: Any) -> None:
    """Keep a client for the next task; stop the clients that it displaces."""
    displaced = []
    with _lock:
        same_key = _idle.pop(key, None)
        if same_key is not None:
            displaced.append(same_key)
        _idle[key] = client
        if len(_idle) > MAX_IDLE_CLIENTS:
            displaced.append(_idle.popitem(last=False)[1])
    for old in displaced:
        with suppress(Exception):  # nobody uses it any more
            blocking.call(old.stop)


def stop_idle_clients() -> None:
    """Stop the clients that are kept for later tasks."""
    if _idle:
        blocking.call(_stop_all)


async def _stop_all() -> None:
    while _idle:
        with suppress(Exception):
            await _idle.popitem()[1].stop()
