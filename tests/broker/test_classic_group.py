"""The state machine of a classic group without a network: every event in every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.broker.groups import classic_group
from aiokafkawire.broker.groups.classic_group import TRANSITIONS, ClassicGroup
from aiokafkawire.broker.groups.events import (
    ClassicGroupState,
    CoordinatorChanged,
    Delete,
    Event,
    GroupDeadlineReached,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Sync,
    SyncResult,
    ValidateOffsetCommit,
)
from aiokafkawire.broker.groups.group_membership import NEW_MEMBER_TIMEOUT_S
from aiokafkawire.wire import ErrorCode

EMPTY = ClassicGroupState.EMPTY
PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
DEAD = ClassicGroupState.DEAD

RANGE = (("range", b"r"),)
SESSION_S, REBALANCE_S = 10.0, 60.0


class Driver:
    """A group, a clock, and the responses by their requests."""

    def __init__(self, **options: Any) -> None:
        self.group = ClassicGroup("g", **options)
        self.now = 100.0
        self.replies: dict[Any, Any] = {}
        self._count = 0

    def give(self, event: Event) -> Any:
        """Return the event's own response, None if it waits."""
        for to, result in self.group.handle(event, self.now):
            assert to not in self.replies, f"{to} is answered twice"
            self.replies[to] = result
        return self.replies.get(getattr(event, "reply", None))

    def token(self, member_id: str) -> str:
        self._count += 1
        return f"{member_id}#{self._count}"

    def join(self, member_id: str, *, new: str = "", **fields: Any) -> Any:
        given = {
            "reply": self.token(member_id or new),
            "member_id": member_id,
            "new_member_id": new,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "session_timeout_s": SESSION_S,
            "rebalance_timeout_s": REBALANCE_S,
        }
        return self.give(Join(**{**given, **fields}))

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **f: Any) -> Any:
        f.setdefault("generation", self.group.generation)
        token = self.token(member_id)
        return self.give(Sync(reply=token, member_id=member_id, assignments=assignments or {}, **f))

    def heartbeat(self, member_id: str, **f: Any) -> Any:
        f.setdefault("generation", self.group.generation)
        return self.give(Heartbeat(reply=self.token(member_id), member_id=member_id, **f))

    def commit(self, member_id: str = "", generation: int = -1, **f: Any) -> Any:
        return self.give(
            ValidateOffsetCommit(
                reply=self.token("c"), member_id=member_id, generation=generation, **f
            )
        )

    def leave(self, member_id: str, instance_id: str | None = None) -> Any:
        return self.give(
            Leave(reply=self.token(member_id), member_id=member_id, instance_id=instance_id)
        )

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.give(GroupDeadlineReached())

    def answer(self, member_id: str) -> Any:
        """Return the latest response to a request of a member."""
        mine = [r for to, r in self.replies.items() if to.split("#")[0] == member_id]
        return mine[-1] if mine else None


def in_state(state: ClassicGroupState) -> Driver:
    """Return a group in a state, with members a (the leader) and b where it has members."""
    driver = Driver()
    if state is EMPTY:
        return driver
    if state is DEAD:
        driver.give(Delete(reply="delete"))
        return driver
    driver.join("", new="a")
    driver.join("", new="b")
    driver.join("a")
    assert driver.group.state is COMPLETING
    if state is COMPLETING:
        return driver
    driver.sync("b")
    driver.sync("a", {"a": b"for a", "b": b"for b"})
    assert driver.group.state is STABLE
    if state is PREPARING:
        driver.join("", new="c")
    assert driver.group.state is state
    return driver


def code(result: Any) -> ErrorCode | None:
    return getattr(result, "code", result)


def test_the_table_is_complete() -> None:
    events = {
        Join,
        Sync,
        Heartbeat,
        Leave,
        ValidateOffsetCommit,
        GroupDeadlineReached,
        CoordinatorChanged,
        Delete,
    }
    assert set(TRANSITIONS) == {(state, event) for state in ClassicGroupState for event in events}


E = ErrorCode

