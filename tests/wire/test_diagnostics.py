import pytest

from aiokafkawire import wire
from aiokafkawire.errors import MalformedMessage, UnsupportedVersion
from aiokafkawire.wire.diagnostics import (
    MAX_DIAGNOSED_VALUES,
    check_default,
    diagnose_decode_error,
    diagnose_encode_error,
)
from aiokafkawire.wire.messages.fetch import FetchPartition
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.schema import schema_for
from tests.wire import vectors


def test_valid_bytes_are_walked_to_their_end() -> None:
    for name in ("FetchResponse", "MetadataResponse", "ApiVersionsResponse", "OffsetFetchRequest"):
        cls = wire.message_class(name)
        for _, vector in vectors.by_message()[name]:
            raw = bytes.fromhex(vector["hex"])
            error = diagnose_decode_error(cls, vector["version"], raw)
            assert error.reason.startswith("the bytes could not be decoded"), vector["id"]
            with pytest.raises(MalformedMessage, match="2 trailing bytes") as caught:
                wire.decode(cls, vector["version"], raw + b"??")
            assert caught.value.position == len(raw)


@pytest.mark.slow
def test_number_of_walked_values_is_limited() -> None:
    count = MAX_DIAGNOSED_VALUES + 10
    raw = count.to_bytes(4) + b"\x00\x00" * count
    cls = wire.message_class("MetadataRequest")
    assert diagnose_decode_error(cls, 0, raw).reason.startswith("malformed after the first")
    with pytest.raises(MalformedMessage, match="after the first 100000 values"):
        wire.decode(cls, 0, raw[:-2] + b"\xff\xff")
    few = MAX_DIAGNOSED_VALUES // 2 - 10
    raw = few.to_bytes(4) + b"\x00\x00" * few
    with pytest.raises(MalformedMessage, match=rf"null.*topics\[{few - 1}\]\.name"):
        wire.decode(cls, 0, raw[:-2] + b"\xff\xff")


def test_error_without_a_field_keeps_its_type() -> None:
    message = HeartbeatResponse(error_code=1)
    error = diagnose_encode_error(message, 0, OverflowError("odd"))
    assert type(error) is OverflowError
    assert str(error) == "HeartbeatResponse v0: odd"


def test_text_that_is_not_utf_8_is_named_with_its_field() -> None:
    message = HeartbeatRequest(group_id="\ud800", generation_id=1, member_id="m")
    with pytest.raises(
        ValueError, match=r"HeartbeatRequest v4, field group_id: .*cannot be encoded as UTF-8"
    ):
        wire.encode(message, 4)


def test_long_values_are_abbreviated() -> None:
    message = HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", group_instance_id="i" * 5_000
    )
    error = diagnose_encode_error(message, 0, ValueError())
    assert isinstance(error, UnsupportedVersion)
    assert len(str(error)) < 300


def test_check_default() -> None:
    epoch = next(f for f in schema_for(FetchPartition).fields if f.name == "last_fetched_epoch")
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0)
    check_default(epoch, 11, partition)
    partition.last_fetched_epoch = 4
    with pytest.raises(UnsupportedVersion, match="set to 4"):
        check_default(epoch, 11, partition)


def test_null_tagged_struct_is_walked_to_its_end() -> None:
    name = "ConsumerGroupMemberMetadataValue"
    cls = wire.message_class(name)
    for _, vector in vectors.by_message()[name]:
        error = diagnose_decode_error(cls, 0, bytes.fromhex(vector["hex"]))
        assert error.reason.startswith("the bytes could not be decoded"), vector["id"]
    raw = bytes.fromhex(next(v["hex"] for v in vectors.lines("nullable-structs")))
    assert raw.endswith(b"\x01\x00\x01\x00")  # one tagged field, tag 0, one byte: null
    with pytest.raises(MalformedMessage, match="the value of tag 0 does not take 2 bytes"):
        wire.decode(cls, 0, raw[:-2] + b"\x02\x00\x00")
    with pytest.raises(MalformedMessage, match="classic_member_metadata"):
        wire.decode(cls, 0, raw[:-2] + b"\x01\x01")  # present, and nothing follows
