"""The constructors reject a value of the wrong type, for every option of every client."""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire import Broker, Consumer, Producer
from aiokafkawire.broker import BrokerOptions
from aiokafkawire.config import ConsumerOptions, ProducerOptions
from aiokafkawire.errors import InvalidOption
from aiokafkawire.group import Assignor
from aiokafkawire.kafka07 import Client, Kafka07Options

SERVERS = "localhost:9092"

BROKER_ARGUMENTS: dict[str, Any] = {
    "nodes": int,
    "data_dir": str | Path | None,
    "host": str,
    "advertised_host": str | None,
    "ports": Sequence[int] | None,
    "racks": Sequence[str | None] | None,
    "kafka07_port": int | None,
}


def list_options(options: type) -> dict[str, Any]:
    return typing.get_type_hints(options)


CLIENTS: dict[str, tuple[Callable[[dict[str, Any]], object], dict[str, Any]]] = {
    "Producer": (
        lambda options: Producer(**{"bootstrap_servers": SERVERS, **options}),
        list_options(ProducerOptions),
    ),
    "Consumer": (
        lambda options: Consumer("orders", **{"bootstrap_servers": SERVERS, **options}),
        list_options(ConsumerOptions),
    ),
    "Broker": (lambda options: Broker(**options), BROKER_ARGUMENTS | list_options(BrokerOptions)),
    "kafka07.Client": (
        lambda options: Client(options.pop("server", SERVERS), **options),
        {"server": str, **list_options(Kafka07Options)},
    ),
}

CASES = [(client, name) for client, (_, hints) in CLIENTS.items() for name in hints]

NUMBERS = st.one_of(
    st.integers(), st.sampled_from([-2, -1, 0, 1, 2, 2**15, 2**31 - 1, 2**31, 2**63])
)

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        NUMBERS,
        st.floats(),
        st.complex_numbers(),
        st.text(max_size=8),
        st.sampled_from(["true", "false", "1", "5", "all", "none", "range", "latest", SERVERS, ""]),
        st.binary(max_size=4),
        st.builds(object),
        st.just(print),
        st.just(Path("here")),
    ),
    lambda values: st.one_of(
        st.lists(values, max_size=2),
        st.lists(values, max_size=2).map(tuple),
        st.sets(st.integers(), max_size=2),
        st.dictionaries(st.text(max_size=3), values, max_size=2),
    ),
    max_leaves=3,
)


def fits(hint: Any, value: object) -> bool:
    """Return True if a value has exactly the declared type of an option."""
    origin = typing.get_origin(hint)
    if origin in {typing.Union, types.UnionType}:
        return any(fits(kind, value) for kind in typing.get_args(hint))
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in typing.get_args(hint))
    if origin is typing.Required:
        return fits(typing.get_args(hint)[0], value)
    if origin is Sequence:
        (inner,) = typing.get_args(hint)
        return isinstance(value, list | tuple) and all(fits(inner, one) for one in value)
    if origin is Callable:
        return callable(value)
    if hint is Any:  # an assignor
        return isinstance(value, str | type | Assignor)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    # `os.PathLike[str]` is no class.
    return isinstance(value, typing.get_origin(hint) or hint)


LENIENT: Mapping[str, tuple[type, ...]] = {
    "bootstrap_servers": (set, frozenset),
    "partition_assignment_strategy": (str,),
}
"""Types that are accepted in addition to the declared ones."""


@pytest.mark.parametrize(("client", "name"), CASES)
@settings(max_examples=40)  # there are 200 options
@given(value=VALUES)
def test_a_value_of_the_wrong_type_is_rejected(client: str, name: str, value: Any) -> None:
    make, hints = CLIENTS[client]
    if not fits(hints[name], value) and not isinstance(value, LENIENT.get(name, ())):
        with pytest.raises(InvalidOption, match=name):
            make({name: value})
        return
    # What fits may still be out of range, or contradict the defaults of other options.
    with suppress(InvalidOption):
        make({name: value})


