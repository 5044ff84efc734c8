"""Command line: `aiokafkawire produce`, `consume`, `metadata`, `topics` and others.

This module imports only the package's own dependencies. The commands need click and rich, which
the extra `cli` installs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aiokafkawire.cli.standard_streams import flush_stdout, replace_closed_streams

__all__ = ("main",)

OPTIONAL = frozenset({"click", "rich"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (by default from `sys.argv`) and return its exit code."""
    replace_closed_streams()
    try:
        from aiokafkawire.cli.application import run  # noqa: PLC0415 - click may be missing

        return run(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in OPTIONAL:
            raise
        print(
            f"aiokafkawire: the command line needs {missing}:"
            " install it with pip install 'aiokafkawire[cli]'",
            file=sys.stderr,
        )
        return 2
    finally:
        flush_stdout()
