"""Responses to requests; the transcripts of a real broker cover most of them."""

from __future__ import annotations

import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.broker.kafka07 import logs as module
from aiokafkawire.broker.kafka07.logs import Logs
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.request_context import Disconnect
from aiokafkawire.records.compression import Compression, compress
from aiokafkawire.wire import kafka07

NOW_MS = 1_000


def made(**options: int) -> Logs:
    return Logs(BrokerConfig(**options), random.Random(1))  # type: ignore[arg-type]


def produce(logs: Logs, messages: bytes, topic: str = "t", partition: int = 0) -> None:
    request = kafka07.Kafka07ProducerRequest(topic=topic, partition=partition, messages=messages)
    assert logs.handle(kafka07.encode_request(request)[4:], NOW_MS) is None


def encoded(*payloads: bytes) -> bytes:
    return kafka07.encode_messages(
        [kafka07.Kafka07Message(payload=payload) for payload in payloads]
    )


def wrapped(inner: bytes) -> bytes:
    packed = compress(Compression.GZIP, inner)
    return kafka07.encode_messages([kafka07.Kafka07Message(payload=packed, attributes=1)])


def test_produced_bytes_are_stored_unchanged() -> None:
    logs = made()
    produce(logs, encoded(b"a", b"b"))
    assert logs.end_offset("t", 0) == 22
    assert logs.end_offset("u", 0) == 0
    request = kafka07.Kafka07FetchRequest(topic="t", partition=0, offset=11, max_size=100)
    reply = logs.handle(kafka07.encode_request(request)[4:], NOW_MS)
    assert reply is not None
    assert (reply.data, reply.closes) == (bytes.fromhex("0000000d 0000") + encoded(b"b"), False)


def test_any_partition_of_a_request_is_mapped_to_an_existing_one() -> None:
    logs = made(default_partitions=3)
    for _ in range(60):
        produce(logs, encoded(b"a"), partition=-1)
    ends = [logs.end_offset("t", partition) for partition in range(3)]
    assert sum(ends) == 660
    assert min(ends) > 0


def test_a_bomb_is_refused() -> None:
    logs = made(max_decompressed_bytes=1_000)
    produce(logs, wrapped(encoded(bytes(900))))
    end = logs.end_offset("t", 0)
    with pytest.raises(Disconnect, match="1000 bytes"):
        produce(logs, wrapped(encoded(bytes(2**20))))
    with pytest.raises(Disconnect, match="2 deep"):
        produce(logs, wrapped(wrapped(wrapped(encoded(b"a")))))
    assert logs.end_offset("t", 0) == end


def test_a_message_that_is_too_large_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    logs = made(max_message_bytes=100)
    produce(logs, encoded(b"a", bytes(101)))
    assert logs.end_offset("t", 0) == 0
    assert "over max_message_bytes (100)" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


def test_the_number_of_partitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOGS", 2)
    logs = made()
    produce(logs, encoded(b"a"), "t")
    produce(logs, encoded(b"a"), "u")
    with pytest.raises(Disconnect, match="2 partitions"):
        produce(logs, encoded(b"a"), "v")
    produce(logs, encoded(b"a"), "t")
    assert logs.end_offset("t", 0) == 22


@given(st.binary(max_size=80), st.integers(0, 5))
def test_any_frame_is_answered_or_disconnects(rest: bytes, kind: int) -> None:
    logs = made()
    for frame in (rest, bytes([0, kind]) + rest, bytes([0, kind, 0, 1, 116, 0, 0, 0, 0]) + rest):
        try:
            reply = logs.handle(frame, NOW_MS)
        except Disconnect:
            continue
        assert reply is None or len(reply.data) >= 6
