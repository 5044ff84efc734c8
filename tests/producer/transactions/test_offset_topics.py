from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from aiokafkawire.cluster import CoordinatorType
from aiokafkawire.producer.transactions.offset_topics import OffsetTopics
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.primitives import ZERO_UUID

ID = UUID(int=7)


class ClusterWithTopics:
    """Metadata that gets the id of `known` with the next update."""

    def __init__(self, versions: dict[CoordinatorType, int], known: str = "t") -> None:
        self.versions = versions
        self.known = known
        self.ids: dict[str, UUID] = {}
        self.metadata = SimpleNamespace(
            version=0, errors={}, topic_id=lambda topic: self.ids.get(topic, ZERO_UUID)
        )
        self.topics: list[str] = []
        self.updates = 0

    def coordinator_versions(self, route: Any) -> Any:
        if route.type not in self.versions:
            return None
        supported = SimpleNamespace(max_version=self.versions[route.type])
        return SimpleNamespace(ranges={ApiKey.TXN_OFFSET_COMMIT: supported})

    def add_topics(self, names: list[str]) -> None:
        self.topics += names

    def remove_topics(self, names: list[str]) -> None:
        self.topics = [name for name in self.topics if name not in names]

    async def wait_update(self, version: int, deadline: float) -> bool:
        self.updates += 1
        self.ids[self.known] = ID
        return deadline > self.updates


def topics_of(cluster: ClusterWithTopics, times: list[float] | None = None) -> OffsetTopics:
    now = iter(times or [0.0] * 10)
    return OffsetTopics(cluster, "tx", 60.0, lambda: next(now))  # type: ignore[arg-type]


async def test_ids_are_awaited_if_the_coordinator_of_the_group_supports_them() -> None:
    cluster = ClusterWithTopics({CoordinatorType.GROUP: 6})
    await topics_of(cluster).fetch_ids(["t"], "g", deadline=10)
    assert (cluster.topics, cluster.updates) == (["t"], 1)


async def test_the_transaction_coordinator_stands_for_an_unknown_one() -> None:
    cluster = ClusterWithTopics({CoordinatorType.TRANSACTION: 6})
    await topics_of(cluster).fetch_ids(["t"], "g", deadline=10)
    assert cluster.topics == ["t"]


async def test_older_coordinators_need_no_ids() -> None:
    for versions in ({}, {CoordinatorType.GROUP: 5, CoordinatorType.TRANSACTION: 6}):
        cluster = ClusterWithTopics(versions)
        await topics_of(cluster).fetch_ids(["t"], "g", deadline=10)
        assert (cluster.topics, cluster.updates) == ([], 0)


async def test_a_topic_that_has_no_id_is_awaited_until_the_deadline_or_its_error() -> None:
    cluster = ClusterWithTopics({CoordinatorType.GROUP: 6}, known="other")
    topics = topics_of(cluster)
    await topics.fetch_ids(["t"], "g", deadline=3)
    assert cluster.updates == 3
    cluster.metadata.errors["t"] = 3
    await topics.fetch_ids(["t"], "g", deadline=10)
    assert cluster.updates == 3


async def test_topics_that_are_not_used_for_long_leave_the_metadata() -> None:
    cluster = ClusterWithTopics({CoordinatorType.GROUP: 6})
    topics = topics_of(cluster, [0.0, 50.0, 70.0])
    cluster.ids["other"] = ID
    await topics.fetch_ids(["t"], "g", deadline=10)
    await topics.fetch_ids(["other"], "g", deadline=10)
    await topics.fetch_ids(["other"], "g", deadline=10)
    assert cluster.topics == ["other"]
