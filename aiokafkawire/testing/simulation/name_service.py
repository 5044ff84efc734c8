"""Names of hosts, and faults of their lookups."""

from __future__ import annotations

import errno
import socket

from aiokafkawire.runtime import Future
from aiokafkawire.testing.simulation.trace import Trace

__all__ = ("NameService",)


class NameService:
    """The name service of all hosts."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._hosts: dict[str, list[str]] = {}
        self._failing: dict[str, None] = {}
        self._hanging: dict[str, Future[None]] = {}

    def set(self, name: str, hosts: list[str]) -> None:
        """Map a name to hosts."""
        self._trace.note(f"{name} is {', '.join(hosts) or 'nobody'}")
        self._hosts[name] = hosts

    def fail(self, name: str) -> None:
        self._trace.note(f"looking up {name} fails")
        self._failing[name] = None

    def hang(self, name: str) -> None:
        self._trace.note(f"looking up {name} hangs")
        self._hanging.setdefault(name, Future())

    def heal(self, name: str) -> None:
        """End both faults and answer waiting lookups."""
        self._trace.note(f"looking up {name} works")
        self._failing.pop(name, None)
        hanging = self._hanging.pop(name, None)
        if hanging is not None:
            hanging.set_result(None)

    def heal_all(self) -> None:
        for name in dict.fromkeys([*self._failing, *self._hanging]):
            self.heal(name)

    async def resolve_name(self, name: str) -> list[str]:
        """Return the hosts that a name resolves to.

        Raises:
            OSError: The name has no hosts.
        """
        while name in self._hanging:
            await self._hanging[name].wait()
        if name in self._failing:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if not self._hosts.get(name):
            raise OSError(errno.ENOENT, "Name or service not known")
        return self._hosts[name]
