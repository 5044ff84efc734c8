"""The plugin in projects of users, each a pytest session of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import aiokafkawire

pytestmark = pytest.mark.slow

LIMIT_S = 60


def run_pytest(
    project: Path, *arguments: str, without: str = "asyncio", **files: str
) -> subprocess.CompletedProcess[str]:
    """A session in a project of these files, without a plugin; warnings are errors in it."""
    for name, text in files.items():
        (project / f"{name}.py").write_text(textwrap.dedent(text))
    command = ["-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--strict-markers"]
    command += ["-p", f"no:{without}"]
    return subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def check_passed(ran: subprocess.CompletedProcess[str], count: int) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{count} passed" in ran.stdout, ran.stdout


NO_THREAD_IS_LEFT = """
    import threading

    def pytest_sessionfinish(session):
        left = {thread.name for thread in threading.enumerate()} - {"MainThread"}
        assert not [name for name in left if "kafka" in name or "asyncio" in name], left
"""

CONFLUENT = """
    import time

    import confluent_kafka
    import pytest

    from aiokafkawire.testing import Answer, ApiKey, Close, ErrorCode, KafkaBroker


    def produce(broker: KafkaBroker, topic: str, value: bytes) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(topic, value)
        assert producer.flush(20) == 0


    def test_what_is_produced_is_consumed(kafka_broker, kafka_topic):
        produce(kafka_broker, kafka_topic, b"book")
        assert kafka_broker.end_offset(kafka_topic, 0) == 1
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka_broker.bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([kafka_topic])
        message = None
        deadline = time.monotonic() + 20
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(1)
        assert message.value() == b"book"
        consumer.close()
        assert kafka_broker.wait_for_request(ApiKey.LEAVE_GROUP)


    @pytest.mark.kafka_broker(nodes=3)
    @pytest.mark.kafka_topic(partitions=6, replication_factor=2)
    def test_faults_in_a_plugin_test(kafka_broker, kafka_topic):
        assert len(kafka_broker.nodes) == 3
        assert kafka_broker.topics == {kafka_topic: 6}
        fault = kafka_broker.on(ApiKey.PRODUCE, Close(), times=1)
        produce(kafka_broker, kafka_topic, b"book")
        assert fault.hits == 1
        assert len(kafka_broker.requests.of(ApiKey.PRODUCE)) >= 2
        kafka_broker.kill(kafka_broker.leader(kafka_topic, 0))
        produce(kafka_broker, kafka_topic, b"book")


    @pytest.mark.parametrize("value", ["a b", "ü/"])
    def test_topics_are_named_for_their_tests(kafka_topic, value):
        assert kafka_topic.startswith("test-topics-are-named-for-their-tests")
"""


def test_plain_tests_with_confluent_kafka(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, test_orders=CONFLUENT, conftest=NO_THREAD_IS_LEFT)
    check_passed(ran, 4)


SECURE = """
    import time

    import anyio
    import confluent_kafka
    import pytest

    from aiokafkawire import Producer
    from aiokafkawire.testing import make_unsecured_token


    def produce(broker, **options):
        options["bootstrap.servers"] = broker.bootstrap_servers
        producer = confluent_kafka.Producer(options)
        producer.produce("orders", b"book")
        assert producer.flush(20) == 0
        assert broker.end_offset("orders", 0) == 1


    def test_tls(kafka_broker_tls):
        certificate = kafka_broker_tls.authority.pem
        produce(kafka_broker_tls, **{"security.protocol": "SSL", "ssl.ca.pem": certificate})


    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_passwords(kafka_broker_sasl, mechanism):
        options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
        options |= {"sasl.username": "alice", "sasl.password": "alice-secret"}
        produce(kafka_broker_sasl, **options)


    def test_tokens(kafka_broker_sasl):
        options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        token = make_unsecured_token("alice")
        produce(kafka_broker_sasl, **options, oauth_cb=lambda _: (token, time.time() + 60))


    @pytest.mark.kafka_broker(tls=True, nodes=2)
    def test_both(kafka_broker_sasl):
        async def main():
            async with Producer(**kafka_broker_sasl.client_options()) as producer:
                await producer.send_and_wait("orders", value=b"book")

        assert list(kafka_broker_sasl.listeners) == ["SASL_SSL"]
        anyio.run(main)


    def test_together(kafka_broker, kafka_broker_tls, kafka_broker_sasl):
        assert len({each.bootstrap_servers for each in
                    (kafka_broker, kafka_broker_tls, kafka_broker_sasl)}) == 3
"""


TOPICS = """
    def test_a_topic_on_the_broker_of_the_test(kafka_broker_sasl, kafka_topic):
        assert kafka_broker_sasl.topics == {kafka_topic: 1}


    def test_a_topic_on_one_of_two_brokers(kafka_broker, kafka_broker_tls, kafka_topic):
        pass
