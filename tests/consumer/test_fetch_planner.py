from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.cluster.metadata import LeaderAndEpoch
from aiokafkawire.consumer.fetch_buffer import FetchBuffer
from aiokafkawire.consumer.fetch_planner import FULL_PARTITION_HOLD_S, FetchLimits
from aiokafkawire.consumer.partition import AssignedPartition, PreferredReadReplica
from aiokafkawire.consumer.partition_states import (
    EpochEndFetched,
    Fetching,
    Resetting,
    Seek,
    Validating,
)
from aiokafkawire.records import FetchedRange
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import TopicPartition

from .record_data import P0, P1, Planner, fetched, log

LIMITS = FetchLimits(buffer_bytes=5_000, partition_bytes=1_000)


def partition(tp: TopicPartition, offset: int = 0) -> AssignedPartition:
    return AssignedPartition(tp, "earliest", Fetching(FetchBuffer(offset)))


def fill(one: AssignedPartition, size_bytes: int, leader_epoch: int = -1) -> None:
    buffer = one.buffer
    assert buffer is not None
    data = log(1, start=buffer.fetch_offset)
    fetched_range = FetchedRange(buffer.fetch_offset + 1, leader_epoch)
    buffer.add(fetched(data, buffer.fetch_offset, one.tp), size_bytes, fetched_range)


def leaders(**nodes: int | None) -> Any:
    by_number = {int(name[1:]): node for name, node in nodes.items()}

    def leader(tp: TopicPartition) -> LeaderAndEpoch | None:
        node = by_number.get(tp.partition, 1)
        return None if node is None else LeaderAndEpoch(node, 9)

    return leader


def test_one_request_per_broker_fetches_all_its_partitions() -> None:
    planner = Planner(LIMITS)
    owned = [partition(P0, 5), partition(P1, 6), partition(TopicPartition("orders", 2))]
    plans = planner.plan(owned, leaders(p0=1, p1=2, p2=1), 0.0)
    assert [(plan.node, len(plan.parts)) for plan in plans] == [(1, 2), (2, 1)]
    part = plans[1].parts[0]
    assert (part.offset, part.leader_epoch, part.max_bytes) == (6, 9, 1_000)
    assert planner.plan(owned, leaders(p0=1, p1=2, p2=1), 0.0) == []
    planner.finished(plans[1])
    assert [plan.node for plan in planner.plan(owned, leaders(p0=1, p1=2), 0.0)] == [2]


def test_a_partition_with_a_new_leader_does_not_wait_for_the_old_one() -> None:
    planner = Planner(LIMITS)
    one = partition(P0)
    (old,) = planner.plan([one], leaders(p0=1), 0.0)
    assert planner.plan([one], leaders(p0=1), 0.0) == []
    one.update_leader(LeaderAndEpoch(2, 9))
    (new,) = planner.plan([one], leaders(p0=2), 0.0)
    assert (new.node, new.parts[0].offset) == (2, 0)
    assert new.parts[0].is_current
    assert not old.parts[0].is_current
    one.handle(Seek(50))
    planner.finished(new)
    assert planner.plan([one], leaders(p0=2), 0.0)[0].parts[0].offset == 50


def test_partitions_that_are_not_fetched() -> None:
    planner = Planner(LIMITS)
    paused, revoked, later, full = (partition(TopicPartition("orders", n)) for n in range(4))
    paused.paused = True
    revoked.pending_revocation = True
    later.not_before = 3.0
    fill(full, 1_000)
    resetting = AssignedPartition(TopicPartition("orders", 4), "earliest", Resetting(-1))
    owned = [paused, revoked, later, full, resetting]
    assert planner.plan(owned, leaders(), 0.0) == []
    assert planner.next_deadline(0.0) == 3.0
    assert planner.plan(owned, leaders(), 3.0)[0].parts[0].partition is later


def test_a_suspended_position_is_not_fetched_until_resume() -> None:
    planner = Planner(LIMITS)
    one = partition(P0)
    (plan,) = planner.plan([one], leaders(), 0.0)
    state = plan.parts[0].state
    planner.suspend(state)
    planner.finished(plan)
    assert planner.plan([one], leaders(), 0.0) == []
    planner.resume(state)
    assert planner.plan([one], leaders(), 0.0)[0].parts[0].state is state


