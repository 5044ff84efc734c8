"""A Kafka client native to asyncio and trio.

`Producer` and `Consumer` are what most programs need; `aiokafkawire.errors` holds every error, and
`aiokafkawire.broker.Broker` is an embedded broker to test against.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aiokafkawire._version import __version__

if TYPE_CHECKING:
    from aiokafkawire._about import About, about
    from aiokafkawire.broker import Broker
    from aiokafkawire.consumer import Consumer, RebalanceListener
    from aiokafkawire.errors import KafkaError
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
        Partitioner,
        PreparedTransaction,
        Producer,
        end_transaction,
    )
    from aiokafkawire.records import Record, Records
    from aiokafkawire.types import (
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PingResult,
        RecordMetadata,
        TimestampType,
        TopicPartition,
    )

__all__ = (
    "About",
    "Assignor",
    "Broker",
    "Consumer",
    "CooperativeStickyAssignor",
    "Delivery",
    "GroupMetadata",
    "KafkaError",
    "MemberSubscription",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Partitioner",
    "PingResult",
    "PreparedTransaction",
    "Producer",
    "RangeAssignor",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Records",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TimestampType",
    "TopicPartition",
    "__version__",
    "about",
    "end_transaction",
)

_ROOMS = {
    "About": "_about",
    "Assignor": "group",
    "Broker": "broker",
    "Consumer": "consumer",
    "CooperativeStickyAssignor": "group",
    "Delivery": "producer",
    "GroupMetadata": "types",
    "KafkaError": "errors",
    "MemberSubscription": "group",
    "OffsetAndMetadata": "types",
    "OffsetAndTimestamp": "types",
    "Partitioner": "producer",
    "PingResult": "types",
    "PreparedTransaction": "producer",
    "Producer": "producer",
    "RangeAssignor": "group",
    "RebalanceListener": "consumer",
    "Record": "records",
    "RecordMetadata": "types",
    "Records": "records",
    "RoundRobinAssignor": "group",
    "StickyAssignor": "group",
    "TimestampType": "types",
    "TopicPartition": "types",
    "about": "_about",
    "end_transaction": "producer",
}


def __getattr__(name: str) -> object:
    # Rooms are imported when first asked for: whoever produces only never loads the consumer.
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
