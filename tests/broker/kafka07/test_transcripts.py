"""The 0.7 port responds like a real broker of 0.7.2, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.runtime import RealRuntime, Transport
from aiokafkawire.runtime.interfaces import Address
from aiokafkawire.wire import kafka07
from tests.wire.vectors import lines

TRANSCRIPTS = {line["id"]: line for line in lines("kafka07") if line.get("replayable", True)}

DIFFERENCES: dict[str, str] = {}
"""Transcripts in which our port differs, with the reason."""

MARK = kafka07.encode_messages([kafka07.Kafka07Message(payload=b"what no transcript holds")])
PREPARE = kafka07.encode_request(
    kafka07.Kafka07ProducerRequest(topic="probe", partition=0, messages=MARK)
)
PROBE = kafka07.encode_request(
    kafka07.Kafka07FetchRequest(topic="probe", partition=0, offset=0, max_size=len(MARK))
)
PROBED = kafka07.encode_response(kafka07.Kafka07FetchResponse(messages=MARK))
"""Response to PROBE: it separates the responses before it."""

WAIT_S = 30


class RawClient:
    """Sends bytes, on a new connection after a disconnect."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._transport: Transport | None = None

    async def exchange(self, data: bytes, *, whole: bool) -> tuple[bytes, bool]:
        """Return the bytes of the response, and whether the broker then closed the connection.

        `whole`: these are whole frames, so that a probe behind them tells that all was answered.
        """
        if self._transport is None:
            self._transport = await RealRuntime().connect(self._address)
        await self._transport.send([data, PROBE] if whole else [data])
        answer = bytearray()
        buffer = memoryview(bytearray(65_536))
        with anyio.fail_after(WAIT_S):
            while not (whole and answer.endswith(PROBED)):
                try:
                    count = await self._transport.receive_into(buffer)
                except OSError:
                    # An unread probe turns the close into a reset.
                    count = 0
                if not count:
                    await self.aclose()
                    return bytes(answer), True
                answer += buffer[:count]
        return bytes(answer[: -len(PROBED)]), False

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None


@asynccontextmanager
async def client_of(broker: Broker) -> AsyncIterator[RawClient]:
    host, _, port = broker.kafka07_server.rpartition(":")
    client = RawClient(Address(host, int(port)))
    try:
        yield client
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()


def broker_like(settings: dict[str, int]) -> Broker:
    """A broker with the settings of a transcript."""
    return Broker(
        kafka07_port=0,
        default_partitions=settings["num.partitions"],
        max_message_bytes=settings["max.message.size"],
        max_request_bytes=settings["max.socket.request.bytes"],
        segment_bytes=settings["log.file.size"],
    )


def expected(step: dict[str, Any]) -> tuple[bytes, bool]:
    received = step["receive"]
    if received is None:
        return b"", False
    if received == "closed":
        return b"", True
    return bytes.fromhex(received), bool(step.get("closedAfter"))


def is_whole(step: dict[str, Any]) -> bool:
    """Return whether the sent bytes end with a whole frame, and the response is not a close."""
    return expected(step)[1] is False


async def differences(client: RawClient, transcript: dict[str, Any]) -> list[str]:
    found = []
    random: dict[str, Counter[bytes]] = {}
    for number, step in enumerate(transcript["steps"]):
        answer = await client.exchange(bytes.fromhex(step["send"]), whole=is_whole(step))
        if "accept" in step:
            accepted = [bytes.fromhex(each) for each in step["accept"]]
            seen = random.setdefault(",".join(step["accept"]), Counter(accepted))
            seen.subtract([answer[0]])
        elif answer != expected(step):
            found.append(f"step {number}: {answer[0].hex()} closed={answer[1]}, not {step}")
    # A set for any partition is in exactly one of them.
    found += [f"random: {seen}" for seen in random.values() if any(seen.values())]
    return found


SETTINGS = {str(each["broker"]): each["broker"] for each in TRANSCRIPTS.values()}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=lambda each: f"{each['log.file.size']}")
@pytest.mark.slow
async def test_transcripts(
    settings: dict[str, int], record_property: Callable[[str, object], None]
) -> None:
    found = {}
    async with broker_like(settings) as broker:
        async with client_of(broker) as client:
            assert await client.exchange(PREPARE, whole=True) == (b"", False)
        for name, transcript in TRANSCRIPTS.items():
            if transcript["broker"] != settings:
                continue
            async with client_of(broker) as client:
                wrong = await differences(client, transcript)
            if wrong:
                found[f"{name} {transcript['how']}"] = wrong
            record_property("counted", "transcripts of Kafka 0.7.2 replayed")
    assert {name.split()[0] for name in found} == {
        name for name in DIFFERENCES if TRANSCRIPTS[name]["broker"] == settings
    }, found


def test_every_transcript_was_taken() -> None:
    assert len(TRANSCRIPTS) == 139
