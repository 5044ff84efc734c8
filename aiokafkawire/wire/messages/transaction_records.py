"""Records of __transaction_state."""

from aiokafkawire.wire.primitives import int8, int16, int32, int64
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = ("PartitionsSchema", "TransactionLogKey", "TransactionLogValue")


@data(name="TransactionLogKey", versions="0", flexible="none")
class TransactionLogKey(Message):
    transactional_id: str


@struct
class PartitionsSchema(Struct):
    topic: str
    partition_ids: list[int32]


@data(name="TransactionLogValue", versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    producer_id: int64
    previous_producer_id: int64 = field(versions="1+", default=-1, tag=0)
    next_producer_id: int64 = field(versions="1+", default=-1, tag=1)
    producer_epoch: int16
    next_producer_epoch: int16 = field(versions="1+", default=-1, tag=3)
    transaction_timeout_ms: int32
    transaction_status: int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int64
    transaction_start_timestamp_ms: int64
    client_transaction_version: int16 = field(versions="1+", default=0, tag=2)