ACTIONS: dict[str, Callable[[Driver], Any]] = {
    "newcomer joins": lambda driver: driver.join("", new="n"),
    "newcomer without id joins": lambda driver: driver.join(
        "", new="n", requires_known_member_id=True
    ),
    "stranger joins": lambda driver: driver.join("stranger"),
    "a joins": lambda driver: driver.join("a"),
    "other protocol joins": lambda driver: driver.join("", new="n", protocols=(("sticky", b""),)),
    "a syncs": lambda driver: driver.sync("a", {"a": b"for a"}),
    "b syncs late": lambda driver: driver.sync("b", generation=driver.group.generation - 1),
    "a heartbeats": lambda driver: driver.heartbeat("a"),
    "a heartbeats late": lambda driver: driver.heartbeat(
        "a", generation=driver.group.generation - 1
    ),
    "stranger heartbeats": lambda driver: driver.heartbeat("stranger"),
    "a leaves": lambda driver: driver.leave("a"),
    "a commits": lambda driver: driver.commit("a", driver.group.generation),
    "a commits late": lambda driver: driver.commit("a", driver.group.generation + 5),
    "outsider commits": lambda driver: driver.commit(),
    "delete": lambda driver: driver.give(Delete(reply="again")),
    "moved": lambda driver: driver.give(CoordinatorChanged(loaded_at=0.0)),
    "sessions end": lambda driver: driver.tick(SESSION_S + 1),
}


def observed() -> dict[tuple[str, str], str]:
    """Return the response to each request in each state, and the next state."""
    table = {}
    for state in ClassicGroupState:
        for what, act in ACTIONS.items():
            driver = in_state(state)
            response = code(act(driver))
            shown = "waits" if response is None else ErrorCode(response).name
            table[state.value, what] = f"{shown}, {driver.group.state.value}"
    return table


def test_a_lone_member_joins_and_leads_at_once() -> None:
    driver = Driver()
    joined: JoinResult = driver.join("", new="a")
    assert (joined.member_id, joined.leader, joined.generation) == ("a", "a", 1)
    assert (joined.protocol_type, joined.protocol) == ("consumer", "range")
    assert joined.members == (("a", None, b"r"),)
    synced: SyncResult = driver.sync("a", {"a": b"all"})
    assert (synced.assignment, synced.protocol) == (b"all", "range")


def test_only_the_group_leader_receives_the_members() -> None:
    driver = in_state(COMPLETING)
    responses = {m: driver.answer(m) for m in "ab"}
    assert [m.member_id for m in responses["a"].members] == ["a", "b"]
    assert responses["b"].members == ()
    assert {r.leader for r in responses.values()} == {"a"}
    assert {r.generation for r in responses.values()} == {2}


def test_a_follower_waits_for_the_leader_and_gets_its_part() -> None:
    driver = in_state(COMPLETING)
    assert driver.sync("b") is None
    driver.sync("a", {"a": b"1", "b": b"2"})
    assert driver.answer("b").assignment == b"2"
    assert driver.sync("b").assignment == b"2"


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    driver = in_state(COMPLETING)
    driver.sync("a", {"a": b"1", "ghost": b"2"})
    assert driver.sync("b").assignment == b""


def test_waiting_syncs_get_rebalance_in_progress() -> None:
    driver = in_state(COMPLETING)
    driver.sync("b")
    driver.join("", new="c")
    assert driver.answer("b").code is E.REBALANCE_IN_PROGRESS


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    driver = in_state(PREPARING)
    for _ in range(int(REBALANCE_S / 5) + 1):
        driver.heartbeat("b")
        driver.tick(5)
    assert driver.group.state is COMPLETING
    assert list(driver.group.members) == ["c"]
    assert driver.heartbeat("b") is E.UNKNOWN_MEMBER_ID


def test_the_rebalance_goes_on_when_the_last_one_has_rejoined() -> None:
    driver = in_state(PREPARING)
    driver.join("b")
    assert driver.group.state is PREPARING
    driver.join("a")
    assert driver.group.state is COMPLETING
    assert {code(driver.answer(m)) for m in "abc"} == {E.NONE}
    assert driver.group.leader == "a"


def test_a_pending_member_holds_up_the_rebalance_for_its_session() -> None:
    driver = Driver()
    driver.join("", new="a")
    driver.sync("a")
    driver.join("", new="b", requires_known_member_id=True)
    driver.join("a")
    assert driver.group.state is PREPARING
    driver.tick(SESSION_S)
    assert driver.group.state is COMPLETING
    assert list(driver.group.members) == ["a"]


def test_a_pending_member_joins_with_the_id_it_was_given() -> None:
    driver = Driver()
    refused = driver.join("", new="x", requires_known_member_id=True)
    assert (refused.code, refused.member_id) == (E.MEMBER_ID_REQUIRED, "x")
    assert driver.join("x", requires_known_member_id=True).code is E.NONE
    assert driver.leave("x") is E.NONE
    assert driver.group.state is EMPTY


