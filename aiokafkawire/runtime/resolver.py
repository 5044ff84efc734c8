"""Name resolution in daemon threads.

The event loops' own resolvers join their threads at exit, so an unresponsive DNS server would
block the end of the program. Daemon threads are not joined; at most `MAX_THREADS` exist.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from aiokafkawire.config import is_ip_address
from aiokafkawire.runtime.interfaces import Address
from aiokafkawire.runtime.supervisor import get_call_soon_threadsafe
from aiokafkawire.runtime.sync import AutoResetEvent, Future

__all__ = ("MAX_THREADS", "Resolver")

MAX_THREADS = 8
"""Concurrent lookups, including those whose caller was cancelled."""

ResolveFunction = Callable[[str, int], list[Address]]


def resolve_blocking(host: str, port: int) -> list[Address]:
    """Resolve a name with `getaddrinfo`, which blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # Keep both IPv4 and IPv6, in the order of the system, without duplicates.
    return list(dict.fromkeys(Address(str(entry[4][0]), port) for entry in found))


class Resolver:
    """Resolves host names for one runtime.

    Args:
        resolve_blocking: Function that runs in the thread; raises `OSError`.
    """

    def __init__(self, resolve_blocking: ResolveFunction = resolve_blocking) -> None:
        self._resolve_blocking = resolve_blocking
        self._lookups = 0
        self._thread_freed = AutoResetEvent()

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Resolve a host name as `Runtime.resolve` does. An IP literal needs no lookup."""
        if is_ip_address(host):
            return [Address(host, port)]
        while self._lookups >= MAX_THREADS:
            await self._thread_freed.wait()
        future: Future[list[Address]] = Future()
        notify = get_call_soon_threadsafe()
        thread = threading.Thread(
            target=self._run_lookup,
            args=(host, port, future, notify),
            name=f"aiokafkawire-resolve-{host}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(f"no thread to resolve {host!r} in: {error}") from error
        self._lookups += 1
        return await future.wait()

    def _run_lookup(
        self,
        host: str,
        port: int,
        future: Future[list[Address]],
        notify: Callable[[Callable[[], None]], None],
    ) -> None:
        addresses: list[Address] = []
        failure: OSError | None = None
        try:
            addresses = self._resolve_blocking(host, port)
        except OSError as error:
            failure = error
        except Exception as error:
            failure = OSError(f"{host!r} cannot be a host name: {error}")

        def finish() -> None:
            self._lookups -= 1
            self._thread_freed.set()
            if failure is None:
                future.set_result(addresses)
            else:
                future.set_exception(failure)

        try:
            notify(finish)
        except RuntimeError:
            # The event loop ended before the lookup did, so no caller is left.
            return
