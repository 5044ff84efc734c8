"""Tools for tests of programs that use Kafka: the embedded broker and its faults.

Imports are lazy, so a test suite that does not use the plugin pays nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafkawire.broker import (
        Acl,
        Answer,
        ApiKey,
        BrokerOptions,
        BrokerSasl,
        BrokerTls,
        Certificate,
        CertificateAuthority,
        Close,
        Corrupt,
        Delay,
        Drop,
        ErrorCode,
        JwksValidator,
        SeenRequest,
        TokenRefused,
        ValidatedToken,
        make_unsecured_token,
    )
    from aiokafkawire.testing.broker_fault import BrokerFault
    from aiokafkawire.testing.kafka_broker import KafkaBroker
    from aiokafkawire.testing.seen_requests import SeenRequests

__all__ = (
    "Acl",
    "Answer",
    "ApiKey",
    "BrokerFault",
    "BrokerOptions",
    "BrokerSasl",
    "BrokerTls",
    "Certificate",
    "CertificateAuthority",
    "Close",
    "Corrupt",
    "Delay",
    "Drop",
    "ErrorCode",
    "JwksValidator",
    "KafkaBroker",
    "SeenRequest",
    "SeenRequests",
    "TokenRefused",
    "ValidatedToken",
    "make_unsecured_token",
)

_MODULES = {
    "BrokerFault": "broker_fault",
    "KafkaBroker": "kafka_broker",
    "SeenRequests": "seen_requests",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{_MODULES[name]}" if name in _MODULES else "aiokafkawire.broker"
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
