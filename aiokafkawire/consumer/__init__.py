"""The consumer: subscription, positions, fetching, and `Consumer`."""

from aiokafkawire.consumer.consumer import BatchIterator, Consumer, RecordIterator
from aiokafkawire.consumer.subscription import RebalanceListener

__all__ = ("BatchIterator", "Consumer", "RebalanceListener", "RecordIterator")
