"""AddPartitionsToTxn: add partitions to a transaction. Key 24."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = (
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
)


@struct
class AddPartitionsToTxnTopic(Struct):
    name: str
    partitions: list[int32]


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str
    producer_id: int64
    producer_epoch: int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic]


@request(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """One transaction in versions 0 to 3; several later, which only brokers send (KIP-890)."""

    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+", default_factory=list)
    v3_and_below_transactional_id: str = field(versions="0-3", default="")
    v3_and_below_producer_id: int64 = field(versions="0-3", default=0)
    v3_and_below_producer_epoch: int16 = field(versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(versions="0-3", default_factory=list)


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int32
    partition_error_code: int16


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


@response(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: int32
    error_code: int16 = field(versions="4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        versions="4+", default_factory=list
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        versions="0-3", default_factory=list
    )
