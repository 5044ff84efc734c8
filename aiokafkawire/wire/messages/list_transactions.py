"""ListTransactions: list the transactions of a coordinator (KIP-664). Key 66."""

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("ListTransactionsRequest", "ListTransactionsResponse", "ListedTransactionState")


@request(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    state_filters: list[str]
    producer_id_filters: list[int64]
    duration_filter: int64 = field(versions="1+", default=-1)
    transactional_id_pattern: str | None = field(versions="2+", default=None)


@struct
class ListedTransactionState(Struct):
    transactional_id: str
    producer_id: int64
    transaction_state: str


@response(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    unknown_state_filters: list[str]
    transaction_states: list[ListedTransactionState]
