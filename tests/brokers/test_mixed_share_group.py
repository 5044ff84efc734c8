"""Share consumers of Java, of librdkafka and of this package share one partition."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import confluent_kafka
import pytest
from anyio import to_thread

from aiokafkawire import ShareConsumer
from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from aiokafkawire.types import TopicPartition
from tests.behaviour.workers import Source
from tests.brokers.test_mixed_clients import WITHIN_S, JavaMember, LibrdkafkaMember, mixed_servers

AT_LEAST = 100
"""Records that each member reads."""

pytestmark = pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"), reason="confluent-kafka is older than 2.16"
)


class JavaShareMember(JavaMember):
    """Kafka's console share consumer, which accepts the records that it prints."""

    TOOL = "ConsoleShareConsumer"
    CONFIG = ""


class LibrdkafkaShareMember(LibrdkafkaMember):
    """A share consumer of confluent-kafka in a thread, in the implicit mode."""

    CONFIG: Mapping[str, object] = {}

    def _make(self, config: Mapping[str, object]) -> Any:
        return confluent_kafka.ShareConsumer(config)

    def _poll(self) -> None:
        for message in self._consumer.poll(0.1):
            assert message.error() is None, message.error()
            self._read.append(message.value() or b"")

    def _close(self) -> None:
        self._consumer.commit_sync()
        super()._close()


class OurShareMember:
    """A share consumer of this package in a task, in the implicit mode."""

    def __init__(self, servers: str, topic: str, group: str) -> None:
        self._consumer = ShareConsumer(topic, bootstrap_servers=servers, group_id=group)
        self._read: list[bytes] = []

    async def work(self) -> None:
        async with self._consumer:
            async for record in self._consumer:
                self._read.append(record.value or b"")

    def values(self) -> list[bytes]:
        return list(self._read)


@pytest.fixture(params=["embedded", "kafka"])
async def servers(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[str]:
    async with mixed_servers(
        request,
        group_share_min_heartbeat_interval_ms=100,
        group_share_heartbeat_interval_ms=200,
        group_share_assignment_interval_ms=0,
    ) as servers:
        yield servers


async def wait_until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - another process reads
            await anyio.sleep(0.1)


async def wait_until_all_is_acknowledged(admin: Admin, group: str, tp: TopicPartition) -> None:
    with anyio.fail_after(WITHIN_S):
        while True:
            info = (await admin.list_share_group_offsets([group]))[group][tp]
            if info is not None and info.lag == 0:
                return
            await anyio.sleep(0.1)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_each_record_is_accepted_once(
    servers: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    topic, group = f"mixed-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"
    source = Source(servers, topic, 1)
    ours = OurShareMember(servers, topic, group)
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.ensure_topics([NewTopic(topic, 1)])
        await admin.wait_for_topics([topic])
        resource = ConfigResource(ConfigResourceType.GROUP, group)
        await admin.incremental_alter_configs({resource: {"share.auto.offset.reset": "earliest"}})
        async with anyio.create_task_group() as tasks:
            with ExitStack() as stack:
                java = JavaShareMember(servers, topic, group, tmp_path)
                stack.callback(java.close)
                librdkafka = LibrdkafkaShareMember(servers, topic, group)
                stack.callback(librdkafka.leave)
                members = (java, librdkafka, ours)
                tasks.start_soon(ours.work)
                tasks.start_soon(source.work)
                await wait_until(
                    lambda: all(len(member.values()) >= AT_LEAST for member in members)
                )
                await to_thread.run_sync(java.leave)
                await to_thread.run_sync(librdkafka.leave)
                await source.stop()

                def seen() -> Counter[bytes]:
                    return Counter(value for member in members for value in member.values())

                await wait_until(lambda: seen().keys() == source.sent)
                await wait_until_all_is_acknowledged(admin, group, TopicPartition(topic, 0))
                tasks.cancel_scope.cancel()
    assert set(seen().values()) == {1}
    counts = " + ".join(f"{len(member.values())}" for member in members)
    record_property(
        "summary", f"Java, librdkafka and this client in one share group: {counts} records"
    )
