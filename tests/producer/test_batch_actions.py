"""The action for every error code."""

from __future__ import annotations

import pytest

from aiokafkawire.producer.batch_actions import BATCH_ACTIONS, BatchAction, action_for
from aiokafkawire.wire.error_codes import ErrorCode


def observed() -> dict[tuple[str, str], str]:
    """Return the action for each error code of Produce."""
    return {("Produce", code.name): action_for(code).name for code in ErrorCode}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in BATCH_ACTIONS])
def test_other_codes_are_retried_if_retriable(code: ErrorCode):
    assert action_for(code) is (BatchAction.RETRY if code.retriable else BatchAction.FAIL)


@pytest.mark.parametrize("code", [-2, 999, 32767])
def test_an_unknown_code_leaves_the_outcome_unknown(code: int):
    assert action_for(code) is BatchAction.FAIL_UNKNOWN
