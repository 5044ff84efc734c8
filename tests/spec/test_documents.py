"""The grammars of the protocol documents beside the classes that speak them, by program."""

import zlib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import NamedTuple

import pytest

from aiokafkawire import records, wire
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.header import decode_response
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorResponse
from aiokafkawire.wire.messages.offset_commit_draft import (
    OffsetCommitDraftPartition,
    OffsetCommitDraftRequest,
    OffsetCommitDraftTopic,
)
from aiokafkawire.wire.schema import Field, Message, Struct, TypeKind, VersionRange, schema_for
from tests.spec.grammar import Grammar, Item, grammars, keys

DOCUMENTS = ("000_protocol_page", "001_guide", "004_guide_0_8")

GRAMMARS = [
    grammar
    for document in DOCUMENTS
    for grammar in grammars(document)
    if grammar.message != "MessageSet"
]

OTHER_NAMES = {
    "RequestMessage": "RequestHeader",
    "Response": "ResponseHeader",
    "ProtocolMetadata": "ConsumerProtocolSubscription",
    "MemberAssignment": "ConsumerProtocolAssignment",
}
"""Messages that are not those of an API."""

FIELDS = {
    "api_key": "request_api_key",
    "api_version": "request_api_version",
    "consumer_group": "group_id",
    "consumer_group_generation_id": "generation_id_or_member_epoch",
    "consumer_group_id": "group_id key",
    "consumer_id": "member_id",
    "coordinator_host": "host",
    "coordinator_id": "node_id",
    "coordinator_port": "port",
    "data": "partition_data",
    "end_points": "endpoints",
    "group_assignment": "assignments",
    "group_generation_id": "generation_id generation_id_or_member_epoch",
    "group_id": "group_id key groups",
    "group_ids": "groups",
    "group_protocol": "protocol_name",
    "group_protocols": "protocols",
    "highwater_mark_offset": "high_watermark",
    "host": "host host_name v0_host",
    "id": "id broker_id",
    "isr": "isr isr_nodes",
    "leader": "leader leader_id",
    "leader_id": "leader leader_id",
    "max_bytes": "partition_max_bytes",
    "max_number_of_offsets": "max_num_offsets",
    "max_wait_time": "max_wait_ms",
    "member_assignment": "member_assignment assignment",
    "member_metadata": "member_metadata metadata",
    "message_set": "records",
    "metadata": "metadata committed_metadata",
    "offset": "offset committed_offset base_offset old_style_offsets",
    "offsets": "old_style_offsets",
    "partition": "partition partition_index partition_indexes partitions index",
    "partition_assignment": "assigned_partitions",
    "partition_error_code": "error_code",
    "partition_id": "partition_index",
    "partition_metadata": "partitions",
    "partition_responses": "partitions partition_responses",
    "partition_states": "ungrouped_partition_states",
    "partitions": "partitions partition_indexes ungrouped_partitions partition_errors",
    "partitions_remaining": "remaining_partitions",
    "port": "port v0_port",
    "protocol": "protocol_data",
    "protocol_metadata": "metadata",
    "protocol_name": "name",
    "record_set": "records",
    "replicas": "replicas replica_nodes",
    "required_acks": "acks",
    "responses": "responses topics",
    "retention_time": "retention_time_ms",
    "security_protocol_type": "security_protocol",
    "session_timeout": "session_timeout_ms",
    "state": "group_state",
    "subscription": "topics",
    "time": "timestamp",
    "time_stamp": "commit_timestamp",
    "timeout": "timeout_ms",
    "timestamp": "timestamp commit_timestamp log_append_time_ms",
    "topic": "topic name topic_name topics",
    "topic_error_code": "error_code",
    "topic_metadata": "topics",
    "topic_name": "topic name topics",
    "zk_version": "zk_version partition_epoch",
}
"""What our classes, in Kafka's names of today, call what a document calls so."""

