from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest
from aiokafkawire.wire.messages.metadata import MetadataRequestTopic
from aiokafkawire.wire.primitives import int32
from aiokafkawire.wire.schema import (
    NO_VERSIONS,
    Message,
    Struct,
    VersionRange,
    data,
    field,
    schema_for,
    struct,
)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-9", [0, 9], [10]), ("6+", [6, 999], [5]), ("none", [], [0, 1])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = VersionRange.parse(text)
    assert str(versions) == text
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_messages_are_keyword_only_with_slots() -> None:
    request: Any = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert request.group_instance_id is None
    assert request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    with pytest.raises(AttributeError):
        request.group = "g"
    positional: Any = HeartbeatRequest
    with pytest.raises(TypeError):
        positional("g", 1, "m")
    with pytest.raises(TypeError, match="generation_id"):
        positional(group_id="g", member_id="m")


def test_class_attributes() -> None:
    assert (FetchRequest.api_key, FetchRequest.min_version, FetchRequest.max_version) == (1, 0, 18)
    assert FetchRequest.flexible_from == 12
    assert [FetchRequest.header_version(v) for v in (0, 11, 12)] == [1, 1, 2]
    assert [ApiVersionsRequest.header_version(v) for v in (2, 3, 4)] == [1, 2, 2]
    assert [ApiVersionsResponse.header_version(v) for v in (2, 3, 4)] == [0, 0, 0]


def test_fields_by_version() -> None:
    schema = schema_for(FetchPartition)
    assert [f.wire_name for f in schema.present(0)] == [
        "partition",
        "fetchOffset",
        "partitionMaxBytes",
    ]
    assert schema.tagged(16) == ()
    assert [f.wire_name for f in schema.tagged(18)] == ["replicaDirectoryId", "highWatermark"]
    assert "highWatermark" in [f.wire_name for f in schema.absent(17)]


def test_nullability_follows_the_type_by_default() -> None:
    name = next(f for f in schema_for(MetadataRequestTopic).fields if f.name == "name")
    assert 9 not in name.nullable
    assert 10 in name.nullable
    group_id = next(f for f in schema_for(HeartbeatRequest).fields if f.name == "group_id")
    assert group_id.nullable == NO_VERSIONS


def test_default_values() -> None:
    @struct
    class Inner(Struct):
        depth: int32 = 7

    @data(name="Outer", versions="0-2", flexible="2+")
    class Outer(Message):
        text: str
        numbers: list[int32]
        inner: Inner
        maybe: bytes | None = field(versions="1+", default=None)
        identity: UUID

    values = {f.name: f.default_value() for f in schema_for(Outer).fields}
    assert values == {
        "text": "",
        "numbers": [],
        "inner": Inner(),
        "maybe": None,
        "identity": UUID(int=0),
    }
    assert not Outer.is_flexible(1)
    assert Outer.is_flexible(2)


def test_invalid_declarations() -> None:
    with pytest.raises(TypeError, match="not a type of the Kafka protocol"):

        @struct
        class Complex(Struct):
            number: complex

    with pytest.raises(TypeError, match="must allow None"):

        @struct
        class Contradicting(Struct):
            name: str = field(nullable="1+")

    with pytest.raises(TypeError, match="not a declared message"):
        schema_for(Struct)
