"""The standard streams where one is closed, as with `>&-`, full, or nobody reads it any more."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn, TextIO

from aiokafkawire.cli.error_text import CommandFailed

__all__ = (
    "ClosedStream",
    "print_stderr",
    "redirect_to_null",
    "replace_closed_streams",
    "require_stdout",
)

STANDARD_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))


class ClosedStream(io.TextIOBase):
    """Stands for stdin or stdout where it is closed; each use of it raises `CommandFailed`."""

    encoding = "utf-8"
    errors = "strict"

    def __init__(self, use: str) -> None:
        self._use = use

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        self._fail()

    def read(self, size: int | None = -1, /) -> str:
        self._fail()

    def write(self, text: str, /) -> int:
        self._fail()

    def _fail(self) -> NoReturn:
        raise CommandFailed(self._use)


def replace_closed_streams() -> None:
    """Replace the streams that Python left None, because their descriptors are closed.

    What is written to stderr is lost then; stdin and stdout become `ClosedStream`s. The null device
    takes the descriptors: else a socket or a file would get them, and what some library writes to
    stderr. An error printed to a stderr that is None would go to stdout.
    """
    for name, flags in STANDARD_STREAMS:
        if getattr(sys, name) is not None:
            continue
        # The lowest free number is the one that is missing.
        descriptor = os.open(os.devnull, flags)
        os.set_inheritable(descriptor, True)
        if name == "stderr":
            sys.stderr = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
        elif name == "stdout":
            sys.stdout = ClosedStream("stdout is closed, but the command prints to it")
        else:
            sys.stdin = ClosedStream("stdin is closed, but the command reads it")


def require_stdout() -> None:
    """Raise `CommandFailed` if stdout is closed, before anything is done."""
    if isinstance(sys.stdout, ClosedStream):
        sys.stdout.fileno()


def print_stderr(text: str, end: str = "\n") -> None:
    """Write to stderr. What cannot be written there is lost, and the command goes on."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        redirect_to_null(sys.stderr)


def redirect_to_null(stream: TextIO) -> None:
    """Send to the null device what a stream still holds, and all that is written to it later.

    Else the interpreter would try to write it when it ends, and fail again.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
