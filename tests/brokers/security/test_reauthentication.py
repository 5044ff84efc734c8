"""Sessions that end (KIP-368): clients authenticate again on the open connection.

A broker closes a connection, without a response, at the first request after the end of its session.
So a connection that is used for several sessions and never lost has authenticated in time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.releases import RELEASES
from tests.brokers.security.cases import COMBINATIONS, OLDER_RELEASES, PRINCIPAL, token_access
from tests.brokers.security.conftest import NewTopic
from tests.brokers.security.servers import (
    FIRST_WITH_REAUTHENTICATION,
    SESSION_LIFETIME_MS,
    SecureKafka,
    SecureServers,
)
from tests.brokers.security.support import MEMBER, ON_ASYNCIO, WITHIN_S

RENEWING_RELEASES = [
    each for each in OLDER_RELEASES if RELEASES[each].number >= FIRST_WITH_REAUTHENTICATION
]

LOAD_S = 10.0
LONG_LOAD_S = 30.0
IDLE_S = 10.0
SESSION_S = SESSION_LIFETIME_MS / 1_000
RECORDS_PER_TICK = 10
TICK_S = 0.01
COMMIT_EVERY = 1_000
LAST = b"last"
"""Key of the record after all others."""

SHORT_SESSIONS = [
    "SCRAM-SHA-256, short sessions",
    pytest.param("PLAIN, TLS, short sessions", marks=pytest.mark.slow),
    pytest.param("SCRAM-SHA-512, TLS, short sessions", marks=pytest.mark.slow),
    pytest.param("OAUTHBEARER, JWKS, short sessions", marks=pytest.mark.slow),
]


class Load:
    """Numbered records, produced and consumed at the same time for some seconds."""

    def __init__(self, address: str, topic: str, options: dict[str, Any]) -> None:
        self._address = address
        self._topic = topic
        self._options = options
        self._sent = 0
        self.consumed: list[int] = []
        self.metrics: list[tuple[dict[str, int | float], dict[str, int | float]]] = []
        """Of each client: once it has all its connections, and in the end."""

    async def run(self, seconds: float) -> None:
        with anyio.fail_after(seconds + WITHIN_S):
            async with anyio.create_task_group() as group:
                group.start_soon(self._produce, seconds)
                group.start_soon(self._consume)

    async def _produce(self, seconds: float) -> None:
        options = {"bootstrap_servers": self._address, **self._options}
        async with Producer(**options) as producer:
            await producer.send_and_wait(self._topic, b"0", partition=0)
            self._sent = 1
            early = producer.metrics()
            end = anyio.current_time() + seconds
            while anyio.current_time() < end:
                for _ in range(RECORDS_PER_TICK):
                    await producer.send(self._topic, b"%d" % self._sent, partition=0)
                    self._sent += 1
                await anyio.sleep(TICK_S)
            await producer.send_and_wait(self._topic, key=LAST, partition=0)
            self.metrics.append((early, producer.metrics()))

    async def _consume(self) -> None:
        options = {"bootstrap_servers": self._address, **MEMBER, **self._options}
        partition = TopicPartition(self._topic, 0)
        early: dict[str, int | float] | None = None
        async with Consumer(self._topic, group_id=self._topic, **options) as consumer:
            while (record := await consumer.getone()).key != LAST:
                assert record.value is not None
                self.consumed.append(int(record.value))
                if len(self.consumed) % COMMIT_EVERY == 0:
                    await consumer.commit({partition: record.offset + 1})
                    early = early or consumer.metrics()
            assert early is not None
            self.metrics.append((early, consumer.metrics()))

    def assert_undisturbed(self, sessions: int) -> None:
        """Check that each record came once, on unbroken connections with `sessions` renewals."""
        assert self.consumed == list(range(self._sent))
        for early, late in self.metrics:
            assert late["connections_lost_total"] == 0
            assert late["connections_made_total"] == early["connections_made_total"]
            assert late["reauthentications_total"] >= sessions


@pytest.mark.parametrize("combination", SHORT_SESSIONS)
async def test_load_goes_on(
    servers: SecureServers, kafka: SecureKafka, topic: str, combination: str
):
    listener, access = COMBINATIONS[combination](servers)
    load = Load(kafka.address(listener), topic, access.options())
    await load.run(LOAD_S)
    load.assert_undisturbed(sessions=int(LOAD_S / SESSION_S))


@pytest.mark.slow
async def test_load_goes_on_for_long(servers: SecureServers, kafka: SecureKafka, topic: str):
    listener, access = COMBINATIONS["SCRAM-SHA-256, TLS, short sessions"](servers)
    load = Load(kafka.address(listener), topic, access.options())
    await load.run(LONG_LOAD_S)
    load.assert_undisturbed(sessions=int(LONG_LOAD_S / SESSION_S))


@pytest.mark.slow
@ON_ASYNCIO
@pytest.mark.parametrize("version", RENEWING_RELEASES)
async def test_load_goes_on_with_older_releases(
    servers: SecureServers, new_topic: NewTopic, version: str
):
    with what_real_kafka_needs():
        kafka = servers.get(version)
    listener, access = COMBINATIONS["SCRAM-SHA-256, short sessions"](servers)
    load = Load(kafka.address(listener), new_topic(kafka), access.options())
    await load.run(LOAD_S)
    load.assert_undisturbed(sessions=int(LOAD_S / SESSION_S))


@pytest.mark.slow
async def test_load_goes_on_when_tokens_end(servers: SecureServers, kafka: SecureKafka, topic: str):
    listener, access = token_access(servers, "OIDC")
    asked = 0

    def issue() -> tuple[str, int]:
        nonlocal asked
        asked += 1
        return servers.provider.issue(PRINCIPAL, life_s=6)

    load = Load(kafka.address(listener), topic, replace(access, token=issue).options())
    await load.run(LOAD_S)
    load.assert_undisturbed(sessions=1)
    assert asked >= 4, "a new token for each session of both clients"


@pytest.mark.slow
async def test_transactions_go_on(servers: SecureServers, kafka: SecureKafka, topic: str):
    listener, access = COMBINATIONS["SCRAM-SHA-512, TLS, short sessions"](servers)
    options = {"bootstrap_servers": kafka.address(listener), **access.options()}
    sent = 0
    with anyio.fail_after(LOAD_S + WITHIN_S):
        async with Producer(transactional_id=topic, **options) as producer:
            end = anyio.current_time() + LOAD_S
            while anyio.current_time() < end:
                async with producer.transaction():
                    for _ in range(RECORDS_PER_TICK):
                        await producer.send(topic, b"%d" % sent, partition=0)
                        sent += 1
            metrics = producer.metrics()
        committed = {"isolation_level": "read_committed", **MEMBER, **options}
        async with Consumer(topic, **committed) as consumer:
            found = [(await consumer.getone()).value for _ in range(sent)]
    assert found == [b"%d" % number for number in range(sent)]
    assert metrics["connections_lost_total"] == 0
    assert metrics["reauthentications_total"] >= int(LOAD_S / SESSION_S)


@pytest.mark.slow
async def test_idle_connections_stay_usable(servers: SecureServers, kafka: SecureKafka, topic: str):
    listener, access = COMBINATIONS["SCRAM-SHA-256, short sessions"](servers)
    options = {"bootstrap_servers": kafka.address(listener), **access.options()}
    async with (
        Producer(**options) as producer,
        # The broker responds to one request at a time: re-authentication waits for a fetch.
        Consumer(topic, fetch_max_wait_ms=3_000, **MEMBER, **options) as consumer,
    ):
        await producer.send_and_wait(topic, b"before", partition=0)
        assert (await consumer.getone()).value == b"before"
        await anyio.sleep(IDLE_S)
        with anyio.fail_after(WITHIN_S):
            await producer.send_and_wait(topic, b"after", partition=0)
            assert (await consumer.getone()).value == b"after"
        for client in (producer, consumer):
            assert client.metrics()["connections_lost_total"] == 0


@pytest.mark.slow
async def test_a_password_that_is_no_longer_right_reaches_the_application(
    servers: SecureServers, kafka: SecureKafka, topic: str
):
    listener, access = COMBINATIONS["PLAIN, short sessions"](servers)
    changed = False

    async def password() -> str:
        return "the-old-password" if changed else str(access.password)

    options = access.options() | {"sasl_password": password}
    async with Producer(bootstrap_servers=kafka.address(listener), **options) as producer:

        async def send_until_refused() -> None:
            while True:
                await producer.send_and_wait(topic, b"value", partition=0)
                await anyio.sleep(TICK_S)

        await producer.send_and_wait(topic, b"value", partition=0)
        changed = True
        with anyio.fail_after(WITHIN_S), pytest.raises(AuthenticationFailed) as caught:
            await send_until_refused()
        assert "Invalid username or password" in caught.value.reason


@pytest.mark.slow
async def test_another_principal_gets_a_connection_of_its_own(
    servers: SecureServers, kafka: SecureKafka, topic: str
):
    """A broker refuses to change the principal of an open connection."""
    listener, access = token_access(servers, "SHORT")
    subjects = iter(["first", *["second"] * 1_000])

    def issue() -> tuple[str, int]:
        # Shorter than the run, so that each session has a token of its own.
        return servers.provider.issue(next(subjects), life_s=5)

    options = {"bootstrap_servers": kafka.address(listener)}
    options |= replace(access, token=issue).options()
    sent = 0
    with anyio.fail_after(WITHIN_S):
        async with Producer(**options) as producer:
            while producer.metrics()["connections_lost_total"] == 0:
                await producer.send_and_wait(topic, b"%d" % sent, partition=0)
                sent += 1
                await anyio.sleep(TICK_S)
            await producer.send_and_wait(topic, b"%d" % sent, partition=0)
            assert next(subjects) == "second"
        async with Consumer(topic, **MEMBER, **options) as consumer:
            found = [(await consumer.getone()).value for _ in range(sent + 1)]
    assert found == [b"%d" % number for number in range(sent + 1)]
