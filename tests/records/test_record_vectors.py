"""Every record vector: bytes to fields, and fields to the same bytes where that is possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire import records
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records.aborted_transactions import control_type
from aiokafkawire.types import TimestampType

from .vectors import load, unbase64

VECTORS = load("records")
GROUPS = sorted({vector["group"] for vector in VECTORS})

TIMESTAMP_TYPES = {
    "NoTimestampType": TimestampType.NONE,
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
CONTROL_TYPES = {"ABORT": 0, "COMMIT": 1, "LEADER_CHANGE": 2, "SNAPSHOT_HEADER": 3,
                 "SNAPSHOT_FOOTER": 4, "KRAFT_VERSION": 5, "KRAFT_VOTERS": 6}  # fmt: skip


def headers_of(record: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((key, unbase64(value)) for key, value in record.get("headers", ()))


def check_header(batch: records.BatchView, expected: dict[str, Any]) -> None:
    assert batch.magic == expected["magic"]
    assert batch.size_bytes == expected["sizeInBytes"]
    assert batch.crc == expected["checksum"]
    assert batch.compression == records.Compression[expected["compression"].upper()]
    assert batch.timestamp_type == TIMESTAMP_TYPES[expected["timestampType"]]
    assert batch.base_offset == expected["baseOffset"]
    assert batch.last_offset == expected["lastOffset"]
    assert batch.next_offset == expected["nextOffset"]
    assert batch.max_timestamp == expected["maxTimestamp"]
    if batch.magic == 2:
        assert batch.base_timestamp == expected["baseTimestamp"]
        assert batch.partition_leader_epoch == expected["partitionLeaderEpoch"]
        assert batch.producer_id == expected["producerId"]
        assert batch.producer_epoch == expected["producerEpoch"]
        assert batch.base_sequence == expected["baseSequence"]
        assert batch.last_sequence == expected["lastSequence"]
        assert batch.is_transactional == expected["isTransactional"]
        assert batch.is_control == expected["isControlBatch"]
        assert batch.count == expected["count"]
        assert batch.delete_horizon_ms == expected["deleteHorizonMs"]


def check_records(batch: records.BatchView, expected: dict[str, Any]) -> None:
    columns = batch.columns()
    assert batch.count == len(columns) == len(expected["records"])
    for index, record in enumerate(expected["records"]):
        assert columns.offsets[index] == record["offset"]
        assert columns.timestamps[index] == record["timestamp"]
        assert columns.key(index) == unbase64(record["key"])
        assert columns.value(index) == unbase64(record["value"])
        assert columns.headers(index) == headers_of(record)
        if "sequence" in record:
            sequence = batch.base_sequence + record["offset"] - batch.base_offset
            assert sequence & 0x7FFFFFFF == record["sequence"]
    if batch.is_control:
        assert control_type(batch) == CONTROL_TYPES[expected["records"][0]["controlType"]]


def check_vector(vector: dict[str, Any]) -> None:
    data = unbase64(vector["bytes"])
    assert data is not None
    assert len(data) == vector["totalBytes"]
    error = vector.get("error")
    good = vector["batches"][: error["batch"]] if error else vector["batches"]
    position = 0
    batches = records.iter_batches(data)
    for expected in good:
        batch = next(batches)
        assert position == expected["position"]
        assert expected["crcValid"]
        batch.check_crc()
        check_header(batch, expected)
        check_records(batch, expected)
        position += batch.size_bytes
    if error:
        with pytest.raises(CorruptRecord):
            read_all(batches)
    else:
        assert next(batches, None) is None
        assert position == vector["validBytes"]


def read_all(batches: Any) -> None:
    for batch in batches:
        batch.check_crc()
        batch.columns()


@pytest.mark.parametrize("group", GROUPS)
def test_vectors_decode(group: str, record_property: Callable[[str, object], None]) -> None:
    vectors = [vector for vector in VECTORS if vector["group"] == group]
    failed = []
    for vector in vectors:
        try:
            check_vector(vector)
        except Exception as error:
            failed.append(f"{vector['id']}: {type(error).__name__} {error}"[:300])
    summary = f"{len(vectors) - len(failed)} of {len(vectors)}"
    record_property("summary", f"golden vectors, records/{group}: {summary} decoded")
    assert not failed, "\n".join(failed)


def test_all_groups_are_there() -> None:
    counts = Counter(vector["group"] for vector in VECTORS)
    assert len(VECTORS) == sum(counts.values()) == 816
    assert set(GROUPS) >= {"builder", "huge", "producer", "control", "log", "partial", "compacted"}
    assert {"wrapper", "bad"} <= set(GROUPS)


def create_times(data: bytes) -> list[int]:
    """Log-append time hides them, though they are still in the batch."""
    (batch,) = records.iter_batches(data)
    batch.attributes &= ~8
    return list(batch.columns().timestamps)


def reencode(expected: dict[str, Any], data: bytes) -> bytes:
    appended = expected["timestampType"] == "LogAppendTime"
    magic = expected["magic"]
    builder = records.BatchBuilder(max_bytes=1 << 30)
    times = create_times(data) if appended and magic == 2 else []
    for number, record in enumerate(expected["records"]):
        timestamp = times[number] if times else record["timestamp"]
        index = builder.append(
            timestamp, unbase64(record["key"]), unbase64(record["value"]), headers_of(record)
        )
        assert index == number
    closed = builder.close()
    fields: dict[str, Any] = {}
    if magic == 2:
        fields = {
            "producer_id": expected["producerId"],
            "producer_epoch": expected["producerEpoch"],
            "base_sequence": expected["baseSequence"],
            "transactional": expected["isTransactional"],
            "control": expected["isControlBatch"],
            "base_offset": expected["baseOffset"],
            "leader_epoch": expected["partitionLeaderEpoch"],
        }
    data = b"".join(closed.encode(magic, **fields))
    (batch,) = records.iter_batches(data, allow_partial=False)
    time = expected["maxTimestamp"] if appended else None
    epoch = expected.get("partitionLeaderEpoch", -1)
    return records.assign_offsets(batch, expected["baseOffset"], epoch, time)


def test_vectors_encode_to_the_same_bytes(record_property: Callable[[str, object], None]) -> None:
    vectors = [vector for vector in VECTORS if vector["reencodable"]]
    failed = []
    for vector in vectors:
        data = unbase64(vector["bytes"])
        assert data is not None
        parts = []
        for batch in vector["batches"]:
            start = batch["position"]
            parts.append(reencode(batch, data[start : start + batch["sizeInBytes"]]))
        if b"".join(parts) != data:
            failed.append(vector["id"])
    summary = f"{len(vectors) - len(failed)} of {len(vectors)}"
    record_property("summary", f"golden vectors, records: {summary} encoded to the same bytes")
    assert not failed
    assert len(vectors) == 130
