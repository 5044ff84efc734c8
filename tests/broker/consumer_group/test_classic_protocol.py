"""Members of the classic protocol in a consumer group, and conversions."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.consumer_group.conversion import downgrade, upgrade
from aiokafkawire.broker.groups.consumer_group.events import ConsumerGroupHeartbeat, Downgrade
from aiokafkawire.broker.groups.consumer_group.group import TRANSITIONS
from aiokafkawire.broker.groups.consumer_group.metadata import ConsumerGroupState
from aiokafkawire.broker.groups.events import (
    ClassicGroupState,
    Heartbeat,
    Join,
    JoinResult,
    Sync,
    SyncResult,
)
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
    flatten_by_topic,
)
from tests.broker.consumer_group.driver import Driver, T

E = ErrorCode


def joining(member_id: str, *owned: int, **fields: Any) -> Join:
    metadata = encode_subscription(
        ["t"],
        owned_partitions=[("t", partition) for partition in owned],
        version=fields.pop("version", 3),
    )
    fields = {
        "new_member_id": f"{member_id}-new",
        "protocol_type": "consumer",
        "protocols": ((fields.pop("protocol", "cooperative-sticky"), metadata),),
        "session_timeout_s": 6.0,
        "rebalance_timeout_s": 5.0,
    } | fields
    return Join(reply=object(), member_id=member_id, **fields)


def join(d: Driver, member_id: str, *owned: int, **fields: Any) -> JoinResult:
    result = d.give(joining(member_id, *owned, **fields))
    assert isinstance(result, JoinResult)
    return result


def sync(d: Driver, member_id: str, generation: int, **fields: Any) -> SyncResult:
    event = Sync(
        reply=object(), member_id=member_id, generation=generation, assignments={}, **fields
    )
    result = d.give(event)
    assert isinstance(result, SyncResult)
    return result


def beat(d: Driver, member_id: str, generation: int, **fields: Any) -> ErrorCode:
    code = d.give(Heartbeat(reply=object(), member_id=member_id, generation=generation, **fields))
    assert isinstance(code, ErrorCode)
    return code


def partitions(result: SyncResult) -> list[int]:
    return [
        tp.partition
        for tp in flatten_by_topic(decode_assignment(result.assignment).assigned_partitions)
    ]


def test_classic_member_gives_up_a_partition() -> None:
    d = Driver()
    d.join("n")
    joined = join(d, "c")
    assert (joined.generation, joined.leader, joined.members) == (3, "", ())
    assert (joined.protocol_type, joined.protocol) == ("consumer", "cooperative-sticky")
    assert partitions(sync(d, "c", 3)) == []
    assert beat(d, "c", 3) is E.NONE
    d.heartbeat("n", 2)
    d.heartbeat("n", 2, {T: [0, 1]})
    # Its partition is free now.
    assert beat(d, "c", 3) is E.REBALANCE_IN_PROGRESS
    assert join(d, "c").generation == 3
    assert partitions(sync(d, "c", 3)) == [2]
    assert beat(d, "c", 3) is E.NONE
    d.join("n2")
    d.join("n3")
    assert beat(d, "c", 3) is E.REBALANCE_IN_PROGRESS
    assert sync(d, "c", 3).code is E.REBALANCE_IN_PROGRESS
    # A cooperative member keeps its generation until it has revoked.
    lost = join(d, "c", 2)
    if partitions(sync(d, "c", lost.generation)) != [2]:
        assert lost.generation == 3
        assert beat(d, "c", 3) is E.REBALANCE_IN_PROGRESS
        assert join(d, "c").generation == 5


def test_checks() -> None:
    d = Driver()
    d.join("n")
    required = join(d, "", requires_known_member_id=True)
    assert (required.code, required.member_id) == (E.MEMBER_ID_REQUIRED, "-new")
    assert join(d, "c", protocol_type="connect").code is E.INCONSISTENT_GROUP_PROTOCOL
    assert join(d, "c", protocols=()).code is E.INCONSISTENT_GROUP_PROTOCOL
    assert join(d, "c", protocols=(("x", b"\0"),)).code is E.INCONSISTENT_GROUP_PROTOCOL
    join(d, "c")
    assert join(d, "c2", protocol="range").code is E.INCONSISTENT_GROUP_PROTOCOL
    assert sync(d, "c", 3, protocol="range").code is E.INCONSISTENT_GROUP_PROTOCOL
    assert sync(d, "c", 3, protocol_type="x").code is E.INCONSISTENT_GROUP_PROTOCOL
    assert sync(d, "c", 2).code is E.ILLEGAL_GENERATION
    assert sync(d, "x", 2).code is E.UNKNOWN_MEMBER_ID
    assert beat(d, "n", 2) is E.UNKNOWN_MEMBER_ID
    assert beat(d, "c", 2) is E.ILLEGAL_GENERATION
    assert beat(d, "c", 3, instance_id="i") is E.UNKNOWN_MEMBER_ID
    d.configure(max_size=2)
    assert join(d, "c3").code is E.GROUP_MAX_SIZE_REACHED


def test_static_classic_member_is_replaced() -> None:
    d = Driver()
    d.join("n")
    first = join(d, "", instance_id="i")
    assert first.member_id == "-new"
    second = join(d, "", instance_id="i", new_member_id="other")
    assert second.member_id == "other"
    assert beat(d, "-new", second.generation, instance_id="i") is E.FENCED_INSTANCE_ID
    assert join(d, "other", instance_id="i").code is E.NONE
    assert join(d, "wrong", instance_id="i").code is E.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_assignment_has_the_version_of_the_subscription(version: int) -> None:
    d = Driver()
    join(d, "c", version=version)
    assert sync(d, "c", 2).assignment[:2] == version.to_bytes(2, "big")


def test_member_that_does_not_sync_is_removed() -> None:
    d = Driver(allows_downgrade=False)
    d.join("n")
    join(d, "c", session_timeout_s=60.0)
    d.sleep(4.9)
    assert "c" in d.group.data.members
    d.sleep(0.1)
    assert "c" not in d.group.data.members


def test_member_that_does_not_rejoin_is_removed() -> None:
    d = Driver()
    d.join("n")
    join(d, "c", session_timeout_s=60.0)
    sync(d, "c", 3)
    d.join("n2")
    for _ in range(5):
        assert beat(d, "c", 3) is E.REBALANCE_IN_PROGRESS
        d.sleep(1.0)
    assert "c" not in d.group.data.members


@pytest.mark.parametrize("allows", [True, False])
def test_downgrade(allows: bool) -> None:
    d = Driver(allows_downgrade=allows)
    d.join("n")
    join(d, "c")
    d.heartbeat("n", -1)
    assert (d.downgraded == Downgrade()) is allows
    if not allows:
        assert d.group.data.state is ConsumerGroupState.ASSIGNING
        return
    classic = ClassicGroup("g")
    classic.restore(downgrade(d.group), d.now)
    assert (classic.state, classic.generation) == (ClassicGroupState.PREPARING_REBALANCE, 3)
    beating = Heartbeat(reply=1, member_id="c", generation=3)
    assert classic.handle(beating, d.now)[0].result is E.REBALANCE_IN_PROGRESS
    rejoined = classic.handle(joining("c"), d.now)[0].result
    assert isinstance(rejoined, JoinResult)
    assert rejoined.generation == 4


def test_downgrade_after_a_session_timeout() -> None:
    d = Driver(session_timeout_s=3.0)
    d.join("n")
    join(d, "c")
    d.sleep(3.0)
    assert d.downgraded


def classic_group(now: float, metadata: bytes, protocol_type: str = "consumer") -> ClassicGroup:
    classic = ClassicGroup("g")
    protocols = (("range", metadata),)
    classic.handle(
        joining("c", protocols=protocols, protocol_type=protocol_type, new_member_id="c"), now
    )
    classic.handle(
        joining("", protocols=protocols, protocol_type=protocol_type, new_member_id="c"), now
    )
    assignment = encode_assignment([("t", 0), ("t", 1), ("gone", 0)])
    event = Sync(reply=2, member_id="c", generation=1, assignments={"c": assignment})
    classic.handle(event, now)
    return classic


def test_upgrade() -> None:
    d = Driver()
    classic = classic_group(d.now, encode_subscription(["t"]))
    upgrade(classic, d.group, "bidirectional")
    member = d.group.data.members["c"]
    assert (member.epoch, member.assigned) == (1, {T: {0: 1, 1: 1}})
    assert d.join("n").member_epoch == 2
    assert beat(d, "c", 1) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("policy", "metadata", "protocol_type", "reason"),
    [
        ("disabled", encode_subscription(["t"]), "consumer", "online upgrade is disabled"),
        ("downgrade", encode_subscription(["t"]), "consumer", "online upgrade is disabled"),
        ("upgrade", b"", "connect", "the group does not use the consumer embedded protocol"),
        ("upgrade", b"\0", "consumer", "the embedded consumer protocol is malformed"),
    ],
)
def test_upgrade_is_refused(policy: str, metadata: bytes, protocol_type: str, reason: str) -> None:
    d = Driver()
    classic = classic_group(d.now, metadata, protocol_type)
    with pytest.raises(ApiError) as caught:
        upgrade(classic, d.group, policy)
    assert caught.value.code is E.GROUP_ID_NOT_FOUND
    assert caught.value.message == (
        f"Cannot upgrade classic group g to consumer group because {reason}."
    )


def test_large_group_is_not_upgraded() -> None:
    d = Driver(max_size=1)
    with pytest.raises(ApiError, match="maximum consumer group size"):
        upgrade(classic_group(d.now, encode_subscription(["t"])), d.group, "upgrade")


def test_requests_that_wait_fail_with_the_conversion() -> None:
    classic = ClassicGroup("g")
    protocols = (("range", encode_subscription(["t"])),)
    for name in ("a", "b"):
        classic.handle(joining("", protocols=protocols, new_member_id=name), 0.0)
    waiting = [member for member in classic.members.values() if member.is_waiting]
    replies = classic.fail_waiting(E.REBALANCE_IN_PROGRESS)
    assert len(replies) == len(waiting) > 0
    assert {reply.result.code for reply in replies} == {E.REBALANCE_IN_PROGRESS}  # type: ignore[union-attr]


def test_member_changes_its_protocol() -> None:
    d = Driver()
    d.join("n")
    join(d, "c")
    assert d.join("c").member_epoch == 3
    assert d.group.data.members["c"].classic is None
    assert d.heartbeat("c", 3).code is E.NONE


def test_each_state_has_each_event() -> None:
    events = {event for _, event in TRANSITIONS}
    assert set(TRANSITIONS) == {(state, event) for state in ConsumerGroupState for event in events}
    assert ConsumerGroupHeartbeat in events


# Kafka 4.3.0 answers as the following tests expect: see tests/brokers/test_mixed_groups.py.


def test_waiting_member_rejoins_once_all_its_partitions_are_free() -> None:
    d = Driver()
    d.set_topics(t=(T, 4))
    d.join("n")
    d.join("m")
    d.heartbeat("n", 2)
    join(d, "c")
    [waits_for] = [parts for member, parts in d.group.data.target.items() if member == "c"]
    owned_by_n = set(range(4)) - set(d.group.data.members["n"].pending_revocation.get(T, ()))
    assert waits_for
    sync(d, "c", 4)
    assert beat(d, "c", 4) is E.NONE
    d.heartbeat("n", 2, {T: sorted(owned_by_n & set(d.group.data.target["n"].get(T, ())))})
    assert beat(d, "c", 4) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("since_43", [True, False])
def test_member_rejoins_when_there_is_an_assignment(since_43: bool) -> None:
    d = Driver(rejoins_once_assigned=since_43)
    d.join("n")
    d.join("m")
    join(d, "c")
    d.heartbeat("m", -1)
    assert d.group.data.state is ConsumerGroupState.ASSIGNING
    # Before Kafka 4.3, the member rejoins to be assigned to.
    expected = E.NONE if since_43 else E.REBALANCE_IN_PROGRESS
    assert sync(d, "c", 4).code is expected
    assert beat(d, "c", 4) is expected
    d.heartbeat("n", 2)
    assert beat(d, "c", 4) is E.REBALANCE_IN_PROGRESS


def test_static_classic_member_is_replaced_by_one_of_the_consumer_protocol() -> None:
    d = Driver()
    d.join("n")
    classic = join(d, "", instance_id="i")
    # A classic member cannot announce that it returns: it is replaced at once.
    assert d.join("new", instance_id="i").code is E.NONE
    assert beat(d, classic.member_id, classic.generation, instance_id="i") is E.FENCED_INSTANCE_ID
    assert d.join("other", instance_id="i").code is E.UNRELEASED_INSTANCE_ID


def test_static_member_that_takes_over_alone_keeps_the_epoch() -> None:
    d = Driver()
    classic = classic_group(d.now, encode_subscription(["t"]))
    member = classic.members.pop("c")
    member.instance_id = "i"
    classic.members["c"] = member
    upgrade(classic, d.group, "bidirectional")
    joined = d.join("new", instance_id="i")
    assert (joined.member_epoch, joined.assignment) == (1, {T: (0, 1)})


@pytest.mark.parametrize("topics", [["t"], ["t", "u"]])
def test_classic_member_replaces_the_last_static_one_of_the_consumer_protocol(
    topics: list[str],
) -> None:
    d = Driver()
    d.join("n", instance_id="i")
    metadata = encode_subscription(topics)
    joined = join(d, "", instance_id="i", protocols=(("range", metadata),))
    is_stale = topics != ["t"]
    assert (joined.code, joined.generation) == (E.NONE, 0 if is_stale else 2)
    assert d.downgraded == Downgrade("-new", rebalances=is_stale)
    classic = ClassicGroup("g")
    classic.restore(downgrade(d.group, "-new"), d.now, rebalances=is_stale)
    expected = ClassicGroupState.PREPARING_REBALANCE if is_stale else ClassicGroupState.STABLE
    assert (classic.state, classic.generation, classic.leader) == (expected, 2, "-new")
    given = decode_assignment(classic.members["-new"].assignment)
    assert [tp.partition for tp in flatten_by_topic(given.assigned_partitions)] == [0, 1, 2]


def test_classic_group_takes_the_target() -> None:
    d = Driver()
    d.join("n")
    joined = join(d, "c")
    target = list(d.group.data.target["c"][T])
    assert target
    assert partitions(sync(d, "c", joined.generation)) == []
    d.heartbeat("n", -1)
    [member] = downgrade(d.group).members
    given = decode_assignment(member.assignment)
    assert [tp.partition for tp in flatten_by_topic(given.assigned_partitions)] == target


def test_group_that_is_too_large_for_the_classic_protocol_is_not_downgraded() -> None:
    d = Driver(classic_max_size=1)
    d.join("n")
    join(d, "c")
    join(d, "c2")
    d.heartbeat("n", -1)
    assert d.downgraded is None


def test_errors_name_no_member() -> None:
    d = Driver()
    d.join("n")
    join(d, "", instance_id="i")
    assert join(d, "wrong", instance_id="i").member_id == ""