def test_a_backoff_that_ends_while_others_are_updated_is_not_lost() -> None:
    planner = Planner(LIMITS)
    one = partition(P0)
    one.not_before = 1.5
    planner.update(one, leaders(), 1.0)
    assert planner.start_fetches([], leaders(), 2.0) == []
    assert planner.next_deadline(2.0) <= 2.0
    planner.update(one, leaders(), 2.0)
    assert planner.start_fetches([], leaders(), 2.0)
    assert planner.next_deadline(2.0) == NEVER


def test_one_chunk_is_fetched_ahead() -> None:
    planner = Planner(LIMITS)
    one = partition(P0)
    fill(one, 999)
    assert planner.plan([one], leaders(), 0.0)[0].parts[0].offset == 1


def test_a_full_partition_delays_its_broker_and_is_then_left_out() -> None:
    planner = Planner(LIMITS)
    full, other = partition(P0), partition(P1)
    owned = [full, other]
    fill(full, 1_000)
    assert planner.plan(owned, leaders(), 2.0) == []
    assert planner.next_deadline(2.0) == 2.0 + FULL_PARTITION_HOLD_S
    (plan,) = planner.plan(owned, leaders(), 2.0 + FULL_PARTITION_HOLD_S)
    assert ([part.partition for part in plan.parts], plan.short_wait) == ([other], True)
    planner.finished(plan)
    (plan,) = planner.plan(owned, leaders(), 2.1 + FULL_PARTITION_HOLD_S)
    assert plan.short_wait
    planner.finished(plan)
    full.handle(Seek(50))
    (plan,) = planner.plan(owned, leaders(), 2.2 + FULL_PARTITION_HOLD_S)
    assert (len(plan.parts), plan.short_wait) == (2, False)


def test_a_full_partition_that_is_paused_or_led_elsewhere_delays_no_fetch() -> None:
    for nodes in ({}, {"p0": 2}):
        planner = Planner(LIMITS)
        full, other = partition(P0), partition(P1)
        fill(full, 1_000)
        full.paused = not nodes
        (plan,) = planner.plan([full, other], leaders(**nodes), 0.0)
        assert ([part.partition for part in plan.parts], plan.short_wait) == ([other], False)


def test_all_buffers_together_are_limited() -> None:
    planner = Planner(FetchLimits(1_500, 1_000))
    owned = [partition(P0), partition(P1), partition(TopicPartition("orders", 2))]
    fill(owned[0], 800)
    fill(owned[1], 700)
    assert planner.plan(owned, leaders(), 0.0) == []


def test_a_partition_without_a_leader_waits_for_one() -> None:
    planner = Planner(LIMITS)
    one = partition(P0)
    assert planner.plan([one], leaders(p0=None), 0.0) == []
    assert planner.plan([one], leaders(), 0.0)


@pytest.mark.parametrize("how", ["paused", "excluded"])
def test_paused_and_excluded_partitions_do_not_block_others(how: str) -> None:
    planner = Planner(FetchLimits(1_500, 1_000))
    unread, other = partition(P0), partition(P1)
    fill(unread, 1_500)
    assert planner.plan([unread, other], leaders(p0=2), 0.0) == []
    setattr(unread, how, True)
    (plan,) = planner.plan([unread, other], leaders(p0=2), 0.0)
    assert [part.partition for part in plan.parts] == [other]


def test_the_leader_epoch_of_the_last_fetched_record_is_sent() -> None:
    planner = Planner(LIMITS)
    one = AssignedPartition(P0, "earliest", Fetching(FetchBuffer(5, 9), LeaderAndEpoch(1, 9)))
    (plan,) = planner.plan([one], leaders(), 0.0)
    assert plan.parts[0].last_fetched_epoch == 9
    planner.finished(plan)
    fill(one, 10, leader_epoch=8)
    (plan,) = planner.plan([one], leaders(), 0.0)
    assert plan.parts[0].last_fetched_epoch == 8


def test_a_position_with_an_epoch_is_validated_before_a_new_leader_is_fetched_from() -> None:
    planner = Planner(LIMITS)
    one = AssignedPartition(P0, "earliest", Fetching(FetchBuffer(5, 3)))
    assert planner.plan([one], leaders(), 0.0) == []
    state = one.state
    assert isinstance(state, Validating)
    assert state.leader == LeaderAndEpoch(1, 9)
    one.handle(EpochEndFetched(state, 3, 5))
    assert planner.plan([one], leaders(), 0.0)


