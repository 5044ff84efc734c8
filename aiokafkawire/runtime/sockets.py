"""Socket and buffer helpers of the asyncio and trio transports."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Sequence

from aiokafkawire.runtime.interfaces import Buffer

__all__ = ("COALESCED_WRITE_BYTES", "DuplicateSocket", "coalesce", "too_many_open_files")

COALESCED_WRITE_BYTES = 256 * 1024
"""Small buffers are joined into writes of about this size: a copy costs less than system calls."""


class DuplicateSocket:
    """A duplicated file descriptor of a connection, used to shut the connection down.

    The pseudo-socket of uvloop has no `shutdown`, and its descriptor number may already belong to
    another connection.
    """

    __slots__ = ("_aborted", "_socket")

    def __init__(self, fileno: int, family: int, kind: int) -> None:
        self._socket = socket.fromfd(fileno, family, kind)
        self._aborted = False

    def abort(self) -> None:
        """Shut down both directions, which wakes readers and writers. Never raises."""
        if not self._aborted:
            self._aborted = True
            # ENOTCONN: the connection is already down.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Shut down the connection and close the duplicated descriptor."""
        self.abort()
        self._socket.close()


def too_many_open_files(error: BaseException) -> bool:
    """Return whether an error means that the process or the system has too many open files."""
    return isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}


def coalesce(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Join adjacent buffers into pieces of at least `COALESCED_WRITE_BYTES`, except the last."""
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
