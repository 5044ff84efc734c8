"""The port of the embedded broker at which it speaks as Kafka 0.7 did.

0.7 has no groups, no metadata and no replicas: a topic is there once it was written to, and its
partitions are logs of bytes. They are in memory and apart from the topics of the other ports.
"""

from aiokafkawire.broker.kafka07.logs import Logs
from aiokafkawire.broker.kafka07.server import connection_to

__all__ = ("Logs", "connection_to")
