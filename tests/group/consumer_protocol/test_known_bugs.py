"""Twenty bugs that other clients of the consumer protocol had: one test for each.

`BUGS` has the issue, the behaviour that is right, and where it is tested: a test function, or a
corner case of `verify/simulation/scenarios/protocol_corners.py`, which
`tests/verify/simulation/test_protocol_corners.py` runs on each backend.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tests
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import CommitFailed, KafkaError
from aiokafkawire.group.commit_events import (
    CommitDue,
    CommitResponseReceived,
    CompleteCommit,
    OwnershipEnded,
    Rejoined,
    SendCommit,
)
from aiokafkawire.group.commit_machine import CommitMachine
from aiokafkawire.group.consumer_protocol import events, states
from aiokafkawire.group.consumer_protocol.effects import (
    ChangeEpoch,
    SendConsumerHeartbeat,
    SendLeaveEpoch,
)
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import AssignPartitions, RevokePartitions
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.types import OffsetAndMetadata
from aiokafkawire.wire import ErrorCode
from tests.group.consumer_protocol.test_machine import (
    INTERVAL_S,
    O0,
    O1,
    TARGET,
    TOPICS,
    due,
    joined,
    only,
    topic_partitions,
)

HERE = "group/consumer_protocol/test_known_bugs.py"
FAULTS = "faults/test_consumer_protocol.py"
ERROR = KafkaError("refused")


class Bug(NamedTuple):
    """A bug of another client; `tested` is "file::function", or "corner: name"."""

    issue: str
    behaviour: str
    tested: str


BUGS: Sequence[Bug] = (
    Bug(
        "KAFKA-19335",
        "a late response to a leave does not change a member that joins again",
        f"{HERE}::test_a_late_response_to_a_leave_is_ignored",
    ),
    Bug(
        "KAFKA-20765",
        "lookups of offsets with a stale epoch back off",
        f"{FAULTS}::test_a_stale_epoch_does_not_make_lookups_spin",
    ),
    Bug(
        "platformatic/kafka #267",
        "a stale epoch in OffsetFetch never resets a position",
        f"{FAULTS}::test_a_refused_epoch_never_resets_a_position",
    ),
    Bug(
        "node-rdkafka #1146",
        "members that come and go fail no commit of the others, and stall none of them",
        f"{FAULTS}::test_members_that_come_and_go_fail_no_commit",
    ),
    Bug(
        "platformatic/kafka #340",
        "the listener learns of revoked partitions",
        "behaviour/test_consumer_protocol.py::test_the_listener_learns_of_partitions_that_move",
    ),
    Bug(
        "franz-go 1.21.6, unknown topics",
        "a topic that is assigned before the metadata has it is read",
        "group/consumer_protocol/test_patterns.py"
        "::test_the_metadata_is_refreshed_until_assigned_topics_are_known",
    ),
    Bug(
        "franz-go 1.21.6, keepalives",
        "no heartbeat releases a partition before it is revoked",
        f"{HERE}::test_no_heartbeat_releases_a_partition_before_it_is_revoked",
    ),
    Bug(
        "franz-go 1.21.6, order",
        "a commit that is retried with the next epoch leaves out revoked partitions",
        f"{HERE}::test_a_commit_sent_again_leaves_out_revoked_partitions",
    ),
    Bug(
        "KAFKA-20040",
        "a member may unsubscribe while OffsetFetch is in flight",
        "corner: offsets without subscription",
    ),
    Bug(
        "KAFKA-19356",
        "topics that are no longer subscribed are not read, although they are assigned",
        "corner: smaller subscription",
    ),
    Bug(
        "KAFKA-19357",
        "a close ends without a coordinator, with a commit in flight",
        "corner: close without coordinator",
    ),
    Bug(
        "KAFKA-17116",
        "a member that is closed before the response to its join leaves",
        "corner: close while joining",
    ),
    Bug(
        "KAFKA-20428",
        "an assignment that comes while a member unsubscribes is not applied",
        f"{HERE}::test_an_assignment_that_comes_while_leaving_is_not_applied",
    ),
    Bug(
        "KAFKA-19781",
        "partitions that are being revoked have positions",
        "corner: positions during revocation",
    ),
    Bug(
        "KAFKA-20131, KAFKA-20187",
        "a failed ListOffsets does not leave the lag unknown",
        "corner: lag after failed lookup",
    ),
    Bug(
        "KAFKA-16251",
        "a fenced instance sends no heartbeats",
        f"{HERE}::test_a_fenced_instance_sends_no_heartbeats",
    ),
    Bug(
        "KAFKA-19300",
        "a member without permission for the group may unsubscribe",
        "corner: unsubscribe without permission",
    ),
    Bug(
        "KAFKA-18160",
        "a listener that is cancelled does not stop the rebalance",
        "corner: callback that is cancelled",
    ),
    Bug(
        "librdkafka #4672",
        "the epoch of a response is used although the member is leaving",
        f"{HERE}::test_a_leaving_member_commits_with_the_newest_epoch",
    ),
    Bug(
        "KAFKA-20854, KAFKA-20939",
        "names of servers that are unknown at first cause no busy loop",
        "corner: bootstrap without names",
    ),
)


def test_each_of_the_twenty_bugs_has_a_test() -> None:
    assert len({bug.issue for bug in BUGS}) == 20
    for bug in BUGS:
        if bug.tested.startswith("corner: "):
            corners = pytest.importorskip("verify.simulation.scenarios.protocol_corners").CORNERS
            assert bug.tested.removeprefix("corner: ") in corners, bug
            continue
        path, function = bug.tested.split("::")
        tree = ast.parse((Path(tests.__file__).parent / path).read_text(encoding="utf-8"))
        names = {getattr(node, "name", None) for node in tree.body}
        assert function in names, bug


@pytest.mark.parametrize("late_epoch", [None, -1, -2])
def test_a_late_response_to_a_leave_is_ignored(late_epoch: int | None) -> None:
    machine = joined()
    revoke = only(machine.handle(shared.Unsubscribed(), 2.0), RevokePartitions)
    leave = only(machine.handle(shared.PartitionsRevoked(revoke.request), 2.0), SendLeaveEpoch)
    machine.handle(shared.Subscribed(TOPICS), 2.1)
    machine.handle(shared.DeadlineReached(), leave.deadline)
    joining = machine.state
    assert isinstance(joining, states.ConsumerJoining)
    late: Any = (
        shared.GroupLeft(leave.request)
        if late_epoch is None
        else events.HeartbeatResponded(leave.request, late_epoch, 0.0, None)
    )
    assert machine.handle(late, leave.deadline) == ()
    assert machine.state is joining


def test_no_heartbeat_releases_a_partition_before_it_is_revoked() -> None:
    machine = joined(open_polls=1)
    heartbeat = due(machine, 6.0)
    responded = events.HeartbeatResponded(heartbeat.request, 2, INTERVAL_S, TARGET)
    revoke = only(machine.handle(responded, 6.0), RevokePartitions)
    assert revoke.partitions == topic_partitions(1)
    alive = due(machine, 11.0)
    assert alive.owned is None
    machine.handle(shared.CoordinatorLoadInProgress(alive.request), 11.0)
    full = due(machine, 12.0)
    assert full.owned == (O0, O1)
    machine.handle(events.HeartbeatResponded(full.request, 2, INTERVAL_S, TARGET), 12.0)
    alive = due(machine, 17.0)
    assert alive.owned is None
    machine.handle(events.HeartbeatResponded(alive.request, 2, INTERVAL_S, None), 17.0)
    machine.handle(shared.PartitionsRevoked(revoke.request), 18.0)
    assert due(machine, 18.0).owned == (O0,)


def test_a_commit_sent_again_leaves_out_revoked_partitions() -> None:
    machine = CommitMachine(Backoff.from_ms(100, 1_000), random.Random(1))
    kept, moved = topic_partitions(0, 1)
    commit_id, _ = machine.submit(dict.fromkeys((kept, moved), OffsetAndMetadata(5)), 0.0)
    first = only(machine.handle(CommitDue(2), 0.0), SendCommit)
    codes = dict.fromkeys((kept, moved), int(ErrorCode.STALE_MEMBER_EPOCH))
    machine.handle(CommitResponseReceived(first.request, codes), 0.1)
    effects = machine.handle(OwnershipEnded([moved], False, "revoked"), 0.2)
    failed = only(effects, CompleteCommit)
    assert failed.commit_id == commit_id
    assert isinstance(failed.error, CommitFailed)
    machine.handle(Rejoined(3, [kept]), 0.3)
    again = only(machine.handle(CommitDue(3), machine.next_deadline()), SendCommit)
    assert again.offsets == {kept: OffsetAndMetadata(5)}


def test_an_assignment_that_comes_while_leaving_is_not_applied() -> None:
    machine = joined()
    machine.handle(shared.Subscribed((*TOPICS, "payments")), 2.0)
    heartbeat = due(machine, 2.0)
    revoke = only(machine.handle(shared.Unsubscribed(), 2.1), RevokePartitions)
    more = TopicIdPartition(O0.topic_id, "orders", 2)
    target = states.TargetAssignment((O0, O1, more))
    effects = machine.handle(
        events.HeartbeatResponded(heartbeat.request, 3, INTERVAL_S, target), 2.2
    )
    assert not [effect for effect in effects if isinstance(effect, AssignPartitions)]
    effects = machine.handle(shared.PartitionsRevoked(revoke.request), 2.3)
    assert [type(effect) for effect in effects] == [SendLeaveEpoch]


def test_a_fenced_instance_sends_no_heartbeats() -> None:
    machine = joined(instance_id="a")
    heartbeat = due(machine, 6.0)
    machine.handle(shared.InstanceFenced(heartbeat.request, ERROR), 6.0)
    assert isinstance(machine.state, outside.Fenced)
    for event in (shared.DeadlineReached(), shared.CommitRejected(), shared.PollStarted()):
        effects = machine.handle(event, 100.0)
        assert not [each for each in effects if isinstance(each, SendConsumerHeartbeat)]
    assert machine.next_deadline() > 1e6


def test_a_leaving_member_commits_with_the_newest_epoch() -> None:
    machine = joined()
    heartbeat = due(machine, 6.0)
    machine.handle(shared.CloseRequested(50.0), 6.1)
    effects = machine.handle(events.HeartbeatResponded(heartbeat.request, 7, INTERVAL_S, None), 6.2)
    assert only(effects, ChangeEpoch) == ChangeEpoch(7, (O0, O1))
    generation = machine.generation
    assert generation is not None
    assert generation.number == 7
