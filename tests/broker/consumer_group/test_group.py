"""The state machine of a consumer group without a network."""

from __future__ import annotations

from aiokafkawire.broker.groups.consumer_group.metadata import ConsumerGroupState
from aiokafkawire.wire import ErrorCode
from tests.broker.consumer_group.driver import Driver, T, U

S = ConsumerGroupState


def test_partitions_move_after_they_are_revoked() -> None:
    d = Driver()
    joined = d.join("m1")
    assert (joined.member_epoch, joined.assignment) == (2, {T: (0, 1, 2)})
    assert d.heartbeat("m1", 2, {T: [0, 1, 2]}).assignment is None
    joined = d.join("m2")
    assert (joined.member_epoch, joined.assignment) == (3, {})
    assert d.group.data.state is S.RECONCILING
    asked = d.heartbeat("m1", 2)
    assert (asked.member_epoch, asked.assignment) == (2, {T: (0, 1)})
    # The request to revoke is not repeated.
    assert d.heartbeat("m1", 2).assignment is None
    assert d.heartbeat("m1", 2, {T: [0, 1, 2]}).member_epoch == 2
    assert d.heartbeat("m2", 3).assignment is None
    acknowledged = d.heartbeat("m1", 2, {T: [0, 1]})
    assert (acknowledged.member_epoch, acknowledged.assignment) == (3, None)
    assert d.heartbeat("m2", 3).assignment == {T: (2,)}
    assert d.group.data.state is S.STABLE


def test_subscription_change() -> None:
    d = Driver()
    d.set_topics(t=(T, 3), u=(U, 2))
    d.join("m1")
    added = d.heartbeat("m1", 2, subscribed_names=("t", "u"))
    assert (added.member_epoch, added.assignment) == (3, {T: (0, 1, 2), U: (0, 1)})
    removed = d.heartbeat("m1", 3, subscribed_names=("u",))
    assert (removed.member_epoch, removed.assignment) == (3, {U: (0, 1)})
    assert d.heartbeat("m1", 3, {U: [0, 1]}).member_epoch == 4


def test_unsubscribed_topic_is_revoked_before_the_next_assignment() -> None:
    d = Driver(assignment_interval_s=1.0)
    d.set_topics(t=(T, 3), u=(U, 2))
    d.join("m1", "t", "u")
    removed = d.heartbeat("m1", 2, subscribed_names=("u",))
    assert (removed.member_epoch, removed.assignment) == (2, {U: (0, 1)})
    assert d.group.data.state is S.ASSIGNING
    assert d.heartbeat("m1", 2, {U: [0, 1]}).member_epoch == 2
    d.sleep(1.0)
    assert d.heartbeat("m1", 2).member_epoch == 3


