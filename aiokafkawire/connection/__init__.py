"""One broker: connections, requests in flight, versions."""

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.connection.broker import BrokerClient
from aiokafkawire.connection.channel import LARGE_REQUEST_BYTES, Channel, Limits
from aiokafkawire.connection.connector import dial
from aiokafkawire.connection.counters import Counters
from aiokafkawire.connection.handshake import PLAINTEXT, Handshake, Plaintext
from aiokafkawire.connection.lanes import Lane, lane_of
from aiokafkawire.connection.versions import (
    ApiRange,
    ByVersion,
    Versions,
    choose_version,
    parse_pin,
)

__all__ = (
    "LARGE_REQUEST_BYTES",
    "PLAINTEXT",
    "ApiRange",
    "Backoff",
    "BrokerClient",
    "ByVersion",
    "Channel",
    "Counters",
    "Handshake",
    "Lane",
    "Limits",
    "Plaintext",
    "Versions",
    "choose_version",
    "dial",
    "lane_of",
    "parse_pin",
)
