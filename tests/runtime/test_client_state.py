from __future__ import annotations

from aiokafkawire.runtime.client_state import TRANSITIONS, ClientState, LifecycleEvent


def test_a_client_starts_once_and_closed_is_final():
    def after(state: ClientState) -> set[ClientState]:
        return {then for (before, _), then in TRANSITIONS.items() if before is state} - {state}

    assert {before for before, _ in TRANSITIONS} == set(ClientState)
    assert {step for _, step in TRANSITIONS} == set(LifecycleEvent)
    assert after(ClientState.CLOSED) == set()
    assert [state for state in ClientState if ClientState.RUNNING in after(state)] == [
        ClientState.STARTING
    ]
    assert [state for state in ClientState if ClientState.NEW in after(state)] == [
        ClientState.STARTING
    ]
    for state in ClientState:
        # Whatever happened, the tasks can be ended.
        assert TRANSITIONS[state, LifecycleEvent.STOPPED] is ClientState.CLOSED
