"""Hints for names of other Kafka clients."""

from __future__ import annotations

import inspect
import itertools
import pydoc
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import aiokafka.errors
import pytest

import aiokafkawire
from aiokafkawire import Consumer, OffsetAndTimestamp, Producer, Record, RecordMetadata, kafka07
from aiokafkawire.config import name_hints

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest.importorskip("confluent_kafka.admin")

with warnings.catch_warnings():
    # It reads its own files in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

SERVERS = "localhost:9092"

ABSENT: dict[Any, Any] = {
    Producer: name_hints.PRODUCER_HINTS,
    Consumer: name_hints.CONSUMER_HINTS,
}


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


# --- calls of a client ---


@pytest.mark.parametrize(
    ("client", "name"), [(client, name) for client, absent in ABSENT.items() for name in absent]
)
def test_a_method_of_another_client_has_a_hint(client: Any, name: str) -> None:
    for of in (client, client(bootstrap_servers=SERVERS)):
        assert not hasattr(of, name)
        with pytest.raises(AttributeError) as caught:
            getattr(of, name)
        assert str(caught.value) == (
            f"{client.__name__!r} object has no attribute {name!r}: {ABSENT[client][name]}"
        )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Producer, aiokafka.AIOKafkaProducer),
        (Consumer, aiokafka.AIOKafkaConsumer),
        (Producer, kafka.KafkaProducer),
        (Consumer, kafka.KafkaConsumer),
        (Producer, confluent_kafka.Producer),
        (Consumer, confluent_kafka.Consumer),
    ],
)
def test_every_method_of_other_clients_exists_or_has_a_hint(ours: Any, theirs: type) -> None:
    client = ours(bootstrap_servers=SERVERS)
    for name in public(theirs):
        if not name[0].islower() or not callable(getattr(theirs, name)):
            continue
        if name in dir(client):
            continue
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': \w"):
            getattr(client, name)


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_dir_omits_names_with_a_hint(client: Any) -> None:
    made = client(bootstrap_servers=SERVERS)
    assert not {*ABSENT[client]} & {*dir(client), *dir(made)}
    assert "start" in dir(client)
    assert "start" in dir(made)
    shown = pydoc.render_doc(client, renderer=pydoc.plaintext)
    assert not {*ABSENT[client]} & {*re.findall(r"(?m)^ \|  (\w+)", shown)}
    assert "start" in re.findall(r"(?m)^ \|  (?:async )?(\w+)", shown)


def test_an_unknown_name_raises_a_plain_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^'Producer' object has no attribute 'sned'$"):
        _ = Producer(bootstrap_servers=SERVERS).sned  # type: ignore[attr-defined]


def test_a_subclass_can_define_a_name_with_a_hint() -> None:
    class Own(Producer):
        def close(self) -> str:
            return "closed"

    own = Own(bootstrap_servers=SERVERS)
    assert own.close() == "closed"
    assert "close" in dir(own)
    own.poll = 1  # type: ignore[attr-defined]
    assert own.poll == 1  # type: ignore[attr-defined]


def test_the_clients_have_no_getattr() -> None:
    """`__getattr__` would slow down every lookup, such as that of `send` (3.11)."""
    for hot in (Producer, Consumer, Record, RecordMetadata, aiokafkawire.Delivery):
        assert not any("__getattr__" in vars(base) for base in hot.__mro__)


@pytest.mark.parametrize(
    "made",
    [
        Record("orders", 0, 7),
        RecordMetadata("orders", 0, 7, 1_000),
        OffsetAndTimestamp(7, 1_000),
    ],
)
def test_timestamp_has_a_hint_to_timestamp_ms(made: Any) -> None:
    with pytest.raises(AttributeError, match="use timestamp_ms, milliseconds since 1970"):
        _ = made.timestamp
    assert not hasattr(made, "timestamp")
    assert hasattr(made, "timestamp_ms")


# --- arguments ---


@pytest.mark.parametrize("given", [{"bootstrap.servers": SERVERS}, SERVERS, [SERVERS]])
def test_a_producer_takes_keyword_arguments(given: Any) -> None:
    text = r"keyword arguments only, not a \w+: Producer\(bootstrap_servers="
    with pytest.raises(TypeError, match=text):
        Producer(given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda reader: reader.getmany(1_000), "timeout_ms=1000, .*max_records=1000"),
        (lambda reader: reader.getmany(0.5), "timeout_ms=0.5"),
        (lambda reader: reader.getone(5_000), "timeout_ms=5000"),
    ],
)
async def test_a_positional_number_explains_the_keywords(
    call: Callable[[Any], Any], message: str
) -> None:
    async with (
        aiokafkawire.Broker() as broker,
        Consumer("orders", bootstrap_servers=broker.bootstrap_servers) as reader,
    ):
        with pytest.raises(TypeError, match=message):
            await call(reader)


