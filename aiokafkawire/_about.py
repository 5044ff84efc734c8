"""Version and kernel of the installed package, found without importing the kernel."""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

from aiokafkawire._version import __version__

__all__ = (
    "PURE_REQUESTED",
    "About",
    "about",
    "compiled_kernel",
    "is_pure_requested",
    "not_built_reason",
)

PURE_REQUESTED = "AIOKAFKAWIRE_PURE_PYTHON is set"
NOT_BUILT = "no compiled kernel was built: a C compiler was missing when aiokafkawire was installed"
IMPORTED_FROM_ZIP = (
    "aiokafkawire is imported from a zip file, and Python cannot load a compiled kernel from one;"
    " install the package instead"
)

_KERNEL = Path(__file__).with_name("records") / "_kernel"


class About(NamedTuple):
    """Version and kernel of the package.

    Attributes:
        version: Version of aiokafkawire.
        kernel: "compiled" or "interpreted": implementation of the hot loops.
        reason: Reason for an interpreted kernel; empty for a compiled one.
    """

    version: str
    kernel: str
    reason: str = ""

    def __str__(self) -> str:
        because = f" ({self.reason})" if self.reason else ""
        return f"aiokafkawire {self.version}, kernel {self.kernel}{because}"


def about() -> About:
    """Return the version of aiokafkawire and the implementation of its hot loops in this process.

    `print(aiokafkawire.about())` prints a line for a bug report.
    """
    if is_pure_requested():
        return About(__version__, "interpreted", PURE_REQUESTED)
    if compiled_kernel() is None:
        return About(__version__, "interpreted", not_built_reason())
    return About(__version__, "compiled")


def is_pure_requested() -> bool:
    """Return True if `AIOKAFKAWIRE_PURE_PYTHON` selects the interpreted kernel."""
    return os.environ.get("AIOKAFKAWIRE_PURE_PYTHON", "0") not in {"", "0"}


def not_built_reason() -> str:
    """Return why there is no compiled kernel."""
    return NOT_BUILT if _KERNEL.parent.is_dir() else IMPORTED_FROM_ZIP


def compiled_kernel() -> Path | None:
    """Return the compiled kernel that the import system would load; None without one."""
    files = (_KERNEL.with_suffix(suffix) for suffix in EXTENSION_SUFFIXES)
    return next((file for file in files if file.exists()), None)
