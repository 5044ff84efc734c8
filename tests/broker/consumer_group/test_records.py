"""A group appends the records that Kafka 4.3.0 appended for the same requests."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.groups.consumer_group import records
from aiokafkawire.broker.groups.consumer_group.member import (
    ClassicProtocolMember,
    ConsumerGroupMember,
    MemberState,
)
from aiokafkawire.broker.groups.consumer_group.record_log import GroupRecordLog
from aiokafkawire.broker.groups.consumer_group.records import (
    RECORD_TYPES,
    GroupRecord,
    decode_record,
    encode_record,
)
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.errors import KafkaError, MalformedMessage
from aiokafkawire.wire.json_converter import to_json
from aiokafkawire.wire.primitives import uuid_from_text
from tests.broker.consumer_group.driver import Driver
from tests.wire.vectors import lines

TOPIC = "qzF5UnXtTKWl8RPZkgaWcQ"
UNLIKE = ("metadataHash", "assignmentTimestamp", "timestamp", "version", "clientHost", "clientId")
"""Values of one run; the hash is not Kafka's."""


def recorded_batches() -> list[list[Any]]:
    found = [
        line
        for line in lines("coordinator-appends")
        if line["scenario"] == "persisted-consumer-group" and "record" in line
    ]
    return [
        in_order([(line["recordType"], line["key"], plain(line["value"])) for line in batch])
        for _, batch in groupby(found, key=lambda line: line["appendedTogether"])
    ]


def plain(value: Any) -> Any:
    """Return a value without what differs from run to run, and with its own defaults."""
    if value is None:
        return None
    return {name: each for name, each in value.items() if name not in {*UNLIKE, "valueVersion"}}


def in_order(batch: list[Any]) -> list[Any]:
    """Sort the target assignments of a batch, which Kafka writes in the order of a hash map."""
    return [
        each
        for _, same in groupby(batch, key=lambda each: each[0])
        for each in sorted(same, key=str)
    ]


def batch_of(written: tuple[GroupRecord, ...]) -> list[Any]:
    numbers = {key: number for number, (key, _) in RECORD_TYPES.items()}
    return in_order(
        [
            (
                numbers[type(record.key)],
                to_json(record.key, 0),
                plain(None if record.value is None else to_json(record.value, 0)),
            )
            for record in written
        ]
    )


def test_records_equal_kafka() -> None:
    topic = uuid_from_text(TOPIC)
    d = Driver()
    d.group.group_id = d.group.data.group_id = "zpersist"
    d.set_topics(t=(topic, 3))
    d.join("m1")
    d.heartbeat("m1", 2, {topic: [0, 1, 2]})
    d.join("m2")
    d.heartbeat("m1", 2)
    d.heartbeat("m1", 2, {topic: [0, 1]})
    d.heartbeat("m2", 3)
    d.join("s", instance_id="inst")
    d.heartbeat("s", -2, instance_id="inst")
    d.heartbeat("m2", -1)
    d.heartbeat("m1", 3)
    d.join("r", subscribed_names=None, subscribed_regex="t.*")
    d.heartbeat("r", 5)
    ours = [batch_of(batch) for batch in d.batches]
    expected = recorded_batches()
    for one, other in zip(ours, expected, strict=True):
        assert one == other
    print(f"{sum(map(len, ours))} records in {len(ours)} batches equal Kafka's")


MEMBER = ConsumerGroupMember(
    member_id="m",
    instance_id="i",
    rack_id="r",
    client_id="c",
    client_host="/h",
    subscribed_names=("t",),
    subscribed_regex="x.*",
    rebalance_timeout_ms=5,
    server_assignor="range",
    classic=ClassicProtocolMember(6_000, (("range", b"data"),)),
    epoch=3,
    previous_epoch=2,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={uuid_from_text(TOPIC): {0: 1, 2: 3}},
    pending_revocation={uuid_from_text(TOPIC): {1: 2}},
)


def test_member_survives_its_records() -> None:
    d = Driver()
    for record in (records.member_metadata("g", MEMBER), records.current_assignment("g", MEMBER)):
        d.group.data.apply(decode_record(*encode_record(record)))
    assert d.group.data.members == {"m": MEMBER}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x63", b"\x00\x03", b"\x00\x05\x00\x01g"])
def test_bytes_that_are_no_record(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(data, None)


class FailingStore(MemoryStore):
    def append_group_records(self, lines: list[dict[str, Any]], live: int) -> bool:
        raise StorageError


class LoadedStore(MemoryStore):
    def __init__(self, found: list[dict[str, Any]]) -> None:
        self._found = found

    def load_group_records(self) -> Any:
        return iter(self._found)


def test_log_keeps_the_last_record_of_each_key() -> None:
    log = GroupRecordLog(MemoryStore())
    log.append("g", [records.group_metadata("g", 2, 0), records.group_metadata("g", 3, 0)])
    assert list(log.records("g")) == [records.group_metadata("g", 3, 0)]
    log.delete("g")
    assert list(log.groups()) == []
    log.delete("g")


def test_log_is_unchanged_if_nothing_is_stored() -> None:
    log = GroupRecordLog(FailingStore())
    with pytest.raises(StorageError):
        log.append("g", [records.group_metadata("g", 2, 0)])
    assert list(log.groups()) == []


@pytest.mark.parametrize("line", [{}, {"group": "g", "key": "AAA=", "value": None}, {"key": 5}])
def test_damaged_log_is_refused(line: dict[str, Any]) -> None:
    with pytest.raises(KafkaError, match="the stored groups are damaged"):
        GroupRecordLog(LoadedStore([line]))
