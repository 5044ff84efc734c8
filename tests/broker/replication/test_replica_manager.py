from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.configs import LogConfig
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication import replica_manager as module
from aiokafkawire.broker.replication.controller_commands import (
    Key,
    LeaderAndIsr,
    LeaderAndIsrCommand,
    LiveNode,
    StopReplicaCommand,
    UpdateMetadataCommand,
)
from aiokafkawire.broker.replication.replica import Following, Leading, Offline, Truncating
from aiokafkawire.broker.replication.replica_manager import ReplicaManager, ReplicationConfig
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ErrorCode

from .logs import NODE, assignment, write

E = ErrorCode
KEY: Key = ("t", 0)
LAG_S = 10.0
HERE = Address("here", 1)


class IsrRecorder:
    """Records the appends of leaders; fails on request."""

    def __init__(self) -> None:
        self.written: list[tuple[Key, int, int, tuple[int, ...]]] = []
        self.accepts = True
        self.known_as = UUID(int=1)
        self.least_in_sync = 2

    def record_isr(self, key: Key, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> bool:
        self.written.append((key, leader, leader_epoch, isr))
        return self.accepts

    def max_batch_bytes(self, topic: str) -> int:
        return len(topic)

    def min_in_sync(self, topic: str) -> int:
        return self.least_in_sync

    def log_config(self, topic: str, node_id: int) -> LogConfig:
        return LogConfig.from_options(BrokerConfig())

    def topic_id(self, topic: str) -> UUID:
        return self.known_as


@pytest.fixture
def isr_recorder() -> IsrRecorder:
    return IsrRecorder()


@pytest.fixture
def manager(isr_recorder: IsrRecorder) -> ReplicaManager:
    options = BrokerConfig(replica_lag_time_max_ms=int(LAG_S * 1000))
    return ReplicaManager(NODE, options, MemoryStore(), isr_recorder)


def command(controller_epoch: int = 1, **changes: Any) -> LeaderAndIsrCommand:
    return LeaderAndIsrCommand(
        controller_id=1,
        controller_epoch=controller_epoch,
        partitions={KEY: assignment(**changes)},
        leaders={},
    )


def stop(delete: bool, epoch: int = 1) -> StopReplicaCommand:
    return StopReplicaCommand(controller_id=1, controller_epoch=epoch, partitions={KEY: delete})


def test_a_node_leads_and_follows_as_commanded(manager: ReplicaManager) -> None:
    partitions: Mapping[Key, LeaderAndIsr] = {("t", 0): assignment(NODE), ("t", 1): assignment(2)}
    lead = LeaderAndIsrCommand(
        controller_id=1, controller_epoch=1, partitions=partitions, leaders={2: HERE}
    )
    assert manager.become_leader_or_follower(lead, 0.0) == {("t", 0): E.NONE, ("t", 1): E.NONE}
    assert isinstance(manager.replica("t", 0).state, Leading)
    assert manager.replica("t", 1).state == Following()
    assert [replica.index for replica in manager.followers_of(2)] == [1]
    assert list(manager.followers_of(3)) == []
    assert manager.endpoints[2] == HERE


def test_become_follower_starts_fetching_from_the_leader(manager: ReplicaManager) -> None:
    leaders: list[int] = []
    manager.on_new_leader = leaders.append
    manager.become_leader_or_follower(command(), 0.0)
    manager.become_leader_or_follower(command(leader=2, epoch=1), 0.0)
    assert leaders == [], "nobody said where node 2 is"
    command_with_addresses = dataclasses.replace(
        command(leader=3, epoch=2), leaders={1: HERE, 3: HERE}
    )
    manager.become_leader_or_follower(command_with_addresses, 0.0)
    assert leaders == [3]


def test_partitions_of_a_command_are_limited(
    manager: ReplicaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TOTAL_PARTITIONS", 1)
    monkeypatch.setattr(module, "MAX_NODES", 1)
    lead = LeaderAndIsrCommand(
        controller_id=1,
        controller_epoch=1,
        partitions={("t", index): assignment() for index in range(2)},
        leaders={2: HERE, 3: HERE},
    )
    assert list(manager.become_leader_or_follower(lead, 0.0).values()) == [
        E.NONE,
        E.POLICY_VIOLATION,
    ]
    assert list(manager.endpoints) == [2]


@pytest.mark.parametrize("epoch", [3, 4])
def test_stale_leader_epochs_are_rejected(manager: ReplicaManager, epoch: int) -> None:
    manager.become_leader_or_follower(command(epoch=4), 0.0)
    answer = manager.become_leader_or_follower(command(leader=2, epoch=epoch), 0.0)
    assert answer == {KEY: E.STALE_CONTROLLER_EPOCH}
    assert manager.replica("t", 0).leader == NODE


def test_partitions_without_a_local_replica_are_rejected(manager: ReplicaManager) -> None:
    answer = manager.become_leader_or_follower(command(leader=2, replicas=(2, 3)), 0.0)
    assert answer == {KEY: E.UNKNOWN_TOPIC_OR_PARTITION}
    with pytest.raises(ApiError) as refused:
        manager.replica("t", 0)
    assert refused.value.code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stale_controller_epoch_is_rejected(manager: ReplicaManager) -> None:
    manager.update_metadata(
        UpdateMetadataCommand(
            controller_id=1, controller_epoch=5, partitions={}, live={2: LiveNode(HERE)}
        )
    )
    older = UpdateMetadataCommand(controller_id=9, controller_epoch=4, partitions={}, live={})
    for refused in (
        lambda: manager.become_leader_or_follower(command(4), 0.0),
        lambda: manager.stop_replicas(stop(True, 4), 0.0),
        lambda: manager.update_metadata(older),
    ):
        with pytest.raises(ApiError) as refusal:
            refused()
        assert refusal.value.code == E.STALE_CONTROLLER_EPOCH
    assert manager.replicas == {}
    assert (manager.metadata.controller_id, list(manager.metadata.live)) == (1, [2])


def test_a_stopped_partition_keeps_its_log(manager: ReplicaManager) -> None:
    manager.become_leader_or_follower(command(leader=2), 0.0)
    assert manager.stop_replicas(stop(False), 0.0) == {KEY: E.NONE}
    assert manager.replica("t", 0).state == Offline()
    assert list(manager.followers_of(2)) == []


def test_a_partition_that_is_deleted_is_gone_with_its_records(manager: ReplicaManager) -> None:
    manager.become_leader_or_follower(command(), 0.0)
    replica = manager.replica("t", 0)
    write(replica.log, 2)
    hits: list[bool] = []
    replica.on_change.add(lambda: hits.append(replica.deleted))
    assert manager.stop_replicas(stop(True), 0.0) == {KEY: E.NONE}
    assert hits == [True], "who waits there has to hear of it"
    assert KEY not in manager.replicas
    assert manager.stop_replicas(stop(True), 0.0) == {KEY: E.NONE}
    manager.become_leader_or_follower(command(), 0.0)
    assert manager.replica("t", 0).log.end_offset == 0


def test_followers_enter_the_isr_when_that_is_recorded(
    manager: ReplicaManager, isr_recorder: IsrRecorder
) -> None:
    manager.become_leader_or_follower(command(isr=(NODE,), epoch=1), 0.0)
    replica = manager.replica("t", 0)
    isr_recorder.accepts = False
    manager.update_follower_fetch_state(replica, 2, 0, 1.0)
    assert replica.isr == [NODE]
    isr_recorder.accepts = True
    manager.update_follower_fetch_state(replica, 2, 0, 2.0)
    assert replica.isr == [NODE, 2]
    assert isr_recorder.written == [(KEY, NODE, 1, (NODE, 2))] * 2


def test_slow_followers_leave_the_isr(manager: ReplicaManager, isr_recorder: IsrRecorder) -> None:
    manager.become_leader_or_follower(command(), 0.0)
    replica = manager.replica("t", 0)
    manager.update_follower_fetch_state(replica, 2, 0, LAG_S)
    manager.maybe_shrink_isrs(LAG_S)
    assert isr_recorder.written == []
    manager.maybe_shrink_isrs(LAG_S + 1)
    assert replica.isr == [NODE, 2]


def test_a_follower_is_not_asked_how_far_others_are(
    manager: ReplicaManager, isr_recorder: IsrRecorder
) -> None:
    manager.become_leader_or_follower(command(leader=2), 0.0)
    manager.update_follower_fetch_state(manager.replica("t", 0), 3, 0, 1.0)
    manager.maybe_shrink_isrs(99.0)
    assert isr_recorder.written == []


def test_a_crash_leaves_the_logs_and_the_high_watermarks(manager: ReplicaManager) -> None:
    manager.become_leader_or_follower(command(isr=(NODE, 2)), 0.0)
    before = manager.replica("t", 0)
    write(before.log, 3)
    manager.update_follower_fetch_state(before, 2, 2, 1.0)
    manager.checkpoint()
    manager.update_follower_fetch_state(before, 2, 3, 1.0)
    assert before.high_watermark == 3
    manager.crash()
    assert manager.replicas == {}
    assert manager.metadata.live == {}
    # The epoch is the same, but new to the new process.
    assert manager.become_leader_or_follower(command(leader=2), 0.0) == {KEY: E.NONE}
    after = manager.replica("t", 0)
    assert (after.log.end_offset, after.high_watermark) == (3, 2)
    assert after.state == Truncating(0)


def test_a_loss_of_power_leaves_what_was_synced(manager: ReplicaManager) -> None:
    manager.become_leader_or_follower(command(isr=(NODE,)), 0.0)
    before = manager.replica("t", 0)
    write(before.log, 2)
    manager.flush()
    write(before.log, 3)
    before.on_append()
    manager.checkpoint()
    manager.crash(lose_unsynced=True)
    manager.become_leader_or_follower(command(isr=(NODE,)), 0.0)
    after = manager.replica("t", 0)
    assert (after.log.end_offset, after.high_watermark) == (2, 2)
    # Data found at startup counts as synced.
    manager.crash(lose_unsynced=True)
    manager.become_leader_or_follower(command(isr=(NODE,)), 0.0)
    assert manager.replica("t", 0).log.end_offset == 2


def test_every_write_is_notified(manager: ReplicaManager) -> None:
    notified: list[int] = []
    manager.on_write.add(lambda: notified.append(1))
    manager.become_leader_or_follower(command(), 0.0)
    replica = manager.replica("t", 0)
    before = len(notified)
    replica.on_append()
    assert len(notified) > before


@pytest.mark.parametrize("waits_for_min_isr", [True, False])
def test_min_isr_semantics_follow_the_release(
    manager: ReplicaManager, isr_recorder: IsrRecorder, waits_for_min_isr: bool
) -> None:
    manager.habits = ReplicationConfig(waits_for_min_isr=waits_for_min_isr)
    manager.become_leader_or_follower(command(), 0.0)
    assert manager.replica("t", 0).min_in_sync == (2 if waits_for_min_isr else 0)
    isr_recorder.least_in_sync = 3
    manager.update_configs()
    assert manager.replica("t", 0).min_in_sync == (3 if waits_for_min_isr else 0)


def test_leftovers_of_an_earlier_topic_with_the_name_are_deleted(
    manager: ReplicaManager, isr_recorder: IsrRecorder
) -> None:
    manager.become_leader_or_follower(command(), 0.0)
    write(manager.replica("t", 0).log, 3)
    manager.crash()
    isr_recorder.known_as = UUID(int=2)
    manager.become_leader_or_follower(command(), 0.0)
    assert manager.replica("t", 0).log.end_offset == 0


def test_leftovers_of_a_crash_can_be_deleted(manager: ReplicaManager) -> None:
    manager.become_leader_or_follower(command(), 0.0)
    write(manager.replica("t", 0).log, 3)
    manager.crash()
    manager.stop_replicas(stop(True), 0.0)
    manager.become_leader_or_follower(command(), 0.0)
    assert manager.replica("t", 0).log.end_offset == 0


def test_truncation_follows_the_release(manager: ReplicaManager) -> None:
    manager.habits = ReplicationConfig(truncates_by_epoch=False)
    manager.become_leader_or_follower(command(), 0.0)
    replica = manager.replica("t", 0)
    write(replica.log, 3)
    manager.become_leader_or_follower(command(leader=2, epoch=1), 0.0)
    assert replica.state == Following()
    assert replica.log.end_offset == 0


def test_fetches_allow_the_largest_batch(manager: ReplicaManager) -> None:
    manager.become_leader_or_follower(command(), 0.0)
    assert manager.max_batch_bytes(manager.replica("t", 0)) == len("t")
