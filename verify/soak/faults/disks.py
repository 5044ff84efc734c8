"""A small in-memory disk for a node, which can be filled completely. Only in a sandbox."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from verify.soak.faults import sandbox

SIZE_BYTES = 256 * 1024 * 1024
FILLER = "filler"
TIMEOUT_SECONDS = 10.0
ATTEMPTS = 1000


def mount(place: Path, size_bytes: int = SIZE_BYTES) -> None:
    if not sandbox.inside():
        raise RuntimeError("disks are mounted inside a sandbox alone")
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(place)],
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_SECONDS,
    )


def free_bytes(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def fill(place: Path) -> int:
    """Fill all free space; return the number of bytes."""
    taken = 0
    with (place / FILLER).open("wb") as file:
        for _ in range(ATTEMPTS):
            if not (free := free_bytes(place)):
                break
            try:
                os.posix_fallocate(file.fileno(), taken, free)
            except OSError as error:
                # Another writer was faster: less space is left than before.
                if error.errno != errno.ENOSPC:
                    raise
            else:
                taken += free
    return taken


def empty(place: Path) -> None:
    """Free the space that `fill` took."""
    (place / FILLER).unlink(missing_ok=True)
