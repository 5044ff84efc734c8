"""pytest plugin with an embedded Kafka broker as fixture.

It is loaded in every test session where the package is installed, so it imports the package only
when a test needs a broker.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from aiokafkawire._about import about

if TYPE_CHECKING:
    from aiokafkawire.testing.kafka_broker import KafkaBroker

__all__ = ("kafka_broker", "kafka_broker_sasl", "kafka_broker_tls", "kafka_topic")

SCOPES: dict[str, type[pytest.Collector | pytest.Item]] = {
    "function": pytest.Item,
    "module": pytest.Module,
    "session": pytest.Session,
}

MARKERS = (
    "kafka_broker(nodes=1, **options): the arguments of the embedded broker of this test",
    "kafka_topic(partitions=1, **options): the arguments of create_topic for this test's topic",
)

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SASL_USERS = {"alice": "alice-secret"}
"""The users of `kafka_broker_sasl`."""

BROKER_FIXTURES = ("kafka_broker", "kafka_broker_tls", "kafka_broker_sasl")

MAX_NAME_CHARACTERS = 200
"""Limit of the test name in a topic name: topic names have at most 249 characters."""

_numbers = itertools.count(1)
_shared: pytest.StashKey[list[KafkaBroker]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "kafka_broker_scope",
        "how long a kafka_broker lives: function (a new one for each test), module or session",
        default="function",
    )
    parser.addini(
        "kafka_broker_options",
        "arguments of the kafka_broker, one `name = value` a line",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_report_header() -> str:
    return str(about())


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    scope = config.getini("kafka_broker_scope")
    if scope not in SCOPES:
        raise pytest.UsageError(f"kafka_broker_scope must be one of {', '.join(SCOPES)}: {scope!r}")
    return scope


def _options(config: pytest.Config) -> dict[str, Any]:
    """Return the broker arguments from the pytest configuration."""
    options: dict[str, Any] = {}
    for line in config.getini("kafka_broker_options"):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (equals and name.isidentifier()):
            raise pytest.UsageError(f"kafka_broker_options needs lines of `name = value`: {line!r}")
        options[name] = _value(value)
    return options


def _value(text: str) -> Any:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


@pytest.fixture(scope=_scope)
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """Embedded Kafka broker in a background thread; see `aiokafkawire.testing.KafkaBroker`.

    `kafka_broker_scope` sets its scope; `kafka_broker_options` and the marker `kafka_broker` set
    its arguments. A shared broker is reset after each test that uses it.
    """
    yield from _serve(request)


@pytest.fixture(scope=_scope)
def kafka_broker_tls(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """Like `kafka_broker`, with TLS: its listener is SSL, with a certificate made for it.

    `client_options()` returns the options of clients, `authority.pem` the certificate to trust.
    """
    yield from _serve(request, tls=True)


@pytest.fixture(scope=_scope)
def kafka_broker_sasl(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """Like `kafka_broker`, with SASL: its listener is SASL_PLAINTEXT.

    The user alice has the password alice-secret for PLAIN and SCRAM; OAUTHBEARER accepts tokens of
    `make_unsecured_token`. `client_options()` returns the options of clients.
    """
    from aiokafkawire.broker import BrokerSasl  # noqa: PLC0415

    yield from _serve(request, sasl=BrokerSasl(users=SASL_USERS, mechanisms=SASL_MECHANISMS))


def _serve(request: pytest.FixtureRequest, **security: Any) -> Iterator[KafkaBroker]:
    from aiokafkawire.testing.kafka_broker import KafkaBroker  # noqa: PLC0415

    options = security | _options(request.config)
    if request.scope != "session":
        marker = request.node.get_closest_marker("kafka_broker")
        options |= marker.kwargs if marker is not None else {}
    with KafkaBroker(**options) as broker:
        if request.scope != "function":
            request.node.stash.setdefault(_shared, []).append(broker)
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """Name of a topic that is created for this test on its broker.

    That is `kafka_broker`, `kafka_broker_tls` or `kafka_broker_sasl`, whichever the test uses.

    The marker `kafka_topic` takes the arguments of `KafkaBroker.create_topic`.
    """
    marker = request.node.get_closest_marker("kafka_topic")
    arguments = dict(marker.kwargs) if marker is not None else {}
    name = arguments.pop("name", None)
    if name is None:
        words = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:MAX_NAME_CHARACTERS]
        name = f"{words or 'test'}-{next(_numbers)}"
    used = [each for each in BROKER_FIXTURES if each in request.fixturenames] or BROKER_FIXTURES[:1]
    if len(used) > 1:
        raise pytest.UsageError(
            f"kafka_topic cannot choose between {' and '.join(used)}: call create_topic() of one"
        )
    broker: KafkaBroker = request.getfixturevalue(used[0])
    return broker.create_topic(name, **arguments)


def _shared_node(item: pytest.Item) -> pytest.Collector | pytest.Item | None:
    """Return the node that holds a broker shared by several tests."""
    scope = item.config.getini("kafka_broker_scope")
    return item.getparent(SCOPES[scope]) if scope in SCOPES and scope != "function" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    node = _shared_node(item)
    marker = item.get_closest_marker("kafka_broker")
    fixtures = getattr(item, "fixturenames", ())
    if node is None or marker is None or not any(each in fixtures for each in BROKER_FIXTURES):
        return
    if isinstance(node, pytest.Session) or node.get_closest_marker("kafka_broker") is not marker:
        scope = item.config.getini("kafka_broker_scope")
        pytest.fail(
            f"the marker kafka_broker cannot change a broker that lives for the {scope}: see"
            " kafka_broker_scope and kafka_broker_options",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    node = _shared_node(item)
    try:
        return (yield)
    finally:
        brokers = node.stash.get(_shared, []) if node is not None else []
        for broker in brokers:
            if broker.running:
                broker.reset()
