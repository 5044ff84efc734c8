"""A precomputed EndTxn request and its usual response, for TV_2.

`requests.parse_response` parses every other response.
"""

from __future__ import annotations

from functools import partial

from aiokafkawire.connection import VersionedRequest
from aiokafkawire.producer.transactions.actions import TransactionAction
from aiokafkawire.producer.transactions.requests import (
    FIRST_WITH_TV_2,
    ParsedTxnResponse,
    is_successor,
)
from aiokafkawire.producer.transactions.states import EndTxn, TxnEnded
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.header import EncodedRequest
from aiokafkawire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokafkawire.wire.template import RequestTemplate, ResponseTemplate

__all__ = ("EndTxnTemplate",)


class EndTxnTemplate:
    """The EndTxn template of one transactional id."""

    __slots__ = ("_request", "_response", "_transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self._request = RequestTemplate(self._make, FIRST_WITH_TV_2, "qh?")
        self._response = ResponseTemplate(_make_response, FIRST_WITH_TV_2, "qh")

    def message(self, end: EndTxn) -> VersionedRequest[EndTxnResponse]:
        """Return the request, for any version that the connection negotiated."""
        return VersionedRequest(ApiKey.END_TXN, partial(self._build, end))

    def _build(self, end: EndTxn, version: int) -> EndTxnRequest | EncodedRequest:
        producer_id, epoch = end.identity
        if version != FIRST_WITH_TV_2:
            return self._make(producer_id, epoch, end.committed)
        # mutation: short-end-request-always-commits
        body = self._request.encode(producer_id, epoch, end.committed)
        return EncodedRequest(ApiKey.END_TXN, body, partial(self._match, end))

    def _make(self, producer_id: int, epoch: int, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )

    def _match(self, end: EndTxn, frame: memoryview) -> ParsedTxnResponse | None:
        """Parse a response without an error that bumps the epoch; return None for any other."""
        numbers = self._response.match(frame)
        if numbers is None:
            return None
        next_identity = ProducerIdAndEpoch(*numbers)
        if not is_successor(end.identity, next_identity):
            return None
        return ParsedTxnResponse(TransactionAction.DONE, 0, None, TxnEnded(next_identity))


def _make_response(producer_id: int, epoch: int) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch
    )
