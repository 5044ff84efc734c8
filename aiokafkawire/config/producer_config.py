"""Options of the producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, get_args

from aiokafkawire.config.checks import check_acks, check_level
from aiokafkawire.config.client_config import ClientConfig, ClientOptions
from aiokafkawire.config.option_fields import (
    MAX_INT32,
    append_options,
    choice_option,
    number_option,
    option,
    serializer_option,
    switch_option,
    text_option,
)
from aiokafkawire.errors import InvalidOption
from aiokafkawire.serialization import SerializerArgument
from aiokafkawire.types import SentKeyT, SentValueT

__all__ = ("Acks", "CompressionName", "ProducerConfig", "ProducerOptions")

Acks = Literal["all", -1, 0, 1] | int
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Options of `Producer`; the defaults are the Java producer's."""

    acks: Acks = option(
        "all",
        "Required acknowledgements of a record: all in-sync replicas, the leader (1), none (0).",
    )
    enable_idempotence: bool | None = switch_option(
        None,
        "Number the batches, so that each is written exactly once and in order. On by default,"
        " unless `acks` or `max_in_flight_requests_per_connection` rules it out.",
    )
    max_in_flight_requests_per_connection: int = number_option(
        5, 1, 1_000, meaning="Maximum number of requests in flight to one broker."
    )
    linger_ms: int = number_option(5, meaning="Time that a batch waits for more records.")
    batch_size_bytes: int = number_option(
        16_384, 1, meaning="Size before compression at which a batch is full and is sent."
    )
    buffer_memory_bytes: int = number_option(
        32 * 1024 * 1024, 1, meaning="Memory for all records that are not acknowledged yet."
    )
    max_request_size_bytes: int = number_option(
        1024 * 1024, 1, meaning="Maximum size of a record, and of a Produce request."
    )
    max_block_ms: int = number_option(
        60_000, meaning="Time that `send` waits for buffer memory or for the metadata of a topic."
    )
    delivery_timeout_ms: int = number_option(
        120_000,
        1,
        meaning="Time from `send` to the acknowledgement of a record, including retries.",
    )
    retries: int = number_option(
        MAX_INT32, meaning="Maximum number of retries of a batch within `delivery_timeout_ms`."
    )
    compression_type: CompressionName = choice_option(
        *get_args(CompressionName), meaning="Compression codec of batches."
    )
    compression_level: int | None = number_option(
        None,
        -131_072,
        22,
        meaning="Compression level: gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22. Default: that of"
        " the codec.",
    )
    partitioner: Callable[..., int] | None = option(
        None,
        "Function that returns the partition of a record; see `Partitioner`.",
        callable=True,
    )
    partitioner_ignore_keys: bool = switch_option(False, "Ignore keys when choosing a partition.")
    partitioner_adaptive_partitioning_enable: bool = switch_option(
        True, "For records without a key: send more records to faster brokers (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = number_option(
        0,
        meaning="For records without a key: avoid a broker that has accepted no batch for this time"
        " (KIP-794). 0 turns it off.",
    )
    partitioner_rack_aware: bool = switch_option(
        False,
        "For records without a key: choose partitions whose leader is in `client_rack`; all, if no"
        " such leader is available (KIP-1123).",
    )
    metadata_max_idle_ms: int = number_option(
        300_000,
        5_000,
        meaning="Time after the last `send` to a topic during which its metadata is refreshed.",
    )
    transactional_id: str | None = text_option(
        None,
        meaning="Id of a transactional producer. A newer producer with the same id fences the older"
        " one.",
    )
    transaction_timeout_ms: int = number_option(
        60_000,
        1,
        meaning="The coordinator aborts a transaction that is open for longer. At most the brokers'"
        " `transaction.max.timeout.ms`.",
    )
    key_serializer: SerializerArgument[Any] | None = serializer_option(
        meaning="Serializes keys: a type such as `str` or a model, or a function."
    )
    value_serializer: SerializerArgument[Any] | None = serializer_option(
        meaning="Serializes values: a type such as `dict` or a model, or a function."
    )

    @property
    def required_acks(self) -> int:
        """`acks` as in a Produce request: -1 for `all`."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def idempotent(self) -> bool:
        """True if the producer is idempotent: set, or by default with `acks="all"`."""
        if self.enable_idempotence is None:
            if self.transactional_id is not None:
                return True
            return self.required_acks == -1 and self.max_in_flight_requests_per_connection <= 5
        return self.enable_idempotence

    def _check_together(self) -> None:
        super(ProducerConfig, self)._check_together()
        check_acks(self.acks, self.api_version)
        if self.enable_idempotence:
            self._check_idempotence("enable_idempotence=True")
        if self.transactional_id is not None:
            if self.enable_idempotence is False:
                raise InvalidOption("transactional_id needs enable_idempotence, which is False")
            self._check_idempotence("transactional_id")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise InvalidOption(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must be at least linger_ms +"
                f" request_timeout_ms ({self.linger_ms + self.request_timeout_ms})"
            )
        if self.compression_level is not None:
            check_level(self.compression_type, self.compression_level)

    def _check_idempotence(self, who: str) -> None:
        if self.required_acks != -1:
            raise InvalidOption(f"{who} needs acks='all', but acks is {self.acks!r}")
        if self.max_in_flight_requests_per_connection > 5:
            raise InvalidOption(
                f"{who} allows at most 5 for max_in_flight_requests_per_connection,"
                f" not {self.max_in_flight_requests_per_connection}"
            )


class ProducerOptions(ClientOptions, Generic[SentKeyT, SentValueT], total=False):
    """Keyword arguments of `Producer`; see `ProducerConfig`."""

    acks: Acks
    enable_idempotence: bool | None
    max_in_flight_requests_per_connection: int
    linger_ms: int
    batch_size_bytes: int
    buffer_memory_bytes: int
    max_request_size_bytes: int
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int
    compression_type: CompressionName
    compression_level: int | None
    partitioner: Callable[..., int] | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    metadata_max_idle_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: SerializerArgument[SentKeyT] | None
    value_serializer: SerializerArgument[SentValueT] | None


append_options(ProducerOptions, ProducerConfig)
