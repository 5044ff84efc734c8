from __future__ import annotations

import random
from typing import Any

import pytest

from aiokafkawire.broker.cluster_state import NO_LEADER, Partition
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication.controller_context import ControllerContext
from aiokafkawire.broker.storage import MemoryStore
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


def test_the_first_node_that_comes_is_the_controller() -> None:
    made = registry(live=[])
    assert (made.controller_id, made.controller_epoch) == (NO_LEADER, 0)
    made.on_node_startup(2)
    made.on_node_startup(1)
    assert (made.controller_id, made.controller_epoch) == (2, 1)


def test_another_node_is_the_controller_after_it_and_stays_it() -> None:
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


def test_a_new_partition_is_led_by_the_first_that_lives() -> None:
    made = registry(live=[2, 3])
    assert is_current(partition(made, 1, 2, 3)) == (2, 0, [2, 3])


def test_a_leader_that_dies_is_followed_by_one_in_sync() -> None:
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


def test_the_last_one_in_sync_is_waited_for() -> None:
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


def test_who_is_not_leader_in_that_epoch_puts_no_isr_down() -> None:
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


def test_only_who_is_in_sync_can_be_made_leader() -> None:
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


def test_who_shuts_down_gives_the_lead_away_and_stays_out_of_sync() -> None:
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


def test_who_shuts_down_is_no_follower_in_sync_any_more() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    assert made.move_leaders_off(2) == []
    assert is_current(of) == (1, 1, [1, 3])


def test_what_nobody_else_can_lead_stays() -> None:
    made = registry()
    of = partition(made, 1, 2)
    made.move_leaders_off(2)
    assert made.move_leaders_off(1) == [("t", 0)]
    assert of.leader == 1


def test_every_change_is_told() -> None:
    made = registry()
    received: list[int] = []
    made.on_change.add(lambda: received.append(len(received)))
    of = partition(made, 1, 2)
    made.move_leader(of, 2)
    made.record_isr(("t", 0), 2, 1, (2,))
    made.on_node_failure(3)
    made.delete_topic(made.topics["t"])
    assert len(received) == 5


def test_a_name_belongs_to_one_topic_at_a_time() -> None:
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


def test_who_left_an_isr_that_is_too_small_may_still_lead() -> None:
    made, of = uses_elr()
    made.record_isr(("t", 0), 1, 0, (1, 3))
    assert of.elr == [], "enough are in sync"
    made.record_isr(("t", 0), 1, 0, (1,))
    assert (of.isr, of.elr) == ([1], [3])
    made.on_node_failure(1)
    assert (of.leader, of.isr, of.elr) == (3, [3], [1])
    made.record_isr(("t", 0), 3, of.leader_epoch, (2, 3))
    assert of.elr == []


def test_who_crashed_may_have_lost_something() -> None:
    made, of = uses_elr()
    made.on_node_failure(3)
    made.on_node_failure(2)
    assert (of.isr, of.elr) == ([1], [2])
    made.on_node_failure(1)
    assert (of.leader, of.isr, of.elr) == (NO_LEADER, [], [1, 2])
    made.on_node_startup(2)
    assert (of.leader, of.elr) == (NO_LEADER, [1])


def test_who_stopped_in_good_order_has_everything() -> None:
    made, of = uses_elr()
    made.on_node_failure(3)
    made.move_leaders_off(2)
    made.on_node_failure(2)
    made.on_node_failure(1)
    assert of.elr == [1, 2]
    made.on_node_startup(2)
    assert (of.leader, of.isr, of.elr) == (2, [2], [1])


def test_if_all_crashed_who_led_last_has_most() -> None:
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


def test_who_is_alone_in_sync_is_told() -> None:
    made = registry()
    of = partition(made, 1, 2, 3)
    assert list(made.alone_in_sync(1)) == []
    made.on_node_failure(3)
    made.record_isr(("t", 0), 1, of.leader_epoch, (1,))
    assert list(made.alone_in_sync(1)) == [of]
    assert list(made.alone_in_sync(2)) == []
    made.on_node_failure(1)
    assert list(made.alone_in_sync(1)) == [of], "dead or not"


def test_with_somebody_eligible_nobody_is_alone() -> None:
    made, of = uses_elr()
    made.record_isr(("t", 0), 1, 0, (1,))
    assert list(made.alone_in_sync(1)) == []
    for node in (2, 3):
        made.on_node_failure(node)
    assert list(made.alone_in_sync(1)) == [of]