DIFFERENCES = {
    ("000_protocol_page", "StopReplicaRequest", "delete_partitions"): "int8, ours bool",
    ("000_protocol_page", "ProduceRequest", "records"): "bytes, ours may be null",
    ("000_protocol_page", "FetchResponse", "records"): "bytes, ours may be null",
    ("000_protocol_page", "OffsetCommitRequest", "committed_metadata"): "string, ours may be null",
    ("000_protocol_page", "OffsetFetchResponse", "metadata"): "string, ours may be null",
}
"""Where the page and Kafka's bytes differ: Kafka's win. docs/protocol.md lists each."""


class Pair(NamedTuple):
    """A field of a document and ours at its place; `kind` is ours or that of its elements."""

    item: Item
    name: str
    kind: TypeKind
    nullable: bool


def class_of(grammar: Grammar) -> type[Message]:
    if grammar.version == "draft":
        return OffsetCommitDraftRequest
    return wire.message_class(OTHER_NAMES.get(grammar.message, grammar.message))


def pairs(items: tuple[Item, ...], cls: type[Struct], version: int) -> Iterator[Pair]:
    """Both sides field by field, from the first to the last byte."""
    theirs = list(without_sizes(items))
    ours = schema_for(cls).present(version)
    assert len(theirs) == len(ours), (theirs, [f.name for f in ours])
    for item, field in zip(theirs, ours, strict=True):
        yield from pairs_of(item, field, version)


def pairs_of(item: Item, field: Field, version: int) -> Iterator[Pair]:
    element = field.kind.element
    assert (item.elements is None) == (element is None), (item, field.name)
    if item.elements is None or element is None:
        yield Pair(item, field.name, field.kind, version in field.nullable)
        return
    yield Pair(item._replace(elements=()), field.name, TypeKind(), version in field.nullable)
    if not item.elements:
        # The document does not say of what the array is: of something that has no parts.
        assert element.struct is None or len(schema_for(element.struct).present(version)) == 1
    elif element.struct is not None:
        yield from pairs(item.elements, element.struct, version)
    else:
        (only,) = item.elements
        yield Pair(only, field.name, element, False)


def without_sizes(items: tuple[Item, ...]) -> Iterator[Item]:
    """A message set with its size before it is one field."""
    for item, after in zip_longest(items, items[1:]):
        if after is not None and after.type == "message_set":
            assert (item.name, item.type) == (f"{after.name}_size", "int32")
            continue
        yield item


def differences(grammar: Grammar, pair: Pair) -> str | None:
    """Describe how the type of a field differs from the document; None if it does not."""
    expected, ours = pair.item.type, pair.kind.primitive
    if expected is None or ours is None:
        assert expected is None, pair
        return None
    if expected == "message_set":
        expected = "records"
    # In the guide a length of -1 is null for every string and for all bytes.
    may_be_null = expected == "nullable_string" or grammar.document != "000_protocol_page"
    expected = expected.removeprefix("nullable_")
    name = "bytes" if expected == "bytes" and ours.name == "records" else ours.name
    if expected != name:
        return f"{expected}, ours {name}"
    if pair.nullable and not may_be_null:
        return f"{expected}, ours may be null"
    return None


@pytest.mark.parametrize("grammar", GRAMMARS, ids=str)
def test_our_classes_are_what_the_documents_say(
    grammar: Grammar, record_property: Callable[[str, object], None]
) -> None:
    cls, items = class_of(grammar), grammar.items
    if grammar.message in {"ProtocolMetadata", "MemberAssignment"}:
        # The version stands before the message, for who reads it to choose the layout.
        version_item, *rest = items
        assert (version_item.name, version_item.type) == ("version", "int16")
        items = tuple(rest)
    version = 0 if grammar.version == "draft" else int(grammar.version)
    assert not cls.is_flexible(version)
    for pair in pairs(items, cls, version):
        if pair.item.name:
            expected = FIELDS.get(pair.item.name, pair.item.name).split()
            assert pair.name in expected, (pair.item.name, pair.name)
        known = DIFFERENCES.get((grammar.document, schema_for(cls).name, pair.name))
        found = differences(grammar, pair)
        assert found == known, pair
        record_property("counted", f"fields of the protocol documents, {grammar.document}")


