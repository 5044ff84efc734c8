from __future__ import annotations

import random
from typing import Any

import pytest

from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication.controller_context import ControllerContext
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.broker.topics import NO_LEADER, Partition
from aiokafkawire.wire import ZERO_UUID

ALL = [1, 2, 3]


def registry(
    *, allow_unclean: bool = False, live: list[int] = ALL, uses_elr: bool = False, **options: Any
) -> ControllerContext:
    made = ControllerContext(
        ALL,
        MemoryStore(),
        BrokerConfig(**options),
        random.Random(1),
        allow_unclean=allow_unclean,
        uses_elr=uses_elr,
    )
    for node in live:
        made.on_node_startup(node)
    return made


def partition(made: ControllerContext, *replicas: int, **fields: Any) -> Partition:
    topic = made.create_topic("t", assignments={0: replicas or ALL}, **fields)
    return topic.partitions[0]


def is_current(of: Partition) -> tuple[int, int, list[int]]:
    return of.leader, of.leader_epoch, of.isr


def test_the_first_node_becomes_the_controller() -> None:
    made = registry(live=[])
    assert (made.controller_id, made.controller_epoch) == (NO_LEADER, 0)
    made.on_node_startup(2)
    made.on_node_startup(1)
    assert (made.controller_id, made.controller_epoch) == (2, 1)


def test_the_next_controller_stays_when_the_first_returns() -> None:
    made = registry()
    made.on_node_failure(1)
    assert (made.controller_id, made.controller_epoch) == (2, 2)
    made.on_node_startup(1)
    assert (made.controller_id, made.controller_epoch) == (2, 2)


def test_without_nodes_there_is_no_controller() -> None:
    made = registry(live=[1])
    made.on_node_failure(1)
    assert (made.controller_id, made.controller_epoch) == (NO_LEADER, 1)
    made.on_node_startup(1)
    assert (made.controller_id, made.controller_epoch) == (1, 2)


def test_a_new_partition_is_led_by_the_first_live_replica() -> None:
    made = registry(live=[2, 3])
    assert is_current(partition(made, 1, 2, 3)) == (2, 0, [2, 3])


def test_an_in_sync_replica_replaces_a_dead_leader() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    made.record_isr(("t", 0), 1, 0, (1, 3))
    made.on_node_failure(1)
    assert is_current(of) == (3, 1, [3])


def test_a_follower_that_dies_is_out_of_sync_in_a_new_epoch() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    made.on_node_failure(2)
    assert is_current(of) == (1, 1, [1, 3])
    made.on_node_startup(2)
    assert is_current(of) == (1, 1, [1, 3]), "it has to catch up"


def test_without_in_sync_replicas_the_last_one_is_awaited() -> None:
    made = registry()
    of = partition(made, 1, 2)
    made.record_isr(("t", 0), 1, 0, (1,))
    made.on_node_failure(1)
    assert is_current(of) == (NO_LEADER, 1, [1])
    made.on_node_failure(2)
    made.on_node_startup(2)
    assert is_current(of) == (NO_LEADER, 1, [1])
    made.on_node_startup(1)
    assert is_current(of) == (1, 2, [1])


def test_an_unclean_leader_is_alone_in_sync() -> None:
    made = registry(allow_unclean=True)
    of = partition(made, 1, 2, 3)
    made.record_isr(("t", 0), 1, 0, (1,))
    made.on_node_failure(1)
    assert is_current(of) == (2, 1, [2])


@pytest.mark.parametrize("allow_unclean", [True, False])
def test_a_topic_says_whether_its_leader_may_be_unclean(allow_unclean: bool) -> None:
    made = registry(allow_unclean=not allow_unclean)
    configs = {"unclean.leader.election.enable": str(allow_unclean).lower()}
    of = partition(made, 1, 2, configs=configs)
    made.record_isr(("t", 0), 1, 0, (1,))
    made.on_node_failure(1)
    assert of.leader == (2 if allow_unclean else NO_LEADER)


def test_only_the_leader_of_the_epoch_changes_the_isr() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    assert not made.record_isr(("t", 0), 2, 0, (2,))
    assert not made.record_isr(("t", 0), 1, 1, (1,))
    assert not made.record_isr(("t", 1), 1, 0, (1,))
    assert not made.record_isr(("u", 0), 1, 0, (1,))
    assert is_current(of) == (1, 0, [1, 2, 3])
    assert made.record_isr(("t", 0), 1, 0, (1,))
    assert is_current(of) == (1, 0, [1])


def test_a_dead_follower_cannot_be_in_sync() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    made.on_node_failure(2)
    assert not made.record_isr(("t", 0), 1, 1, (1, 2, 3))
    assert of.isr == [1, 3]


def test_only_in_sync_replicas_can_become_leader() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    made.record_isr(("t", 0), 1, 0, (1, 2))
    with pytest.raises(ValueError, match="node 3 is not in sync"):
        made.move_leader(of, 3)
    made.on_node_failure(3)
    with pytest.raises(ValueError, match="node 3 is not up"):
        made.move_leader(of, 3)
    made.move_leader(of, 2)
    assert is_current(of) == (2, 1, [1, 2])
    made.move_leader(of, 2)
    assert of.leader_epoch == 1