def test_the_group_rebalances_when_a_pending_member_leaves() -> None:
    driver = in_state(STABLE)
    driver.group.pending_members["x"] = driver.now + 10
    driver.give(Leave(reply="left", member_id="x", always_rebalances=True))
    assert driver.answer("left") is E.NONE
    assert driver.group.state is PREPARING


def test_a_pending_member_can_leave() -> None:
    driver = Driver()
    driver.join("", new="x", requires_known_member_id=True)
    assert driver.leave("x") is E.NONE
    assert driver.join("x").code is E.UNKNOWN_MEMBER_ID


def test_an_expired_session_removes_the_member_and_rebalances() -> None:
    driver = in_state(STABLE)
    driver.tick(SESSION_S - 1)
    driver.heartbeat("a")
    driver.tick(1.5)
    assert driver.group.state is PREPARING
    assert driver.heartbeat("a") is E.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("b") is E.UNKNOWN_MEMBER_ID


def test_a_commit_renews_the_session() -> None:
    driver = in_state(STABLE)
    driver.tick(SESSION_S - 1)
    for member in "ab":
        driver.commit(member, driver.group.generation)
    driver.tick(2)
    assert driver.group.state is STABLE


def test_a_member_in_a_join_does_not_expire() -> None:
    driver = in_state(STABLE)
    driver.join("a")
    driver.tick(SESSION_S - 1)
    driver.heartbeat("b")
    driver.tick(SESSION_S - 1)
    assert list(driver.group.members) == ["a", "b"]


def test_a_newcomer_whose_client_is_gone_is_given_up() -> None:
    driver = in_state(STABLE)
    driver.join("", new="c", rebalance_timeout_s=10 * NEW_MEMBER_TIMEOUT_S)
    for _ in range(int(NEW_MEMBER_TIMEOUT_S / 5) + 1):
        driver.heartbeat("a")
        driver.heartbeat("b")
        driver.tick(5)
    assert driver.answer("c").code is E.UNKNOWN_MEMBER_ID


def test_a_follower_that_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    driver = in_state(COMPLETING)
    driver.sync("a", {"a": b"1", "b": b"2"})
    for _ in range(int(REBALANCE_S / 5)):
        driver.heartbeat("a")
        driver.heartbeat("b")
        driver.tick(5)
    assert driver.group.state is PREPARING
    assert list(driver.group.members) == ["a"]


def test_the_first_rebalance_waits_for_others() -> None:
    driver = Driver(initial_rebalance_delay_s=3)
    assert driver.join("", new="a") is None
    driver.tick(2)
    driver.join("", new="b")
    driver.tick(1)
    assert driver.group.state is PREPARING
    driver.tick(3)
    assert driver.group.state is COMPLETING
    assert {code(driver.answer(m)) for m in "ab"} == {E.NONE}


def test_the_first_rebalance_does_not_wait_beyond_the_rebalance_timeout() -> None:
    driver = Driver(initial_rebalance_delay_s=3)
    driver.join("", new="m0", rebalance_timeout_s=5)
    for index in range(1, 5):
        driver.tick(1)
        driver.join("", new=f"m{index}", rebalance_timeout_s=5)
        assert driver.group.state is PREPARING
    driver.tick(1)
    assert driver.group.state is COMPLETING


def test_the_protocol_with_most_votes_wins() -> None:
    driver = Driver(initial_rebalance_delay_s=1)
    for member, order in (("a", "xy"), ("b", "yx"), ("c", "yxz")):
        driver.join("", new=member, protocols=tuple((name, name.encode()) for name in order))
    driver.tick(1)
    driver.tick(1)
    assert driver.group.protocol == "y"
    assert [m.metadata for m in driver.answer("a").members] == [b"y"] * 3


def test_a_protocol_must_be_known_to_all() -> None:
    driver = Driver()
    driver.join("", new="a", protocols=(("x", b""), ("y", b"")))
    assert driver.join("", new="b", protocols=(("y", b""),)) is None
    refused = driver.join("", new="c", protocols=(("x", b""),))
    assert refused.code is E.INCONSISTENT_GROUP_PROTOCOL
    wrong_type = driver.join("", new="c", protocol_type="connect")
    assert wrong_type.code is E.INCONSISTENT_GROUP_PROTOCOL
    nothing = Driver().join("", new="a", protocols=())
    assert nothing.code is E.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_must_name_the_elected_protocol() -> None:
    driver = in_state(COMPLETING)
    assert driver.sync("a", protocol_type="consumer", protocol="sticky").code is (
        E.INCONSISTENT_GROUP_PROTOCOL
    )
    assert driver.sync("a", protocol_type="consumer", protocol="range").code is E.NONE


