"""A network, mounts and processes for one run, which end with it in any case.

They are Linux namespaces, made by `unshare` of util-linux. Users other than root get them where the
system allows user namespaces; elsewhere `lack()` gives the reason, and the run leaves out the
faults that need them.

Rules and mounts inside are not visible outside, and the system removes them with the last process
inside. That process ends with `unshare`, which ends with the process that called `run`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

from tests.brokers.process import start_guard

INSIDE = "AIOKAFKAWIRE_SANDBOX"
TOOLS = ("unshare", "ip", "tc", "mount")
TOOLS_ELSEWHERE = ("/usr/sbin", "/sbin")
"""More directories to search; not every user has these in PATH."""
PROBE_TIMEOUT_SECONDS = 10.0
END_TIMEOUT_SECONDS = 60.0
"""Longest time for a run to stop its processes after Ctrl-C."""

_NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_PREPARE = "ip link set lo up && tc qdisc add dev lo clsact"


def inside() -> bool:
    return INSIDE in os.environ


@cache
def tool(name: str) -> str | None:
    """Return the path of a system tool."""
    return shutil.which(name, path=os.pathsep.join((os.environ["PATH"], *TOOLS_ELSEWHERE)))


def missing_requirement() -> str | None:
    """Return the reason why no sandbox is possible here; None if one is."""
    if missing := [name for name in TOOLS if tool(name) is None]:
        return f"there is no {', '.join(missing)}"
    probe = subprocess.run(
        [*_command(), "/bin/sh", "-c", f"{_PREPARE} && mount -t tmpfs none /mnt"],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROBE_TIMEOUT_SECONDS,
        check=False,
    )
    return None if probe.returncode == 0 else probe.stderr.strip() or "unshare does not work"


def run(arguments: Sequence[str]) -> int:
    """Run Python with these arguments inside, and return its exit code."""
    script = f'{_PREPARE} && exec "$@"'
    process = subprocess.Popen(
        [*_command(), "/bin/sh", "-c", script, "sandbox", sys.executable, *arguments],
        env=_environment() | {INSIDE: "1"},
    )
    guard = start_guard(process.pid)
    try:
        return process.wait()
    except KeyboardInterrupt:
        # The processes inside received it too, and stop what they started.
        return process.wait(END_TIMEOUT_SECONDS)
    finally:
        process.kill()  # and with it all processes inside
        process.wait()
        guard.kill()
        guard.communicate()


def _command() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [tool("unshare") or "unshare", *user, *_NAMESPACES]


def _environment() -> dict[str, str]:
    path = os.pathsep.join((os.environ["PATH"], *TOOLS_ELSEWHERE))
    return {**os.environ, "PATH": path}
