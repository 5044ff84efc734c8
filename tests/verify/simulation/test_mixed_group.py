"""The scenario of groups with members of both protocols."""

from __future__ import annotations

from collections import Counter

import pytest

from verify.simulation.__main__ import main
from verify.simulation.scenarios import mixed_group
from verify.simulation.single_run import draw, play


def test_plans_have_members_of_each_protocol_and_every_kind_of_change() -> None:
    plans = [draw(mixed_group.SCENARIO, seed) for seed in range(200)]
    kinds = Counter(step.kind for plan in plans for step in plan.steps)
    assert kinds.keys() >= {
        *("leave", "die", "stall", "subscribe", "switch", "grow", "recreate"),
        *("close instead of an answer", "late answer", "refusal", "move at", "lose"),
    }
    workers = [worker.arguments for plan in plans for worker in plan.of("works")]
    protocols = Counter(name for worker in workers for name in worker["protocols"])
    assert protocols.keys() == {"classic", "consumer", "auto"}
    assert all(Counter(worker[name] for worker in workers)[True] for name in ("static", "pattern"))
    for plan in plans:
        # Only an old broker lacks the consumer protocol.
        if plan.options["kind"] == "old brokers":
            assert all("consumer" not in each.arguments["protocols"] for each in plan.of("works"))


def test_the_first_member_reads_all_topics() -> None:
    for seed in range(100):
        plan = draw(mixed_group.SCENARIO, seed)
        assert mixed_group.read_by(plan) == sorted(plan.topics)


def test_rebalances_are_counted() -> None:
    result = play(mixed_group.SCENARIO, 3, "asyncio", shown_lines=0)
    assert not result.failures
    assert result.rebalances > 10


def test_a_command_runs_until_a_number_of_rebalances(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "mixed_group", "--rebalances", "20", "--jobs", "1"]) == 0
    row = capsys.readouterr().out.splitlines()[-2].split()
    assert int(row[3]) >= 20


def test_a_conversion_that_overtakes_a_revocation_is_no_violation() -> None:
    """A cooperative member has yet to revoke what its last SyncGroup response lacks."""
    assert not play(mixed_group.SCENARIO, 20_197, "trio", shown_lines=0).failures


def test_both_owners_of_a_partition_may_commit_after_a_conversion() -> None:
    """The coordinator accepts the commit of the member that has yet to revoke the partition."""
    plan = draw(mixed_group.SCENARIO, 4_001_893).only(
        steps=[0, 2, 4, 5, 6, 7, 9, 14, 15, 17], clients=[0, 1, 2, 3, 4], records=11
    )
    assert not play(mixed_group.SCENARIO, 4_001_893, "trio", plan, shown_lines=0).failures


def test_a_callback_after_a_crash_is_no_violation() -> None:
    """The tasks of a crashed process run until they are cancelled."""
    assert not play(mixed_group.SCENARIO, 40_756, "trio", shown_lines=0).failures
