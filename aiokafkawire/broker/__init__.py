"""Embedded Kafka broker for development and tests: several nodes on real sockets."""

from aiokafkawire.broker.acls import Acl
from aiokafkawire.broker.authentication import (
    BrokerSasl,
    BrokerTls,
    Certificate,
    CertificateAuthority,
    JwksValidator,
    TokenValidator,
    ValidatedToken,
    make_unsecured_token,
)
from aiokafkawire.broker.broker import Broker
from aiokafkawire.broker.faults import Answer, Close, Corrupt, Delay, Drop, Fault, SeenRequest
from aiokafkawire.broker.options import BrokerConfig, BrokerOptions
from aiokafkawire.broker.telemetry import ClientMetrics
from aiokafkawire.security import TokenRefused
from aiokafkawire.wire import ApiKey, ErrorCode

__all__ = (
    "Acl",
    "Answer",
    "ApiKey",
    "Broker",
    "BrokerConfig",
    "BrokerOptions",
    "BrokerSasl",
    "BrokerTls",
    "Certificate",
    "CertificateAuthority",
    "ClientMetrics",
    "Close",
    "Corrupt",
    "Delay",
    "Drop",
    "ErrorCode",
    "Fault",
    "JwksValidator",
    "SeenRequest",
    "TokenRefused",
    "TokenValidator",
    "ValidatedToken",
    "make_unsecured_token",
)
