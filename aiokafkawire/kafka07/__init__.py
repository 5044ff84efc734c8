"""Client for Kafka 0.7 brokers, whose protocol has nothing in common with later releases.

::

    async with Client("localhost:9092") as client:
        await client.produce("clicks", [b"one", b"two"], partition=0)
        async for message in client.messages("clicks", 0, offset=0):
            ...

Kafka 0.7 has no consumer groups, no metadata and no acknowledgements. A reader stores the offset
of each partition itself. A writer learns of a failure only when the broker closes the connection.
"""

from aiokafkawire.kafka07.client import Client
from aiokafkawire.kafka07.message_stream import MessageStream
from aiokafkawire.kafka07.options import Kafka07Config, Kafka07Options
from aiokafkawire.kafka07.partition_reader import FetchResult, MessageAndOffset
from aiokafkawire.wire.kafka07 import EARLIEST, LATEST, Kafka07ErrorCode

__all__ = (
    "EARLIEST",
    "LATEST",
    "Client",
    "FetchResult",
    "Kafka07Config",
    "Kafka07ErrorCode",
    "Kafka07Options",
    "MessageAndOffset",
    "MessageStream",
)
