"""Changes to files that succeed as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

__all__ = ("AppendOnlyFile", "Files", "replace_file")

_BINARY = getattr(os, "O_BINARY", 0)  # Windows only
APPEND = os.O_WRONLY | os.O_APPEND | _BINARY
REPLACE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY


class Files:
    """The system calls that change stored files. Tests override them to inject failures."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file for writing; return its descriptor."""
        return os.open(path, flags, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write as much of `data` as the system takes; return the number of bytes."""
        return os.write(descriptor, data)

    def close(self, descriptor: int) -> None:
        """Close a descriptor. Network file systems report a full disk only here."""
        os.close(descriptor)

    def truncate(self, path: Path, size_bytes: int) -> None:
        os.truncate(path, size_bytes)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def mkdir(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def rmtree(self, path: Path) -> None:
        """Delete a directory if it exists."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


class AppendOnlyFile:
    """A file that grows by whole appends.

    After a failed append the file may hold a part of it. It is truncated at once; if that fails
    too, every later append fails until the truncation succeeds. `size_bytes` counts whole appends.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.size_bytes = path.stat().st_size if path.exists() else 0
        self._files = files
        self._has_excess = False

    def append(self, data: bytes) -> None:
        """Write all of `data`. Raises `OSError` if nothing of it was stored."""
        self.recover()
        # Set before the write, so that an exception of any kind leaves it set.
        self._has_excess = True
        try:
            # A file with a size must exist: a new one would lack the earlier content.
            _write(self._files, self.path, APPEND if self.size_bytes else APPEND | os.O_CREAT, data)
        except OSError:
            with contextlib.suppress(OSError):
                self.recover()
            raise
        self.size_bytes += len(data)
        self._has_excess = False

    def recover(self) -> None:
        """Truncate the rest of a failed append. Raises `OSError` on failure."""
        if not self._has_excess:
            return
        try:
            self._files.truncate(self.path, self.size_bytes)
        except FileNotFoundError:
            if self.size_bytes:
                raise
        self._has_excess = False

    def recover_to(self, size_bytes: int) -> None:
        """Declare what follows `size_bytes` invalid; truncate it now or before the next append."""
        self.size_bytes = size_bytes
        self._has_excess = True
        with contextlib.suppress(OSError):
            self.recover()

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file. Raises `OSError` if it is unchanged."""
        self._files.truncate(self.path, size_bytes)
        self.size_bytes = size_bytes
        self._has_excess = False

    def replace(self, data: bytes) -> None:
        """Replace the content. Raises `OSError` if the file is unchanged."""
        replace_file(self._files, self.path, data)
        self.size_bytes = len(data)
        self._has_excess = False

    def delete(self) -> None:
        """Delete the file. Raises `OSError`."""
        self._files.unlink(self.path)
        self.size_bytes = 0


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Replace a file so that readers see the whole old content or the whole new one.

    Raises:
        OSError: The file is unchanged.
    """
    temporary_path = path.with_suffix(".tmp")
    try:
        _write(files, temporary_path, REPLACE, data)
        files.replace(temporary_path, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(temporary_path)
        raise


def _write(files: Files, path: Path, flags: int, data: bytes) -> None:
    descriptor = files.open(path, flags)
    rest = memoryview(data)
    try:
        while rest:
            count = files.write(descriptor, rest)
            if not count:
                raise OSError(errno.EIO, "write returned 0")
            rest = rest[count:]
    except BaseException:
        with contextlib.suppress(OSError):
            files.close(descriptor)
        raise
    files.close(descriptor)