def test_a_full_group_refuses_members() -> None:
    driver = Driver(max_size=2)
    driver.join("", new="a")
    driver.join("", new="b", requires_known_member_id=True)
    # A mere member id does not count, so the third member is too many when it joins with its id.
    assert driver.join("", new="c", requires_known_member_id=True).code is E.MEMBER_ID_REQUIRED
    driver.join("b")
    driver.join("a")
    late = driver.join("c")
    assert (late.code, late.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert sorted(driver.group.members) == ["a", "b"]
    assert driver.group.pending_members == {}


def test_pending_member_ids_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_group, "MAX_PENDING_MEMBERS", 2)
    driver = Driver()
    for name in ("a", "b"):
        assert driver.join("", new=name, requires_known_member_id=True).code is E.MEMBER_ID_REQUIRED
    assert (
        driver.join("", new="c", requires_known_member_id=True).code is E.COORDINATOR_NOT_AVAILABLE
    )
    driver.tick(SESSION_S)
    assert driver.join("", new="c", requires_known_member_id=True).code is E.MEMBER_ID_REQUIRED


def test_the_last_member_to_rejoin_a_shrunk_group_is_rejected() -> None:
    driver = in_state(STABLE)
    driver.group._max_size = 1
    assert driver.join("a") is None
    assert driver.join("a") is None
    turned = driver.join("b")
    assert (turned.code, turned.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert list(driver.group.members) == ["a"]


def test_a_repeated_join_completes_the_earlier_one() -> None:
    driver = in_state(STABLE)
    driver.join("a")
    driver.join("a")
    assert driver.answer("a").code is E.REBALANCE_IN_PROGRESS


def test_a_follower_whose_join_was_lost_gets_the_same_generation() -> None:
    driver = in_state(STABLE)
    again = driver.join("b")
    assert (again.code, again.generation, again.members) == (E.NONE, 2, ())
    assert driver.group.state is STABLE
    assert driver.join("b", protocols=(("range", b"other"),)) is None
    assert driver.group.state is PREPARING


def static(driver: Driver, new: str, **fields: Any) -> Any:
    return driver.join("", new=new, instance_id="i", **fields)


def stable_static() -> Driver:
    driver = Driver()
    static(driver, "s1")
    driver.sync("s1", {"s1": b"mine"})
    return driver


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    driver = stable_static()
    back = static(driver, "s2", supports_skipping_assignment=True)
    assert (back.code, back.member_id, back.generation) == (E.NONE, "s2", 1)
    assert (back.leader, back.skip_assignment) == ("s2", True)
    assert driver.group.state is STABLE
    assert driver.sync("s2", instance_id="i").assignment == b"mine"
    assert driver.heartbeat("s1", instance_id="i") is E.FENCED_INSTANCE_ID
    assert driver.commit("s1", 1, instance_id="i") is E.FENCED_INSTANCE_ID
    assert driver.heartbeat("s2", instance_id="other") is E.UNKNOWN_MEMBER_ID


def test_a_static_follower_comes_back_without_a_rebalance() -> None:
    driver = Driver()
    driver.join("", new="d")
    static(driver, "s1")
    driver.join("d")
    driver.sync("d", {"s1": b"mine"})
    back = static(driver, "s2", supports_skipping_assignment=True)
    assert (back.leader, back.members, back.skip_assignment) == ("d", (), False)
    assert driver.group.state is STABLE
    assert driver.sync("s2", instance_id="i").assignment == b"mine"


def test_an_older_static_leader_does_not_learn_that_it_leads() -> None:
    back = static(stable_static(), "s2")
    assert (back.leader, back.members, back.skip_assignment) == ("s1", (), False)


def test_a_static_member_with_another_subscription_keeps_its_assignment() -> None:
    driver = stable_static()
    other = (("range", b"other"),)
    back = static(driver, "s2", protocols=other, supports_skipping_assignment=True)
    assert (driver.group.state, driver.group.generation) == (STABLE, 1)
    # It is the leader, so it can decide itself whether to rebalance.
    assert [member.metadata for member in back.members] == [b"other"]
    assert driver.sync("s2", instance_id="i").assignment == b"mine"


def test_a_static_member_that_changes_the_vote_rebalances() -> None:
    driver = stable_static()
    driver.join("s1", instance_id="i", protocols=(("range", b"r"), ("sticky", b"s")))
    driver.sync("s1", {"s1": b"mine"})
    generation = driver.group.generation
    static(driver, "s2", protocols=(("sticky", b"s"), ("range", b"r")))
    assert driver.group.protocol == "sticky"
    assert (driver.group.state, driver.group.generation) == (COMPLETING, generation + 1)


def test_a_static_member_that_missed_a_rebalance_has_a_session_to_come_back() -> None:
    driver = stable_static()
    driver.join("", new="d", rebalance_timeout_s=5, session_timeout_s=600)
    for _ in range(int(REBALANCE_S / 5)):
        driver.heartbeat("s1", instance_id="i")
        driver.tick(5)
    assert driver.group.state is COMPLETING
    driver.sync("d", {"s1": b"mine"})
    driver.tick(SESSION_S - 1)
    assert list(driver.group.members) == ["s1", "d"]
    driver.tick(1)
    assert list(driver.group.members) == ["d"]


def test_a_static_member_keeps_its_place_through_a_rebalance() -> None:
    driver = stable_static()
    driver.join("", new="d")
    for _ in range(int(REBALANCE_S / 5)):
        assert driver.heartbeat("s1", instance_id="i") is E.REBALANCE_IN_PROGRESS
        driver.tick(5)
    assert driver.group.state is COMPLETING
    assert driver.group.leader == "d"
    assert [m.member_id for m in driver.answer("d").members] == ["s1", "d"]


def test_a_static_member_can_be_removed_by_its_instance_id() -> None:
    driver = stable_static()
    assert driver.leave("", "other") is E.UNKNOWN_MEMBER_ID
    assert driver.leave("", "i") is E.NONE
    assert driver.group.state is EMPTY


def test_a_new_coordinator_knows_the_last_stable_generation() -> None:
    driver = in_state(PREPARING)
    driver.join("a")
    driver.give(CoordinatorChanged(loaded_at=0.0))
    assert driver.answer("a").code is E.NOT_COORDINATOR
    assert driver.answer("c").code is E.NOT_COORDINATOR
    assert list(driver.group.members) == ["a", "b"]
    assert driver.heartbeat("b") is E.NONE
    assert driver.sync("b").assignment == b"for b"


def test_the_next_deadline_is_the_earliest() -> None:
    driver = in_state(STABLE)
    assert driver.group.next_deadline() == driver.now + SESSION_S
    assert in_state(EMPTY).group.next_deadline() == float("inf")


WHO = st.integers(0, 5)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Any, ...]:
    kind = draw(
        st.sampled_from(["join", "join", "sync", "heartbeat", "leave", "commit", "tick", "moved"])
    )
    return kind, draw(WHO), draw(st.sampled_from([0.0, 1.0, 6.0, 30.0])), draw(st.booleans())


