import base64
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.errors import MalformedMessage, UnsupportedVersion
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import consumer_protocol as protocol
from tests.wire import vectors

FILE = "consumer-protocol"


def user_data(vector: dict[str, Any]) -> bytes | None:
    return None if vector["userData"] is None else base64.b64decode(vector["userData"])


def test_subscription_vectors(record_property: Callable[[str, object], None]) -> None:
    for vector in vectors.lines(FILE):
        if vector["kind"] != "subscription":
            continue
        raw = bytes.fromhex(vector["hex"])
        generation = -1 if vector["generationId"] is None else vector["generationId"]
        owned = [TopicPartition(*item) for item in vector["ownedPartitions"]]

        found = protocol.decode_subscription(raw)
        assert found.topics == vector["topics"], vector["id"]
        assert found.user_data == user_data(vector), vector["id"]
        assert protocol.flatten_by_topic(found.owned_partitions) == owned, vector["id"]
        assert (found.generation_id, found.rack_id) == (generation, vector["rackId"])

        made = protocol.encode_subscription(
            reversed(vector["topics"]),
            user_data=user_data(vector),
            owned_partitions=reversed(owned),
            generation_id=generation,
            rack_id=vector["rackId"],
            version=vector["version"],
        )
        assert made == raw, vector["id"]
        record_property("counted", f"golden vectors of messages, both directions, {FILE}")


def test_assignment_vectors(record_property: Callable[[str, object], None]) -> None:
    for vector in vectors.lines(FILE):
        if vector["kind"] != "assignment":
            continue
        raw = bytes.fromhex(vector["hex"])
        partitions = [TopicPartition(*item) for item in vector["partitions"]]

        found = protocol.decode_assignment(raw)
        assert protocol.flatten_by_topic(found.assigned_partitions) == partitions, vector["id"]
        assert found.user_data == user_data(vector), vector["id"]

        made = protocol.encode_assignment(
            partitions, user_data=user_data(vector), version=vector["version"]
        )
        assert made == raw, vector["id"]
        record_property("counted", f"golden vectors of messages, both directions, {FILE}")


def test_vectors_are_complete() -> None:
    kinds = [vector["kind"] for vector in vectors.lines(FILE)]
    assert kinds.count("subscription") == 56
    assert kinds.count("assignment") == 34


def test_fields_missing_in_a_version_are_omitted() -> None:
    raw = protocol.encode_subscription(
        ["t"], owned_partitions=[("t", 1)], generation_id=5, rack_id="r", version=0
    )
    found = protocol.decode_subscription(raw)
    assert found.topics == ["t"]
    assert (found.owned_partitions, found.generation_id, found.rack_id) == ([], -1, None)


def test_newer_version_is_decoded_as_the_latest() -> None:
    raw = protocol.encode_subscription(["t"], generation_id=5, rack_id="r")
    newer = struct.pack(">h", 4) + raw[2:] + b"what we do not know"
    assert protocol.decode_subscription(newer) == protocol.decode_subscription(raw)
    with pytest.raises(MalformedMessage, match="trailing"):
        protocol.decode_subscription(raw + b"?")


@pytest.mark.parametrize("raw", [b"\x00", b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x01"])
def test_malformed_user_data(raw: bytes) -> None:
    with pytest.raises(MalformedMessage, match="ConsumerProtocolSubscription"):
        protocol.decode_subscription(raw)
    with pytest.raises(MalformedMessage, match="ConsumerProtocolAssignment"):
        protocol.decode_assignment(raw)


def test_empty_assignment() -> None:
    assert protocol.decode_assignment(b"").assigned_partitions == []
    with pytest.raises(MalformedMessage, match="version is missing"):
        protocol.decode_subscription(b"")


def test_unknown_versions_are_not_encoded() -> None:
    with pytest.raises(UnsupportedVersion):
        protocol.encode_assignment([], version=4)


def test_group_by_topic_keeps_the_order() -> None:
    entries = protocol.group_by_topic([("b", 2), ("a", 1), ("b", 0)])
    assert [(entry.topic, entry.partitions) for entry in entries] == [("b", [2, 0]), ("a", [1])]
    assert protocol.flatten_by_topic(entries) == [("b", 2), ("b", 0), ("a", 1)]
