"""Client of one broker: connections, requests in flight, API versions."""

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.connection.broker_client import BrokerClient
from aiokafkawire.connection.channel import Channel
from aiokafkawire.connection.cluster_check import ClusterCheck, ExpectedNode
from aiokafkawire.connection.connection_kinds import ConnectionKind, connection_kind_for
from aiokafkawire.connection.connector import open_transport
from aiokafkawire.connection.handshake import PLAINTEXT_HANDSHAKE, Handshake, make_handshake
from aiokafkawire.connection.in_flight_requests import ChannelLimits
from aiokafkawire.connection.metrics import ConnectionMetrics
from aiokafkawire.connection.node_api_versions import (
    BrokerVersionRange,
    NodeApiVersions,
    VersionedRequest,
    choose_version,
    parse_api_version,
)
from aiokafkawire.connection.request_errors import LARGE_REQUEST_BYTES
from aiokafkawire.connection.silence import CHECK_INTERVAL_S, SILENT_AFTER_S, BrokerOutage

__all__ = (
    "CHECK_INTERVAL_S",
    "LARGE_REQUEST_BYTES",
    "PLAINTEXT_HANDSHAKE",
    "SILENT_AFTER_S",
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
    "choose_version",
    "connection_kind_for",
    "make_handshake",
    "open_transport",
    "parse_api_version",
)
