"""The parts of a batch have its records, sequence numbers and memory."""

from __future__ import annotations

import pytest

from aiokafkawire.producer.batch_split import split_batch
from tests.producer.model import ready_cluster


@pytest.mark.parametrize("keep_sequences", [True, False])
def test_the_parts_share_what_the_batch_had(keep_sequences: bool) -> None:
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=4096)
    for number in range(7):
        cluster.append(0, b"%08d" % number)
    cluster.pass_time(0.01)
    [batch] = cluster.accumulator.drain(1, cluster.now, 10_000)
    reserved, sequence, count = batch.reserved_bytes, batch.sequence, batch.count
    batch.last_error = ValueError("too large")
    batch.records.has_user_timestamp = batch.sent_topic.maybe_in_deleted = True

    outcome, parts = split_batch(batch, 5.0, keep_sequences=keep_sequences)

    counts = [part.count for part in parts]
    starts = tuple(sum(counts[:index]) for index in range(len(counts)))
    assert outcome.starts == starts
    assert outcome.parts == tuple(part.future for part in parts)
    assert sum(counts) == count == 7
    assert len(parts) > 1
    assert sum(part.reserved_bytes for part in parts) == reserved
    assert batch.reserved_bytes == 0
    assert all(part.order > batch.order for part in parts)
    assert {(part.not_before, part.last_error) for part in parts} == {(5.0, batch.last_error)}
    assert all(part.records.has_user_timestamp for part in parts)
    assert all(part.sent_topic.maybe_in_deleted for part in parts)
    if keep_sequences:
        assert {part.sequence.identity for part in parts} == {sequence.identity}
        expected = [sequence.base_sequence + start for start in starts]
        assert [part.sequence.base_sequence for part in parts] == expected
    else:
        assert {part.sequence for part in parts} == {None}
