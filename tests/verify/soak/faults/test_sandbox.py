"""Changes inside the sandbox are not visible outside, and end with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from verify.soak.faults import disks, packet_filter, sandbox

ROOT = Path(__file__).parents[4]
GONE_WITHIN_SECONDS = 10.0


@pytest.fixture(scope="module")
def sandboxed() -> None:
    if (missing_requirement := sandbox.missing_requirement()) is not None:
        pytest.skip(f"no sandbox: {missing_requirement}")


def outcome_of(script: str, *arguments: object) -> int:
    return sandbox.run(["-c", script, *map(str, arguments)])


@pytest.mark.usefixtures("sandboxed")
def test_it_returns_the_exit_code_and_has_its_own_network() -> None:
    script = "import os, sys; sys.exit(os.listdir('/sys/class/net') and os.getpid())"
    assert outcome_of(script) == 1, "the first process of its own"
    assert outcome_of("import sys; sys.exit(7)") == 7


DISK = """
import sys
from collections.abc import Callable
from pathlib import Path
from verify.soak.faults import disks
place = Path(sys.argv[1])
disks.mount(place, 1024 * 1024)
assert disks.fill(place) > 900_000
assert disks.free_bytes(place) == 0
try:
    (place / "more").write_bytes(bytes(5000))
except OSError:
    disks.empty(place)
    (place / "more").write_bytes(bytes(5000))
    sys.exit(5)
"""


@pytest.mark.usefixtures("sandboxed")
def test_a_disk_is_filled_and_emptied_and_not_there_outside(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    assert outcome_of(DISK, place) == 5
    assert list(place.iterdir()) == []
    assert str(place) not in Path("/proc/mounts").read_text()


CUT = """
import socket, sys
from verify.soak.faults.packet_filter import Direction, cut

def reached(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.05).close()
    except TimeoutError:
        return False
    return True

listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
one, other = (each.getsockname()[1] for each in listening)
for way in Direction:
    with cut(way, [one]):
        assert (reached(one), reached(other)) == (False, True), way
    assert reached(one), way
sys.exit(3)
"""


@pytest.mark.usefixtures("sandboxed")
def test_what_is_cut_hangs_and_nothing_else_does() -> None:
    assert outcome_of(CUT) == 3


LEFT_ALONE = """
import sys
from verify.soak.faults import sandbox
sandbox.run(["-c", "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(60)", sys.argv[1]])
"""


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_its_parent_process(number: signal.Signals, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    process = subprocess.Popen(
        [sys.executable, "-c", LEFT_ALONE, str(begun)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(begun.exists)
        assert running_with(str(begun))
        # As a terminal does with Ctrl-C: everybody of the group hears it.
        (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
        process.wait(GONE_WITHIN_SECONDS)
        wait_until(lambda: not running_with(str(begun)))
    finally:
        process.kill()
        process.wait()


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + GONE_WITHIN_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def running_with(argument: str) -> list[str]:
    """The processes that have this on their command line."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if argument.encode() in words:
            found.append(each.parent.name)
    return found


def test_nothing_is_cut_or_mounted_outside(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="sandbox"),
        packet_filter.cut(packet_filter.Direction.BOTH, [1]),
    ):
        pytest.fail("cut")
    with pytest.raises(RuntimeError, match="sandbox"):
        disks.mount(tmp_path)


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "tool", lambda name: None if name == "tc" else f"/bin/{name}")
    assert sandbox.missing_requirement() == "there is no tc"
