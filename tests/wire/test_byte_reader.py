import pytest

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.byte_reader import ByteReader, encode_string


def test_values_are_read_in_order() -> None:
    raw = bytes.fromhex("ff fffe fffffffd fffffffffffffffc 0002 6869 6162 0001 0002")
    reader = ByteReader("drawing", raw)
    assert [reader.int8("a"), reader.int16("b"), reader.int32("c"), reader.int64("d")] == [
        *(-1, -2, -3, -4)
    ]
    assert (reader.string("e"), reader.bytes("f", 2)) == ("hi", b"ab")
    assert reader.remaining == 4
    assert reader.numbers("g", "h", 2) == (1, 2)
    reader.expect_end()


@pytest.mark.parametrize("text", ["", "tëxt", b"\xff\xfe".decode("utf-8", "surrogateescape")])
def test_any_string_round_trips(text: str) -> None:
    assert ByteReader("drawing", encode_string(text)).string("s") == text


def test_string_size_is_limited() -> None:
    assert len(encode_string("ü" * 16_383)) == 2 + 32_766
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_string("ü" * 16_384)


def test_errors_name_message_field_and_position() -> None:
    reader = ByteReader("drawing", b"\x00\x05\x00\x05ab")
    reader.int16("first")
    with pytest.raises(MalformedMessage) as caught:
        reader.string("second")
    error = caught.value
    assert (error.message, error.field, error.position) == ("drawing", "second", 2)
    assert str(error).endswith("at drawing, field second, byte 2")


def test_expect_end_rejects_trailing_bytes() -> None:
    reader = ByteReader("drawing", b"\x00\x00")
    with pytest.raises(MalformedMessage, match="2 trailing bytes"):
        reader.expect_end()
    with pytest.raises(MalformedMessage, match="ends inside"):
        reader.int32("n")
    with pytest.raises(MalformedMessage, match="invalid length -1"):
        reader.bytes("b", -1)
    for count in (-1, 3):
        with pytest.raises(MalformedMessage):
            reader.numbers("c", "b", count)
