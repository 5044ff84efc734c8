"""The options of the data source, which have the names of Spark's Kafka connector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.config import (
    ConsumerConfig,
    ProducerConfig,
    did_you_mean,
    list_options,
    make_config,
)
from aiokafkawire.config.java_properties import is_security_property
from aiokafkawire.errors import InvalidOption
from aiokafkawire.types import TopicPartition

from .offsets import (
    EARLIEST,
    LATEST,
    GlobalOffsetRangeLimit,
    GlobalTimestampRangeLimit,
    OffsetRangeLimit,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    offsets_from_json,
    partitions_from_json,
    timestamps_from_json,
)
from .option_names import (
    KAFKA_PREFIX,
    OBJECT_OPTIONS,
    RENAMED_OPTIONS,
    argument_name,
    reword_errors,
)
from .security_options import seal_secrets, security_options

__all__ = (
    "AssignStrategy",
    "ExactlyOnceOptions",
    "ReadOptions",
    "SubscribePatternStrategy",
    "SubscribeStrategy",
    "WriteOptions",
    "duration_ms",
)

OPTION_NAMES = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "topic",
    "exactlyOnce",
    "txnAppId",
    "txnVersion",
    "txnMarkerTopic",
)
"""All options except those of the clients, which begin with `kafka.`."""

SPARK_OPTIONS = frozenset({"path", "checkpointlocation", "queryname"})
"""Options that Spark passes to every data source."""

ENDING_OPTIONS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

UNSUPPORTED_OPTIONS = {
    "auto.offset.reset": "set startingOffsets instead",
    "key.deserializer": "keys are bytes; cast the column",
    "value.deserializer": "values are bytes; cast the column",
    "key.serializer": "keys are bytes or strings; cast the column",
    "value.serializer": "values are bytes or strings; cast the column",
    "enable.auto.commit": "a stream commits offsets after each micro-batch",
    "interceptor.classes": "interceptors could change the rows",
    "transactional.id": "with exactlyOnce each task has its own, which begins with txnAppId",
}

IGNORED_OPTIONS = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "exclude.internal.topics",
        "group.id",  # handled separately; see `ReadOptions.group_id`
        "max.poll.records",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
    }
)
"""Settings of the Java clients that do not change rows and that this client does not have."""

TRANSACTION_TIMEOUT_MS = 900_000
"""Default transaction timeout of the exactly-once sink, in milliseconds.

