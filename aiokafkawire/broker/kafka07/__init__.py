"""The port of the embedded broker that serves the protocol of Kafka 0.7.

0.7 has no groups, metadata or replicas: the first write creates a topic, and its partitions are
logs of bytes. These logs are in memory, and separate from the topics of the other ports.
"""

from aiokafkawire.broker.kafka07.logs import Logs
from aiokafkawire.broker.kafka07.server import connection_to

__all__ = ("Logs", "connection_to")
