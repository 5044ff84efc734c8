"""Messages as JSON, with the payloads nested in their bytes fields.

`to_json` writes bytes as base64. These are decoded instead: record batches (`records` of Produce
and Fetch), and a member's subscription and assignment (JoinGroup, SyncGroup, DescribeGroups).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokafkawire.cli.json_lines import put_bytes
from aiokafkawire.errors import CorruptRecord, MalformedMessage
from aiokafkawire.records import BatchView, iter_batches
from aiokafkawire.wire import Buffer, Message, Struct, to_json
from aiokafkawire.wire.consumer_protocol import (
    LATEST_VERSION,
    decode_assignment,
    decode_subscription,
)
from aiokafkawire.wire.schema import Field, schema_for

__all__ = ("records_to_dicts", "to_expanded_json")


def to_expanded_json(message: Message, version: int) -> dict[str, Any]:
    """Return a message as JSON with its nested payloads decoded."""
    fields = to_json(message, version)
    _expand(message, fields)
    return fields


def records_to_dicts(data: Buffer) -> list[dict[str, Any]]:
    """Return the header and the records of each record batch.

    A corrupt batch has the reason under `corrupt`.
    """
    batches: list[dict[str, Any]] = []
    try:
        for batch in iter_batches(data):
            batches.append(_batch_header(batch))
            batch.check_crc()
            batches[-1]["records"] = _batch_records(batch)
    except CorruptRecord as error:
        if not batches or "records" in batches[-1]:
            batches.append({})
        batches[-1]["corrupt"] = str(error)
    return batches


def _batch_header(batch: BatchView) -> dict[str, Any]:
    if batch.magic < 2:
        return {"magic": batch.magic, "attributes": batch.attributes, "crc": batch.crc}
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "magic": batch.magic,
        "crc": batch.crc,
        "compression": batch.compression.name.lower(),
        "timestampType": batch.timestamp_type.name,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "baseTimestamp": batch.base_timestamp,
        "maxTimestamp": batch.max_timestamp,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
    }


def _batch_records(batch: BatchView) -> list[dict[str, Any]]:
    columns = batch.columns()
    records = []
    for index, offset in enumerate(columns.offsets):
        record: dict[str, Any] = {"offset": offset, "timestamp": columns.timestamps[index]}
        put_bytes(record, "key", columns.key(index))
        put_bytes(record, "value", columns.value(index))
        record["headers"] = []
        for name, value in columns.headers(index):
            header: dict[str, Any] = {"name": name}
            put_bytes(header, "value", value)
            record["headers"].append(header)
        records.append(record)
    return records


def _subscription(data: Buffer) -> dict[str, Any]:
    return _versioned_json(data, decode_subscription)


def _assignment(data: Buffer) -> dict[str, Any]:
    return _versioned_json(data, decode_assignment)


def _versioned_json(data: Buffer, decode: Callable[[Buffer], Message]) -> dict[str, Any]:
    version = min(int.from_bytes(bytes(data[:2])), LATEST_VERSION)
    return {"version": version, **to_json(decode(data), version)}


NESTED_PAYLOADS: dict[tuple[str, str], Callable[[Buffer], Any]] = {
    ("JoinGroupRequestProtocol", "metadata"): _subscription,
    ("JoinGroupResponseMember", "metadata"): _subscription,
    ("SyncGroupRequestAssignment", "assignment"): _assignment,
    ("SyncGroupResponse", "assignment"): _assignment,
    ("DescribedGroupMember", "member_metadata"): _subscription,
    ("DescribedGroupMember", "member_assignment"): _assignment,
}
"""Decoders of bytes fields of the consumer protocol; other groups keep base64."""


def _expand(struct: Struct, fields: dict[str, Any]) -> None:
    schema = schema_for(type(struct))
    for field in schema.fields:
        value = getattr(struct, field.name)
        if value and field.wire_name in fields:
            _expand_field(schema.name, field, value, fields)


def _expand_field(struct: str, field: Field, value: Any, fields: dict[str, Any]) -> None:
    kind = field.kind
    if kind.struct is not None:
        _expand(value, fields[field.wire_name])
    elif kind.element is not None and kind.element.struct is not None:
        for each, its_form in zip(value, fields[field.wire_name], strict=True):
            _expand(each, its_form)
    elif kind.primitive is not None and kind.primitive.name == "records":
        fields[field.wire_name] = records_to_dicts(value)
    elif (struct, field.name) in NESTED_PAYLOADS:
        try:
            fields[field.wire_name] = NESTED_PAYLOADS[struct, field.name](value)
        except MalformedMessage:
            # The protocol type is not "consumer": keep the base64 form.
            return