def test_controlled_shutdown_moves_leadership_and_leaves_the_isr() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    alone = made.create_topic("alone", assignments={0: [1]}).partitions[0]
    assert made.move_leaders_off(1) == []
    assert is_current(of) == (2, 1, [2, 3])
    assert alone.leader == 1, "nobody else could"
    assert not made.record_isr(("t", 0), 2, 1, (1, 2, 3))
    made.on_node_failure(1)
    made.on_node_startup(1)
    assert made.record_isr(("t", 0), 2, 1, (1, 2, 3))


def test_controlled_shutdown_removes_a_follower_from_the_isr() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    assert made.move_leaders_off(2) == []
    assert is_current(of) == (1, 1, [1, 3])


def test_controlled_shutdown_keeps_partitions_without_another_leader() -> None:
    made = registry()
    of = partition(made, 1, 2)
    made.move_leaders_off(2)
    assert made.move_leaders_off(1) == [("t", 0)]
    assert of.leader == 1


def test_every_change_is_notified() -> None:
    made = registry()
    received: list[int] = []
    made.on_change.add(lambda: received.append(len(received)))
    of = partition(made, 1, 2)
    made.move_leader(of, 2)
    made.record_isr(("t", 0), 2, 1, (2,))
    made.on_node_failure(3)
    made.delete_topic(made.topics["t"])
    assert len(received) == 5


def test_topic_names_are_unique() -> None:
    made = registry()
    assert made.topic_id("t") == ZERO_UUID
    partition(made, 1)
    first = made.topic_id("t")
    made.delete_topic(made.topics["t"])
    partition(made, 1)
    assert ZERO_UUID != made.topic_id("t") != first


def test_the_largest_batch_is_the_topics() -> None:
    made = registry()
    partition(made, 1, configs={"max.message.bytes": "5000000"})
    assert made.max_batch_bytes("t") == 5_000_000
    assert made.max_batch_bytes("u") == made.options.max_message_bytes


# --- who may lead without a loss (KIP-966) -------------------------------------------------------


def uses_elr() -> tuple[ControllerContext, Partition]:
    made = registry(uses_elr=True, min_insync_replicas=2)
    return made, partition(made, 1, 2, 3)


def test_a_replica_that_left_a_too_small_isr_may_still_lead() -> None:
    made, of = uses_elr()
    made.record_isr(("t", 0), 1, 0, (1, 3))
    assert of.elr == [], "enough are in sync"
    made.record_isr(("t", 0), 1, 0, (1,))
    assert (of.isr, of.elr) == ([1], [3])
    made.on_node_failure(1)
    assert (of.leader, of.isr, of.elr) == (3, [3], [1])
    made.record_isr(("t", 0), 3, of.leader_epoch, (2, 3))
    assert of.elr == []


def test_a_crashed_replica_may_have_lost_records() -> None:
    made, of = uses_elr()
    made.on_node_failure(3)
    made.on_node_failure(2)
    assert (of.isr, of.elr) == ([1], [2])
    made.on_node_failure(1)
    assert (of.leader, of.isr, of.elr) == (NO_LEADER, [], [1, 2])
    made.on_node_startup(2)
    assert (of.leader, of.elr) == (NO_LEADER, [1])


def test_a_cleanly_stopped_replica_has_all_records() -> None:
    made, of = uses_elr()
    made.on_node_failure(3)
    made.move_leaders_off(2)
    made.on_node_failure(2)
    made.on_node_failure(1)
    assert of.elr == [1, 2]
    made.on_node_startup(2)
    assert (of.leader, of.isr, of.elr) == (2, [2], [1])


def test_after_a_crash_of_all_the_last_leader_is_preferred() -> None:
    made, of = uses_elr()
    for node in (3, 2, 1):
        made.on_node_failure(node)
    for node in (2, 3):
        made.on_node_startup(node)
        assert of.leader == NO_LEADER
    made.on_node_startup(1)
    assert (of.leader, of.isr, of.elr, of.last_known_leader) == (1, [1], [], NO_LEADER)


def test_a_topic_of_one_replica_comes_back_with_its_node() -> None:
    made = registry(uses_elr=True)
    of = partition(made, 1)
    made.on_node_failure(1)
    assert is_current(of) == (NO_LEADER, 1, [])
    made.on_node_startup(1)
    assert is_current(of) == (1, 2, [1])


def test_the_only_in_sync_replica_is_reported() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    assert list(made.alone_in_sync(1)) == []
    made.on_node_failure(3)
    made.record_isr(("t", 0), 1, of.leader_epoch, (1,))
    assert list(made.alone_in_sync(1)) == [of]
    assert list(made.alone_in_sync(2)) == []
    made.on_node_failure(1)
    assert list(made.alone_in_sync(1)) == [of], "dead or not"


def test_with_an_eligible_replica_no_node_is_the_only_one() -> None:
    made, of = uses_elr()
    made.record_isr(("t", 0), 1, 0, (1,))
    assert list(made.alone_in_sync(1)) == []
    for node in (2, 3):
        made.on_node_failure(node)
    assert list(made.alone_in_sync(1)) == [of]
