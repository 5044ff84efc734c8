"""Run one client's work in steps, so that two processes can take turns within a second.

    python -m benchmarks.stepwise CLIENT ACTION BOOTSTRAP TOPIC [--core N] [--loop uvloop]

Each line on the standard input is a number of messages. The answer is a line with the CPU seconds
per message since the answer before, user and system, of all threads. So what a client does between
two steps, such as fetching ahead, counts too.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
import time

from benchmarks.load import Setup, Side
from benchmarks.side import CLIENTS, choose_runner


async def work_in_steps(side: Side, setup: Setup) -> None:
    async with side(setup) as work:
        before = time.process_time()
        while line := await asyncio.to_thread(sys.stdin.readline):
            done = await work(int(line))
            now = time.process_time()
            print((now - before) / done, flush=True)
            before = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("action")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--core", type=int)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    client = importlib.import_module(f"benchmarks.clients.{CLIENTS[options.client]}")
    setup = Setup(options.bootstrap, options.topic)
    choose_runner(options.loop)(work_in_steps(client.SIDES[options.action], setup))


if __name__ == "__main__":
    main()
