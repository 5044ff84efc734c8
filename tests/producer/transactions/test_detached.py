"""The JSON form of a detached transaction."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from aiokafkawire import DetachedTransaction

DETACHED = DetachedTransaction("id", 7, 3, 2)


@pytest.mark.parametrize("detached", [DETACHED, DetachedTransaction("ü", 0, 0, 0, empty=True)])
def test_json_round_trip(detached: DetachedTransaction) -> None:
    text = detached.to_json()
    assert DetachedTransaction.from_json(text) == detached
    assert DetachedTransaction.from_json(text.encode()) == detached


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not a detached"),
        ("[]", "not a detached"),
        ("{}", "not a detached"),
        (json.dumps(asdict(DETACHED) | {"more": 1}), "not a detached"),
        (json.dumps(asdict(DETACHED) | {"producer_id": "7"}), "producer_id is '7'"),
        (json.dumps(asdict(DETACHED) | {"producer_epoch": True}), "producer_epoch is True"),
        (json.dumps(asdict(DETACHED) | {"transactional_id": None}), "transactional_id is None"),
        (json.dumps(asdict(DETACHED) | {"empty": 0}), "empty is 0"),
    ],
)
def test_invalid_json_is_rejected(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        DetachedTransaction.from_json(text)
