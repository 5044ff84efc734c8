"""Options of the client for Kafka 0.7."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from aiokafkawire.config import MAX_INT32, check_field, option_hint, options_of, parse_address
from aiokafkawire.errors import InvalidOption

__all__ = ("Kafka07Config", "Kafka07Options", "make_config")

KIB, MIB = 2**10, 2**20


def _number(default: int, minimum: int = 0, *, meaning: str) -> Any:
    return dataclasses.field(
        default=default, metadata={"meaning": meaning, "range": (minimum, MAX_INT32)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07Config:
    """Options of `aiokafkawire.kafka07.Client`. Times are in milliseconds, sizes in bytes.

    Sizes have the defaults of Kafka 0.7 where it has such an option.
    """

    server: str = dataclasses.field(metadata={"meaning": "The broker: `host:port`.", "text": True})
    socket_connection_setup_timeout_ms: int = _number(
        10_000, 1, meaning="How long an attempt to connect may take."
    )
    request_timeout_ms: int = _number(
        30_000, 1, meaning="How long a call may take: its turn, connecting, sending, the answer."
    )
    close_timeout_ms: int = _number(
        30_000, meaning="How long closing waits to hear that the broker has read every produce."
    )
    retry_backoff_ms: int = _number(
        100, meaning="Pause before `messages` repeats what failed; it doubles, with jitter."
    )
    retry_backoff_max_ms: int = _number(1_000, meaning="The longest pause before a repeat.")
    default_api_timeout_ms: int = _number(
        60_000, 1, meaning="How long `messages` repeats in vain what can be repeated."
    )
    fetch_size_bytes: int = _number(
        MIB, 1, meaning="What one fetch asks for, unless a message is larger."
    )
    fetch_size_max_bytes: int = _number(
        50 * MIB, 1, meaning="What a fetch asks for at most, for the sake of a large message."
    )
    fetch_backoff_ms: int = _number(
        1_000, 1, meaning="Pause of `messages` at the end of the log before it asks again."
    )
    max_response_bytes: int = _number(
        100 * MIB, KIB, meaning="A larger response is refused and its connection closed."
    )
    max_decompressed_bytes: int = _number(
        128 * MIB, KIB, meaning="The most that one compressed message may unpack to."
    )
    max_message_size_bytes: int = _number(
        1_000_000,
        1,
        meaning="The largest payload to send, a compressed set counted as one;"
        " no more than the broker's `max.message.size`, above which it drops a set in silence.",
    )
    max_request_size_bytes: int = _number(
        100 * MIB,
        KIB,
        meaning="The largest request; no more than the broker's `max.socket.request.bytes`.",
    )
    compression_type: Literal["none", "gzip", "snappy"] = dataclasses.field(
        default="none",
        metadata={
            "meaning": "The codec in which the messages of one call are sent and stored.",
            "choices": ("none", "gzip", "snappy"),
        },
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_field(field, getattr(self, field.name))
        parse_address(self.server)
        for low, high in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("fetch_size_bytes", "fetch_size_max_bytes"),
            ("fetch_size_max_bytes", "max_response_bytes"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise InvalidOption(
                    f"{low} ({getattr(self, low)}) must not be above {high} ({getattr(self, high)})"
                )


class Kafka07Options(TypedDict, total=False):
    """The keyword arguments of `aiokafkawire.kafka07.Client`; see `Kafka07Config`."""

    socket_connection_setup_timeout_ms: int
    request_timeout_ms: int
    close_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    default_api_timeout_ms: int
    fetch_size_bytes: int
    fetch_size_max_bytes: int
    fetch_backoff_ms: int
    max_response_bytes: int
    max_decompressed_bytes: int
    max_message_size_bytes: int
    max_request_size_bytes: int
    compression_type: Literal["none", "gzip", "snappy"]


def make_config(server: str, options: Mapping[str, Any]) -> Kafka07Config:
    """Check the options. Raises `InvalidOption`, with the nearest of an unknown one."""
    known = [option.name for option in options_of(Kafka07Config)]
    for name in options:
        if name not in known:
            raise InvalidOption(f"unknown option {name!r}{option_hint(name, known)}")
    return Kafka07Config(server=server, **options)


_LINES = "\n".join(f"    {option}" for option in options_of(Kafka07Config))
Kafka07Options.__doc__ = f"{Kafka07Options.__doc__}\n\n{_LINES}"
