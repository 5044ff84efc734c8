"""A classic group becomes a consumer group (KIP-848) member by member under load, and back."""

from __future__ import annotations

import functools
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin, GroupType
from tests.behaviour.support import WITHIN_S
from tests.behaviour.workers import Source, Worker, at_work, until
from tests.brokers.kafka import Kafka
from verify.soak import confluent_reader
from verify.soak.checker import check_commits

PARTITIONS, MEMBERS = 10, 5
READ_MORE = 20
"""Records that a new member reads before the next one is replaced."""
COOPERATIVE: dict[str, Any] = {
    "session_timeout_ms": 10_000,
    "partition_assignment_strategy": ["cooperative-sticky"],
}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}


async def settled_type(servers: str, group: str) -> GroupType | None:
    """Return the type of a group, once all members of a consumer group have its epoch.

    The classic group continues at that epoch: a member with an older one loses its partitions.
    """
    async with Admin(bootstrap_servers=servers) as admin:
        found = {each.group_id: each.type for each in await admin.list_groups()}[group]
        with anyio.fail_after(WITHIN_S):
            while found is GroupType.CONSUMER:
                described = (await admin.describe_consumer_groups([group]))[group]
                if {each.member_epoch for each in described.members} == {described.group_epoch}:
                    break
                await anyio.sleep(0.05)
        return found


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_five_members_under_load(
    kafka_43_server: Kafka, record_property: Callable[[str, object], None]
) -> None:
    servers = kafka_43_server.bootstrap_servers
    topic, group = f"upgrade-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"
    create = functools.partial(kafka_43_server.create_topic, topic, partitions=PARTITIONS)
    await anyio.to_thread.run_sync(create)
    source = Source(servers, topic, PARTITIONS)
    present = [Worker(servers, topic, group, **COOPERATIVE) for _ in range(MEMBERS)]
    every = list(present)

    def share_evenly() -> bool:
        return [each.owned for each in present] == [PARTITIONS // MEMBERS] * MEMBERS

    types: list[GroupType | None] = []
    async with at_work(*present) as tasks:
        tasks.start_soon(source.work)
        await until(every, share_evenly)
        for options in (CONSUMER, COOPERATIVE):
            for index in range(MEMBERS):
                types.append(await settled_type(servers, group))
                await present[index].leave()
                new = present[index] = Worker(servers, topic, group, **options)
                every.append(new)
                tasks.start_soon(new.work)
                await until(every, share_evenly)
                so_far = len(new.seen)
                await until(every, lambda new=new, end=so_far + READ_MORE: len(new.seen) >= end)
        types.append(await settled_type(servers, group))
        await source.stop()
        await until(present, lambda: set.union(*(each.values for each in every)) == source.sent)
        for each in present:
            await each.leave()
    # One member of the consumer protocol is enough.
    assert types == [
        *(GroupType.CLASSIC, *[GroupType.CONSUMER] * (2 * MEMBERS - 1), GroupType.CLASSIC)
    ]
    history = confluent_reader.commits(servers, group, topic)
    assert check_commits(history) == []
    assert {place.partition: place.offset for place in history} == Counter(
        int((value or b"").split(b"/")[0]) for value in source.sent
    )
    again = sum(len(each.seen) for each in every) - len(source.sent)
    record_property(
        "summary",
        f"online upgrade and downgrade of five members: {len(source.sent)} records processed, "
        f"{again} of them again, {len(history)} commits",
    )
    assert again == 0
