"""A client for brokers of Kafka 0.7, whose protocol has nothing in common with later ones.

::

    async with Client("localhost:9092") as client:
        await client.produce("clicks", [b"one", b"two"], partition=0)
        async for message in client.messages("clicks", 0, offset=0):
            ...

There are no groups, no metadata and no acknowledgements: whoever reads keeps the offset of each
partition, and whoever writes learns of a failure from the connection's end alone.
"""

from aiokafkawire.kafka07.client import Client
from aiokafkawire.kafka07.message_stream import MessageStream
from aiokafkawire.kafka07.options import Kafka07Config, Kafka07Options
from aiokafkawire.kafka07.partition_reader import FetchResult, MessageAndOffset
from aiokafkawire.wire.kafka07 import EARLIEST, LATEST, ErrorCode

__all__ = (
    "EARLIEST",
    "LATEST",
    "Client",
    "ErrorCode",
    "FetchResult",
    "Kafka07Config",
    "Kafka07Options",
    "MessageAndOffset",
    "MessageStream",
)
