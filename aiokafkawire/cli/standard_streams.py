"""Handling of standard streams that are closed (`>&-`), full, or without a reader."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn, TextIO

from aiokafkawire.cli.error_text import CommandFailed

__all__ = (
    "ClosedStream",
    "flush_stdout",
    "print_stderr",
    "redirect_to_null",
    "replace_closed_streams",
    "require_stdout",
)

STANDARD_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))


class ClosedStream(io.TextIOBase):
    """Replacement for a closed stdin or stdout; every use raises `CommandFailed`."""

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
    """Replace standard streams that are None because their descriptors are closed.

    Output to stderr is discarded; stdin and stdout become `ClosedStream`s. The null device takes
    the free descriptors. Otherwise the next socket or file would get them, together with anything
    that a library writes to stderr. `print(file=None)` would write errors to stdout.
    """
    for name, flags in STANDARD_STREAMS:
        if getattr(sys, name) is not None:
            continue
        # open() returns the lowest free number, which is the closed descriptor.
        descriptor = os.open(os.devnull, flags)
        os.set_inheritable(descriptor, True)
        if name == "stderr":
            sys.stderr = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
        elif name == "stdout":
            sys.stdout = ClosedStream("stdout is closed, but the command prints to it")
        else:
            sys.stdin = ClosedStream("stdin is closed, but the command reads it")


def require_stdout() -> None:
    """Raise `CommandFailed` if stdout is closed."""
    if isinstance(sys.stdout, ClosedStream):
        sys.stdout.fileno()


def print_stderr(text: str, end: str = "\n") -> None:
    """Write to stderr; ignore errors, so that the command continues."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        redirect_to_null(sys.stderr)


def flush_stdout() -> None:
    """Write buffered output, or discard it if stdout cannot take it.

    The interpreter would try again at exit, report the error a second time and exit with 120.
    """
    if isinstance(sys.stdout, ClosedStream) or sys.stdout.closed:
        return
    try:
        sys.stdout.flush()
    except OSError:
        redirect_to_null(sys.stdout)


def redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream, with its buffered output, to the null device.

    Otherwise the interpreter would flush the buffer at exit and fail again.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
