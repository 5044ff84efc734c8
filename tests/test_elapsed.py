from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from subprocess import PIPE

import pytest

from tests.elapsed import Elapsed, ends_within

STOPPED_S = 0.3
MARGIN_S = 0.1


def test_time_is_counted():
    elapsed = Elapsed()
    elapsed.start()
    began = time.monotonic()
    while elapsed.seconds < 0.05:
        assert time.monotonic() - began < 10
    elapsed.stop()
    assert time.monotonic() - began >= 0.05


def test_a_block_over_the_limit_fails():
    with pytest.raises(AssertionError, match=r"it took 0\.\d\d s"), ends_within(0.05):
        time.sleep(0.2)


def test_the_blocks_exception_propagates():
    with pytest.raises(LookupError), ends_within(0):
        raise LookupError


COUNTING = """
import sys, time
from tests.elapsed import Elapsed
elapsed, began = Elapsed(), time.monotonic()
elapsed.start()
print("counting", flush=True)
sys.stdin.read()
elapsed.stop()
print(elapsed.seconds, time.monotonic() - began)
"""


def test_time_of_a_suspended_process_is_not_counted():
    command = [sys.executable, "-c", COUNTING]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counting\n"
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        threading.Event().wait(STOPPED_S)
        stood_s = time.monotonic() - stopped
        process.send_signal(signal.SIGCONT)
        counted_s, passed_s = map(float, process.communicate()[0].split())
    assert counted_s <= passed_s - stood_s + MARGIN_S
