"""Templates for the most frequent Produce request, with one batch, and its successful response.

`produce_request` handles all other requests and responses.
"""

from __future__ import annotations

from uuid import UUID

from aiokafkawire.producer.attempt_result import NO_RECORD_ERRORS, AttemptResult
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiokafkawire.wire.template import RequestTemplate, ResponseTemplate

__all__ = ("FIRST_FLEXIBLE_PRODUCE", "ProduceTemplate")

FIRST_FLEXIBLE_PRODUCE = 9
"""First flexible version of Produce (Kafka 2.4, KIP-482): templates need compact lengths."""

_PRODUCE, _APPENDED = ApiKey.PRODUCE, BatchAction.APPENDED
_tuple = tuple.__new__  # makes a NamedTuple in half the time, without checks


class ProduceTemplate:
    """Template of the request and its response, for one topic and version.

    Attributes:
        request: Example of the request, without records.
        encode_body: Encodes a request; see `RequestTemplate.encode_with_records`.
    """

    __slots__ = ("_match_response", "encode_body", "request", "topic_id", "version")

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

        def make_request(index: int) -> ProduceRequest:
            data = PartitionProduceData(index=index, records=b"")
            topic_data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
            return ProduceRequest(
                transactional_id=transactional_id,
                acks=acks,
                timeout_ms=timeout_ms,
                topic_data=[topic_data],
            )

        def make_response(
            index: int,
            error_code: int,
            base_offset: int,
            log_append_time_ms: int,
            log_start_offset: int,
        ) -> ProduceResponse:
            partition = PartitionProduceResponse(
                index=index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
            )
            topic_response = TopicProduceResponse(
                name=topic, topic_id=topic_id, partition_responses=[partition]
            )
            return ProduceResponse(responses=[topic_response])

        self.request = make_request(0)
        self.encode_body = RequestTemplate(make_request, version, "i").encode_with_records
        self._match_response = ResponseTemplate(make_response, version, "ihqqq").match

    def match_response(self, partition: int, frame: memoryview) -> AttemptResult | None:
        """Return the result if the frame only acknowledges the batch; else None."""
        numbers = self._match_response(frame)
        if numbers is None:
            return None
        index, error, base_offset, log_append_time_ms, _ = numbers
        # mutation: error-of-short-produce-response-ignored
        if error or index != partition:
            return None
        return _tuple(
            AttemptResult,
            (_APPENDED, None, base_offset, log_append_time_ms, False, NO_RECORD_ERRORS, 0),
        )
