"""The broker and real clients on a small file system that fills up and is freed again."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Broker, Consumer, Producer
from aiokafkawire.broker import SeenRequest
from aiokafkawire.errors import DeliveryUnknown, KafkaError
from aiokafkawire.wire import ApiKey, ErrorCode

KIB = 2**10
DISK_BYTES = 512 * KIB
BALLAST_BYTES = 384 * KIB
RECORDS = 60


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs; skipped only where mounting is impossible, and never in CI."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    tried = (
        subprocess.run(mount, capture_output=True, text=True, check=False)
        if shutil.which("mount")
        else None
    )
    if tried is None or tried.returncode:
        reason = "no mount" if tried is None else tried.stderr.strip()
        if os.environ.get("CI") == "true":
            pytest.fail(f"cannot mount a tmpfs: {reason}")
        pytest.skip(f"cannot mount a tmpfs: {reason}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Acknowledged:
    """Sends numbered records of a size, and remembers the acknowledged offsets."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._next = 0
        self.at: dict[int, bytes] = {}
        self.unknown: set[bytes] = set()
        self.failed = 0

    async def send(self, producer: Producer, count: int) -> int:
        """Send `count` records; return how many failed."""
        sent, failed = [], 0
        for _ in range(count):
            value = b"%d " % self._next
            self._next += 1
            value = value.ljust(self._size_bytes, b"x")
            sent.append((value, await producer.send("t", value=value, partition=0)))
        for value, delivery in sent:
            try:
                metadata = await delivery
            except DeliveryUnknown:
                failed += 1
                self.unknown.add(value)
            except KafkaError:
                failed += 1
            else:
                assert metadata.offset not in self.at
                self.at[metadata.offset] = value
        self.failed += failed
        return failed

    def check(self, found: dict[int, bytes]) -> None:
        """Check that each acknowledged record is at its offset; others are stored only if their
        outcome is unknown."""
        assert found.items() >= self.at.items()
        others = {offset: value for offset, value in found.items() if offset not in self.at}
        assert {*others.values()} <= self.unknown


def fill(path: Path) -> None:
    """Write a file that takes all free space."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * KIB):
            pass


async def read(broker: Broker) -> dict[int, bytes]:
    end = broker.end_offset("t", 0)
    found: dict[int, bytes] = {}
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(("t", 0))
        while len(found) < end:
            record = await consumer.getone()
            found[record.offset] = bytes(record.value or b"")
    return found


@pytest.mark.parametrize("size_bytes", [500, 4_000, 20_000])
@pytest.mark.parametrize("retries", [None, 0])
async def test_what_is_acknowledged_on_a_full_disk_is_readable(
    small_disk: Path, size_bytes: int, retries: int | None
) -> None:
    options: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000}
    if retries is not None:
        options |= {"retries": retries, "enable_idempotence": False}
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * BALLAST_BYTES)
    acknowledged = Acknowledged(size_bytes)
    count = max(RECORDS, 2 * (DISK_BYTES - BALLAST_BYTES) // size_bytes)
    data = small_disk / "data"
    async with Broker(data_dir=data) as broker:
        await broker.create_topic("t", 1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            assert await acknowledged.send(producer, count) > 0
            acknowledged.check(await read(broker))
            ballast.unlink()
            assert await acknowledged.send(producer, 3) == 0
        acknowledged.check(await read(broker))
    assert acknowledged.failed < count, "some were stored before it was full"
    async with Broker(data_dir=data) as broker:
        acknowledged.check(await read(broker))
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            assert await acknowledged.send(producer, 3) == 0
        acknowledged.check(await read(broker))


async def test_room_that_comes_in_time_is_no_loss(small_disk: Path) -> None:
    """The producer retries until there is free space."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * BALLAST_BYTES)
    acknowledged = Acknowledged(8 * KIB)
    async with Broker(data_dir=small_disk / "data") as broker:
        await broker.create_topic("t", 1)

        def make_room(seen: SeenRequest) -> None:
            if seen.api_key is ApiKey.PRODUCE and seen.response is not None:
                codes = [
                    partition.error_code
                    for topic in seen.response.responses  # type: ignore[attr-defined]
                    for partition in topic.partition_responses
                ]
                if ErrorCode.KAFKA_STORAGE_ERROR in codes:
                    ballast.unlink(missing_ok=True)

        broker.requests.watch(make_room)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert await acknowledged.send(producer, 30) == 0
        assert not ballast.exists()
    async with Broker(data_dir=small_disk / "data") as broker:
        acknowledged.check(await read(broker))
        assert len(acknowledged.at) == 30


async def test_a_topic_can_be_deleted_to_make_room(small_disk: Path) -> None:
    async with Broker(data_dir=small_disk / "data") as broker:
        for topic in ("t", "other"):
            await broker.create_topic(topic, 1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("other", value=b"kept", partition=0)
            await Acknowledged(4 * KIB).send(producer, 20)
            fill(small_disk / "ballast")
            await broker.delete_topic("t")
            assert list(broker.topics) == ["other"]
            for _ in range(5):
                await producer.send_and_wait("other", value=b"x" * KIB, partition=0)
    async with Broker(data_dir=small_disk / "data") as broker:
        assert list(broker.topics) == ["other"]
        assert broker.end_offset("other", 0) == 6


async def test_commits_and_transactions_go_on_when_there_is_room(small_disk: Path) -> None:
    async with Broker(data_dir=small_disk / "data") as broker:
        await broker.create_topic("t", 1)
        servers = broker.bootstrap_servers
        async with (
            Producer(bootstrap_servers=servers, transactional_id="tx") as producer,
            Consumer(
                bootstrap_servers=servers,
                group_id="g",
                default_api_timeout_ms=1_000,
                enable_auto_commit=False,
            ) as consumer,
        ):
            consumer.assign(("t", 0))
            async with producer.transaction():
                await producer.send("t", value=b"first", partition=0)
            await consumer.commit({("t", 0): 1})
            ballast = small_disk / "ballast"
            fill(ballast)
            # Appending to an existing page needs no space.
            with pytest.raises(KafkaError):  # noqa: PT012
                for offset in range(2, 200):
                    await consumer.commit({("t", 0): offset})
            ballast.unlink()
            await consumer.commit({("t", 0): 500})
            async with producer.transaction():
                await producer.send("t", value=b"second", partition=0)
    async with (
        Broker(data_dir=small_disk / "data") as broker,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            isolation_level="read_committed",
        ) as consumer,
    ):
        consumer.assign(("t", 0))
        assert (await consumer.committed(("t", 0)))["t", 0].offset == 500
        consumer.seek(("t", 0), 0)
        assert [(await consumer.getone()).value for _ in range(2)] == [b"first", b"second"]
