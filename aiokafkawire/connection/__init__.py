"""Client of one broker: connections, requests in flight, API versions."""

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.connection.broker_client import BrokerClient
from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.cluster_check import ClusterCheck, ExpectedNode
from aiokafkawire.connection.connection_kinds import CONNECTION_KINDS, ConnectionKind
from aiokafkawire.connection.connector import open_transport
from aiokafkawire.connection.handshake import PLAINTEXT_HANDSHAKE, Handshake, make_handshake
from aiokafkawire.connection.in_flight_requests import ChannelLimits
from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.connection.negotiation import SILENT_SERVER
from aiokafkawire.connection.node_api_versions import (
    MAX_WITHOUT_TOPIC_IDS,
    BrokerVersionRange,
    NodeApiVersions,
    VersionedRequest,
    parse_api_version,
)
from aiokafkawire.connection.request_errors import LARGE_REQUEST_BYTES
from aiokafkawire.connection.silence import CHECK_INTERVAL_S, SILENT_AFTER_S, BrokerOutage

__all__ = (
    "CHECK_INTERVAL_S",
    "CONNECTION_KINDS",
    "LARGE_REQUEST_BYTES",
    "MAX_WITHOUT_TOPIC_IDS",
    "PLAINTEXT_HANDSHAKE",
    "SILENT_AFTER_S",
    "SILENT_SERVER",
    "Backoff",
    "BrokerClient",
    "BrokerOutage",
    "BrokerVersionRange",
    "Channel",
    "ChannelLimits",
    "ClusterCheck",
    "ConnectionKind",
    "ConnectionMetrics",
    "ExpectedNode",
    "Handshake",
    "NodeApiVersions",
    "VersionedRequest",
    "make_handshake",
    "open_transport",
    "parse_api_version",
)
