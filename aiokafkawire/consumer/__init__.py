"""`Consumer`, and what it consists of: subscription, assignment, positions, fetching."""

from aiokafkawire.consumer.consumer import BatchIterator, Consumer, RecordIterator
from aiokafkawire.consumer.subscription import RebalanceListener

__all__ = ("BatchIterator", "Consumer", "RebalanceListener", "RecordIterator")
