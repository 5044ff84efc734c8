"""The producer: records to batches, batches to brokers, and what became of them.

On its way a record passes the partitioner, the accumulator (batches by partition), the sender of
the partition's leader, and comes back as the outcome of its `Delivery`.
"""

from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.producer.partitioner import Partitioner
from aiokafkawire.producer.producer import Producer
from aiokafkawire.producer.transactions import PreparedTransaction, end_transaction

__all__ = ("Delivery", "Partitioner", "PreparedTransaction", "Producer", "end_transaction")