"""


def test_a_topic_is_created_on_the_broker_that_a_test_uses(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, test_topics=TOPICS)
    assert "1 passed, 1 error" in ran.stdout
    assert (
        "kafka_topic cannot choose between kafka_broker and kafka_broker_tls: call create_topic()"
        in ran.stdout
    )


def test_brokers_with_tls_and_sasl(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, test_secure=SECURE, conftest=NO_THREAD_IS_LEFT)
    check_passed(ran, 7)


def test_shared_brokers_with_tls_and_sasl_are_reset(tmp_path: Path) -> None:
    text = """
    from aiokafkawire.testing import ApiKey, Close

    def test_one(kafka_broker_tls, kafka_broker_sasl):
        for broker in (kafka_broker_tls, kafka_broker_sasl):
            broker.on(ApiKey.PRODUCE, Close())
            broker.kill(1)

    def test_two(kafka_broker_tls, kafka_broker_sasl):
        for broker in (kafka_broker_tls, kafka_broker_sasl):
            assert broker.live_nodes == (1,)
    """
    ran = run_pytest(tmp_path, "-o", "kafka_broker_scope=session", test_shared=text)
    check_passed(ran, 2)


ASYNCIO = """
    import asyncio

    import pytest
    import pytest_asyncio

    from aiokafkawire import Consumer, Producer
    from aiokafkawire.testing import ApiKey, Close

    {mark}

    @pytest_asyncio.fixture
    async def producer(kafka_broker):
        async with Producer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            yield producer

    async def test_what_is_produced_is_consumed(kafka_broker, kafka_topic, producer):
        await producer.send_and_wait(kafka_topic, value=b"book")
        async with Consumer(
            kafka_topic, bootstrap_servers=kafka_broker.bootstrap_servers,
            auto_offset_reset="earliest",
        ) as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"book"

    @pytest.mark.kafka_broker(nodes=2)
    async def test_faults_in_a_plugin_test(kafka_broker, kafka_topic, producer):
        await producer.partitions_for(kafka_topic)
        kafka_broker.kill(kafka_broker.leader(kafka_topic, 0))
        with kafka_broker.on(ApiKey.PRODUCE, Close(carried_out=True), times=1) as fault:
            await producer.send_and_wait(kafka_topic, value=b"book", partition=0)
        assert fault.hits == 1
        assert kafka_broker.end_offset(kafka_topic, 0) == 1
        await asyncio.to_thread(kafka_broker.wait_for_request, ApiKey.PRODUCE, count=2)
"""


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_a_project_on_pytest_asyncio(tmp_path: Path, mode: str) -> None:
    mark = "pytestmark = pytest.mark.asyncio" if mode == "strict" else ""
    arguments = [f"--asyncio-mode={mode}", "-o", "asyncio_default_fixture_loop_scope=function"]
    suite = textwrap.dedent(ASYNCIO).format(mark=mark)
    ran = run_pytest(
        tmp_path, *arguments, without="anyio", test_orders=suite, conftest=NO_THREAD_IS_LEFT
    )
    check_passed(ran, 2)


TRIO = """
    import anyio
    import pytest
    import trio

    from aiokafkawire import Consumer, Producer
    from aiokafkawire.testing import ApiKey, Answer, ErrorCode

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend():
        return "trio"

    @pytest.fixture
    async def producer(kafka_broker):
        async with Producer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            yield producer

    async def test_what_is_produced_is_consumed(kafka_broker, kafka_topic, producer):
        assert trio.lowlevel.current_task()
        with kafka_broker.on(ApiKey.PRODUCE, Answer(ErrorCode.NOT_ENOUGH_REPLICAS), times=1):
            await producer.send_and_wait(kafka_topic, value=b"book")
        async with Consumer(
            kafka_topic, bootstrap_servers=kafka_broker.bootstrap_servers,
            auto_offset_reset="earliest",
        ) as consumer:
            with anyio.fail_after(20):
                assert (await consumer.getone()).value == b"book"
        seen = await anyio.to_thread.run_sync(kafka_broker.wait_for_request, ApiKey.FETCH)
        assert seen.node_id == 1
"""


def test_a_project_on_trio(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, test_orders=TRIO, conftest=NO_THREAD_IS_LEFT)
    check_passed(ran, 1)


SHARED = """
    import pytest

    from aiokafkawire.testing import ApiKey, Close


    @pytest.fixture(scope="{scope}")
    def application(kafka_broker):
        kafka_broker.create_topic("orders")
        return kafka_broker


    def test_one(application, kafka_broker, kafka_topic):
        assert application is kafka_broker
        assert len(kafka_broker.nodes) == 2
        kafka_broker.on(ApiKey.METADATA, Close())
        kafka_broker.kill(1)


    def test_two(request, kafka_topic):
        kafka_broker = request.getfixturevalue("kafka_broker")
        assert "orders" in kafka_broker.topics
        assert kafka_broker.live_nodes == (1, 2)
        assert len(kafka_broker.topics) == 3
