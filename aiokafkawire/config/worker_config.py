"""Options of the worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Required

from aiokafkawire.config.client_config import ClientConfig, ClientOptions
from aiokafkawire.config.option_fields import (
    append_options,
    choice_option,
    number_option,
    switch_option,
    text_option,
)
from aiokafkawire.errors import InvalidOption
from aiokafkawire.types import require_topic_name

__all__ = ("SET_BY_WORKER", "WorkerConfig", "WorkerOptions", "worker_hint")

SET_BY_WORKER: Mapping[str, Collection[str]] = {
    "consumer": ("group_id", "enable_auto_commit", "rebalance_callback_timeout_ms"),
    "share consumer": (
        "group_id",
        "share_acknowledgement_mode",
        "share_acquire_mode",
        "max_poll_interval_ms",
        "max_poll_records",
    ),
}
"""Options of its clients that a worker sets itself, by kind of client."""

_OF_HANDLERS = ("batch", "key", "order_by", "retries", "timeout_ms", "value")
"""Arguments of `Worker.on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(ClientConfig):
    """Options of `Worker`."""

    group_id: str | None = text_option(
        None, meaning="Consumer group whose members divide the work. Required."
    )
    group_type: Literal["consumer", "share"] = choice_option(
        "consumer",
        "share",
        meaning="Kind of the group. In a share group (KIP-932, Kafka 4.2) all workers process"
        " records of the same partitions, in any order.",
    )
    processing_guarantee: Literal["at_least_once", "exactly_once_v2"] = choice_option(
        "at_least_once",
        "exactly_once_v2",
        meaning="With `exactly_once_v2`, transactions write the records that handlers send, retries"
        " and dead letters together with the offsets (KIP-447). Needs Kafka 2.5.",
    )
    concurrency: int = number_option(
        100, 1, 100_000, meaning="Maximum number of handlers that run at the same time."
    )
    threads: int = number_option(
        40, 1, 10_000, meaning="Maximum number of threads for handlers that are not async."
    )
    drain_timeout_ms: int = number_option(
        25_000,
        meaning="Time to finish running handlers when the worker stops or a partition is revoked.",
    )
    commit_interval_ms: int = number_option(
        1_000, 1, meaning="Interval between commits of finished records."
    )
    commit_finished_records: bool = switch_option(
        False,
        "Also commit, as metadata of the offset, which records above it are finished. They are not"
        " processed again after a crash or a rebalance.",
    )
    max_buffered_records: int = number_option(
        1_000,
        1,
        meaning="Records of a partition, from the oldest unfinished one on, at which the partition"
        " is paused.",
    )
    max_buffered_bytes: int = number_option(
        64 * 1024 * 1024,
        1,
        meaning="Size of keys, values and headers of all unfinished records at which all"
        " partitions are paused.",
    )
    stall_timeout_ms: int = number_option(
        60_000,
        1,
        meaning="Time that an attempt may run, or a write of a dead letter may fail, before"
        " `health` reports that the worker is not alive.",
    )
    pause_after_failures: int | None = number_option(
        None,
        1,
        meaning="Failed attempts in a row, of all handlers, after which no record starts for"
        " `pause_ms`. None by default: no pause.",
    )
    pause_ms: int = number_option(
        10_000,
        1,
        meaning="Pause after `pause_after_failures`. Then one record is tried; if it fails, the"
        " next pause is twice as long, up to 16 times this one.",
    )
    on_exhausted: Literal["dead_letter", "stop", "reject"] = choice_option(
        "dead_letter",
        "stop",
        "reject",
        meaning="What happens after the last attempt: a record becomes a dead letter, or the"
        " worker stops with the exception and commits nothing beyond the record. In a share group,"
        " `reject` leaves dead letters to the broker (KIP-1191).",
    )
    dead_letter_topic: str | None = text_option(
        None, meaning="Topic of dead letters; default `<group_id>.dead`."
    )
    dead_letter_headers: Literal["kafka", "spring", "connect", "streams"] = choice_option(
        "kafka",
        "spring",
        "connect",
        "streams",
        meaning="Names of the headers of dead letters: of Kafka (KIP-1191), Spring for Apache"
        " Kafka, Kafka Connect or Kafka Streams (KIP-1034).",
    )
    create_topics: bool = switch_option(
        True, "Create the retry topics and the dead letter topic on start, if they do not exist."
    )
    health_host: str = text_option(
        "127.0.0.1",
        meaning="Address to listen on for `/livez`, `/readyz` and `/metrics`; `0.0.0.0` for probes"
        " from another host.",
    )
    health_port: int | None = number_option(
        None,
        0,
        65_535,
        meaning="Port of `/livez`, `/readyz` and `/metrics`; 0 lets the system choose. None by"
        " default: the worker does not listen.",
    )

    @property
    def group(self) -> str:
        """The group id."""
        return self.group_id or ""

    @property
    def is_share(self) -> bool:
        """True for a worker of a share group."""
        return self.group_type == "share"

    @property
    def is_exactly_once(self) -> bool:
        """True if offsets and output are written in transactions."""
        return self.processing_guarantee == "exactly_once_v2"

    @property
    def dead_letters(self) -> str:
        """The topic of dead letters."""
        return self.dead_letter_topic or f"{self.group_id}.dead"

    def _check_together(self) -> None:
        super(WorkerConfig, self)._check_together()
        if not self.group_id:
            raise InvalidOption(
                "group_id is missing: workers with the same group_id divide the work"
            )
        if self.commit_finished_records and self.is_exactly_once:
            raise InvalidOption(
                "commit_finished_records: with processing_guarantee='exactly_once_v2' the output of"
                " records above the committed offset is not written yet"
            )
        for name, is_set in (
            ("processing_guarantee='exactly_once_v2'", self.is_exactly_once),
            ("commit_finished_records", self.commit_finished_records),
        ):
            if is_set and self.is_share:
                raise InvalidOption(f"{name}: a share group has no committed offsets")
        if self.on_exhausted == "reject" and not self.is_share:
            raise InvalidOption("on_exhausted='reject' needs group_type='share'")
        try:
            require_topic_name(self.dead_letters)
        except ValueError as error:
            raise InvalidOption(f"dead_letter_topic: {error}") from None


class WorkerOptions(ClientOptions, total=False):
    """Keyword arguments of `Worker`; see `WorkerConfig`."""

    group_id: Required[str]
    group_type: Literal["consumer", "share"]
    processing_guarantee: Literal["at_least_once", "exactly_once_v2"]
    concurrency: int
    threads: int
    drain_timeout_ms: int
    commit_interval_ms: int
    commit_finished_records: bool
    max_buffered_records: int
    max_buffered_bytes: int
    stall_timeout_ms: int
    pause_after_failures: int | None
    pause_ms: int
    on_exhausted: Literal["dead_letter", "stop", "reject"]
    dead_letter_topic: str | None
    dead_letter_headers: Literal["kafka", "spring", "connect", "streams"]
    create_topics: bool
    health_host: str
    health_port: int | None


append_options(WorkerOptions, WorkerConfig)


def worker_hint(name: str, owner: str | None) -> str | None:
    """Return the error message about an option that belongs elsewhere in a worker; None otherwise.

    Args:
        name: The option.
        owner: Kind of the client that has the option; None for an unknown option.
    """
    if name in _OF_HANDLERS:
        return f"{name!r} is an argument of on(), not an option of a worker"
    if name in {"topic", "topics"}:
        return f"{name!r} is no option of a worker: pass topics to on(), as @worker.on('orders')"
    if name in {"key_deserializer", "value_deserializer"}:
        argument = name.removesuffix("_deserializer")
        return f"{name!r} is no option of a worker: pass it to on() as {argument}"
    if owner is None:
        return None
    if name in SET_BY_WORKER.get(owner, ()):
        return f"a worker sets {name!r} itself"
    argument = "producer_options" if owner == "producer" else "consumer_options"
    return f"{name!r} is a {owner} option, not one of a worker: pass {argument}={{{name!r}: …}}"
