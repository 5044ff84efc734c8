"""A network, mounts and processes of its own for a run, which end with it, however it ends.

They are namespaces of Linux, made by `unshare` of util-linux. Users other than root get them where
the system lets users make their own; where it does not, `lack()` says why, and the run does without
the faults that need them. A rule or a mount made inside is not to be seen outside, and the system
takes it away with the last process inside; which ends when `unshare` does, and that when the
process that called `run` does.
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
"""Where they stand too; not everybody has these in PATH."""
PROBE_TIMEOUT_SECONDS = 10.0
END_TIMEOUT_SECONDS = 60.0
"""What a run may take to stop its processes after Ctrl-C."""

_NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_PREPARE = "ip link set lo up && tc qdisc add dev lo clsact"


def inside() -> bool:
    return INSIDE in os.environ


@cache
def tool(name: str) -> str | None:
    """The path of a tool of the system."""
    return shutil.which(name, path=os.pathsep.join((os.environ["PATH"], *TOOLS_ELSEWHERE)))


def lack() -> str | None:
    """Why no sandbox can be made here; None if one can."""
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
    """Run Python with these arguments inside, and give its exit code."""
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
        process.kill()  # and with it all that is left inside
        process.wait()
        guard.kill()
        guard.communicate()


def _command() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [tool("unshare") or "unshare", *user, *_NAMESPACES]


def _environment() -> dict[str, str]:
    path = os.pathsep.join((os.environ["PATH"], *TOOLS_ELSEWHERE))
    return {**os.environ, "PATH": path}
