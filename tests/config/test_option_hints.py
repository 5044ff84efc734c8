"""Hints for unknown options: every option name of other Kafka clients has one."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import aiokafka
import pytest

from aiokafkawire import Consumer, Producer
from aiokafkawire.config import ConsumerConfig, ProducerConfig, list_options, option_hints
from aiokafkawire.errors import InvalidOption
from tests.docs.pages import ROOT

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

with warnings.catch_warnings():
    # It reads its own files in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PRODUCER = {option.name for option in list_options(ProducerConfig)}
CONSUMER = {option.name for option in list_options(ConsumerConfig)}
OURS: dict[type, set[str]] = {Producer: PRODUCER, Consumer: CONSUMER}

THEIRS: list[tuple[type, str]] = sorted(
    {
        *((Producer, name) for name in inspect.signature(aiokafka.AIOKafkaProducer).parameters),
        *((Consumer, name) for name in inspect.signature(aiokafka.AIOKafkaConsumer).parameters),
        *((Producer, name) for name in kafka.KafkaProducer.DEFAULT_CONFIG),
        *((Consumer, name) for name in kafka.KafkaConsumer.DEFAULT_CONFIG),
    },
    key=lambda pair: (pair[0].__name__, pair[1]),
)


def refusal(client: type, name: str, value: object = None) -> str:
    with pytest.raises(InvalidOption) as caught:
        client(**{"bootstrap_servers": "localhost:9092", name: value})
    return str(caught.value)


@pytest.mark.parametrize(("client", "name"), THEIRS)
def test_every_option_of_aiokafka_and_kafka_python_exists_or_has_a_hint(
    client: type, name: str
) -> None:
    if name in OURS[client]:
        return
    message = refusal(client, name)
    assert message.startswith(f"unknown option {name!r}; ")
    for meant in re.findall(r"did you mean '(\w+)'", message):
        # Not a name that merely looks alike.
        assert option_hints.RENAMED[name] == meant


@pytest.mark.parametrize(
    ("client", "name", "expected"),
    [
        (Consumer, "rebalance_timeout_ms", "did you mean 'max_poll_interval_ms'?"),
        (Consumer, "consumer_timeout_ms", "getmany(timeout_ms=…)"),
        (Consumer, "auto_commit", "did you mean 'enable_auto_commit'?"),
        (Producer, "bootstrap.servers", "did you mean 'bootstrap_servers'?"),
        (Producer, "linger.ms", "did you mean 'linger_ms'?"),
        (Producer, "queue.buffering.max.ms", "did you mean 'linger_ms'?"),
        (Producer, "Compression.Codec", "did you mean 'compression_type'?"),
        (Producer, "compression.zstd.level", "did you mean 'compression_level'?"),
        (Producer, "message-timeout-ms", "did you mean 'delivery_timeout_ms'?"),
        (Producer, "value.serializer", "keys and values are bytes"),
        (Producer, "serializer", "keys and values are bytes"),
        (Producer, "security.protocol", "security_protocol"),
        (Producer, "sasl.jaas.config", "TLS and SASL are not supported yet"),
        (Producer, "interceptor.classes", "wrap the calls of the client"),
        (Producer, "group_id", "unknown option 'group_id'; it is a consumer option"),
        (Producer, "auto.commit", "'enable_auto_commit' is a consumer option"),
        (Consumer, "acks", "unknown option 'acks'; it is a producer option"),
        (Consumer, "enable.auto.offset.store", "commit() and auto-commit"),
        (Consumer, "group.protocol", "classic protocol"),
        (Consumer, "stats_cb", "options have no callbacks"),
        (Consumer, "topics", "positional arguments"),
        (Consumer, "sesion_timeout_ms", "did you mean 'session_timeout_ms'?"),
    ],
)
def test_a_name_of_another_client_has_a_hint(client: type, name: str, expected: str) -> None:
    assert expected in refusal(client, name)


def test_renamed_options_exist_and_absent_ones_do_not() -> None:
    assert {*option_hints.RENAMED.values()} <= PRODUCER | CONSUMER
    for name in (*option_hints.RENAMED, *option_hints.ABSENT):
        assert name not in PRODUCER | CONSUMER, name
        assert re.fullmatch("[a-z0-9_]+", name), name
    assert not {*option_hints.RENAMED} & {*option_hints.ABSENT}


def test_hints_name_only_options_that_exist() -> None:
    """Any word in a hint that looks like an option with a unit must be an option."""
    texts = (*option_hints.ABSENT.values(), *dict(option_hints.FAMILIES).values())
    for text in texts:
        for word in re.findall(r"\b[a-z]+(?:_[a-z]+)+(?:_ms|_bytes)\b", text):
            assert word in PRODUCER | CONSUMER, (word, text)


OF_LIBRDKAFKA = [
    name.replace("_", ".")
    for name in (*option_hints.RENAMED, *option_hints.ABSENT)
    if name.replace("_", ".") in {
        "api.version.fallback.ms", "api.version.request", "auto.commit.enable",
        "batch.num.messages", "broker.address.family", "broker.address.ttl",
        "broker.version.fallback", "client.dns.lookup", "compression.codec", "debug",
        "delivery.report.only.error", "enable.auto.offset.store", "enable.gapless.guarantee",
        "enable.partition.eof", "enable.random.seed", "enable.sparse.connections",
        "fetch.error.backoff.ms", "fetch.message.max.bytes", "fetch.queue.backoff.ms",
        "fetch.wait.max.ms", "group.protocol", "group.protocol.type", "group.remote.assignor",
        "internal.termination.signal", "log.queue", "log.thread.name",
        "max.in.flight", "message.copy.max.bytes", "message.max.bytes",
        "message.send.max.retries", "message.timeout.ms", "metadata.broker.list",
        "offset.store.method", "plugin.library.paths", "produce.offset.report",
        "queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes",
        "queue.buffering.max.messages", "queue.buffering.max.ms", "queued.max.messages.kbytes",
        "queued.min.messages", "queuing.strategy", "receive.message.max.bytes",
        "reconnect.backoff.jitter.ms", "request.required.acks", "socket.blocking.max.ms",
        "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable",
        "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "socket.timeout.ms",
        "statistics.interval.ms", "sticky.partitioning.linger.ms", "topic.blacklist",
        "topic.metadata.propagation.max.ms", "topic.metadata.refresh.fast.cnt",
        "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
    }
]  # fmt: skip
"""Properties of librdkafka; a test checks that each exists there."""


@pytest.mark.parametrize("name", OF_LIBRDKAFKA)
def test_the_listed_properties_exist_in_librdkafka(name: str) -> None:
    given: dict[str, Any] = {name: "1", "group.id": "g"}
    message = ""
    try:
        confluent_kafka.Consumer(given)
    except confluent_kafka.KafkaException as error:
        message = str(error)
    assert "No such configuration property" not in message


def test_all_properties_of_librdkafka_have_a_hint() -> None:
    assert len(OF_LIBRDKAFKA) >= 55


PAGE = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("client", "there", "here"),
    [
        (client, there, here)
        for line in PAGE.splitlines()
        if line.startswith("| `") and len(cells := line.strip("|").split(" | ")) >= 2
        for there in re.findall(r"`([a-z0-9._]+)`", cells[0])
        for here in re.findall(r"`([a-z_]+)`", cells[1])
        for client, ours in OURS.items()
        if here in ours and there.replace(".", "_") not in PRODUCER | CONSUMER
        if there.replace(".", "_") not in {*dir(Producer), *dir(Consumer), "close", "purge"}
        if not there.startswith(("enable.", "fetch.error.", "topic.metadata.refresh.fast."))
    ],
)  # fmt: skip
def test_hints_agree_with_the_page_about_moving(client: type, there: str, here: str) -> None:
    assert f"did you mean {here!r}?" in refusal(client, there)


@pytest.mark.parametrize(
    "there",
    [
        word
        for line in PAGE[PAGE.index("### Properties of Java") :].splitlines()
        for word in re.findall(r"`([a-z0-9.]+)`", line.strip("|").split(" | ")[0])
    ],
)
def test_every_property_of_java_on_the_page_has_a_hint(there: str) -> None:
    for client in OURS:
        assert "; " in refusal(client, there)
