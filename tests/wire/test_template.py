"""Templates, compared with the general codec; their users test the messages they are made for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.wire import encode
from aiokafkawire.wire.header import encode_response
from aiokafkawire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.template import RequestTemplate, ResponseTemplate

INT64, INT16 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (64, 16))
VERSION = 5


def make_request(producer_id: int, epoch: int, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id="id", producer_id=producer_id, producer_epoch=epoch, committed=committed
    )


def make_response(producer_id: int, epoch: int) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch
    )


@given(INT64, INT16, st.booleans())
def test_a_request_is_encoded_as_the_codec_does(producer_id: int, epoch: int, committed: bool):
    template = RequestTemplate(make_request, VERSION, "qh?")
    parts = template.encode(producer_id, epoch, committed)
    assert b"".join(parts) == encode(make_request(producer_id, epoch, committed), VERSION)


@given(INT64, INT16)
def test_the_numbers_of_a_response_are_read(producer_id: int, epoch: int):
    template = ResponseTemplate(make_response, VERSION, "qh")
    frame = b"".join(encode_response(make_response(producer_id, epoch), VERSION, 99))[4:]
    assert template.match(memoryview(frame)) == (producer_id, epoch)


@given(st.binary(max_size=40))
def test_any_other_bytes_are_not_matched(frame: bytes):
    template = ResponseTemplate(make_response, VERSION, "qh")
    numbers = template.match(memoryview(frame))
    assert (
        numbers is None
        or frame[4:] == b"".join(encode_response(make_response(*numbers), VERSION, 0))[8:]
    )


def test_a_response_that_differs_beside_its_numbers_is_not_matched():
    template = ResponseTemplate(make_response, VERSION, "qh")
    (frame,) = encode_response(make_response(1, 2), VERSION, 3)
    failed = EndTxnResponse(throttle_time_ms=0, error_code=51, producer_id=1, producer_epoch=2)
    (other,) = encode_response(failed, VERSION, 3)
    assert len(frame) == len(other)
    assert template.match(memoryview(frame)[4:]) == (1, 2)
    assert template.match(memoryview(other)[4:]) is None


@pytest.mark.parametrize("numbers", ["q", "qhh", "hq", "i", ""])
def test_other_types_than_those_of_the_fields_are_refused(numbers: str):
    with pytest.raises((ValueError, TypeError)):
        ResponseTemplate(make_response, VERSION, numbers)


def test_fields_that_are_not_adjacent_are_refused():
    def make(generation: int, throttle_ms: int) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=generation, throttle_time_ms=throttle_ms)

    with pytest.raises(ValueError, match="not adjacent fields of types 'hi'"):
        ResponseTemplate(make, 4, "hi")


def test_a_number_in_the_middle_of_a_request_is_found():
    def make(generation: int) -> HeartbeatRequest:
        return HeartbeatRequest(group_id="g", generation_id=generation, member_id="m")

    parts = RequestTemplate(make, 4, "i").encode(7)
    assert b"".join(parts) == encode(make(7), 4)
