"""`Consumer`, and what it consists of: subscription, assignment, positions, fetching."""

from aiokafkawire.consumer.consumer import Consumer
from aiokafkawire.consumer.iterators import BatchIterator, RecordIterator
from aiokafkawire.consumer.subscription import RebalanceListener, SubscriptionPattern

__all__ = (
    "BatchIterator",
    "Consumer",
    "RebalanceListener",
    "RecordIterator",
    "SubscriptionPattern",
)
