"""Both implementations of the kernel, and what they are made of."""

from __future__ import annotations

import hashlib
from pathlib import Path

import aiokafkawire

SOURCES = [
    Path(aiokafkawire.__file__).with_name("records") / f"_kernel{suffix}"
    for suffix in (".py", ".pxd")
]


def kernel_hash() -> str:
    """What setup.py stores in the compiled kernel."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()