A transaction stays open until all tasks of the batch are done, so this is the most that brokers
allow by default (`transaction.max.timeout.ms`)."""

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SubscribeStrategy:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePatternStrategy:
    """All partitions of the topics whose names contain a match of the pattern."""

    pattern: str


@dataclass(frozen=True, slots=True)
class AssignStrategy:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a query that reads; `client` holds the arguments of `Consumer`."""

    consumer_strategy: SubscribeStrategy | SubscribePatternStrategy | AssignStrategy
    starting_offsets: OffsetRangeLimit
    ending_offsets: OffsetRangeLimit
    latest_if_no_matching_timestamp: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    group_id: str | None
    fetch_offset_num_retries: int
    fetch_offset_retry_interval_ms: int
    poll_timeout_ms: int
    client: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Parse the options that Spark passes to a reader.

        Raises:
            InvalidOption: An option is unknown, missing or out of range, or two contradict.
        """
        options = _OptionReader(given)
        client = options.client(ConsumerConfig)
        starting_offsets = options.offset_range_limit(
            "starting", GlobalOffsetRangeLimit(LATEST if streaming else EARLIEST)
        )
        ending_offsets = options.offset_range_limit("ending", GlobalOffsetRangeLimit(LATEST))
        if streaming:
            for name in ENDING_OPTIONS:
                if name in options:
                    raise InvalidOption(f"{name} is not valid in streaming queries")
        else:
            _validate_batch_limits(starting_offsets, ending_offsets)
        minimum = options.number("minOffsetsPerTrigger", 0)
        maximum = options.number("maxOffsetsPerTrigger", 1)
        if streaming and None not in {minimum, maximum} and minimum > maximum:
            raise InvalidOption(
                f"minOffsetsPerTrigger ({minimum}) must not exceed maxOffsetsPerTrigger ({maximum})"
            )
        return cls(
            consumer_strategy=options.consumer_strategy(),
            starting_offsets=starting_offsets,
            ending_offsets=ending_offsets,
            latest_if_no_matching_timestamp=options.timestamp_strategy() == "latest",
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            include_headers=options.flag("includeHeaders", False),
            min_partitions=options.number("minPartitions", 1, MAX_INT32),
            max_records_per_partition=options.number("maxRecordsPerPartition", 1),
            max_offsets_per_trigger=maximum,
            min_offsets_per_trigger=minimum,
            max_trigger_delay_ms=options.duration("maxTriggerDelay", "15m"),
            group_id=options.kafka.get("group.id"),
            fetch_offset_num_retries=options.number("fetchOffset.numRetries", 0, MAX_INT32, 3),
            fetch_offset_retry_interval_ms=options.number(
                "fetchOffset.retryIntervalMs", 0, default=1000
            ),
            poll_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs", 0, default=120_000),
            client=client,
        )


@dataclass(frozen=True, slots=True)
class ExactlyOnceOptions:
    """The identity of a sink and its batch, as in Delta Lake's idempotent writes.

    Attributes:
        app_id: The name of the sink (`txnAppId`); None uses the id of the stream.
        version: The number of a batch query (`txnVersion`); None for streams, which Spark numbers.
        marker_topic: The topic whose offsets the markers are.
    """

    app_id: str | None
    version: int | None
    marker_topic: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a query that writes.

    Attributes:
        topic: The topic of all rows; None uses the column `topic`.
        client: Arguments of `Producer`.
        exactly_once: None for at-least-once delivery.
    """

    topic: str | None
    client: Mapping[str, Any] = field(repr=False)
    exactly_once: ExactlyOnceOptions | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
        """Parse the options that Spark passes to a writer.

        Raises:
            InvalidOption: An option is unknown, missing or out of range, or two contradict.
        """
        options = _OptionReader(given)
        topic = options.stripped("topic")
        exactly_once = _exactly_once(options, topic, streaming=streaming)
        client = options.client(ProducerConfig)
        if exactly_once is not None:
            client = {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, **client}
            with reword_errors():
                make_config(ProducerConfig, {**client, "transactional_id": "checked"})
        return cls(topic, client, exactly_once)


def _exactly_once(
    options: _OptionReader, topic: str | None, *, streaming: bool
) -> ExactlyOnceOptions | None:
    app_id, version = options.stripped("txnAppId"), options.number("txnVersion", 0)
    marker_topic = options.stripped("txnMarkerTopic") or topic
    if not options.flag("exactlyOnce", False):
        for name in ("txnAppId", "txnVersion", "txnMarkerTopic"):
            if name in options:
                raise InvalidOption(f"{name} requires exactlyOnce=true")
        return None
    if app_id == "":
        raise InvalidOption("txnAppId is empty")
    if streaming and version is not None:
        raise InvalidOption(
            "txnVersion is only for batch queries: Spark numbers the batches of a stream"
        )
    if not streaming and (app_id is None or version is None):
        raise InvalidOption(
            "exactlyOnce in a batch query needs txnAppId, a name for the job, and txnVersion, a"
            " number that increases with each batch, to distinguish a repeat from new rows"
        )
    if not marker_topic:
        raise InvalidOption(
            "exactlyOnce needs the option topic or, if rows have their own topics, txnMarkerTopic:"
            " an existing topic for the markers of what was written"
        )
    return ExactlyOnceOptions(app_id, version, marker_topic)


