"""Configuration options of the Kafka 0.7 client."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from aiokafkawire.config import MAX_INT32, check_field, list_options, option_hint, parse_address
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

    Sizes default to the value of the option of Kafka 0.7, if it has one.
    """

    server: str = dataclasses.field(
        metadata={"meaning": "Address of the broker: `host:port`.", "text": True}
    )
    socket_connection_setup_timeout_ms: int = _number(
        10_000, 1, meaning="Timeout of one connection attempt."
    )
    request_timeout_ms: int = _number(
        30_000,
        1,
        meaning="Timeout of one call, from waiting for the connection to its response.",
    )
    close_timeout_ms: int = _number(
        30_000,
        meaning="Time that closing waits for the broker to confirm the requests sent by `produce`.",
    )
    retry_backoff_ms: int = _number(
        100, meaning="First backoff before `messages` retries a fetch; doubles, with jitter."
    )
    retry_backoff_max_ms: int = _number(1_000, meaning="Upper bound of the retry backoff.")
    default_api_timeout_ms: int = _number(
        60_000, 1, meaning="Time that `messages` retries a failing fetch before raising its error."
    )
    fetch_size_bytes: int = _number(
        MIB, 1, meaning="Maximum size of one fetch; raised if a message is larger."
    )
    fetch_size_max_bytes: int = _number(
        50 * MIB, 1, meaning="Upper bound to which the fetch size is raised for a large message."
    )
    fetch_backoff_ms: int = _number(
        1_000, 1, meaning="Pause between fetches of `messages` at the end of the log."
    )
    max_response_bytes: int = _number(
        100 * MIB, KIB, meaning="Maximum size of a response; a larger one closes the connection."
    )
    max_decompressed_bytes: int = _number(
        128 * MIB, KIB, meaning="Maximum decompressed size of one compressed message."
    )
    max_message_size_bytes: int = _number(
        1_000_000,
        1,
        meaning="Maximum size of a message to send, or of a compressed set of messages. Keep it at"
        " or below `max.message.size` of the broker, which silently drops larger ones.",
    )
    max_request_size_bytes: int = _number(
        100 * MIB,
        KIB,
        meaning="Maximum size of a request. Keep it at or below the broker's"
        " `max.socket.request.bytes`.",
    )
    compression_type: Literal["none", "gzip", "snappy"] = dataclasses.field(
        default="none",
        metadata={
            "meaning": "Codec in which the messages of one call are sent and stored.",
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
    """Keyword arguments of `aiokafkawire.kafka07.Client`; see `Kafka07Config`."""

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
    """Validate the options and return the configuration.

    Raises:
        InvalidOption: An option is unknown (the text suggests a similar name) or out of range.
    """
    known = [option.name for option in list_options(Kafka07Config)]
    for name in options:
        if name not in known:
            raise InvalidOption(f"unknown option {name!r}{option_hint(name, known)}", option=name)
    return Kafka07Config(server=server, **options)


_LINES = "\n".join(f"    {option}" for option in list_options(Kafka07Config))
Kafka07Options.__doc__ = f"{Kafka07Options.__doc__}\n\n{_LINES}"
