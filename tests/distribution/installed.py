"""Check an installed aiokafkawire: its kernel, its command line, and a record there and back.

python tests/distribution/installed.py compiled|interpreted

Runs in the environment under test, which need not have any of the tests' own dependencies.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import aiokafkawire
from aiokafkawire import Consumer, Producer

TIMEOUT_S = 60.0
RECORDS = 100
TOPIC = "orders"


async def there_and_back(bootstrap_servers: str) -> None:
    sent = [b"%d" % number for number in range(RECORDS)]
    async with Producer(bootstrap_servers=bootstrap_servers, compression_type="lz4") as producer:
        for value in sent:
            await producer.send(TOPIC, value=value)
        await producer.flush()
    received = []
    async with Consumer(
        TOPIC, bootstrap_servers=bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        while len(received) < RECORDS:
            received.append((await consumer.getone()).value)
    assert received == sent, received


def check(kernel: str) -> None:
    """Raise `AssertionError` unless the installed package works with this kernel."""
    about = aiokafkawire.about()
    place = Path(aiokafkawire.__file__)
    assert about.kernel == kernel, about
    assert "site-packages" in place.parts, place
    assert about.version == importlib.metadata.version("aiokafkawire")
    command = [sys.executable, "-m", "aiokafkawire", "broker", "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            address = broker.stdout.readline().strip()
            asyncio.run(asyncio.wait_for(there_and_back(address), TIMEOUT_S))
        finally:
            broker.kill()
    print(f"Python {sys.version.split()[0]}: {about}: {RECORDS} records there and back")


if __name__ == "__main__":
    check(sys.argv[1])
