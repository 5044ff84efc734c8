"""Requests with some bytes changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.header import encode_request
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest

from .raw_client import connected
from .test_apis import REQUESTS, served, topic_id

pytestmark = pytest.mark.slow

HEADER_END = 14


class Errors(logging.Handler):
    """Collects errors that the broker reports as its own defects."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()}: {record.exc_info}")


@contextmanager
def defects() -> Iterator[list[str]]:
    handler = Errors()
    logger = logging.getLogger("aiokafkawire")
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(changes=CHANGES, pick=st.integers(0, 1_000))
def test_changed_requests_are_refused_or_answered(
    changes: list[tuple[int, int]], pick: int
) -> None:
    async def run() -> None:
        async with Broker() as broker:
            async with connected(broker) as client:
                found = await topic_id(broker, client)
            for key, (make, _) in REQUESTS.items():
                versions = served(key)
                version = versions[pick % len(versions)]
                frame = bytearray(b"".join(encode_request(make(version, found), version, 1, "c")))
                body = len(frame) - HEADER_END
                for where, value in changes:
                    frame[HEADER_END + where % body] = value
                async with connected(broker) as client:
                    await client.transport.send([bytes(frame)])
            await quiet(broker)
            async with connected(broker) as client:
                assert (await client.call(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE

    with defects() as found:
        anyio.run(run)
    assert found == []


async def quiet(broker: Broker) -> None:
    """Wait until no connection is open."""
    with anyio.fail_after(30):
        while any(len(node.connections) for node in broker._nodes.values()):
            await anyio.lowlevel.checkpoint()
