"""The usual exchange: one batch of one partition, and the answer that it is in the log.

Both are the same bytes each time but for a few numbers, which always stand at the same places. So
they are written and read in one piece, around what the general codec has once made of an example.
Whatever else an answer says is left to `exchange`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.producer.answer import NO_ERRORS, Answer
from aiokafkawire.producer.outcomes import Verdict
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

__all__ = ("FIRST_USUAL", "UsualForm")

FIRST_USUAL = 9
"""The first version with compact lengths, since Kafka 2.4; before it nothing is written so."""

_INDEX = Struct(">i")
_EXAMPLE_OF_DATA = _INDEX.size + len(b"\x01")  # the partition, and no records at all
_NUMBERS = "ihqqq"  # partition, error code, base offset, log append time, log start offset
_LENGTH_BYTES = 4
_APPENDED = Verdict.APPENDED
_CORRELATION_ID_BYTES = 4
_tuple = tuple.__new__  # checks nothing, at half the time


@lru_cache(maxsize=1024)
def _compact_size(size_bytes: int) -> bytes:
    """What stands before so many bytes."""
    return encode_unsigned_varint(size_bytes + 1)


class _Numbers(NamedTuple):
    """Where the numbers stand in the example of an answer, and what is around them."""

    layout: Struct
    size: int
    before: bytes
    after: bytes


class UsualForm:
    """How both look for one topic in one version.

    `request` is an example of the request, without records.
    """

    __slots__ = (
        "_after", "_answer", "_around_bytes", "_before", "request", "topic_id", "version",
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
        # After the records come the tagged fields of the partition, the topic and the request.
        self._after = b"\x00\x00\x00"
        self._before = example[: -len(self._after) - _EXAMPLE_OF_DATA]
        self._around_bytes = len(self._before) + _INDEX.size + len(self._after)
        self._answer = _numbers(topic, topic_id, version)

    def write(self, partition: int, records: Sequence[Buffer], size_bytes: int) -> RawRequest:
        """A request with one batch, whose encoded parts these are, and their size in all."""
        size = _compact_size(size_bytes)
        body = (self._before, _INDEX.pack(partition), size, *records, self._after)
        whole_size = self._around_bytes + len(size) + size_bytes
        return _tuple(RawRequest, (ProduceRequest, body, whole_size, partial(self.read, partition)))

    def read(self, partition: int, frame: memoryview) -> Answer | None:
        """The answer, if it is that the batch is in the log and nothing else is said."""
        layout, size, before, after = self._answer
        if len(frame) != size:
            return None
        begins, told, error, base_offset, appended_at, _, ends = layout.unpack(frame)
        # mutation: error-of-short-produce-response-ignored
        if error or told != partition or begins != before or ends != after:
            return None
        return _tuple(Answer, (_APPENDED, None, base_offset, appended_at, False, NO_ERRORS, 0))


def _numbers(topic: str, topic_id: UUID, version: int) -> _Numbers:
    said = PartitionProduceResponse(
        index=0, error_code=0, base_offset=0, log_append_time_ms=0, log_start_offset=0
    )
    answered = TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[said])
    whole = b"".join(encode_response(ProduceResponse(responses=[answered]), version, 0))
    frame = whole[_LENGTH_BYTES + _CORRELATION_ID_BYTES :]
    # No errors of records and no message; tagged fields; no throttling; tagged fields.
    after = b"\x01\x00\x00" + b"\x00" + b"\x00\x00\x00\x00" + b"\x00"
    numbers = Struct(f">{_NUMBERS}").size
    before = frame[: len(frame) - len(after) - numbers]
    layout = Struct(f">{_CORRELATION_ID_BYTES}x{len(before)}s{_NUMBERS}{len(after)}s")
    return _Numbers(layout, layout.size, before, after)