@settings(max_examples=100, deadline=None)
@given(st.lists(steps(), max_size=40))
def test_group_invariants_hold_for_any_events(history: list[tuple[Any, ...]]) -> None:
    driver = Driver(initial_rebalance_delay_s=2)
    asked = 0
    for number, (kind, index, seconds, flag) in enumerate(history):
        before = driver.group.generation
        known = [*driver.group.members, *driver.group.pending_members]
        who = known[index] if index < len(known) else "" if flag else "stranger"
        if kind == "join":
            driver.join(who, new=f"n{number}", requires_known_member_id=flag)
            asked += 1
        elif kind == "sync":
            driver.sync(who)
            asked += 1
        elif kind == "heartbeat":
            assert driver.heartbeat(who) is not None
            asked += 1
        elif kind == "leave":
            assert driver.leave(who) is not None
            asked += 1
        elif kind == "commit":
            assert driver.commit(who, driver.group.generation if flag else -1) is not None
            asked += 1
        elif kind == "tick":
            driver.tick(seconds)
        elif flag:
            driver.give(CoordinatorChanged(loaded_at=0.0))
            before = 0
        sound(driver, asked)
        assert driver.group.generation >= before


def sound(driver: Driver, asked: int) -> None:
    group = driver.group
    waiting = [m for m in group.members.values() if m.join_reply] + [
        m for m in group.members.values() if m.sync_reply
    ]
    assert len(driver.replies) + len(waiting) == asked
    assert bool(group.members) or group.state in {EMPTY, PREPARING}
    assert group.leader in group.members or not group.members
    if group.state is STABLE:
        assert not waiting
    assert group.next_deadline() > driver.now or group.state is DEAD
