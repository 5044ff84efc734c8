"""A transaction that is given away, as text."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from aiokafkawire import PreparedTransaction

PREPARED = PreparedTransaction("id", 7, 3, 2)


@pytest.mark.parametrize("prepared", [PREPARED, PreparedTransaction("ü", 0, 0, 0, empty=True)])
def test_it_survives_as_text(prepared: PreparedTransaction) -> None:
    text = prepared.to_json()
    assert PreparedTransaction.from_json(text) == prepared
    assert PreparedTransaction.from_json(text.encode()) == prepared


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not a prepared"),
        ("[]", "not a prepared"),
        ("{}", "not a prepared"),
        (json.dumps(asdict(PREPARED) | {"more": 1}), "not a prepared"),
        (json.dumps(asdict(PREPARED) | {"producer_id": "7"}), "producer_id is '7'"),
        (json.dumps(asdict(PREPARED) | {"producer_epoch": True}), "producer_epoch is True"),
        (json.dumps(asdict(PREPARED) | {"transactional_id": None}), "transactional_id is None"),
        (json.dumps(asdict(PREPARED) | {"empty": 0}), "empty is 0"),
    ],
)
def test_other_text_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        PreparedTransaction.from_json(text)