def test_every_documented_difference_exists() -> None:
    found = {
        (grammar.document, schema_for(class_of(grammar)).name, pair.name): expected
        for grammar in GRAMMARS
        if grammar.message not in {"ProtocolMetadata", "MemberAssignment"}
        and grammar.version != "draft"
        for pair in pairs(grammar.items, class_of(grammar), int(grammar.version))
        if (expected := differences(grammar, pair)) is not None
    }
    assert found == DIFFERENCES


@pytest.mark.parametrize("document", ["000_protocol_page", "001_guide"])
def test_the_documents_keys_of_apis(document: str) -> None:
    for name, key in keys(document).items():
        cls = wire.message_class(f"{name.removesuffix('Request')}Request")
        assert cls is wire.APIS[wire.ApiKey(key)].request, name


def test_every_api_of_the_documents_is_transcribed() -> None:
    expected = {
        (grammar.document, class_of(grammar)): VersionRange(0, int(grammar.version))
        for grammar in GRAMMARS
        if grammar.version != "draft"
    }
    for document in ("000_protocol_page", "001_guide"):
        for key in keys(document).values():
            api = wire.APIS[wire.ApiKey(key)]
            assert (document, api.request) in expected
            assert (document, api.response) in expected


def test_the_guides_message_set_is_magic_0() -> None:
    (grammar,) = (g for g in grammars("001_guide") if g.message == "MessageSet")
    message = b"\x00\x00" + b"\x00\x00\x00\x01k" + b"\xff\xff\xff\xff"
    values = {
        "offset": b"\x00\x00\x00\x00\x00\x00\x00\x07",
        "message_size": (4 + len(message)).to_bytes(4),
        "crc": zlib.crc32(message).to_bytes(4),
        "magic_byte": b"\x00",
        "attributes": b"\x00",
        "key": b"\x00\x00\x00\x01k",
        "value": b"\xff\xff\xff\xff",
    }
    assert [item.type for item in grammar.items[:5]] == ["int64", *["int32"] * 2, *["int8"] * 2]
    assert [item.type for item in grammar.items[5:]] == ["bytes", "bytes"]
    (batch,) = records.iter_batches(b"".join(values[item.name] for item in grammar.items))
    batch.check_crc()
    columns = batch.columns()
    assert (batch.magic, list(columns.offsets)) == (0, [7])
    assert (columns.key(0), columns.value(0)) == (b"k", None)


def test_a_consumer_metadata_response_without_its_optional_fields() -> None:
    (grammar,) = (g for g in grammars("004_guide_0_8") if g.message == "ConsumerMetadataResponse")
    assert [item.optional for item in grammar.items] == [False, True, True, True]
    cls = wire.message_class("ConsumerMetadataResponse")
    assert issubclass(cls, FindCoordinatorResponse)
    number, response = decode_response(cls, 0, memoryview(b"\x00\x00\x00\x05\x00\x0f"))
    assert number == 5
    assert response == FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    # Without an error they are there, as in all versions after it.
    for version, frame in ((0, b"\x00\x00\x00\x05\x00\x00"), (1, b"\x00\x00\x00\x05\x00\x0f")):
        with pytest.raises(MalformedMessage):
            decode_response(cls, version, memoryview(frame))


def test_the_commit_that_was_never_released() -> None:
    partition = OffsetCommitDraftPartition(
        partition_index=1, committed_offset=2, commit_timestamp=3, committed_metadata="m"
    )
    topic = OffsetCommitDraftTopic(name="t", partitions=[partition])
    request = OffsetCommitDraftRequest(group_id="g", topics=[topic])
    raw = bytes.fromhex(
        "0001 67"  # group
        "00000001 0001 74"  # one topic
        "00000001 00000001"  # partition 1
        "0000000000000002 0000000000000003"  # offset, time stamp
        "0001 6d"  # metadata
    )
    assert wire.encode(request, 0) == raw
    assert wire.decode(OffsetCommitDraftRequest, 0, raw) == request
    for version in range(11):
        with pytest.raises(MalformedMessage):
            wire.decode(wire.message_class("OffsetCommitRequest"), version, raw)
