"""The public interface, on the embedded broker or on real Kafka alike.

`--on kafka` and `--on kafka3` are one and three nodes of the newest release, `--on 0.9.0.1` is one
node of that one. What a release lacks is skipped with the reason (see `features.py`).
`--on replicated` is the embedded broker as 2.8, with nodes that have logs of their own.
`--security-protocol` and `--sasl-mechanism` choose the listener (see `security.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pytest
from anyio import to_thread

from aiokafkawire.admin import Admin
from aiokafkawire.broker import Broker
from aiokafkawire.broker.options import BrokerOptions
from aiokafkawire.connection import connector
from aiokafkawire.connection.node_api_versions import parse_api_version
from tests.behaviour import client_options, security, workers
from tests.behaviour.features import embedded_lacks, not_applicable, release_wanted
from tests.brokers.fixtures import session_kafka, what_real_kafka_needs
from tests.brokers.kafka import DEFAULT_VERSION, Kafka
from tests.brokers.releases import RELEASES
from tests.conftest import NOT_APPLICABLE, backend_of

HERE = "tests/behaviour/"

NODES = 3
"""The embedded cluster has more than one node, so that partitions have different leaders."""

SERVER_OPTIONS: BrokerOptions = {
    "group_min_session_timeout_ms": 500,
    "group_consumer_min_session_timeout_ms": 500,
    "group_consumer_session_timeout_ms": 3_000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_assignment_interval_ms": 0,
    "group_share_min_record_lock_duration_ms": 1_000,
}
"""Server properties of real Kafka in these tests (`tests.brokers.settings`)."""

REAL: Mapping[str, tuple[str, int]] = {
    "kafka": (DEFAULT_VERSION, 1),
    "kafka3": (DEFAULT_VERSION, 3),
    **{version: (version, 1) for version in RELEASES},
}
"""Release and number of nodes of each value of `--on`."""

REPLICATED: BrokerOptions = {"as_of": "2.8", "replicate": True, "default_replication_factor": NODES}


@dataclass(frozen=True)
class Cluster:
    """Facts about the brokers that a test may use."""

    bootstrap_servers: str
    create_topic: Callable[..., Awaitable[None]]


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[Cluster]:
    real = REAL.get(request.config.getoption("--on"))
    if real is not None:
        version, nodes = real
        if request.config.getoption("--security-protocol") == "PLAINTEXT":
            kafka = session_kafka(request.config, nodes, version)
            servers = kafka.bootstrap_servers
        else:
            kafka, servers = request.getfixturevalue("_secure_kafka")

        async def create(name: str, **wanted: object) -> None:
            make = partial(kafka.create_topic, name, replication_factor=nodes, **wanted)
            await to_thread.run_sync(make)

        yield Cluster(servers, create)
        return
    as_of = release_wanted(request.node)
    options: BrokerOptions = (
        {"as_of": as_of}
        if as_of is not None
        else {"nodes": NODES, "default_partitions": 2}
        | (REPLICATED if request.config.getoption("--on") == "replicated" else {})
    )
    async with Broker(
        **(SERVER_OPTIONS | options),
        **security.broker_arguments(request.config),
    ) as broker:
        with pytest.MonkeyPatch.context() as patch:
            options = broker.client_options()
            servers = options.pop("bootstrap_servers")
            if options["security_protocol"] != "PLAINTEXT":
                security.add_client_options(patch, options)
            yield Cluster(servers, broker.create_topic)


@pytest.fixture(scope="session")
def _secure_kafka(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kafka, str]]:
    """Real Kafka and the address of its listener; all clients use its security."""
    # Needs confluent-kafka, which not every Python has.
    from tests.behaviour import secure_kafka

    servers = secure_kafka.SecureServers(tmp_path_factory.mktemp("security"))
    try:
        version, _ = REAL[pytestconfig.getoption("--on")]
        with what_real_kafka_needs():
            kafka = servers.get(version)
        listener = secure_kafka.listener_of(kafka, pytestconfig)
        with pytest.MonkeyPatch.context() as patch:
            security.add_client_options(
                patch, secure_kafka.client_options(servers, listener, pytestconfig)
            )
            yield kafka, kafka.address(listener)
    finally:
        servers.close()


@pytest.fixture(scope="session", autouse=True)
def _pin(pytestconfig: pytest.Config) -> Iterator[None]:
    """Set the release for clients of 0.9, as its users should.

    A broker of 0.9 that is asked what it speaks drops what others sent at the same moment. What
    asks all the same stands in `test_older_brokers.py`.
    """
    version, _ = REAL.get(pytestconfig.getoption("--on"), (DEFAULT_VERSION, 1))
    with pytest.MonkeyPatch.context() as patch:
        if version.startswith("0.9."):
            patch.setenv(workers.API_VERSION, "0.9")
            patch.setattr(
                connector, "parse_api_version", lambda given: parse_api_version(given or "0.9")
            )
        yield


@pytest.fixture(autouse=True)
def group_protocol(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the protocol of all members of groups in a test (`both_protocols`)."""
    protocol: str = getattr(request, "param", "classic")
    with pytest.MonkeyPatch.context() as patch:
        if protocol == "consumer":
            client_options.use_consumer_protocol(patch)
        yield protocol


@pytest.fixture
def bootstrap_servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


NewTopic = Callable[..., Awaitable[str]]


@pytest.fixture
def new_topic(cluster: Cluster) -> NewTopic:
    """Create a topic with a new name: `await new_topic(partitions=3, configs={…})`."""

    async def create(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        await cluster.create_topic(name, partitions=partitions, configs=configs)
        return name

    return create


@pytest.fixture
async def topic(new_topic: NewTopic) -> str:
    """A topic with one partition."""
    return await new_topic()


@pytest.fixture
async def admin(bootstrap_servers: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap_servers) as client:
        yield client


@pytest.fixture
def group_id() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def pytest_configure(config: pytest.Config) -> None:
    on = config.getoption("--on")
    if on not in REAL or config.getoption("--security-protocol") == "PLAINTEXT":
        return
    version, nodes = REAL[on]
    if nodes > 1:
        raise pytest.UsageError(f"--on {on} has a PLAINTEXT listener alone")
    if reason := security.not_secured(config, version):
        raise pytest.UsageError(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Except on one node of the newest release, run on one event loop only, by default.

    Tests about older releases are left out on the newest; tests of features that an older release
    lacks are skipped with the reason.
    """
    on = config.getoption("--on")
    ours = [item for item in items if item.nodeid.startswith(HERE)]
    left_out: set[pytest.Item] = set()
    if on not in {"embedded", "kafka"} and not config.getoption("--all-backends"):
        left_out.update(item for item in ours if backend_of(item) not in {None, "asyncio"})
    if on in REAL:
        version = REAL[on][0]
        for item in ours:
            reason = not_applicable(version, item)
            if reason is not None and version == DEFAULT_VERSION:
                left_out.add(item)
            elif reason is not None:
                item.stash[NOT_APPLICABLE] = reason
                item.add_marker(pytest.mark.skip(reason=reason))
    else:
        replicated = REPLICATED["as_of"] if on == "replicated" else None
        left_out.update(
            item for item in ours if embedded_lacks(item, release_wanted(item) or replicated)
        )
        left_out.update(
            item
            for item in ours
            if (release := release_wanted(item)) and security.not_secured(config, release)
        )
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