class _OptionReader:
    """A reader of the options that Spark passes: text values by case-insensitive names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given: dict[str, str] = {}
        self.kafka: dict[str, str] = {}
        known = {name.lower(): name for name in OPTION_NAMES}
        for name, value in given.items():
            lower = name.lower()
            if lower.startswith(KAFKA_PREFIX):
                self.kafka[lower.removeprefix(KAFKA_PREFIX)] = value
            elif lower in known:
                self._given[known[lower]] = value
            elif lower not in SPARK_OPTIONS:
                meant = did_you_mean(name, OPTION_NAMES)
                if argument_name(lower) in _option_kinds():
                    meant = f"; did you mean {KAFKA_PREFIX + lower!r}?"
                raise InvalidOption(f"unknown option {name!r}{meant}")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def get(self, name: str) -> str | None:
        return self._given.get(name)

    def stripped(self, name: str) -> str | None:
        value = self.get(name)
        return None if value is None else value.strip()

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        return default if value is None else _flag(value, name)

    def number(
        self, name: str, minimum: int, maximum: int = MAX_INT64, default: int | None = None
    ) -> Any:
        value = self.get(name)
        return default if value is None else _number(value, name, minimum, maximum)

    def duration(self, name: str, default: str) -> int:
        return duration_ms(self._given.get(name, default), name)

    def timestamp_strategy(self) -> str:
        name = "startingOffsetsByTimestampStrategy"
        chosen = self._given.get(name, "error").strip().lower()
        if chosen not in {"error", "latest"}:
            raise InvalidOption(f"{name} must be 'error' or 'latest', not {chosen!r}")
        return chosen

    def consumer_strategy(self) -> SubscribeStrategy | SubscribePatternStrategy | AssignStrategy:
        names = ("subscribe", "subscribePattern", "assign")
        chosen = [name for name in names if name in self]
        if len(chosen) != 1:
            given = "none is" if not chosen else f"{' and '.join(chosen)} are"
            raise InvalidOption(f"set exactly one of the options {', '.join(names)}; {given} set")
        (name,) = chosen
        value = self._given[name].strip()
        if name == "assign":
            return AssignStrategy(partitions_from_json(value, name))
        if name == "subscribePattern" and value:
            return SubscribePatternStrategy(_pattern(value))
        if name == "subscribe":
            topics = [topic.strip() for topic in value.split(",")]
            if any(topics):
                return SubscribeStrategy(tuple(dict.fromkeys(filter(None, topics))))
        raise InvalidOption(f"the option {name!r} names nothing to read: {value!r}")

    def offset_range_limit(self, side: str, default: OffsetRangeLimit) -> OffsetRangeLimit:
        """Return the first that is set: one timestamp, timestamps per partition, or offsets."""
        whole = f"{side}Timestamp"
        if whole in self:
            return GlobalTimestampRangeLimit(_number(self._given[whole], whole, 0))
        by_time = f"{side}OffsetsByTimestamp"
        if by_time in self:
            return SpecificTimestampRangeLimit(timestamps_from_json(self._given[by_time], by_time))
        name = f"{side}Offsets"
        value = self.get(name)
        if value is None:
            return default
        word = value.strip().lower()
        if word in {"earliest", "latest"}:
            return GlobalOffsetRangeLimit(EARLIEST if word == "earliest" else LATEST)
        if not word.startswith("{"):
            raise InvalidOption(
                f"{name} must be earliest, latest or JSON of offsets by topic and partition, like"
                f' {{"topicA":{{"0":23,"1":-2}}}}, not {value!r:.200}'
            )
        return SpecificOffsetRangeLimit(offsets_from_json(value, name))

    def client(self, config_class: type[Any]) -> dict[str, Any]:
        """Convert the `kafka.` options to arguments of the client, and validate them."""
        if "bootstrap.servers" not in self.kafka:
            raise InvalidOption("the option kafka.bootstrap.servers must be given")
        kinds = _option_kinds()
        own = {option.name for option in list_options(config_class)}
        options = security_options(self.kafka)
        for name, value in self.kafka.items():
            if name in UNSUPPORTED_OPTIONS:
                raise InvalidOption(
                    f"the option {KAFKA_PREFIX}{name} is not supported: {UNSUPPORTED_OPTIONS[name]}"
                )
            if name in IGNORED_OPTIONS or is_security_property(name):
                continue
            argument = argument_name(name)
            if argument not in kinds or argument in OBJECT_OPTIONS:
                known = [KAFKA_PREFIX + kind.replace("_", ".") for kind in kinds]
                raise InvalidOption(
                    f"the option {KAFKA_PREFIX}{name} is not one of this client"
                    f"{did_you_mean(name, known)}"
                )
            # A job may pass the same options to its reader and its writer.
            if argument in own and _applies_to_codec(name, self.kafka):
                options[argument] = _value(value, kinds[argument], KAFKA_PREFIX + name)
        with reword_errors():
            make_config(config_class, options)
        return seal_secrets(options)


def _option_kinds() -> dict[str, str]:
    """Return the type of each option of both clients."""
    return {
        option.name: option.kind
        for config_class in (ConsumerConfig, ProducerConfig)
        for option in list_options(config_class)
    }


def duration_ms(text: str, what: str) -> int:
    """Convert a duration such as "90ms", "15m" or "2h" to milliseconds; the default unit is ms."""
    units = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000}
    units |= {"": 1, "h": 3_600_000, "d": 86_400_000}
    match = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text.strip().lower())
    if match is None or match[2] not in units:
        raise InvalidOption(
            f"{what} must be a duration such as '15m', '30s' or '500ms', not {text!r}"
        )
    return int(int(match[1]) * units[match[2]])


def _validate_batch_limits(
    starting_offsets: OffsetRangeLimit, ending_offsets: OffsetRangeLimit
) -> None:
    if starting_offsets == GlobalOffsetRangeLimit(LATEST):
        raise InvalidOption("startingOffsets can't be latest for batch queries")
    if ending_offsets == GlobalOffsetRangeLimit(EARLIEST):
        raise InvalidOption("endingOffsets can't be earliest for batch queries")
    for name, word, limit, wrong in (
        ("startingOffsets", "latest", starting_offsets, LATEST),
        ("endingOffsets", "earliest", ending_offsets, EARLIEST),
    ):
        for tp, offset in (
            limit.offsets.items() if isinstance(limit, SpecificOffsetRangeLimit) else ()
        ):
            if offset == wrong:
                raise InvalidOption(f"{name} for {tp} can't be {word} for batch queries")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidOption(
            f"subscribePattern is not a valid regular expression: {error} in {text!r}"
        ) from None
    return text


def _applies_to_codec(name: str, kafka: Mapping[str, str]) -> bool:
    """Return whether an option takes effect: a level of an unused codec does not, as in Java."""
    if RENAMED_OPTIONS.get(name) != "compression_level":
        return True
    return name == f"compression.{kafka.get('compression.type', 'none').strip()}.level"


def _value(text: str, kind: str, name: str) -> Any:
    text = text.strip()
    if kind.startswith("bool"):
        return _flag(text, name)
    if kind.startswith("int"):
        return _number(text, name, -MAX_INT64)
    if name == "kafka.acks" and re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        return int(text)
    return text


def _flag(text: str, name: str) -> bool:
    value = text.strip().lower()
    if value not in {"true", "false"}:
        raise InvalidOption(f"{name} must be true or false, not {text!r}")
    return value == "true"


def _number(text: str, name: str, minimum: int, maximum: int = MAX_INT64) -> int:
    try:
        value = int(text.strip())
    except ValueError:
        value = None
    if value is None or not minimum <= value <= maximum:
        raise InvalidOption(
            f"{name} must be a whole number from {minimum} to {maximum}, not {text!r}"
        )
    return value
