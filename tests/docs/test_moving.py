"""docs/moving.md lists exactly the names of other clients that this client does not have."""

from __future__ import annotations

import fnmatch
import inspect
import re
import warnings
from typing import Any

import aiokafka
import pytest

import aiokafkawire
from aiokafkawire import Consumer, Producer, errors
from aiokafkawire.config import ConsumerConfig, ProducerConfig, list_options

from .pages import ROOT

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

with warnings.catch_warnings():
    # It reads its own files in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PAGE = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")

CODE = re.compile(r"`([^`]+)`")


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_") and name[0].islower()}


def arguments(of: type) -> set[str]:
    return {name for name in inspect.signature(of).parameters if name not in {"self", "topics"}}


PRODUCER = public(Producer) | {option.name for option in list_options(ProducerConfig)}
CONSUMER = public(Consumer) | {option.name for option in list_options(ConsumerConfig)}

OTHERS: dict[tuple[str, str], tuple[set[str], set[str]]] = {
    ("From aiokafka", "AIOKafkaProducer"): (
        public(aiokafka.AIOKafkaProducer) | arguments(aiokafka.AIOKafkaProducer),
        PRODUCER,
    ),
    ("From aiokafka", "AIOKafkaConsumer"): (
        public(aiokafka.AIOKafkaConsumer) | arguments(aiokafka.AIOKafkaConsumer),
        CONSUMER,
    ),
    ("From confluent-kafka", "Producer"): (public(confluent_kafka.Producer), PRODUCER),
    ("From confluent-kafka", "Consumer"): (public(confluent_kafka.Consumer), CONSUMER),
    ("From kafka-python", "KafkaProducer"): (
        public(kafka.KafkaProducer) | {*kafka.KafkaProducer.DEFAULT_CONFIG},
        PRODUCER,
    ),
    ("From kafka-python", "KafkaConsumer"): (
        public(kafka.KafkaConsumer) | {*kafka.KafkaConsumer.DEFAULT_CONFIG},
        CONSUMER,
    ),
}


def section(text: str, heading: str) -> str:
    """Return the text under a heading, up to the next heading of the same level."""
    level = heading.partition(" ")[0]
    found = f"\n{text}".split(f"\n{heading}\n")
    assert len(found) == 2, heading
    return re.split(rf"\n{level} ", found[1])[0]


def rows(text: str) -> list[tuple[str, str]]:
    """Return the first two cells of each table row in a text, without the table heads."""
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [(row[0], row[1]) for row in cells]


def table_of(library: str, name: str) -> list[tuple[str, str]]:
    return rows(section(section(PAGE, f"## {library}"), f"### {name}"))


@pytest.mark.parametrize(("library", "name"), OTHERS)
def test_every_name_is_supported_or_has_a_row(library: str, name: str):
    theirs, ours = OTHERS[library, name]
    listed = [word for row in table_of(library, name) for word in CODE.findall(row[0])]
    missing = {
        one
        for one in theirs - ours
        if not any(fnmatch.fnmatchcase(one, pattern) for pattern in listed)
    }
    assert not missing


@pytest.mark.parametrize(("library", "name"), OTHERS)
def test_names_of_every_row_exist(library: str, name: str):
    theirs, ours = OTHERS[library, name]
    for there, here in table_of(library, name):
        for word in CODE.findall(there):
            assert fnmatch.filter(theirs, word), word
            assert here != "none" or word not in ours, f"{word} exists here: its row is wrong"
        words = CODE.findall(here)
        assert {*words} <= ours, words
        assert words or here == "none"


@pytest.mark.parametrize(
    ("library", "name"),
    [("From confluent-kafka", "Properties of librdkafka"), ("From Java", "Properties of Java")],
)
def test_properties_map_to_options(library: str, name: str):
    ours = PRODUCER | CONSUMER
    for there, here in table_of(library, name):
        words = CODE.findall(here)
        assert {*words} <= ours, words
        assert words or here == "none"
        for word in CODE.findall(there):
            option = word.replace(".", "_")
            assert here != "none" or option not in ours, f"{option} exists: its row is wrong"


def test_librdkafka_has_the_properties():
    properties = [
        word
        for there, _ in table_of("From confluent-kafka", "Properties of librdkafka")
        for word in CODE.findall(there)
        if "*" not in word and not word.endswith("_cb") and word not in {"logger", "on_delivery"}
    ]
    values: dict[str, Any] = {
        "bootstrap.servers": "h:1",
        "metadata.broker.list": "h:1",
        "compression.codec": "none",
        "compression.type": "none",
        "partitioner": "random",
        "security.protocol": "plaintext",
        "debug": "",
        "logger": None,
        "enable.auto.offset.store": True,
        "enable.partition.eof": False,
        "delivery.report.only.error": False,
    }
    for word in properties:
        for make in (confluent_kafka.Producer, confluent_kafka.Consumer):
            try:
                make({word: values.get(word, 1_000), "group.id": "g"})
            except confluent_kafka.KafkaException as error:
                text = str(error)
                assert "No such configuration property" not in text, word


def test_errors_of_aiokafka_exist_and_map_to_errors():
    for there, here in rows(section(section(PAGE, "## From aiokafka"), "### Errors of aiokafka")):
        for word in CODE.findall(there):
            known = hasattr(aiokafka.errors, word)
            assert known or word == "send", word
        for word in CODE.findall(here):
            assert word in errors.__all__ or word in {"code", "name"}, word


def test_names_of_the_examples_exist():
    for word in ("Records", "RebalanceListener", "TopicPartition", "OffsetAndMetadata", "Delivery"):
        assert word in aiokafkawire.__all__


def test_defaults_that_differ_from_aiokafka_are_correct():
    page = section(PAGE, "## From aiokafka")
    theirs = {
        name: parameter.default
        for of in (aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer)
        for name, parameter in inspect.signature(of).parameters.items()
    }
    ours = {option.name: option.default for option in list_options(ProducerConfig)}
    ours |= {option.name: option.default for option in list_options(ConsumerConfig)}
    ours["session_timeout_ms"] = 45_000
    for name, unit in (
        ("linger_ms", 1),
        ("session_timeout_ms", 1000),
        ("request_timeout_ms", 1000),
    ):
        seconds = " s" if unit == 1000 else ""
        pair = f"{ours[name] // unit}{seconds} ({theirs[name] // unit}{seconds})"
        assert f"`{name}` {pair}" in page, name
    assert f"`max_poll_records` {ours['max_poll_records']} (no limit)" in page
    assert theirs["max_poll_records"] is None
    assert not theirs["enable_idempotence"]
    (assignor,) = theirs["partition_assignment_strategy"]
    assert f"range and cooperative-sticky ({assignor.name})" in page
    assert ours["partition_assignment_strategy"] == ("range", "cooperative-sticky")