@pytest.mark.parametrize(("client", "name"), CASES)
def test_a_number_has_a_lower_limit_and_cannot_be_a_bool(client: str, name: str) -> None:
    make, hints = CLIENTS[client]
    if not fits(hints[name], 1):
        return
    for wrong in (-3, True, False, 1.0, float("nan"), "1", [1]):
        with pytest.raises(InvalidOption, match=name):
            make({name: wrong})


@pytest.mark.parametrize(("client", "name"), CASES)
def test_a_switch_must_be_a_bool(client: str, name: str) -> None:
    make, hints = CLIENTS[client]
    if not fits(hints[name], True):
        return
    for wrong in (0, 1, "false", "true", "", [], float("nan")):
        with pytest.raises(InvalidOption, match=f"{name} must be True or False"):
            make({name: wrong})


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (("a,b",), r"'a,b' is not a valid topic name: .* as an argument of its own: 'a', 'b'$"),
        (("a b",), "'a b' is not a valid topic name"),
        (("orders", "b\xe9b\xe9"), "'b\xe9b\xe9' is not a valid topic name"),
        (("..",), r"'\.\.' is not a valid topic name"),
        (("^orders-.*",), r"; pass a regular expression as subscribe\(pattern=…\)"),
        (("localhost:9092",), "; pass brokers as bootstrap_servers='host:port'"),
    ],
)
def test_a_topic_name_must_be_valid(topics: tuple[str, ...], expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        Consumer(*topics, bootstrap_servers=SERVERS)
    reader = Consumer(bootstrap_servers=SERVERS)
    with pytest.raises(ValueError, match=expected) as caught:
        reader.subscribe(topics)
    assert type(caught.value) is ValueError


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (["a", "b"], "; pass each topic as an argument of its own: 'a', 'b'"),
        ({"bootstrap.servers": SERVERS}, "; options are keyword arguments"),
        (5, "not 5$"),
    ],
)
def test_the_error_of_an_invalid_topic_argument_explains_it(topic: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        Consumer(topic, bootstrap_servers=SERVERS)


@pytest.mark.parametrize("client", ["Producer", "Consumer"])
@pytest.mark.parametrize("release", ["new", "0.7", "2", "2.x"])
def test_an_unknown_release_is_rejected(client: str, release: str) -> None:
    with pytest.raises(InvalidOption, match="api_version"):
        CLIENTS[client][0]({"api_version": release})


NUMBERS: dict[str, Callable[[Consumer, Producer, Any], Awaitable[object]]] = {
    "getone timeout_ms": lambda consumer, _, value: consumer.getone(timeout_ms=value),
    "getmany timeout_ms": lambda consumer, _, value: consumer.getmany(timeout_ms=value),
    "getmany max_records": lambda consumer, _, value: consumer.getmany(max_records=value),
    "Consumer.ping timeout_ms": lambda consumer, _, value: consumer.ping(value),
    "Producer.ping timeout_ms": lambda _, producer, value: producer.ping(value),
    "flush timeout_s": lambda _, producer, value: producer.flush(value),
    "send partition": lambda _, producer, value: producer.send("t", partition=value),
    "send timestamp_ms": lambda _, producer, value: producer.send("t", timestamp_ms=value),
}


@pytest.mark.parametrize("argument", NUMBERS)
async def test_a_numeric_argument_of_a_wrong_type_is_named(argument: str) -> None:
    call, name = NUMBERS[argument], argument.split()[1]
    kind = "a number" if name.startswith("timeout") else "a whole number or None"
    async with Broker() as broker:
        await broker.create_topic("t")
        servers = broker.bootstrap_servers
        async with (
            Consumer("t", bootstrap_servers=servers) as reader,
            Producer(bootstrap_servers=servers) as writer,
        ):
            for wrong in ("5", b"5", True, [1]):
                with pytest.raises(TypeError) as caught:
                    await call(reader, writer, wrong)
                assert str(caught.value) == f"{name} must be {kind}, not {wrong!r}"
            with pytest.raises((TypeError, ValueError), match=f"^{name} must be {kind}, not nan"):
                await call(reader, writer, float("nan"))
