"""The states of a batch."""

from __future__ import annotations

import pytest

from aiokafkawire.producer.batch import TRANSITIONS, Batch, BatchEvent, BatchState
from aiokafkawire.producer.batch_future import BatchAppended, BatchFuture
from aiokafkawire.producer.unreported_failures import UnreportedFailures
from aiokafkawire.producer.yield_budget import YieldBudget
from aiokafkawire.records import BatchBuilder
from aiokafkawire.runtime.state_machine import InvalidTransition

PATHS = {
    BatchState.OPEN: [],
    BatchState.WAITING: [BatchEvent.CLOSED],
    BatchState.IN_FLIGHT: [BatchEvent.CLOSED, BatchEvent.SENT],
    BatchState.DONE: [BatchEvent.COMPLETED],
}


def new_batch() -> Batch:
    future = BatchFuture("t", 0, UnreportedFailures(), YieldBudget())
    batch = Batch(future, BatchBuilder(), (1,), 1.0, 2.0)
    assert batch.builder is not None
    batch.builder.append(1, None, b"value")
    return batch


@pytest.mark.parametrize("event", BatchEvent)
@pytest.mark.parametrize("state", BatchState)
def test_every_state_with_every_event(state: BatchState, event: BatchEvent):
    batch = new_batch()
    for step in PATHS[state]:
        batch.handle(step)
    assert batch.state is state
    if (state, event) in TRANSITIONS:
        batch.handle(event)
        assert batch.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(InvalidTransition, match="cannot happen"):
            batch.handle(event)
        assert batch.state is state


def test_closing_sets_the_count():
    batch = new_batch()
    batch.close()
    assert batch.count == 1
    assert batch.records is not None
    assert batch.state is BatchState.WAITING


def test_completing_frees_the_records():
    batch = new_batch()
    batch.complete(BatchAppended(5))
    assert batch.done
    assert (batch.count, batch.builder, batch.records) == (1, None, None)
    assert batch.future.done
