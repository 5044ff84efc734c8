"""The producer: records are collected in batches, and batches are sent to brokers.

A record passes the partitioner, the accumulator (open batches by partition) and the sender of the
partition's leader. The response completes its `Delivery`.
"""

from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.producer.partitioner import Partitioner
from aiokafkawire.producer.producer import Producer
from aiokafkawire.producer.transactions import DetachedTransaction, end_detached_transaction

__all__ = ("Delivery", "DetachedTransaction", "Partitioner", "Producer", "end_detached_transaction")
