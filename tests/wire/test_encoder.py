"""The compiler of encoders, with field types that no message has yet."""

from typing import Any
from uuid import UUID

import pytest

from aiokafkawire import wire
from aiokafkawire.wire import codec
from aiokafkawire.wire.encoder import encode_tagged_fields, make_encoder
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.primitives import Buffer, float64, int8, int32, uint16, uint32
from aiokafkawire.wire.schema import Message, Struct, data, field, struct


@struct
class Inner(Struct):
    number: int32 = 0


@data(name="Shapes", versions="0-1", flexible="1+")
class Shapes(Message):
    small: int8
    port: uint16
    big: uint32
    ratio: float64
    flag: bool
    identities: list[UUID]
    flags: list[bool]
    blobs: list[bytes]
    inner: Inner
    optional: Inner | None
    moved: str | None = field(versions="1+", default=None, tag=5)
    tagged_inner: Inner | None = field(versions="1+", default_factory=Inner, tag=6)


def shapes(**changes: Any) -> Shapes:
    values: dict[str, Any] = {
        "small": -1,
        "port": 65_535,
        "big": 2**32 - 1,
        "ratio": 0.5,
        "flag": True,
        "identities": [UUID(int=1)],
        "flags": [True, False],
        "blobs": [b"ab"],
        "inner": Inner(number=3),
        "optional": None,
    }
    return Shapes(**(values | changes))


FIXED = b"\xff" + b"\xff\xff" + b"\xff" * 4 + bytes.fromhex("3fe0000000000000") + b"\x01"
ID = b"\x00" * 15 + b"\x01"


def test_every_type_in_the_old_format() -> None:
    expected = (
        FIXED
        + b"\x00\x00\x00\x01"
        + ID
        + b"\x00\x00\x00\x02\x01\x00"
        + b"\x00\x00\x00\x01\x00\x00\x00\x02ab"
        + b"\x00\x00\x00\x03"
        + b"\xff"
    )
    assert wire.encode(shapes(), 0) == expected
    assert wire.decode(Shapes, 0, expected) == shapes()


def test_every_type_in_the_flexible_format() -> None:
    expected = (
        FIXED
        + b"\x02"
        + ID
        + b"\x03\x01\x00"
        + b"\x02\x03ab"
        + b"\x00\x00\x00\x03\x00"
        + b"\x01\x00\x00\x00\x04\x00"
        + b"\x01\x05\x02\x02m"
    )
    message = shapes(optional=Inner(number=4), moved="m")
    assert wire.encode(message, 1) == expected
    assert wire.decode(Shapes, 1, expected) == message
    assert wire.from_json(Shapes, 1, wire.to_json(message, 1)) == message


@pytest.mark.parametrize(
    ("inner", "section"),
    [
        (None, b"\x01\x06\x01\x00"),  # Kafka writes an unsigned varint: 0 is null
        (Inner(number=9), b"\x01\x06\x06\x01\x00\x00\x00\x09\x00"),  # and 1 present
        (Inner(), b"\x00"),
    ],
)
def test_tagged_struct_is_nullable(inner: Inner | None, section: bytes) -> None:
    message = shapes(tagged_inner=inner)
    untagged = b"\xff"  # as int8, where a struct is no tagged field: -1 is null
    encoded = wire.encode(message, 1)
    assert encoded.endswith(b"\x00\x00\x00\x03\x00" + untagged + section)
    assert wire.decode(Shapes, 1, encoded) == message
    assert wire.from_json(Shapes, 1, wire.to_json(message, 1)) == message


def test_adjacent_fixed_width_fields_are_packed_together() -> None:
    parts: list[Buffer] = []
    make_encoder(HeartbeatResponse, 1)(HeartbeatResponse(error_code=1), parts.append)
    assert parts == [b"\x00\x00\x00\x00\x00\x01"]


def test_encoders_are_cached() -> None:
    message = HeartbeatResponse(error_code=0)
    wire.encode(message, 0)
    made = codec._ENCODERS[HeartbeatResponse, 0]
    wire.encode(message, 0)
    assert codec._ENCODERS[HeartbeatResponse, 0] is made


def test_tagged_fields_are_sorted_and_unique() -> None:
    assert encode_tagged_fields([]) == b"\x00"
    assert encode_tagged_fields([(200, b"b"), (0, b"")]) == b"\x02\x00\x00\xc8\x01\x01b"
    with pytest.raises(ValueError, match="duplicate tag 1"):
        encode_tagged_fields([(1, b"a"), (1, b"a")])


def test_wrong_types_are_named() -> None:
    for change, text in (
        ({"inner": None}, "inner: None is not allowed"),
        ({"inner": shapes()}, "inner: Shapes(small=-1"),
        ({"flags": 5}, "flags: 5 is not a list"),
        ({"blobs": ["text"]}, "blobs[0]: 'text' is not a valid bytes"),
        ({"identities": ["text"]}, "identities[0]: 'text' is not a valid uuid"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            wire.encode(shapes(**change), 0)
        assert text in str(caught.value)
