from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.brokers import raw


@contextmanager
def answering(answer: bytes) -> Iterator[raw.Address]:
    """A server that takes one request, sends `answer` and closes."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        thread.join(5)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x00\x00\x01\x00",
    ],
    ids=["close", "cut length", "http", "cut answer"],
)
def test_what_is_not_an_answer_is_an_os_error(answer: bytes) -> None:
    with answering(answer) as address, pytest.raises(OSError):
        raw.metadata(address)


def test_a_partition_without_leader_does_not_count() -> None:
    seen = raw.Metadata(nodes={}, leaders={"orders": {0: 1, 1: -1}})
    assert seen.led_partitions("orders") == 1
    assert seen.led_partitions("unknown") == 0
