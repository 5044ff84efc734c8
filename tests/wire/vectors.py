"""The golden vectors of tests/vectors."""

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "vectors"
FILES = (
    "requests",
    "responses",
    "headers",
    "data-messages",
    "coordinator-records",
    "nullable-structs",
    "kafka-4.4",
)
RENAMED = {
    ("TxnOffsetCommitRequest", "generationId"): "generationIdOrMemberEpoch",
    ("StreamsGroupHeartbeatResponse", "acceptableRecoveryLag"): "acceptableRecoveryLagLegacy",
}
"""Fields whose names in vectors of 4.3.0 and earlier differ from those in 4.4."""


@cache
def lines(file: str) -> tuple[dict[str, Any], ...]:
    with gzip.open(FOLDER / f"{file}.jsonl.gz", "rt", encoding="utf-8") as stream:
        return tuple(json.loads(line) for line in stream)


@cache
def by_message() -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Return the vectors of each message, with the file of each vector."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for file in FILES:
        for vector in lines(file):
            if vector.get("kafka") != "4.4":
                _use_new_names(vector)
            found[vector["message"]].append((file, vector))
    return found


def _use_new_names(vector: dict[str, Any]) -> None:
    form = vector["json"]
    for (message, old), new in RENAMED.items():
        if vector["message"] == message and old in form:
            form[new] = form.pop(old)
