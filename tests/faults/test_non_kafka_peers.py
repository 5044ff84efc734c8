"""Peers that are no broker, or that are stopped: a clear error by the deadline."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, NoBrokerAvailable, TlsError
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from tests.behaviour.support import WITHIN_S
from tests.elapsed import ends_within
from tests.faults import peers
from tests.faults.support import IMPATIENT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEADLINE_MS = 800
CLIENTS = pytest.mark.parametrize("client_class", [Producer, Consumer])
OPTIONS: dict[str, Any] = IMPATIENT | {
    "default_api_timeout_ms": DEADLINE_MS,
    "socket_connection_setup_timeout_ms": 300,
    "socket_connection_setup_timeout_max_ms": 300,
}

STRANGERS: dict[str, Any] = {
    "an HTTP server": peers.http,
    "a TLS port": peers.tls,
    "a silent socket": peers.silent,
    "a port that closes": peers.closing,
}

A_BROKER = """
import anyio
from aiokafkawire.broker import Broker

async def main():
    async with Broker() as broker:
        await broker.create_topic("topic")
        print(broker.bootstrap_servers, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@CLIENTS
@pytest.mark.parametrize("stranger", STRANGERS)
async def test_a_stranger_is_named_by_the_deadline(client_class: Callable[..., Any], stranger: str):
    async with peers.listening(STRANGERS[stranger]) as address:
        kind = TlsError if stranger == "a TLS port" else NoBrokerAvailable
        with ends_within(3), pytest.raises(kind) as caught:
            async with client_class(bootstrap_servers=address, **OPTIONS):
                pass
    assert address in str(caught.value)


@pytest.mark.parametrize(
    ("stranger", "hint"),
    [("an HTTP server", "HTTP"), ("a silent socket", "does not respond")],
)
async def test_the_error_says_what_the_peer_seems_to_be(stranger: str, hint: str):
    async with peers.listening(STRANGERS[stranger]) as address:
        with pytest.raises(NoBrokerAvailable, match=hint):
            async with Producer(bootstrap_servers=address, **OPTIONS):
                pass


@CLIENTS
async def test_a_listener_that_accepts_nothing(client_class: Callable[..., Any]):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with ends_within(3), pytest.raises(NoBrokerAvailable, match=address):
            async with client_class(bootstrap_servers=address, **OPTIONS):
                pass


async def test_entering_may_be_cancelled_at_any_time():
    async with peers.listening(peers.silent) as address:
        for delay in (0, 0.01, 0.1):
            with ends_within(2):
                with anyio.move_on_after(delay) as scope:
                    async with Producer(bootstrap_servers=address):
                        pass
                assert scope.cancelled_caught


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_stopped_broker_process_ends_every_call_by_its_deadline():
    command = [sys.executable, "-c", A_BROKER]
    async with await anyio.open_process(
        command, stdin=DEVNULL, stdout=PIPE, stderr=None, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            with anyio.fail_after(WITHIN_S):
                line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1_000)
            options = OPTIONS | {
                "bootstrap_servers": line.decode().strip(),
                "close_timeout_ms": 300,
            }
            produce = {"delivery_timeout_ms": 600, "max_block_ms": 500}
            async with (
                Producer(**options, **produce) as producer,
                Consumer(**options, fetch_max_wait_ms=50) as consumer,
            ):
                await producer.send_and_wait("topic", b"first")
                process.send_signal(signal.SIGSTOP)
                partition = TopicPartition("topic", 0)
                consumer.assign([partition])
                for call in (
                    lambda: producer.send_and_wait("topic", b"second"),
                    lambda: producer.send("other", b"value"),
                    lambda: consumer.end_offsets(partition),
                    lambda: consumer.position(partition),
                    lambda: consumer.partitions_for("other"),
                ):
                    with ends_within(3), pytest.raises(KafkaError):
                        await call()
                with ends_within(3):
                    assert await consumer.getmany(timeout_ms=200) == {}
                with ends_within(3), pytest.raises(NoBrokerAvailable):
                    async with Producer(**options):
                        pass
        finally:
            process.kill()
            await process.wait()
