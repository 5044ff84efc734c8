"""The public interface, on the embedded broker or on real Kafka (`--on kafka`) alike."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from aiokafkawire.broker import Broker
from tests.brokers.fixtures import session_kafka

HERE = Path(__file__).resolve().parent

NODES = 3
"""The embedded cluster has more than one node, so that every client has leaders to tell apart."""

MIN_SESSION_TIMEOUT_MS = 500
"""What real Kafka is started with in these tests, too."""

_passed: set[str] = set()


@dataclass(frozen=True)
class Cluster:
    """What a test may know of the brokers."""

    bootstrap_servers: str
    create_topic: Callable[..., Awaitable[None]]


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[Cluster]:
    if request.config.getoption("--on") == "kafka":
        kafka = session_kafka(request.config)

        async def create(name: str, **wanted: object) -> None:
            await to_thread.run_sync(partial(kafka.create_topic, name, **wanted))

        yield Cluster(kafka.bootstrap_servers, create)
        return
    async with Broker(
        nodes=NODES,
        default_partitions=2,
        group_min_session_timeout_ms=MIN_SESSION_TIMEOUT_MS,
    ) as broker:
        yield Cluster(broker.bootstrap_servers, broker.create_topic)


@pytest.fixture
def bootstrap_servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


NewTopic = Callable[..., Awaitable[str]]


@pytest.fixture
def new_topic(cluster: Cluster) -> NewTopic:
    """Make a topic of a new name: `await new_topic(partitions=3, configs={…})`."""

    async def create(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        await cluster.create_topic(name, partitions=partitions, configs=configs)
        return name

    return create


@pytest.fixture
async def topic(new_topic: NewTopic) -> str:
    """A topic of one partition."""
    return await new_topic()


@pytest.fixture
def group_id() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what ran: a function counts once, on however many backends it did."""
    if report.when == "call" and report.passed and HERE in Path(report.fspath).resolve().parents:
        _passed.add(report.nodeid.split("[")[0])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if _passed:
        where = {"kafka": "real Kafka", "embedded": "the embedded broker"}[config.getoption("--on")]
        terminalreporter.write_line(f"behaviour: {len(_passed)} test functions on {where}")
