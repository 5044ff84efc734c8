from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.wire import primitives as p


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varint_round_trip(value: int) -> None:
    raw = p.encode_unsigned_varint(value)
    assert len(raw) <= 5
    assert p.decode_unsigned_varint(b"\xff" + raw + b"\x01", 1) == (value, 1 + len(raw))


@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value: int) -> None:
    raw = p.encode_varint(value)
    assert p.decode_varint(memoryview(raw), 0) == (value, len(raw))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value: int) -> None:
    raw = p.encode_varlong(value)
    assert len(raw) <= 10
    assert p.decode_varlong(raw, 0) == (value, len(raw))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "past the end"),
        (b"\x80\x80", "past the end"),
        (b"\x80\x80\x80\x80\x80\x01", "longer than 5"),
        (b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
    ],
)
def test_hostile_varints(raw: bytes, reason: str) -> None:
    for decode in (p.decode_unsigned_varint, p.decode_varint):
        with pytest.raises(p.BufferOverrun, match=reason):
            decode(raw, 0)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xff" * 9, "past the end"),
        (b"\x80" * 10 + b"\x01", "longer than 10"),
        (b"\xff" * 9 + b"\x02", "more than 64 bits"),
    ],
)
def test_hostile_varlongs(raw: bytes, reason: str) -> None:
    with pytest.raises(p.BufferOverrun, match=reason):
        p.decode_varlong(raw, 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_unsigned_varints_have_a_range(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        p.encode_unsigned_varint(value)


def test_signed_varints_have_a_range() -> None:
    with pytest.raises(ValueError, match="2147483648"):
        p.encode_varint(2**31)
    with pytest.raises(ValueError, match="9223372036854775808"):
        p.encode_varlong(2**63)


@given(st.uuids(version=None) | st.just(p.ZERO_UUID))
def test_uuid_text_round_trip(value: UUID) -> None:
    text = p.uuid_to_text(value)
    assert len(text) == 22
    assert p.uuid_from_text(text) == value
    assert p.uuid_from_bytes(value.bytes) == value


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "*" * 22, "é" * 22, "A" * 21])
def test_invalid_uuid_texts(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kafka id"):
        p.uuid_from_text(text)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (3, TypeError, "3 is not a string"),
        (b"t", TypeError, "not a string"),
        ("\ud800", ValueError, "cannot be encoded as UTF-8"),
        ("ü" * 16_384, ValueError, "32768 bytes"),
    ],
)
def test_check_string_rejects(text: object, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        p.check_string(text)


def test_check_string_accepts() -> None:
    for text in ("", "ü" * 16_383, "a" * 32_767, "\0"):
        p.check_string(text)
        assert len(text.encode()) <= p.MAX_STRING_BYTES
