from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.broker.replication import metadata_cache
from aiokafkawire.broker.replication.controller_commands import (
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    LiveNode,
    UpdateMetadataCommand,
)
from aiokafkawire.broker.replication.metadata_cache import MetadataCache
from aiokafkawire.runtime import Address

ONE, TWO = LiveNode(Address("one", 1)), LiveNode(Address("two", 2), "west")
LED_BY_ONE = LeaderAndIsr(1, 0, (1, 2), (1, 2))
LED_BY_TWO = LeaderAndIsr(2, 0, (1, 2), (1, 2))
GONE = LeaderAndIsr(LEADER_DURING_DELETE, 0, (), ())


def command(**fields: Any) -> UpdateMetadataCommand:
    given = {"partitions": {}, "live": {1: ONE, 2: TWO}, **fields}
    return UpdateMetadataCommand(controller_id=1, controller_epoch=1, **given)


def test_nodes_are_replaced_and_partitions_added() -> None:
    cache = MetadataCache()
    assert cache.controller_id == -1
    cache.update(command(partitions={("a", 0): LED_BY_ONE, ("a", 1): LED_BY_TWO}))
    cache.update(command(partitions={("b", 0): LED_BY_ONE}, live={1: ONE}))
    assert cache.live == {1: ONE}
    assert cache.topics == {"a": {0: LED_BY_ONE, 1: LED_BY_TWO}, "b": {0: LED_BY_ONE}}
    assert cache.controller_id == 1


def test_a_topic_goes_with_its_last_partition() -> None:
    cache = MetadataCache()
    cache.update(command(partitions={("a", 0): LED_BY_ONE, ("a", 1): LED_BY_ONE}))
    cache.update(command(partitions={("a", 0): GONE}))
    assert cache.topics == {"a": {1: LED_BY_ONE}}
    cache.update(command(partitions={("a", 1): GONE, ("never", 0): GONE}))
    assert cache.topics == {}


def test_the_number_of_partitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cache, "MAX_TOTAL_PARTITIONS", 2)
    cache = MetadataCache()
    cache.update(command(partitions={("a", index): LED_BY_ONE for index in range(3)}))
    cache.update(command(partitions={("b", 0): LED_BY_ONE, ("a", 1): LED_BY_TWO}))
    assert cache.topics == {"a": {0: LED_BY_ONE, 1: LED_BY_TWO}}
    cache.update(command(partitions={("a", 0): GONE, ("b", 0): LED_BY_ONE}))
    assert cache.topics == {"a": {1: LED_BY_TWO}, "b": {0: LED_BY_ONE}}
