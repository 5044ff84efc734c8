from __future__ import annotations

import dataclasses

import pytest

from aiokafkawire.group.membership import states

from .test_membership_machine import STATES


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_states_are_immutable(state: states.MembershipState) -> None:
    names = [field.name for field in dataclasses.fields(state)]  # type: ignore[arg-type]
    for name in [*names, "more"]:
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
            setattr(state, name, None)


def test_the_heartbeat_deadline_is_the_next_heartbeat_or_the_session_end() -> None:
    assert states.HeartbeatState(1, None, next_at=3.0, session_ends=45.0).deadline == 3.0
    assert states.HeartbeatState(1, 7, next_at=3.0, session_ends=45.0).deadline == 45.0
    assert states.HeartbeatState(None, None, next_at=50.0, session_ends=45.0).deadline == 45.0


def test_states_await_only_their_own_requests() -> None:
    waiting = {type(state).__name__: set(state.awaited) - {None} for state in STATES}
    assert waiting["Unjoined"] == waiting["BackingOff"] == waiting["PollTimedOut"] == set()
    assert waiting["Joining"] == waiting["Leaving"] == {100}
    assert waiting["Stable"] == waiting["RevocationDue"] == waiting["RejoinBackoff"] == {101}
    assert waiting["Syncing"] == waiting["Assigning"] == waiting["Revoking"] == {100, 101}
    for keeper in ("Rejoining", "Reassigning", "Resyncing"):
        assert waiting[keeper] == {100, 101}