def test_epochs() -> None:
    d = Driver()
    d.join("m1")
    d.join("m2")
    d.heartbeat("m1", 2)
    d.heartbeat("m1", 2, {T: [0, 1]})
    fenced = d.heartbeat("m1", 2)
    assert fenced.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert (fenced.member_id, fenced.member_epoch, fenced.heartbeat_interval_ms) == (None, 0, 0)
    assert fenced.message is not None
    assert "smaller member epoch (2)" in fenced.message
    # The previous epoch is accepted if the response was lost.
    assert d.heartbeat("m1", 2, {T: [0]}).member_epoch == 3
    assert d.heartbeat("m1", 2, {T: [0, 1, 2]}).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert d.heartbeat("m1", 1, {T: [0]}).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert d.heartbeat("m1", 4).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert d.heartbeat("m1", 3).code is ErrorCode.NONE
    again = d.join("m1")
    assert (again.member_epoch, again.assignment) == (3, {T: (0, 1)})
    assert d.heartbeat("ghost", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.heartbeat("ghost", -1).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_full_request_gets_the_assignment() -> None:
    d = Driver()
    d.join("m1")
    full = d.heartbeat("m1", 2, {T: [0, 1, 2]}, rebalance_timeout_ms=5_000, subscribed_names=("t",))
    assert full.assignment == {T: (0, 1, 2)}


def test_rejoining_member_has_revoked_everything() -> None:
    d = Driver()
    d.join("m1")
    d.join("m2")
    d.heartbeat("m1", 2)
    again = d.join("m1")
    assert (again.member_epoch, again.assignment) == (3, {T: (0, 1)})
    assert d.heartbeat("m2", 3).assignment == {T: (2,)}


def test_leaving_member_frees_its_partitions() -> None:
    d = Driver()
    d.join("m1")
    d.join("m2")
    left = d.heartbeat("m2", -1)
    assert (left.member_id, left.member_epoch) == ("m2", -1)
    assert d.group.data.state is S.ASSIGNING
    assert d.heartbeat("m1", 2).assignment is None
    assert d.heartbeat("m1", 4).assignment is None
    assert d.heartbeat("m1", -1).code is ErrorCode.NONE
    assert d.group.data.state is S.EMPTY
    assert d.group.data.epoch == 5


def test_session_and_rebalance_timeouts() -> None:
    d = Driver(session_timeout_s=6.0)
    d.join("m1", rebalance_timeout_ms=2_000)
    d.sleep(5.9)
    d.heartbeat("m1", 2)
    d.sleep(5.9)
    assert "m1" in d.group.data.members
    d.join("m2")
    d.heartbeat("m1", 2)
    d.sleep(1.9)
    assert d.heartbeat("m1", 2).code is ErrorCode.NONE
    d.sleep(0.1)
    assert d.heartbeat("m1", 2).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.heartbeat("m2", 3).assignment == {T: (0, 1, 2)}
    d.sleep(6.0)
    assert d.group.data.state is S.EMPTY


def test_static_member_returns() -> None:
    d = Driver(session_timeout_s=6.0)
    d.join("s1", instance_id="i")
    taken = d.join("s2", instance_id="i")
    assert taken.code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert d.join("s1", instance_id="i").code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert d.heartbeat("s1", -2, instance_id="i").member_epoch == -2
    assert d.group.data.state is S.RECONCILING
    back = d.join("s2", instance_id="i")
    assert (back.member_epoch, back.assignment) == (2, {T: (0, 1, 2)})
    assert d.group.data.epoch == 2
    assert d.heartbeat("s1", 2, instance_id="i").code is ErrorCode.FENCED_INSTANCE_ID
    assert d.heartbeat("s2", 2, instance_id="x").code is ErrorCode.UNKNOWN_MEMBER_ID
    # Later heartbeats may leave it out.
    assert d.heartbeat("s2", 2).code is ErrorCode.NONE
    d.heartbeat("s2", -2, instance_id="i")
    d.sleep(5.9)
    assert d.group.data.members
    d.sleep(0.1)
    assert not d.group.data.members


def test_static_member_that_leaves_has_revoked() -> None:
    d = Driver()
    d.join("s1", instance_id="i")
    d.join("m2")
    assert d.heartbeat("s1", 2).assignment == {T: (0, 1)}
    d.heartbeat("s1", -2, instance_id="i")
    assert d.heartbeat("m2", 3).assignment == {T: (2,)}


def test_static_member_returns_with_another_subscription() -> None:
    d = Driver()
    d.join("s1", instance_id="i")
    d.heartbeat("s1", -2, instance_id="i")
    assert d.join("s2", "t", "u", instance_id="i").member_epoch == 3


def test_assignment_interval() -> None:
    d = Driver(assignment_interval_s=1.0)
    assert d.join("m1").assignment == {T: (0, 1, 2)}
    joined = d.join("m2")
    assert (joined.member_epoch, joined.assignment) == (2, {})
    assert d.group.data.state is S.ASSIGNING
    d.sleep(1.0)
    assert d.heartbeat("m2", 2).member_epoch == 3
    assert d.heartbeat("m1", 2).assignment == {T: (0, 1)}


def test_regular_expression_is_resolved_after_the_join() -> None:
    d = Driver()
    joined = d.join("m1", subscribed_names=None, subscribed_regex="t|u.*")
    assert (joined.member_epoch, joined.assignment) == (1, {})
    found = d.heartbeat("m1", 1)
    assert (found.member_epoch, found.assignment) == (2, {T: (0, 1, 2)})
    d.set_topics(t=(T, 3), u1=(U, 1))
    assert d.heartbeat("m1", 2).assignment is None
    d.sleep(10.1)
    d.heartbeat("m1", 2)
    assert d.heartbeat("m1", 2).assignment == {T: (0, 1, 2), U: (0,)}
    assert d.lookups == 2
    # A deleted topic goes at once.
    d.set_topics(t=(T, 3))
    assert d.heartbeat("m1", 3).assignment == {T: (0, 1, 2)}
    d.heartbeat("m1", 3, {T: [0, 1, 2]})
    # A new pattern matches nothing until it is resolved.
    assert d.heartbeat("m1", 4, subscribed_regex="t.*").assignment == {}
    d.heartbeat("m1", 4, {})
    assert list(d.group.data.regexes) == ["t.*"]


def test_second_member_with_a_resolved_expression() -> None:
    d = Driver()
    d.join("m1", subscribed_names=None, subscribed_regex="t")
    d.heartbeat("m1", 1)
    assert d.join("m2", subscribed_names=None, subscribed_regex="t").member_epoch == 3
    d.heartbeat("m1", -1)
    d.heartbeat("m2", -1)
    assert not d.group.data.regexes


def test_resolved_expressions_are_looked_up_again_after_the_interval() -> None:
    d = Driver(regex_refresh_interval_s=20.0)
    d.join("m1", subscribed_names=None, subscribed_regex="t")
    for _ in range(3):
        d.sleep(9.0)
        d.heartbeat("m1", 2)
        d.heartbeat("m1", d.group.data.members["m1"].epoch)
    assert d.lookups == 2


def test_invalid_regular_expression() -> None:
    d = Driver()
    refused = d.join("m1", subscribed_names=None, subscribed_regex="re(")
    assert refused.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.message == (
        "SubscribedTopicRegex `re(` is not a valid regular expression: missing closing )."
    )
    assert not d.batches


def test_topic_changes() -> None:
    d = Driver()
    d.join("m1")
    d.set_topics(t=(T, 4))
    grown = d.heartbeat("m1", 2)
    assert (grown.member_epoch, grown.assignment) == (3, {T: (0, 1, 2, 3)})
    d.set_topics(t=(U, 1))
    assert d.heartbeat("m1", 3).assignment == {}
    recreated = d.heartbeat("m1", 3, {})
    assert (recreated.member_epoch, recreated.assignment) == (4, {U: (0,)})


def test_unrelated_topic_changes_nothing() -> None:
    d = Driver()
    d.join("m1")
    d.set_topics(t=(T, 3), u=(U, 1))
    assert d.heartbeat("m1", 2).member_epoch == 2
    assert len(d.batches) == 1


def test_empty_subscription() -> None:
    d = Driver()
    joined = d.join("m1", subscribed_names=())
    assert (joined.member_epoch, joined.assignment) == (1, {})
    assert d.group.data.state is S.STABLE
    d.heartbeat("m1", -1)
    assert d.join("m1", "nosuch").member_epoch == 3


def test_first_epoch_of_earlier_releases() -> None:
    d = Driver(first_epoch=0)
    assert d.join("m1").member_epoch == 1
    d = Driver(first_epoch=0)
    assert d.join("m1", subscribed_names=()).member_epoch == 1


def test_group_is_full() -> None:
    d = Driver(max_size=1)
    d.join("m1")
    refused = d.join("m2")
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert d.join("m1").code is ErrorCode.NONE


def test_assignor_of_most_members() -> None:
    d = Driver()
    d.join("m1", server_assignor="range")
    assert d.group.assignor == "range"
    d.join("m2", server_assignor="uniform")
    assert d.group.assignor == "uniform"
    d.join("m3", server_assignor="range")
    assert d.group.assignor == "range"


def test_admin_removes_members() -> None:
    d = Driver()
    d.join("m1")
    d.join("s1", instance_id="i")
    assert d.leave("m1") is ErrorCode.NONE
    assert d.leave("", "i") is ErrorCode.NONE
    assert d.leave("zz") is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.leave("", "zz") is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.group.data.epoch == 5
    assert not d.downgraded


def test_heartbeat_without_change_appends_nothing() -> None:
    d = Driver()
    d.join("m1")
    d.batches.clear()
    d.heartbeat("m1", 2)
    d.heartbeat("m1", 2, {T: [0, 1, 2]})
    assert not d.batches


def test_loaded_group_goes_on() -> None:
    d = Driver()
    d.join("m1", rebalance_timeout_ms=2_000)
    d.join("m2")
    d.heartbeat("m1", 2)
    loaded = Driver()
    loaded.group.load([record for batch in d.batches for record in batch], loaded.now)
    assert loaded.group.data.state is S.RECONCILING
    assert loaded.heartbeat("m1", 2).assignment is None
    assert loaded.heartbeat("m1", 2, {T: [0, 1]}).member_epoch == 3
    assert loaded.heartbeat("m2", 3).assignment == {T: (2,)}
    loaded.sleep(45.0)
    assert loaded.group.data.state is S.EMPTY