"""


@pytest.mark.parametrize("scope", ["module", "session"])
def test_a_shared_broker_is_healed_after_each_test(tmp_path: Path, scope: str) -> None:
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nkafka_broker_scope = {scope}\n"
        "kafka_broker_options =\n    nodes = 2\n    auto_create_topics = false\n"
    )
    suite = textwrap.dedent(SHARED).format(scope=scope)
    ran = run_pytest(tmp_path, test_orders=suite, conftest=NO_THREAD_IS_LEFT)
    check_passed(ran, 2)


def test_a_marker_cannot_change_a_shared_broker(tmp_path: Path) -> None:
    suite = """
        import pytest

        pytestmark = {mark}

        {extra}
        def test_it(kafka_broker):
            assert len(kafka_broker.nodes) == 2
    """
    plain, for_all = "pytest.mark.filterwarnings", "pytest.mark.kafka_broker(nodes=2)"
    for scope, mark, extra, passes in (
        ("session", plain, "@pytest.mark.kafka_broker(nodes=2)", False),
        ("session", for_all, "", False),
        ("module", for_all, "", True),
        ("module", plain, "@pytest.mark.kafka_broker(nodes=2)", False),
    ):
        text = textwrap.dedent(suite).format(mark=mark, extra=extra)
        ran = run_pytest(tmp_path, "-o", f"kafka_broker_scope={scope}", test_it=text)
        if passes:
            check_passed(ran, 1)
        else:
            assert f"cannot change a broker that lives for the {scope}" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("kafka_broker_scope=week", "kafka_broker_scope must be one of function, module, session"),
        ("kafka_broker_options=nodes", "needs lines of `name = value`"),
        ("kafka_broker_options=nodse = 2", "unknown broker option 'nodse'"),
        ("kafka_broker_options=host = no address", "cannot listen"),
    ],
)
def test_a_mistake_in_the_configuration_is_reported(
    tmp_path: Path, option: str, message: str
) -> None:
    suite = "def test_it(kafka_broker): pass\n"
    ran = run_pytest(tmp_path, "-o", option, test_it=suite)
    assert ran.returncode != 0
    assert message in ran.stdout + ran.stderr, ran.stdout + ran.stderr


def test_what_a_function_raises_fails_its_test(tmp_path: Path) -> None:
    suite = """
        import socket

        from aiokafkawire.testing import ApiKey
        from aiokafkawire.wire.header import encode_request
        from aiokafkawire.wire.messages.metadata import MetadataRequest

        def test_it(kafka_broker):
            def decide(seen):
                assert seen.client_id == "somebody else"

            kafka_broker.on(ApiKey.METADATA, decide)
            with socket.create_connection(tuple(kafka_broker.nodes[1])) as connection:
                request = encode_request(MetadataRequest(topics=None), 1, 1, "a test")
                connection.sendall(b"".join(request))
                connection.recv(1)
    """
    for scope in ("function", "session"):
        ran = run_pytest(tmp_path, "-o", f"kafka_broker_scope={scope}", test_it=suite)
        assert "1 passed, 1 error" in ran.stdout, ran.stdout
        assert "somebody else" in ran.stdout


def test_it_costs_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    suite = """
        import sys

        def test_nothing_is_loaded(request):
            assert request.config.pluginmanager.has_plugin("aiokafkawire")
            loaded = {name for name in sys.modules if name.startswith("aiokafkawire.")}
            assert loaded == {
                "aiokafkawire._about", "aiokafkawire._version",
                "aiokafkawire.testing", "aiokafkawire.testing.plugin",
            }
    """
    check_passed(run_pytest(tmp_path, test_it=suite), 1)


def test_the_header_says_which_kernel_runs(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--verbose", test_it="def test_it(): pass\n")
    assert f"\n{aiokafkawire.about()}\n" in ran.stdout


def test_it_is_installed() -> None:
    (found,) = {entry.value for entry in entry_points(group="pytest11", name="aiokafkawire")}
    assert found == "aiokafkawire.testing.plugin"


def test_the_fixtures_and_markers_are_listed(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--fixtures", test_it="def test_it(): pass\n")
    assert "kafka_broker" in ran.stdout
    assert "kafka_topic" in ran.stdout
    ran = run_pytest(tmp_path, "--markers", test_it="def test_it(): pass\n")
    assert "@pytest.mark.kafka_broker(nodes=1, **options)" in ran.stdout
    assert "@pytest.mark.kafka_topic(partitions=1, **options)" in ran.stdout
