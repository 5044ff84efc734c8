"""The faults that are planted: what a hurried programmer might have written."""

from __future__ import annotations

from tests.sabotage.planting import Sabotage

__all__ = ("SABOTAGES",)

PRODUCER = (
    Sabotage(
        "sequence_kept_after_a_sure_failure",
        "aiokafkawire.producer.sequences",
        "return Flowing(state.identity, stamp.base_sequence)",
        "return state",
    ),
)

SABOTAGES = {each.name: each for each in PRODUCER}
