"""DescribeTransactions: describe the state of transactions (KIP-664). Key 65."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeTransactionsTopicData",
    "DescribedTransactionState",
)


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    transactional_ids: list[str]


@struct
class DescribeTransactionsTopicData(Struct):
    topic: str
    partitions: list[int32]


@struct
class DescribedTransactionState(Struct):
    error_code: int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int32
    transaction_start_time_ms: int64
    producer_id: int64
    producer_epoch: int16
    topics: list[DescribeTransactionsTopicData]


@response(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Response):
    throttle_time_ms: int32
    transaction_states: list[DescribedTransactionState]
