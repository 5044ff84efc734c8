"""The EndTxn template, compared with the general codec and parser."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.producer.transactions.actions import TransactionAction
from aiokafkawire.producer.transactions.end_txn_template import EndTxnTemplate
from aiokafkawire.producer.transactions.requests import build_request, parse_response
from aiokafkawire.producer.transactions.states import EndTxn, TransactionVersion, TxnEnded
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import APIS, ApiKey
from aiokafkawire.wire.header import EncodedRequest, encode_request, encode_response
from aiokafkawire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

ME, NEXT = ProducerIdAndEpoch(2**40, 3), ProducerIdAndEpoch(2**40, 4)
VERSION = APIS[ApiKey.END_TXN].max_stable_version


def end(*, committed: bool = True, identity: ProducerIdAndEpoch = ME) -> EndTxn:
    return EndTxn(identity, TransactionVersion.TV_2, committed)


def written(request: EndTxn, transactional_id: str = "id") -> EncodedRequest:
    built = EndTxnTemplate(transactional_id).message(request).build(VERSION)
    assert isinstance(built, EncodedRequest)
    return built


def answer(**said: int) -> memoryview:
    fields: dict[str, Any] = {
        "throttle_time_ms": 0,
        "error_code": 0,
        "producer_id": NEXT.producer_id,
        "producer_epoch": NEXT.epoch,
    }
    return memoryview(b"".join(encode_response(EndTxnResponse(**(fields | said)), VERSION, 99)))[4:]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("transactional_id", ["x", "bücher", "x" * 200])
def test_the_request_equals_that_of_the_codec(committed: bool, transactional_id: str):
    request = end(committed=committed)
    message: Any = build_request(request, transactional_id, 60_000).message
    frame = b"".join(encode_request(written(request, transactional_id), VERSION, 99, "me"))
    assert frame == b"".join(encode_request(message, VERSION, 99, "me"))


def test_another_version_is_left_to_the_codec():
    built = EndTxnTemplate("id").message(end()).build(VERSION + 1)
    assert built == EndTxnRequest(
        transactional_id="id", producer_id=2**40, producer_epoch=3, committed=True
    )


@pytest.mark.parametrize("given", [NEXT, ProducerIdAndEpoch(5, 0)])
def test_the_usual_response_is_parsed_like_any_other(given: ProducerIdAndEpoch):
    said = {"producer_id": given.producer_id, "producer_epoch": given.epoch}
    found = written(end()).match_response(answer(**said))
    response = EndTxnResponse(throttle_time_ms=0, error_code=0, **said)
    assert found == parse_response(end(), response)
    assert found.action is TransactionAction.DONE
    assert found.event == TxnEnded(given)


@pytest.mark.parametrize(
    "said",
    [
        {"error_code": 51},
        {"throttle_time_ms": 1},
        {"producer_id": -1, "producer_epoch": -1},
        {"producer_epoch": ME.epoch},
        {"producer_id": 5, "producer_epoch": -1},
    ],
    ids=str,
)
def test_any_other_response_is_left_to_the_codec(said: dict[str, int]):
    assert written(end()).match_response(answer(**said)) is None


def test_a_truncated_or_longer_frame_is_left_to_the_codec():
    frame, read_ = bytes(answer()), written(end()).match_response
    for stop in range(len(frame)):
        assert read_(memoryview(frame[:stop])) is None
    assert read_(memoryview(frame + b"\0")) is None
