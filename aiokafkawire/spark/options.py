"""The options of the data source: those of Spark's Kafka connector, by the same names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.config import (
    ConsumerConfig,
    ProducerConfig,
    make,
    nearest,
    options_of,
)
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
"""All but those of the client, which begin with `kafka.`."""

SPARK_OPTIONS = frozenset({"path", "checkpointlocation", "queryname"})
"""Spark hands these to every data source."""

ENDING_OPTIONS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

UNSUPPORTED_OPTIONS = {
    "auto.offset.reset": "where to begin is said by startingOffsets",
    "key.deserializer": "keys are bytes: cast the column",
    "value.deserializer": "values are bytes: cast the column",
    "key.serializer": "keys are bytes or strings: cast the column",
    "value.serializer": "values are bytes or strings: cast the column",
    "enable.auto.commit": "offsets are committed when a micro-batch is done",
    "interceptor.classes": "interceptors may change what is read",
    "transactional.id": "with exactlyOnce each task has its own, which begins with txnAppId",
}

IGNORED_OPTIONS = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.id",  # the data source's own affair, see `ReadOptions.group_id`
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
"""Settings of Java's clients that change no row, and that this client has no use for."""

SECURITY_OPTIONS = ("security.protocol", "sasl.", "ssl.")
"""Settings, or the beginnings of their names, that ask for more than plaintext."""

TRANSACTION_TIMEOUT_MS = 900_000
"""Of the exactly-once sink, whose transactions are open as long as all tasks of a batch take: what
brokers allow at most unless told otherwise."""

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SubscribeStrategy:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePatternStrategy:
    """All partitions of the topics in whose name the pattern is found."""

    pattern: str


@dataclass(frozen=True, slots=True)
class AssignStrategy:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a query reads and how; `client` are the arguments of `Consumer`."""

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
        """Raises `InvalidOption` for what is unknown, missing, out of range or contradictory."""
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
        least = options.number("minOffsetsPerTrigger", 0)
        most = options.number("maxOffsetsPerTrigger", 1)
        if streaming and None not in {least, most} and least > most:
            raise InvalidOption(
                f"minOffsetsPerTrigger, {least}, is higher than maxOffsetsPerTrigger, {most}"
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
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
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
    """How what was written before is known again; as in Delta Lake's idempotent writes.

    `app_id` names the sink; None takes the id of the stream. `version` is that of a batch query,
    None for a stream, whose batches Spark counts. Markers are offsets of `marker_topic`.
    """

    app_id: str | None
    version: int | None
    marker_topic: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go; `client` are the arguments of `Producer`, `exactly_once` is None for at
    least once."""

    topic: str | None
    client: Mapping[str, Any] = field(repr=False)
    exactly_once: ExactlyOnceOptions | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
        """Raises `InvalidOption` for what is unknown, missing or out of range."""
        options = _OptionReader(given)
        topic = options.stripped("topic")
        exactly_once = _exactly_once(options, topic, streaming=streaming)
        client = options.client(ProducerConfig)
        if exactly_once is not None:
            client = {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, **client}
            with reword_errors():
                make(ProducerConfig, {**client, "transactional_id": "checked"})
        return cls(topic, client, exactly_once)


def _exactly_once(
    options: _OptionReader, topic: str | None, *, streaming: bool
) -> ExactlyOnceOptions | None:
    app_id, version = options.stripped("txnAppId"), options.number("txnVersion", 0)
    marker_topic = options.stripped("txnMarkerTopic") or topic
    if not options.flag("exactlyOnce", False):
        for name in ("txnAppId", "txnVersion", "txnMarkerTopic"):
            if name in options:
                raise InvalidOption(f"{name} is for exactlyOnce, which must be true")
        return None
    if app_id == "":
        raise InvalidOption("txnAppId is empty")
    if streaming and version is not None:
        raise InvalidOption("txnVersion is for batch queries: Spark counts those of a stream")
    if not streaming and (app_id is None or version is None):
        raise InvalidOption(
            "exactlyOnce in a batch query needs txnAppId, a name for the job, and txnVersion, a"
            " number that grows: else nobody could tell a repeat from new rows"
        )
    if not marker_topic:
        raise InvalidOption(
            "exactlyOnce needs the option topic or, where rows have their own, txnMarkerTopic: a"
            " topic that is there, and whose offsets keep what was written"
        )
    return ExactlyOnceOptions(app_id, version, marker_topic)