def test_a_preferred_read_replica_is_fetched_from_until_it_expires_or_is_gone() -> None:
    planner = Planner(LIMITS)
    one, other = partition(P0), partition(P1)
    for each in (one, other):
        each.update_leader(LeaderAndEpoch(1, 9))
    one.preferred_replica = PreferredReadReplica(2, until=10.0)
    plans = planner.plan([one, other], leaders(), 0.0, nodes={1, 2})
    assert [(plan.node, plan.parts[0].from_follower) for plan in plans] == [(2, True), (1, False)]
    for plan in plans:
        planner.finished(plan)
    for now, nodes in ((10.0, {1, 2}), (0.0, {1})):
        one.preferred_replica = PreferredReadReplica(2, until=10.0)
        (plan,) = planner.plan([one], leaders(), now, nodes=nodes)
        assert (plan.node, plan.parts[0].from_follower) == (1, False)
        assert one.preferred_replica is None
        planner.finished(plan)


def test_a_leader_change_ends_the_preferred_read_replica() -> None:
    planner = Planner(LIMITS)
    one = partition(P0)
    one.update_leader(LeaderAndEpoch(1, 9))
    one.preferred_replica = PreferredReadReplica(2, until=10.0)
    one.update_leader(LeaderAndEpoch(3, 10))
    (plan,) = planner.plan([one], leaders(p0=3), 0.0, nodes={1, 2, 3})
    assert plan.node == 3


def test_removed_partitions_are_forgotten() -> None:
    planner = Planner(LIMITS)
    owned = [partition(TopicPartition("orders", number)) for number in range(100)]
    owned[1].not_before = 5.0
    (plan,) = planner.plan(owned, leaders(), 0.0)
    planner.finished(plan)
    (plan,) = planner.plan(owned[:1], leaders(), 0.0)
    assert [part.partition for part in plan.parts] == owned[:1] == planner.planned_partitions()
    assert not planner.backing_off


def test_a_failed_broker_backs_off() -> None:
    planner = Planner(LIMITS)
    owned = [partition(P0)]
    (plan,) = planner.plan(owned, leaders(), 0.0)
    planner.finished(plan, backoff_until=2.0)
    assert planner.plan(owned, leaders(), 1.0) == []
    assert planner.next_deadline(1.0) == 2.0
    assert planner.plan(owned, leaders(), 2.0)


def test_partitions_with_data_move_to_the_end_of_the_request() -> None:
    planner = Planner(LIMITS)
    owned = [partition(P0), partition(P1)]
    (plan,) = planner.plan(owned, leaders(), 0.0)
    assert [part.partition.tp for part in plan.parts] == [P0, P1]
    fill(owned[0], 10)
    planner.finished(plan)
    (plan,) = planner.plan(owned, leaders(), 0.0)
    assert [part.partition.tp for part in plan.parts] == [P1, P0]


def test_a_partition_with_a_larger_fetch_size_is_fetched_alone() -> None:
    planner = Planner(LIMITS)
    owned = [partition(P0), partition(P1)]
    owned[1].max_bytes = 70_000
    (plan,) = planner.plan(owned, leaders(), 0.0)
    assert [(part.partition.tp, part.max_bytes) for part in plan.parts] == [(P1, 70_000)]


def test_a_response_is_current_unless_the_partition_changed() -> None:
    planner = Planner(LIMITS)
    one = partition(P0)
    (plan,) = planner.plan([one], leaders(), 0.0)
    (part,) = plan.parts
    assert part.is_current
    one.pending_revocation = True
    assert not part.is_current
    one.pending_revocation = False
    fill(one, 10)
    assert not part.is_current  # another fetch has returned these records
    one.handle(Seek(0))
    assert not part.is_current


