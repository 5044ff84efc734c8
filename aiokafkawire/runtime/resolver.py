"""Names to addresses, in threads that can be left behind.

An event loop's own resolver joins its threads at the end, so one dead name server would hold the
whole program. These threads are daemons, and no more than `MAX_THREADS` of them exist.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from aiokafkawire.config import is_ip_address
from aiokafkawire.runtime.base import Address
from aiokafkawire.runtime.host import thread_notifier
from aiokafkawire.runtime.waiting import Promise, Signal

__all__ = ("MAX_THREADS", "Resolver")

MAX_THREADS = 8
"""Look-ups under way at once, those included that nobody waits for any more."""

Lookup = Callable[[str, int], list[Address]]


def look_up(host: str, port: int) -> list[Address]:
    """Ask the system's resolver; blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # IPv4 and IPv6 both, in the system's order, each once.
    return list(dict.fromkeys(Address(str(entry[4][0]), port) for entry in found))


class Resolver:
    """Resolves names for one runtime."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._under_way = 0
        self._freed = Signal()

    async def resolve(self, host: str, port: int) -> list[Address]:
        """All addresses of `host`; `OSError` if there are none. May be cancelled at any time."""
        if is_ip_address(host):
            return [Address(host, port)]
        while self._under_way >= MAX_THREADS:
            await self._freed.wait()
        promise: Promise[list[Address]] = Promise()
        notify = thread_notifier()
        thread = threading.Thread(
            target=self._work,
            args=(host, port, promise, notify),
            name=f"aiokafkawire-resolve-{host}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(f"no thread to resolve {host!r} in: {error}") from error
        self._under_way += 1
        return await promise.wait()

    def _work(
        self,
        host: str,
        port: int,
        promise: Promise[list[Address]],
        notify: Callable[[Callable[[], None]], None],
    ) -> None:
        addresses: list[Address] = []
        failure: OSError | None = None
        try:
            addresses = self._lookup(host, port)
        except OSError as error:
            failure = error
        except Exception as error:
            failure = OSError(f"{host!r} cannot be a host name: {error}")

        def finish() -> None:
            self._under_way -= 1
            self._freed.set()
            if failure is None:
                promise.resolve(addresses)
            else:
                promise.fail(failure)

        try:
            notify(finish)
        except RuntimeError:
            # The event loop ended while the name server was silent: nobody waits any more.
            return