class _OptionReader:
    """Options as Spark hands them over: text, by names without regard to case."""

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
                meant = nearest(name, OPTION_NAMES)
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
        self, name: str, least: int, most: int = MAX_INT64, default: int | None = None
    ) -> Any:
        value = self.get(name)
        return default if value is None else _number(value, name, least, most)

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
            found = "none is" if not chosen else f"{' and '.join(chosen)} are"
            raise InvalidOption(f"one of the options {', '.join(names)} must be given; {found}")
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
        """The first that is given of a time for all, times, and offsets."""
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
                f"{name} must be earliest, latest or JSON of offsets by topic and partition, as"
                f' {{"topicA":{{"0":23,"1":-2}}}}, not {value!r:.200}'
            )
        return SpecificOffsetRangeLimit(offsets_from_json(value, name))

    def client(self, config_class: type[Any]) -> dict[str, Any]:
        """The client's arguments that the `kafka.` options stand for, checked."""
        if "bootstrap.servers" not in self.kafka:
            raise InvalidOption("the option kafka.bootstrap.servers must be given")
        kinds = _option_kinds()
        own = {option.name for option in options_of(config_class)}
        found: dict[str, Any] = {}
        for name, value in self.kafka.items():
            if name in UNSUPPORTED_OPTIONS:
                raise InvalidOption(
                    f"the option {KAFKA_PREFIX}{name} is not supported: {UNSUPPORTED_OPTIONS[name]}"
                )
            if name in IGNORED_OPTIONS or _is_plaintext(name, value):
                continue
            if name.startswith(SECURITY_OPTIONS):
                raise InvalidOption(
                    f"the option {KAFKA_PREFIX}{name} is not supported: connections are plaintext,"
                    " without TLS and SASL"
                )
            argument = argument_name(name)
            if argument not in kinds or argument in OBJECT_OPTIONS:
                known = [KAFKA_PREFIX + kind.replace("_", ".") for kind in kinds]
                raise InvalidOption(
                    f"the option {KAFKA_PREFIX}{name} is not one of this client"
                    f"{nearest(name, known)}"
                )
            # What one side of a job needs may be given to both.
            if argument in own and _applies_to_codec(name, self.kafka):
                found[argument] = _value(value, kinds[argument], KAFKA_PREFIX + name)
        with reword_errors():
            make(config_class, found)
        return found


def _option_kinds() -> dict[str, str]:
    """The options of both clients, and what kind each is of."""
    return {o.name: o.kind for c in (ConsumerConfig, ProducerConfig) for o in options_of(c)}


def duration_ms(text: str, what: str) -> int:
    """Milliseconds in "90", "90ms", "15m", "2h" …, as Spark reads times; without a unit, ms."""
    units = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000}
    units |= {"": 1, "h": 3_600_000, "d": 86_400_000}
    found = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text.strip().lower())
    if found is None or found[2] not in units:
        raise InvalidOption(f"{what} must be a time such as '15m', '30s' or '500ms', not {text!r}")
    return int(int(found[1]) * units[found[2]])


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
        raise InvalidOption(f"subscribePattern is no pattern: {error} in {text!r}") from None
    return text


def _is_plaintext(name: str, value: str) -> bool:
    return name == "security.protocol" and value.strip().upper() == "PLAINTEXT"


def _applies_to_codec(name: str, kafka: Mapping[str, str]) -> bool:
    """A level for another codec than the one that is used says nothing, as in Java."""
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


def _number(text: str, name: str, least: int, most: int = MAX_INT64) -> int:
    try:
        value = int(text.strip())
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise InvalidOption(f"{name} must be a whole number from {least} to {most}, not {text!r}")
    return value