@given(st.data())
def test_limits_hold_in_any_sequence_of_events(data: st.DataObject) -> None:
    planner = Planner(LIMITS)
    owned = [partition(TopicPartition("orders", number)) for number in range(5)]
    under_way: list[Any] = []
    now = 0.0
    for _ in range(data.draw(st.integers(1, 25))):
        now += 1.0
        one = data.draw(st.sampled_from(owned))
        match data.draw(st.sampled_from(["plan", "answer", "seek", "pause", "take"])):
            case "plan":
                nodes = [data.draw(st.integers(1, 3)) for _ in owned]

                def leader(tp: TopicPartition, nodes: list[int] = nodes) -> LeaderAndEpoch:
                    return LeaderAndEpoch(nodes[tp.partition], 1)

                for plan in planner.plan(owned, leader, now):
                    assert plan.node not in [other.node for other in under_way]
                    for part in plan.parts:
                        assert not part.partition.paused
                        assert part.buffer.size_bytes < LIMITS.partition_bytes
                    under_way.append(plan)
                is_current = [
                    id(part.buffer) for plan in under_way for part in plan.parts if part.is_current
                ]
                assert len(set(is_current)) == len(is_current)
            case "answer" if under_way:
                plan = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
                for part in plan.parts:
                    if part.is_current:
                        assert part.offset == part.partition.buffer.fetch_offset
                        fill(part.partition, data.draw(st.integers(1, 1_000)))
                rest = data.draw(st.one_of(st.none(), st.just(now + 2)))
                planner.finished(plan, rest)
            case "seek":
                one.handle(Seek(data.draw(st.integers(0, 50))))
            case "pause":
                one.paused = not one.paused
            case "take":
                assert one.buffer is not None
                one.buffer.take(1, "a")


# --- where only some partitions are looked at ------------------------------------------------


def led_by(nodes: int, partitions: int) -> tuple[list[AssignedPartition], Any]:
    owned = [partition(TopicPartition("orders", number)) for number in range(partitions)]
    return owned, lambda tp: LeaderAndEpoch(tp.partition % nodes + 1, 1)


def test_an_empty_response_checks_no_partition() -> None:
    owned, leader_of = led_by(4, 40)
    planner = Planner(LIMITS)
    plans = {plan.node: plan for plan in planner.plan(owned, leader_of, 0.0)}
    planner.finished(plans[2])
    looked_at = []
    real = planner._needs_fetch

    def wants(one: AssignedPartition, state: Fetching, now: float) -> bool:
        looked_at.append(one)
        return real(one, state, now)

    planner._needs_fetch = wants  # type: ignore[method-assign]
    (plan,) = planner.start_fetches([], leader_of, 0.0)
    assert plan.parts is plans[2].parts
    assert planner.start_fetches([], leader_of, 0.0) == []
    planner.finished(plan)
    fill(owned[5], 10)
    planner.update(owned[5], leader_of, 0.0)
    (plan,) = planner.start_fetches([owned[5]], leader_of, 0.0)
    assert [part.partition for part in plan.parts] == [owned[1], *owned[9::4], owned[5]]
    assert looked_at == [owned[5]]


def test_full_partitions_and_limits_apply_to_start_fetches() -> None:
    owned, leader_of = led_by(2, 4)
    planner = Planner(FetchLimits(1_500, 1_000))
    for plan in planner.plan(owned, leader_of, 0.0):
        planner.finished(plan)
    fill(owned[0], 1_000)
    planner.update(owned[0], leader_of, 0.0)
    (plan,) = planner.start_fetches([owned[0]], leader_of, 0.0)
    assert plan.node == 2
    assert planner.next_deadline(0.0) == FULL_PARTITION_HOLD_S
    planner.finished(plan)
    fill(owned[1], 700)
    planner.update(owned[1], leader_of, 0.0)
    assert planner.start_fetches(owned[:2], leader_of, 1.0) == []
    assert planner.buffers_full


def test_a_position_is_not_fetched_from_two_brokers_at_once() -> None:
    owned, leader_of = led_by(2, 4)
    planner = Planner(LIMITS)
    nodes = {1, 2, 3}
    first, _ = planner.plan(owned, leader_of, 0.0, nodes)
    owned[0].preferred_replica = PreferredReadReplica(3, 5.0)
    planner.update(owned[0], leader_of, 1.0, nodes)
    assert planner.start_fetches([], leader_of, 1.0) == []
    assert list(planner.deferred) == [owned[0]]
    planner.finished(first)
    planner.update(owned[0], leader_of, 1.0, nodes)
    plans = planner.start_fetches([], leader_of, 1.0)
    assert [(plan.node, [p.partition for p in plan.parts]) for plan in plans] == [
        (1, [owned[2]]),
        (3, [owned[0]]),
    ]
    assert (list(planner.followers), list(planner.deferred)) == ([owned[0]], [])
    for plan in plans:
        planner.finished(plan)
    planner.update(owned[0], leader_of, 6.0, nodes)
    (plan,) = planner.start_fetches([], leader_of, 6.0)
    assert [p.partition for p in plan.parts] == [owned[2], owned[0]]
    assert not planner.followers
