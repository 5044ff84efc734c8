"""Options of the consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal

from aiokafkawire.config.checks import reset_duration_ms
from aiokafkawire.config.client_config import ClientConfig, ClientOptions
from aiokafkawire.config.option_fields import (
    append_options,
    choice_option,
    number_option,
    option,
    serializer_option,
    switch_option,
    text_option,
)
from aiokafkawire.errors import InvalidOption
from aiokafkawire.serialization import DeserializerArgument
from aiokafkawire.types import KeyT, ValueT

__all__ = ("ConsumerConfig", "ConsumerOptions")

DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")

CLASSIC_PROTOCOL_OPTIONS: Mapping[str, Any] = {
    "session_timeout_ms": None,
    "heartbeat_interval_ms": 3_000,
    "partition_assignment_strategy": DEFAULT_ASSIGNORS,
}
"""Options, with their defaults, that belong to the broker in the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Options of `Consumer`; the defaults are the Java consumer's."""

    group_id: str | None = text_option(
        None,
        meaning="Consumer group that shares partitions and stores offsets; none by default.",
    )
    group_instance_id: str | None = text_option(
        None,
        meaning="Id of a static member, which keeps its partitions across a restart (KIP-345).",
    )
    group_protocol: Literal["classic", "consumer", "auto"] = choice_option(
        "classic",
        "consumer",
        "auto",
        meaning="Protocol of the membership. With `consumer` the coordinator assigns partitions"
        " (KIP-848, Kafka 4.0 or later), with `auto` where it can.",
    )
    group_remote_assignor: str | None = text_option(
        None,
        meaning="Assignor of the coordinator in the consumer protocol: `uniform` or `range`; by"
        " default the coordinator chooses.",
    )
    session_timeout_ms: int | None = number_option(
        None,
        1,
        meaning="The coordinator removes a member without a heartbeat for this time; default 45 s.",
    )
    heartbeat_interval_ms: int = number_option(3_000, 1, meaning="Interval between heartbeats.")
    max_poll_interval_ms: int = number_option(
        300_000,
        1,
        meaning="Maximum time between two calls for records; after it, the member loses its"
        " partitions.",
    )
    rebalance_callback_timeout_ms: int = number_option(
        60_000, 1, meaning="Timeout of a method of the `RebalanceListener`."
    )
    max_poll_records: int = number_option(
        500, 1, meaning="Maximum number of records that one `getmany` call or batch returns."
    )
    fetch_min_bytes: int = number_option(
        1, meaning="Size of data at which a broker responds to a fetch before `fetch_max_wait_ms`."
    )
    fetch_max_bytes: int = number_option(
        50 * 1024 * 1024, 1, meaning="Maximum size of one fetch response."
    )
    fetch_max_wait_ms: int = number_option(
        500, meaning="Maximum time that a broker waits for `fetch_min_bytes`."
    )
    max_partition_fetch_bytes: int = number_option(
        1024 * 1024, 1, meaning="Maximum size of one partition in a fetch response."
    )
    enable_auto_commit: bool = switch_option(
        True, "Commit processed records periodically, before a rebalance and on close."
    )
    auto_commit_interval_ms: int = number_option(
        5_000, 1, meaning="Interval between automatic commits."
    )
    auto_offset_reset: str = option(
        "latest",
        "Start position without a committed offset, or if the position is out of range:"
        ' "earliest", "latest", "by_duration:PnDTnHnMnS" (that long ago, such as "by_duration:P7D";'
        ' KIP-1106), or "none" (raise `NoOffsetForPartition`).',
        text=True,
    )
    offsets_storage: Literal["kafka", "zookeeper"] = choice_option(
        "kafka", "zookeeper", meaning="Storage of committed offsets. ZooKeeper: Kafka 0.8.1 to 2.8."
    )
    check_crcs: bool = switch_option(True, "Verify the CRC-32C of each batch.")
    isolation_level: Literal["read_uncommitted", "read_committed"] = choice_option(
        "read_uncommitted",
        "read_committed",
        meaning="With `read_committed`, skip records of open and aborted transactions.",
    )
    partition_assignment_strategy: Sequence[Any] = option(
        DEFAULT_ASSIGNORS,
        "Assignors that this member supports, in order of preference: names or `Assignor`s.",
    )
    key_deserializer: DeserializerArgument[Any] | None = serializer_option(
        meaning="Deserializes keys: a type such as `str` or a model, or a function."
    )
    value_deserializer: DeserializerArgument[Any] | None = serializer_option(
        meaning="Deserializes values: a type such as `dict` or a model, or a function."
    )

    @property
    def effective_session_timeout_ms(self) -> int:
        """Session timeout in milliseconds: Java's default of 45 s unless set."""
        return 45_000 if self.session_timeout_ms is None else self.session_timeout_ms

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of a response frame: `fetch_max_bytes` plus one batch of any size."""
        return self.max_response_bytes + self.fetch_max_bytes

    def _check_together(self) -> None:
        super(ConsumerConfig, self)._check_together()
        policy = self.auto_offset_reset
        if policy not in ("earliest", "latest", "none") and reset_duration_ms(policy) is None:
            raise InvalidOption(
                "auto_offset_reset must be 'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMnS'"
                f" (such as 'by_duration:P7D'), not {policy!r}"
            )
        if self.heartbeat_interval_ms >= self.effective_session_timeout_ms:
            raise InvalidOption(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be below"
                f" session_timeout_ms ({self.effective_session_timeout_ms})"
            )
        if self.group_instance_id is not None and self.group_id is None:
            raise InvalidOption("group_instance_id needs a group_id")
        self._check_group_protocol()
        strategy = self.partition_assignment_strategy
        if isinstance(strategy, bytes) or not isinstance(strategy, Sequence):
            raise InvalidOption(
                f"partition_assignment_strategy must be a list of assignors, not {strategy!r:.80}"
            )
        if not strategy:
            raise InvalidOption("partition_assignment_strategy must name at least one assignor")

    def _check_group_protocol(self) -> None:
        for name in ("group_protocol", "group_remote_assignor"):
            if self.group_id is None and getattr(self, name) not in ("classic", None):
                raise InvalidOption(f"{name} needs a group_id")
        if self.group_protocol != "classic" and self.offsets_storage == "zookeeper":
            raise InvalidOption(f"group_protocol={self.group_protocol!r} stores offsets in Kafka")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise InvalidOption("group_remote_assignor needs group_protocol='consumer' or 'auto'")
        if self.group_protocol != "consumer":
            return
        for name, default in CLASSIC_PROTOCOL_OPTIONS.items():
            if getattr(self, name) != default:
                raise InvalidOption(
                    f"{name} does not apply with group_protocol='consumer': the coordinator's"
                    " configs, and group_remote_assignor, replace it"
                )


class ConsumerOptions(ClientOptions, Generic[KeyT, ValueT], total=False):
    """Keyword arguments of `Consumer`; see `ConsumerConfig`."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer", "auto"]
    group_remote_assignor: str | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    rebalance_callback_timeout_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    offsets_storage: Literal["kafka", "zookeeper"]
    check_crcs: bool
    isolation_level: Literal["read_uncommitted", "read_committed"]
    partition_assignment_strategy: Sequence[Any]
    key_deserializer: DeserializerArgument[KeyT] | None
    value_deserializer: DeserializerArgument[ValueT] | None


append_options(ConsumerOptions, ConsumerConfig)
