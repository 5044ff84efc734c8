"""Log lines about changes of the metadata."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.cluster import metadata_log
from aiokafkawire.cluster.metadata import (
    MetadataSnapshot,
    MetadataUpdate,
    NodeInfo,
    PartitionMetadata,
    TopicMetadata,
)
from aiokafkawire.cluster.metadata_log import MetadataLog
from aiokafkawire.runtime import Address


def nodes(*numbers: int) -> Any:
    return {number: NodeInfo(number, Address(f"host{number}", 9092)) for number in numbers}


def topics(**leaders: int) -> Any:
    return {
        name: TopicMetadata(
            name, UUID(int=1), MappingProxyType({0: PartitionMetadata(0, leader_id=leader)})
        )
        for name, leader in leaders.items()
    }


BEFORE = MetadataSnapshot(1, "cluster", 1, nodes(1, 2), topics=topics(orders=1, old=1, payments=2))
CHANGED = MetadataSnapshot(2, "cluster", 3, nodes(2, 3), topics=topics(orders=2, new=3, payments=2))


def logged(
    caplog: pytest.LogCaptureFixture, after: MetadataSnapshot, *only: str, level: int
) -> str:
    """Return what is logged about a change from `BEFORE`, perhaps of some topics only."""
    caplog.set_level(level, "aiokafkawire.cluster")
    MetadataLog("consumer c", {}).changed(BEFORE, MetadataUpdate(after, topics=only or None))
    return caplog.text


def test_each_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        "consumer c: metadata 2: brokers added: 3 at host3:9092; brokers removed: 1 at host1:9092;"
        " controller 1 -> 3; topics added: new; topics removed: old;"
        " leader or replicas of orders [0] changed\n"
    ) in logged(caplog, CHANGED, level=logging.DEBUG)


def test_only_topics_of_the_update_are_compared(caplog: pytest.LogCaptureFixture) -> None:
    text = logged(caplog, CHANGED, "new", level=logging.DEBUG)
    assert "topics added: new" in text
    assert "topics removed" not in text
    assert "leader" not in text


def test_nothing_is_logged_without_a_change_or_at_info(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, BEFORE, level=logging.DEBUG) == ""
    assert logged(caplog, CHANGED, level=logging.INFO) == ""


def test_a_warning_is_logged_once_until_too_many_are_remembered(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "MAX_REMEMBERED_WARNINGS", 2)
    log = MetadataLog("consumer c", {})
    for warning in ("one", "one", "two", "three", "one"):
        log.warn(BEFORE, MetadataUpdate(BEFORE, (warning,)))
    assert [record.args[1] for record in caplog.records if record.args] == [  # type: ignore[index]
        "one",
        "two",
        "three",
        "one",
    ]


@pytest.mark.parametrize(("cluster_id", "warned"), [("cluster", 0), (None, 0), ("other", 1)])
def test_another_cluster_id_is_a_warning(
    cluster_id: str | None, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = MetadataLog("consumer c", {})
    log.warn(BEFORE, MetadataUpdate(MetadataSnapshot(2, cluster_id)))
    assert caplog.messages == warned * [
        "consumer c: metadata: the cluster id changed from cluster to other: either a new cluster"
        " replaced the old one, as when brokers start without their data, or addresses lead to two"
        " clusters; check the brokers' data, bootstrap_servers and advertised.listeners"
    ]
