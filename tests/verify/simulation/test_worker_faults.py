"""Faults of the dead letter topic, of logs and of commits in the scenario of workers."""

from __future__ import annotations

from collections import Counter

import pytest

from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.worker.finished_records import decode_metadata
from verify.simulation.scenarios import exactly_once, worker
from verify.simulation.single_run import draw
from verify.simulation.worker_faults import METADATA, foreign_metadata


def test_many_of_60_plans_have_each_fault() -> None:
    plans = [draw(worker.SCENARIO, seed) for seed in range(60)]
    kinds = Counter(
        kind
        for plan in plans
        for kind in {
            (step.kind, step.arguments.get("form"), step.arguments.get("max_bytes"))
            for step in plan.steps
        }
    )
    faults = ["compact", "remove members", "forbid dead letters", "delete dead letters"]
    for kind in [
        *((name, None, None) for name in faults),
        *(("limit dead letters", None, size) for size in (100, 300)),
        *(("foreign metadata", form, None) for form in METADATA),
    ]:
        assert kinds[kind] > 5, kind


def test_many_of_60_plans_remove_members_while_one_record_fits_into_the_buffer() -> None:
    plans = [draw(exactly_once.SCENARIO, seed) for seed in range(60)]
    found = [
        plan
        for plan in plans
        if plan.options["buffer_memory_bytes"] == exactly_once.SMALL_BUFFER
        and any(step.kind == "remove members while writing" for step in plan.steps)
    ]
    assert len(found) > 10


@pytest.mark.parametrize("form", METADATA)
def test_foreign_metadata_names_no_finished_record(form: str) -> None:
    for offset in range(300):
        metadata = foreign_metadata(form, CommittedOffset(offset, 0, ""))
        assert metadata
        assert decode_metadata(offset, metadata) is None
