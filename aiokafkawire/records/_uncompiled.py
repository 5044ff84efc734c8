"""Stands for the module `cython` where that is not installed: the kernel's source runs as it is."""

from __future__ import annotations

compiled = False
