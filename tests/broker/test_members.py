"""Votes of members for a protocol."""

from __future__ import annotations

from aiokafkawire.broker.groups.events import Join
from aiokafkawire.broker.groups.members import ClassicGroupMember, common_protocols, elect_protocol


def member(*names: str) -> ClassicGroupMember:
    event = Join(
        reply="r",
        member_id="",
        new_member_id="m",
        protocol_type="consumer",
        protocols=tuple((name, name.encode()) for name in names),
        session_timeout_s=1,
        rebalance_timeout_s=1,
    )
    return ClassicGroupMember.from_join("m", event, 5.0)


def test_only_what_all_know_can_be_elected() -> None:
    members = [member("a", "b", "c"), member("c", "b"), member("b", "c", "d")]
    assert common_protocols(members) == ["b", "c"]
    assert common_protocols([]) == []


def test_each_votes_for_its_first_and_ties_go_to_the_first_member() -> None:
    assert elect_protocol([member("a", "b"), member("b", "a"), member("b", "a")]) == "b"
    assert elect_protocol([member("a", "b"), member("b", "a")]) == "a"


def test_a_protocol_that_is_not_known_has_no_metadata() -> None:
    assert member("a").metadata("a") == b"a"
    assert member("a").metadata("z") == b""
    assert member("a").metadata(None) == b""
    assert member("a").to_joined_member("a") == ("m", None, b"a")
