"""What transports of either backend do with their sockets and buffers."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Sequence

from aiokafkawire.runtime.interfaces import Buffer

__all__ = ("COALESCED_WRITE_BYTES", "DuplicateSocket", "coalesce", "too_many_open_files")

COALESCED_WRITE_BYTES = 256 * 1024
"""Buffers are joined into writes of about this size: one copy is cheaper than many system calls."""


class DuplicateSocket:
    """A descriptor of our own for a connection's socket, to shut it down by.

    uvloop's stand-in for a socket cannot be shut down, and keeps the number of a descriptor that
    the system may long have given to another connection.
    """

    __slots__ = ("_aborted", "_socket")

    def __init__(self, fileno: int, family: int, kind: int) -> None:
        self._socket = socket.fromfd(fileno, family, kind)
        self._aborted = False

    def abort(self) -> None:
        """End both directions, for both ends; wakes whoever waits there. Never raises."""
        if not self._aborted:
            self._aborted = True
            # It may be not connected any more, which is what is wanted.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the descriptor."""
        self.abort()
        self._socket.close()


def too_many_open_files(error: BaseException) -> bool:
    """Whether the process, or the system, has too many files open."""
    return isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}


def coalesce(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in pieces worth a system call each."""
    if len(buffers) == 1:
        return [buffers[0]]
    pieces: list[Buffer] = []
    run: list[Buffer] = []
    size = 0
    for buffer in buffers:
        run.append(buffer)
        size += len(buffer)
        if size >= COALESCED_WRITE_BYTES:
            pieces.append(b"".join(run))
            run, size = [], 0
    if run:
        pieces.append(b"".join(run))
    return pieces
