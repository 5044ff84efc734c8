"""Templates for the most frequent Produce request, with one batch, and its successful response.

Only a few numbers in them change, always at the same positions. The template takes all other bytes
from an example that the general codec has encoded. `produce_request` handles all other requests and
responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.producer.attempt_result import NO_RECORD_ERRORS, AttemptResult
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.records.kernel import Buffer
from aiokafkawire.wire import encode
from aiokafkawire.wire.header import RawRequest, encode_response
from aiokafkawire.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiokafkawire.wire.primitives import encode_unsigned_varint

__all__ = ("FIRST_FLEXIBLE_PRODUCE", "ProduceTemplate")

FIRST_FLEXIBLE_PRODUCE = 9
"""First flexible version of Produce (Kafka 2.4, KIP-482): templates need compact lengths."""

_INDEX = Struct(">i")
_EMPTY_PARTITION_BYTES = _INDEX.size + len(b"\x01")  # the partition index, and no records
_RESPONSE_FIELDS = "ihqqq"  # partition, error code, base offset, log append time, log start offset
_LENGTH_BYTES = 4
_APPENDED = BatchAction.APPENDED
_CORRELATION_ID_BYTES = 4
_tuple = tuple.__new__  # makes a NamedTuple in half the time, without checks


@lru_cache(maxsize=1024)
def _compact_size(size_bytes: int) -> bytes:
    """Return the length prefix of compact bytes."""
    return encode_unsigned_varint(size_bytes + 1)


class _ResponseLayout(NamedTuple):
    """The layout of a response frame: the bytes before and after its numbers."""

    layout: Struct
    size: int
    prefix: bytes
    suffix: bytes


class ProduceTemplate:
    """Template of the request and its response, for one topic and version.

    Attributes:
        request: Example of the request, without records.
    """

    __slots__ = (
        "_overhead_bytes",
        "_prefix",
        "_response",
        "_suffix",
        "request",
        "topic_id",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        version: int,
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None,
    ) -> None:
        self.version = version
        self.topic_id = topic_id
        data = PartitionProduceData(index=0, records=b"")
        self.request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
        )
        example = encode(self.request, version)
        # The tagged fields of the partition, the topic and the request follow the records.
        self._suffix = b"\x00\x00\x00"
        self._prefix = example[: -len(self._suffix) - _EMPTY_PARTITION_BYTES]
        self._overhead_bytes = len(self._prefix) + _INDEX.size + len(self._suffix)
        self._response = _response_layout(topic, topic_id, version)

    def encode_request(
        self, partition: int, records: Sequence[Buffer], size_bytes: int
    ) -> RawRequest:
        """Return a request with one batch.

        Args:
            partition: Partition of the batch.
            records: The parts of the encoded batch.
            size_bytes: Size of all parts.
        """
        size = _compact_size(size_bytes)
        body = (self._prefix, _INDEX.pack(partition), size, *records, self._suffix)
        whole_size = self._overhead_bytes + len(size) + size_bytes
        return _tuple(
            RawRequest, (ProduceRequest, body, whole_size, partial(self.match_response, partition))
        )

    def match_response(self, partition: int, frame: memoryview) -> AttemptResult | None:
        """Return the result if the frame only acknowledges the batch; else None."""
        layout, size, prefix, suffix = self._response
        if len(frame) != size:
            return None
        found_prefix, index, error, base_offset, appended_at, _, found_suffix = layout.unpack(frame)
        # mutation: error-of-short-produce-response-ignored
        if error or index != partition or found_prefix != prefix or found_suffix != suffix:
            return None
        return _tuple(
            AttemptResult, (_APPENDED, None, base_offset, appended_at, False, NO_RECORD_ERRORS, 0)
        )


def _response_layout(topic: str, topic_id: UUID, version: int) -> _ResponseLayout:
    partition_response = PartitionProduceResponse(
        index=0, error_code=0, base_offset=0, log_append_time_ms=0, log_start_offset=0
    )
    topic_response = TopicProduceResponse(
        name=topic, topic_id=topic_id, partition_responses=[partition_response]
    )
    whole = b"".join(encode_response(ProduceResponse(responses=[topic_response]), version, 0))
    frame = whole[_LENGTH_BYTES + _CORRELATION_ID_BYTES :]
    # No record errors and no message; tagged fields; no throttling; tagged fields.
    suffix = b"\x01\x00\x00" + b"\x00" + b"\x00\x00\x00\x00" + b"\x00"
    numbers = Struct(f">{_RESPONSE_FIELDS}").size
    prefix = frame[: len(frame) - len(suffix) - numbers]
    layout = Struct(f">{_CORRELATION_ID_BYTES}x{len(prefix)}s{_RESPONSE_FIELDS}{len(suffix)}s")
    return _ResponseLayout(layout, layout.size, prefix, suffix)