# --- the package ---


@pytest.mark.parametrize("name", name_hints.MODULE_HINTS)
def test_a_class_of_another_package_has_a_hint(name: str) -> None:
    hint = name_hints.MODULE_HINTS[name]
    assert not hasattr(aiokafkawire, name)
    for module in (aiokafkawire, aiokafkawire.errors):
        with pytest.raises(AttributeError) as caught:
            getattr(module, name)
        message = f"module {module.__name__!r} has no attribute {name!r}: {hint}"
        assert str(caught.value) == message
        with pytest.raises(ImportError) as refused:
            exec(f"from {module.__name__} import {name}", {})
        assert str(refused.value) == message


def test_errors_of_other_packages_have_hints() -> None:
    """All errors that an application is likely to catch."""
    page = Path(__file__).parents[1] / "docs" / "moving.md"
    table = page.read_text(encoding="utf-8").partition("| `KafkaError` | `KafkaError` |")[2]
    lines = itertools.takewhile(bool, table.strip().splitlines())
    theirs = {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    explained = theirs & {*dir(aiokafka.errors)}
    assert {"CommitFailedError", "KafkaConnectionError"} <= explained
    assert explained <= {*name_hints.MODULE_HINTS} | {*aiokafkawire.__all__}


def test_an_unknown_error_name_raises_a_plain_error() -> None:
    assert not hasattr(aiokafkawire.errors, "Nothing")
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from aiokafkawire.errors import Nothing", {})
    with pytest.raises(ModuleNotFoundError):
        exec("import aiokafkawire.errors.nothing", {})


def test_classes_of_other_packages_exist_or_have_hints() -> None:
    kinds = {
        name
        for package in (aiokafka, aiokafka.admin, kafka, confluent_kafka)
        for name in public(package)
        if isinstance(getattr(package, name), type)
    }
    kinds |= {"AdminClient", "NewTopic"}
    unknown = kinds - {*aiokafkawire.__all__} - {*name_hints.MODULE_HINTS}
    # What only an admin client or a share consumer has to do with, and details.
    assert unknown <= {
        "ConcurrentModificationException", "ConsumerGroupState",
        "ConsumerGroupTopicPartitions", "ConsumerGroupType", "DefaultSerializer",
        "DeserializingShareConsumer", "ElectionType", "IllegalStateException", "IsolationLevel",
        "JsonSerializer", "Messages", "Node", "RecordsToDelete", "ThrottleEvent",
        "TopicCollection", "TopicPartitionInfo", "TopicPartitionReplica", "Uuid",
    }  # fmt: skip


def test_hints_mention_existing_names() -> None:
    for name, hint in name_hints.MODULE_HINTS.items():
        if hint.startswith("use "):
            words = hint.removeprefix("use ").replace(" or ", ", ").partition(";")[0].split(", ")
            assert {*words} <= {*aiokafkawire.__all__}, name


@pytest.mark.parametrize("name", aiokafkawire.errors.__all__)
def test_every_error_is_importable_from_the_package(name: str) -> None:
    assert getattr(aiokafkawire, name) is getattr(aiokafkawire.errors, name)
    assert name in aiokafkawire.__all__


@pytest.mark.parametrize(
    "reached",
    [
        "aiokafkawire.config.ProducerOptions",
        "aiokafkawire.config.ConsumerOptions",
        "aiokafkawire.errors.BufferFull",
        "aiokafkawire.kafka07.Client",
        "aiokafkawire.testing",
    ],
)
def test_submodules_are_attributes_of_the_package(reached: str) -> None:
    code = f"import aiokafkawire; help({reached})"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Help on" in ran.stdout


# --- signatures ---


@pytest.mark.parametrize(
    "called",
    [
        Producer,
        Consumer,
        kafka07.Client,
        aiokafkawire.end_detached_transaction,
        aiokafkawire.Broker,
    ],
)
def test_no_public_signature_has_a_private_name(called: Any) -> None:
    assert not [name for name in inspect.signature(called).parameters if name.startswith("_")]
    assert "_runtime" not in pydoc.render_doc(called, renderer=pydoc.plaintext)


def test_a_private_name_is_not_an_option() -> None:
    with pytest.raises(aiokafkawire.InvalidOption, match="unknown option '_runtime'"):
        Producer(bootstrap_servers=SERVERS, _runtime=None)  # type: ignore[call-arg]
