from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import MemberFenced
from aiokafkawire.group import effects as do
from aiokafkawire.group import events as on
from aiokafkawire.group import states as s

from .machines import (
    ERROR,
    MEMBERS,
    TOPICS,
    addressed,
    joining,
    machine,
    only,
    stable,
)


def test_a_fenced_instance_is_told_apart() -> None:
    membership = stable(group_instance_id="static")
    beat = only(membership.handle(on.Tick(), 3.0), do.SendHeartbeat)
    effects = membership.handle(on.InstanceFenced(beat.request, ERROR), 3.0)
    only(effects, do.LosePartitions)
    assert isinstance(membership.error, MemberFenced)
    assert "'static'" in str(membership.error)


def test_closing_revokes_then_leaves() -> None:
    membership = stable()
    revoke = only(membership.handle(on.Closing(20.0), 1.0), do.RevokePartitions)
    leave = only(membership.handle(on.Revoked(revoke.request), 2.0), do.SendLeave)
    assert leave.member_id == "me"
    membership.handle(on.LeftGroup(leave.request), 3.0)
    assert membership.done


def test_a_static_member_does_not_leave() -> None:
    membership = stable(group_instance_id="static")
    revoke = only(membership.handle(on.Closing(20.0), 1.0), do.RevokePartitions)
    assert membership.handle(on.Revoked(revoke.request), 2.0) == ()
    assert membership.done


@pytest.mark.parametrize(
    "answer",
    [
        on.MemberIdAssigned(0, "me"),
        on.JoinedAsFollower(0, "me", 1, "range"),
        on.JoinedAsLeader(0, "me", 1, "range", MEMBERS),
    ],
)
def test_closing_before_the_member_id_is_known_waits_for_it(answer: Any) -> None:
    membership, _ = joining()
    assert membership.handle(on.Closing(20.0), 1.0) == ()
    assert membership.next_deadline() == 20.0
    leave = only(membership.handle(addressed(answer, membership.state), 2.0), do.SendLeave)
    assert leave.member_id == "me"


def test_closing_ends_at_its_deadline() -> None:
    for state in (s.AwaitingIdentity(1, s.After.CLOSE, 20.0), s.Leaving(1, s.After.CLOSE, 20.0)):
        membership = machine(state)
        membership.handle(on.Tick(), 19.9)
        assert not membership.done
        membership.handle(on.Tick(), 20.0)
        assert membership.done


def test_subscribing_again_while_leaving_joins_afterwards() -> None:
    membership = stable()
    revoke = only(membership.handle(on.Unsubscribed(), 1.0), do.RevokePartitions)
    leave = only(membership.handle(on.Revoked(revoke.request), 2.0), do.SendLeave)
    membership.handle(on.Subscribed(("payments",)), 2.0)
    only(membership.handle(on.LeftGroup(leave.request), 3.0), do.FindCoordinator)
    assert membership.topics == ("payments",)


def test_unsubscribing_after_a_failure_allows_another_try() -> None:
    membership = machine(s.Failed(ERROR))
    membership.handle(on.Unsubscribed(), 0.0)
    assert membership.error is None
    only(membership.handle(on.Subscribed(TOPICS), 0.0), do.FindCoordinator)
