"""A precomputed EndTxn request and its usual response, for TV_2.

The bytes differ only in the producer id, the epoch and the commit flag, so both are packed and
unpacked in one step. `requests.parse_response` parses every other response.
"""

from __future__ import annotations

from functools import partial
from struct import Struct

from aiokafkawire.connection import VersionedRequest
from aiokafkawire.producer.transactions.actions import TransactionAction
from aiokafkawire.producer.transactions.requests import (
    FIRST_WITH_TV_2,
    ParsedTxnResponse,
    is_successor,
)
from aiokafkawire.producer.transactions.states import EndTxn, TxnEnded
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ApiKey, encode
from aiokafkawire.wire.header import RawRequest
from aiokafkawire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

__all__ = ("EndTxnTemplate",)

_REQUEST = Struct(">qh?x")  # producer id, epoch, commit flag, no tagged fields
# Correlation id, tagged fields, throttle time, error code, next producer id and epoch, tagged
# fields.
_RESPONSE = Struct(">4xbihqhb")


class EndTxnTemplate:
    """The EndTxn template of one transactional id."""

    __slots__ = ("_prefix", "_transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        example = encode(self._request(0, 0, committed=False), FIRST_WITH_TV_2)
        self._prefix = example[: -_REQUEST.size]

    def message(self, end: EndTxn) -> VersionedRequest[EndTxnResponse]:
        """Return the request, for any version that the connection negotiated."""
        return VersionedRequest(ApiKey.END_TXN, partial(self._build, end))

    def _build(self, end: EndTxn, version: int) -> EndTxnRequest | RawRequest:
        producer_id, epoch = end.identity.producer_id, end.identity.epoch
        if version != FIRST_WITH_TV_2:
            return self._request(producer_id, epoch, committed=end.committed)
        # mutation: short-end-request-always-commits
        rest = _REQUEST.pack(producer_id, epoch, end.committed)
        body = (self._prefix, rest)
        return RawRequest(EndTxnRequest, body, sum(map(len, body)), partial(_parse, end))

    def _request(self, producer_id: int, epoch: int, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )


def _parse(end: EndTxn, frame: memoryview) -> ParsedTxnResponse | None:
    """Parse a response without an error that bumps the epoch; return None for any other."""
    if len(frame) != _RESPONSE.size:
        return None
    tags, throttle, error, producer_id, epoch, more_tags = _RESPONSE.unpack(frame)
    next_identity = ProducerIdAndEpoch(producer_id, epoch)
    if tags or throttle or error or more_tags or not is_successor(end.identity, next_identity):
        return None
    return ParsedTxnResponse(TransactionAction.DONE, 0, None, TxnEnded(next_identity))
