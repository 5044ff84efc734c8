"""A stream that goes on with the checkpoint of the other connector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.parity.connectors import OURS, THEIRS, Connector
from tests.spark.parity.topics import World, timed


def read(connector: Connector, world: World, topic: str, checkpoint: Path) -> list[Any]:
    options = {
        "kafka.bootstrap.servers": world.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4",
    }
    connector.ask(do="stream", options=options, checkpoint=str(checkpoint))
    answer = connector.answer()
    assert "error" not in answer, answer
    rows = [row for batch in answer["batches"] for row in batch["rows"]]
    return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.mark.parametrize("first", [THEIRS, OURS])
def test_a_checkpoint_moves_to_the_other_connector_and_back(
    first: str, connectors: tuple[Connector, Connector], world: World, tmp_path: Path
) -> None:
    before, after = sorted(connectors, key=lambda connector: connector.name != first)
    topic = f"moving-from-{first}"
    world.make(topic, 2)
    world.append(topic, {0: timed(5), 1: timed(2)})
    # More than one batch: where it began stands in the first one of ours.
    assert len(read(before, world, topic, tmp_path)) == 7
    world.append(topic, {0: timed(2), 1: timed(1)})
    assert read(after, world, topic, tmp_path) == [(0, 5), (0, 6), (1, 2)]
    world.append(topic, {0: timed(1)})
    assert read(before, world, topic, tmp_path) == [(0, 7)]
