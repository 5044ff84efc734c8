from __future__ import annotations

import base64
from typing import Any

import pytest

from aiokafkawire.cli.nested_payloads import records_to_dicts, to_expanded_json
from aiokafkawire.records import BatchBuilder, Compression, broker_records
from aiokafkawire.wire import Message
from aiokafkawire.wire.consumer_protocol import encode_assignment, encode_subscription
from aiokafkawire.wire.messages import describe_groups, fetch, join_group, sync_group


def batch(compression: Compression = Compression.NONE, magic: int = 2) -> bytes:
    builder = BatchBuilder(compression)
    builder.append(1_000, b"k", b"value", [("h", b"1"), ("n", None)] if magic == 2 else ())
    builder.append(1_001, None, b"\xff")
    return b"".join(builder.close().encode(magic))


def test_batches_are_reported_with_their_records():
    (form,) = records_to_dicts(batch(Compression.GZIP))
    assert form["compression"] == "gzip"
    assert (form["baseOffset"], form["lastOffset"], form["producerId"]) == (0, 1, -1)
    assert form["records"] == [
        {
            "offset": 0,
            "timestamp": 1_000,
            "key": "k",
            "value": "value",
            "headers": [{"name": "h", "value": "1"}, {"name": "n", "value": None}],
        },
        {"offset": 1, "timestamp": 1_001, "key": None, "value_base64": "/w==", "headers": []},
    ]


def test_old_messages_are_reported_too():
    forms = records_to_dicts(batch(magic=1))
    assert [form["magic"] for form in forms] == [1, 1]
    assert [form["records"][0]["value"] for form in forms[:1]] == ["value"]


def test_a_control_batch_shows_that_it_is_one():
    data = broker_records.control_batch(7, 1, commit=True, coordinator_epoch=0, timestamp_ms=5)
    (form,) = records_to_dicts(data)
    assert (form["isControl"], form["isTransactional"], form["producerId"]) == (True, True, 7)


@pytest.mark.parametrize("position", [17, -1])
def test_damage_is_reported_and_what_went_before_is_shown(position: int):
    damaged = bytearray(batch())
    damaged[position] ^= 1
    good, bad = records_to_dicts(batch() + damaged)
    assert len(good["records"]) == 2
    assert "checksum is" in bad["corrupt"]
    assert "records" not in bad


def test_what_is_no_batch_at_all_is_reported():
    data = bytearray(batch())
    data[16] = 9
    assert records_to_dicts(bytes(data)) == [{"corrupt": "there is no message format 9 (offset 0)"}]


def test_records_stand_in_their_place():
    partition = fetch.FetchPartitionData(
        partition_index=3, error_code=0, high_watermark=2, records=batch(), aborted_transactions=[]
    )
    message = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", partitions=[partition])]
    )
    form = to_expanded_json(message, 11)
    (found,) = form["responses"][0]["partitions"]
    assert [record["value"] for record in found["records"][0]["records"][:1]] == ["value"]
    partition.records = None
    assert to_expanded_json(message, 11)["responses"][0]["partitions"][0]["records"] is None


def test_subscriptions_and_assignments_stand_in_their_place():
    subscription = encode_subscription(["t"], generation_id=4)
    assignment = encode_assignment([("t", 0), ("t", 2)])
    join = join_group.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    found: dict[str, Any] = to_expanded_json(join, 5)["protocols"][0]["metadata"]
    assert (found["version"], found["topics"], found["generationId"]) == (3, ["t"], 4)
    sync: Message = sync_group.SyncGroupResponse(error_code=0, assignment=assignment)
    partitions = [{"topic": "t", "partitions": [0, 2]}]
    assert to_expanded_json(sync, 3)["assignment"]["assignedPartitions"] == partitions
    member = describe_groups.DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        member_metadata=subscription,
        member_assignment=assignment,
    )
    group = describe_groups.DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    (found,) = to_expanded_json(describe_groups.DescribeGroupsResponse(groups=[group]), 4)[
        "groups"
    ][0]["members"]
    assert found["memberMetadata"]["topics"] == ["t"]
    assert found["memberAssignment"]["assignedPartitions"] == partitions


def test_the_bytes_of_another_kind_of_group_stay_as_they_are():
    own = b"\x00\x00\x00\x00\x00\x09not a consumer"
    sync = sync_group.SyncGroupResponse(error_code=0, assignment=own)
    assert to_expanded_json(sync, 3)["assignment"] == base64.b64encode(own).decode()
