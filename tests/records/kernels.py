"""Both implementations of the kernel, and what they are made of."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import aiokafkawire

SOURCES = [
    Path(aiokafkawire.__file__).with_name("records") / f"_kernel{suffix}"
    for suffix in (".py", ".pxd")
]


def kernel_hash() -> str:
    """Return the hash that setup.py stores in the compiled kernel."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()


def both_kernels() -> tuple[Any, Any]:
    """The compiled kernel and its source, whichever of them the package uses."""
    from aiokafkawire.records import kernel

    compiled: Any = import_module("aiokafkawire.records._kernel")
    if not compiled.COMPILED:
        pytest.skip("the kernel is not compiled", allow_module_level=True)
    return compiled, kernel.load_source()
