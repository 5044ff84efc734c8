from __future__ import annotations

from aiokafkawire.runtime.phases import TRANSITIONS, Phase, Step


def test_a_life_begins_once_and_ends_for_good():
    def after(phase: Phase) -> set[Phase]:
        return {then for (before, _), then in TRANSITIONS.items() if before is phase} - {phase}

    assert {before for before, _ in TRANSITIONS} == set(Phase)
    assert {step for _, step in TRANSITIONS} == set(Step)
    assert after(Phase.CLOSED) == set()
    assert [phase for phase in Phase if Phase.RUNNING in after(phase)] == [Phase.STARTING]
    assert [phase for phase in Phase if Phase.NEW in after(phase)] == [Phase.STARTING]
    for phase in Phase:
        # Whatever happened, the tasks can be ended.
        assert TRANSITIONS[phase, Step.ENDED] is Phase.CLOSED
