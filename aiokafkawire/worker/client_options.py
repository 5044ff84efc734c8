"""Options of the clients of a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from aiokafkawire.admin import Admin
from aiokafkawire.config import SET_BY_WORKER, WorkerConfig
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import InvalidOption
from aiokafkawire.producer import Producer
from aiokafkawire.share import ShareConsumer

__all__ = ("ClientOptionSets",)

TRANSACTION_TIMEOUT_MS = 10_000
"""Default of `transaction_timeout_ms`, as in Kafka Streams: after a crash, the next owner of a
partition waits this long for the open transaction."""

RENEWAL_LIMIT_MS = 3_600_000
"""Default of `share_renewal_limit_ms`: a record that takes longer is delivered again."""

FETCH_SHARE = 10
"""A worker of a share group fetches at most its concurrency divided by this at a time."""

MAX_POLL_INTERVAL_MS = 2**31 - 1
"""`max_poll_interval_ms` of a worker of a share group, which does not poll while it is full."""


class ClientOptionSets:
    """Keyword arguments of the clients of a worker.

    Attributes:
        common: Options of all clients.
        consumer: Options of the consumer alone.
        producer: Options of the producer alone.

    Raises:
        InvalidOption: `consumer` or `producer` is no mapping.
    """

    def __init__(
        self,
        common: Mapping[str, Any],
        consumer: Mapping[str, Any],
        producer: Mapping[str, Any],
    ) -> None:
        _check_mapping("consumer_options", consumer, "{'auto_offset_reset': 'latest'}")
        _check_mapping("producer_options", producer, "{'linger_ms': 5}")
        self.common = common
        self.consumer = consumer
        self.producer = producer

    def limit_refused_start(self, timeout_ms: int) -> None:
        """Set `bootstrap_refused_timeout_ms`, unless the application has set a limit itself."""
        if "default_api_timeout_ms" not in self.common:
            self.common = {"bootstrap_refused_timeout_ms": timeout_ms, **self.common}

    def make_consumer(self, config: WorkerConfig) -> Consumer:
        """Return the consumer of a worker.

        Raises:
            InvalidOption: An option is invalid, or the worker sets it itself.
        """
        _refuse(self.consumer, "consumer_options", "pass key and value to on()", "deserializer")
        self._refuse_set_by_worker("consumer")
        defaults: dict[str, Any] = {"auto_offset_reset": "earliest"}
        if config.is_exactly_once:
            defaults["isolation_level"] = "read_committed"
            if self.consumer.get("isolation_level", "read_committed") != "read_committed":
                raise InvalidOption(
                    "consumer_options: with isolation_level='read_uncommitted' the worker would"
                    " process retries of aborted transactions; exactly_once_v2 needs"
                    " 'read_committed'"
                )
        if self.consumer.get("group_protocol") != "consumer":
            defaults["partition_assignment_strategy"] = ["cooperative-sticky"]
        with _naming("consumer_options", self.consumer):
            consumer = Consumer(
                **{
                    **defaults,
                    **self.common,
                    **self.consumer,
                    "group_id": config.group_id,
                    "enable_auto_commit": False,
                    # The drain, a commit that is under way, and the last commit.
                    "rebalance_callback_timeout_ms": config.drain_timeout_ms
                    + 2 * config.default_api_timeout_ms,
                }
            )
        if config.drain_timeout_ms >= consumer.config.max_poll_interval_ms:
            raise InvalidOption(
                f"drain_timeout_ms ({config.drain_timeout_ms}) must be below max_poll_interval_ms"
                f" ({consumer.config.max_poll_interval_ms})"
            )
        return consumer

    def make_share_consumer(self, config: WorkerConfig) -> ShareConsumer:
        """Return the share consumer of a worker.

        Raises:
            InvalidOption: An option is invalid, or the worker sets it itself.
        """
        self._refuse_set_by_worker("share consumer")
        with _naming("consumer_options", self.consumer):
            return ShareConsumer(
                **{
                    # mutation: locks-of-running-records-not-renewed
                    "share_renewal_limit_ms": RENEWAL_LIMIT_MS,
                    **self.common,
                    **self.consumer,
                    "group_id": config.group_id,
                    "share_acknowledgement_mode": "explicit",
                    "share_acquire_mode": "record_limit",
                    "max_poll_records": max(1, config.concurrency // FETCH_SHARE),
                    "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
                }
            )

    def make_producer(self, config: WorkerConfig, instance: str = "") -> Producer:
        """Return the producer of retries, dead letters and the output of handlers.

        Args:
            config: Options of the worker.
            instance: Makes the transactional id unique, unless the application gives one.

        Raises:
            InvalidOption: With these options a failed record could be lost.
        """
        _refuse(
            self.producer, "producer_options", "failed records are copied as bytes", "serializer"
        )
        if self.producer.get("acks", "all") not in {"all", -1}:
            raise InvalidOption("producer_options: a worker needs acks='all'")
        defaults: dict[str, Any] = {}
        if config.is_exactly_once:
            defaults["transactional_id"] = f"{config.group_id}-{instance}"
            defaults["transaction_timeout_ms"] = TRANSACTION_TIMEOUT_MS
        elif self.producer.get("transactional_id") is not None:
            raise InvalidOption(
                "producer_options: transactional_id needs processing_guarantee='exactly_once_v2'"
            )
        with _naming("producer_options", self.producer):
            return Producer(**{**defaults, **self.common, **self.producer})

    def _refuse_set_by_worker(self, kind: Literal["consumer", "share consumer"]) -> None:
        for name in SET_BY_WORKER[kind]:
            if name in self.consumer:
                raise InvalidOption(f"consumer_options: a worker sets {name!r} itself")

    def make_admin(self) -> Admin:
        """Return an admin client."""
        return Admin(**self.common)


def _refuse(options: Mapping[str, Any], given: str, why: str, kind: str) -> None:
    for name in (f"key_{kind}", f"value_{kind}"):
        if options.get(name) is not None:
            raise InvalidOption(f"{given}: a worker takes no {name}; {why}")


def _check_mapping(given: str, options: object, example: str) -> None:
    if not isinstance(options, Mapping):
        raise InvalidOption(f"{given} must be a dict, not {options!r:.80}: write {given}={example}")


@contextmanager
def _naming(given: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Name the argument of the worker in an error about the options of its clients."""
    try:
        yield
    except InvalidOption as error:
        if not options:
            raise
        raise InvalidOption(f"{given}: {error.reason}", option=error.option) from None
