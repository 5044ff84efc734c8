"""Kafka client for asyncio and trio.

Most programs need `Producer` and `Consumer`. `Worker` runs handlers of records, with retries and
dead letters. `Admin` creates topics, and describes and changes a cluster. `Broker` is an embedded
broker for tests. All errors are here and in `aiokafkawire.errors`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from aiokafkawire._version import __version__

if TYPE_CHECKING:
    from aiokafkawire._about import About, about
    from aiokafkawire.admin import Admin
    from aiokafkawire.broker import Broker
    from aiokafkawire.consumer import Consumer, RebalanceListener, SubscriptionPattern
    from aiokafkawire.errors import (
        AcknowledgementFailed,
        AuthenticationFailed,
        AuthorizationFailed,
        BrokerError,
        BufferFull,
        ClientClosed,
        CommitFailed,
        ConnectionFailed,
        ConnectionLost,
        CorruptRecord,
        DeliveriesFailed,
        DeliveryTimedOut,
        DeliveryUnknown,
        DeserializationFailed,
        FencedInstanceId,
        GroupFailed,
        IllegalState,
        InvalidOption,
        InvalidTxnState,
        KafkaError,
        LogTruncated,
        MalformedFrame,
        MalformedMessage,
        NoBrokerAvailable,
        NoOffsetForPartition,
        PartialFailure,
        ProducerFenced,
        ProtocolError,
        RecordTooLarge,
        RequestTimedOut,
        SerializationFailed,
        TlsError,
        TokenUnavailable,
        TransactionAborted,
        TransactionFailed,
        UnknownServerError,
        UnknownTopic,
        UnsupportedVersion,
        WrongEventLoop,
    )
    from aiokafkawire.group import (
        Assignor,
        CooperativeStickyAssignor,
        MemberSubscription,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
    )
    from aiokafkawire.producer import (
        Delivery,
        DetachedTransaction,
        Partitioner,
        Producer,
        end_detached_transaction,
    )
    from aiokafkawire.records import Record, Records
    from aiokafkawire.share import (
        Acknowledgement,
        AcknowledgeType,
        ShareConsumer,
        ShareRecord,
        ShareRecords,
    )
    from aiokafkawire.types import (
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PingResult,
        RecordMetadata,
        TimestampType,
        TopicPartition,
    )
    from aiokafkawire.worker import Worker

__all__ = (
    "About",
    "AcknowledgeType",
    "Acknowledgement",
    "AcknowledgementFailed",
    "Admin",
    "Assignor",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "Broker",
    "BrokerError",
    "BufferFull",
    "ClientClosed",
    "CommitFailed",
    "ConnectionFailed",
    "ConnectionLost",
    "Consumer",
    "CooperativeStickyAssignor",
    "CorruptRecord",
    "DeliveriesFailed",
    "Delivery",
    "DeliveryTimedOut",
    "DeliveryUnknown",
    "DeserializationFailed",
    "DetachedTransaction",
    "FencedInstanceId",
    "GroupFailed",
    "GroupMetadata",
    "IllegalState",
    "InvalidOption",
    "InvalidTxnState",
    "KafkaError",
    "LogTruncated",
    "MalformedFrame",
    "MalformedMessage",
    "MemberSubscription",
    "NoBrokerAvailable",
    "NoOffsetForPartition",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartialFailure",
    "Partitioner",
    "PingResult",
    "Producer",
    "ProducerFenced",
    "ProtocolError",
    "RangeAssignor",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "RecordTooLarge",
    "Records",
    "RequestTimedOut",
    "RoundRobinAssignor",
    "SerializationFailed",
    "ShareConsumer",
    "ShareRecord",
    "ShareRecords",
    "StickyAssignor",
    "SubscriptionPattern",
    "TimestampType",
    "TlsError",
    "TokenUnavailable",
    "TopicPartition",
    "TransactionAborted",
    "TransactionFailed",
    "UnknownServerError",
    "UnknownTopic",
    "UnsupportedVersion",
    "Worker",
    "WrongEventLoop",
    "__version__",
    "about",
    "end_detached_transaction",
)

_DEFINED_IN = {
    "About": "_about",
    "AcknowledgeType": "share",
    "Acknowledgement": "share",
    "AcknowledgementFailed": "errors",
    "Admin": "admin",
    "Assignor": "group",
    "AuthenticationFailed": "errors",
    "AuthorizationFailed": "errors",
    "Broker": "broker",
    "BrokerError": "errors",
    "BufferFull": "errors",
    "ClientClosed": "errors",
    "CommitFailed": "errors",
    "ConnectionFailed": "errors",
    "ConnectionLost": "errors",
    "Consumer": "consumer",
    "CooperativeStickyAssignor": "group",
    "CorruptRecord": "errors",
    "DeliveriesFailed": "errors",
    "Delivery": "producer",
    "DeliveryTimedOut": "errors",
    "DeliveryUnknown": "errors",
    "DeserializationFailed": "errors",
    "FencedInstanceId": "errors",
    "GroupFailed": "errors",
    "GroupMetadata": "types",
    "IllegalState": "errors",
    "InvalidOption": "errors",
    "InvalidTxnState": "errors",
    "KafkaError": "errors",
    "LogTruncated": "errors",
    "MalformedFrame": "errors",
    "MalformedMessage": "errors",
    "MemberSubscription": "group",
    "NoBrokerAvailable": "errors",
    "NoOffsetForPartition": "errors",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "PartialFailure": "errors",
    "Partitioner": "producer",
    "PingResult": "types",
    "DetachedTransaction": "producer",
    "Producer": "producer",
    "ProducerFenced": "errors",
    "ProtocolError": "errors",
    "RangeAssignor": "group",
    "RebalanceListener": "consumer",
    "Record": "records",
    "RecordMetadata": "types",
    "RecordTooLarge": "errors",
    "Records": "records",
    "RequestTimedOut": "errors",
    "SerializationFailed": "errors",
    "TlsError": "errors",
    "RoundRobinAssignor": "group",
    "ShareConsumer": "share",
    "ShareRecord": "share",
    "ShareRecords": "share",
    "StickyAssignor": "group",
    "SubscriptionPattern": "consumer",
    "TimestampType": "types",
    "TokenUnavailable": "errors",
    "TopicPartition": "types",
    "TransactionAborted": "errors",
    "TransactionFailed": "errors",
    "UnknownServerError": "errors",
    "UnknownTopic": "errors",
    "UnsupportedVersion": "errors",
    "Worker": "worker",
    "WrongEventLoop": "errors",
    "about": "_about",
    "end_detached_transaction": "producer",
}

_SUBMODULES = (
    "admin",
    "blocking",
    "broker",
    "config",
    "consumer",
    "errors",
    "group",
    "kafka07",
    "oauth",
    "producer",
    "records",
    "share",
    "testing",
    "types",
    "worker",
)


def __getattr__(name: str) -> object:
    # Imported on first use: a program that only produces never loads the consumer.
    module = _DEFINED_IN.get(name)
    if module is not None:
        value = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    caller = sys._getframe(1).f_code.co_name
    raise import_module(f"{__name__}.config.name_hints").absent_name_error(__name__, name, caller)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
