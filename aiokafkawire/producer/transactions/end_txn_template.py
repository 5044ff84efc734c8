"""The usual end of a transaction: EndTxn where each end raises the epoch, and the answer to it.

Both are the same bytes each time but for the producer's id and epoch, and what is to be done. So
they are written and read in one piece; whatever else an answer says is left to `requests.read`.
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

_REQUEST = Struct(">qh?x")  # producer id, epoch, whether to commit, no tagged fields
# The correlation id, no tagged fields, no throttling, no error, the next producer id and epoch, no
# tagged fields.
_RESPONSE = Struct(">4xbihqhb")


class EndTxnTemplate:
    """How both look for one transactional id."""

    __slots__ = ("_prefix", "_transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        example = encode(self._request(0, 0, committed=False), FIRST_WITH_TV_2)
        self._prefix = example[: -_REQUEST.size]

    def message(self, end: EndTxn) -> VersionedRequest[EndTxnResponse]:
        """The request, in whatever version it will go out."""
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
    """The answer, if it is that the transaction has ended under a higher epoch, and nothing else
    is said."""
    if len(frame) != _RESPONSE.size:
        return None
    tags, throttle, error, producer_id, epoch, more_tags = _RESPONSE.unpack(frame)
    given = ProducerIdAndEpoch(producer_id, epoch)
    if tags or throttle or error or more_tags or not is_successor(end.identity, given):
        return None
    return ParsedTxnResponse(TransactionAction.DONE, 0, None, TxnEnded(given))
