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
    assert message.startswith((f"unknown option {name!r}; ", f"{name!r} is a "))
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
        (Producer, "value.serializer", "did you mean 'value_serializer'?"),
        (Producer, "value_subject_name_strategy", "pass a function that does this"),
        (Consumer, "schema.registry.url", "pass a function that does this"),
        (Producer, "security.protocol", "did you mean 'security_protocol'?"),
        (Producer, "sasl.jaas.config", "set sasl_username and sasl_password"),
        (Producer, "sasl.mechanisms", "did you mean 'sasl_mechanism'?"),
        (Producer, "sasl.mechanism", "did you mean 'sasl_mechanism'?"),
        (Consumer, "sasl_plain_username", "did you mean 'sasl_username'?"),
        (Consumer, "sasl.kerberos.service.name", "did you mean 'sasl_kerberos_service_name'?"),
        (Consumer, "sasl.kerberos.kinit.cmd", "the client uses the tickets of kinit"),
        (Producer, "sasl_pasword", "did you mean 'sasl_password'?"),
        (Producer, "ssl.certfiles", "did you mean 'ssl_certfile'?"),
        (Consumer, "ssl.ca.location", "did you mean 'ssl_cafile'? It takes a PEM file."),
        (Consumer, "ssl.key.password", "did you mean 'ssl_password'?"),
        (Consumer, "ssl_crlfile", "did you mean 'ssl_context'? Set it in an ssl.SSLContext."),
        (Consumer, "enable.ssl.certificate.verification", "certificates are always verified"),
        (
            Consumer,
            "ssl.endpoint.identification.algorithm",
            "did you mean 'ssl_check_hostname'? False turns the check off.",
        ),
        (Consumer, "ssl.keymanager.algorithm", "pass an ssl.SSLContext as ssl_context"),
        (Consumer, "sasl.login.refresh.window.jitter", "authenticates again"),
        (Consumer, "sasl.oauthbearer.jwks.endpoint.url", "sasl_oauth_token_provider"),
        (Consumer, "oauth_cb", "did you mean 'sasl_oauth_token_provider'?"),
        (Producer, "interceptor.classes", "wrap the calls of the client"),
        (Producer, "group_id", "'group_id' is a consumer option, not one of a producer"),
        (Producer, "auto.commit", "'enable_auto_commit' is a consumer option"),
        (Consumer, "acks", "'acks' is a producer option, not one of a consumer"),
        (Consumer, "enable.auto.offset.store", "commit() and auto-commit"),
        (Consumer, "group.protocol.type", "group_protocol chooses"),
        (Consumer, "tls", "did you mean 'security_protocol'? 'SSL' and 'SASL_SSL' use TLS."),
        (Consumer, "stats_cb", "options have no callbacks"),
        (Consumer, "topics", "positional arguments"),
        (Consumer, "share_acquire_mode", "is a share consumer option, not one of a consumer"),
        (Consumer, "sesion_timeout_ms", "did you mean 'session_timeout_ms'?"),
    ],
)
def test_a_name_of_another_client_has_a_hint(client: type, name: str, expected: str) -> None:
    assert expected in refusal(client, name)


OF_JAVA = re.findall(
    r"\S+",
    """
security.protocol security.providers sasl.client.callback.handler.class sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type
""",
)
"""Security properties of Kafka's Java clients."""

OF_SECURITY_IN_LIBRDKAFKA = re.findall(
    r"\S+",
    """
security.protocol ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.key.location
ssl.key.password ssl.key.pem ssl.certificate.location ssl.certificate.pem ssl.ca.location
ssl.ca.pem ssl.ca.certificate.stores ssl.crl.location ssl.keystore.location ssl.keystore.password
ssl.providers enable.ssl.certificate.verification ssl.endpoint.identification.algorithm
sasl.mechanisms sasl.mechanism sasl.kerberos.service.name sasl.kerberos.principal
sasl.kerberos.kinit.cmd sasl.kerberos.keytab sasl.username sasl.password sasl.oauthbearer.config
sasl.oauthbearer.method sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.scope sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url
sasl.oauthbearer.grant.type sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.metadata.authentication.type enable.sasl.oauthbearer.unsecure.jwt oauth_cb
https.ca.location https.ca.pem
""",
)
"""Security properties of librdkafka."""


@pytest.mark.parametrize("name", [*dict.fromkeys([*OF_JAVA, *OF_SECURITY_IN_LIBRDKAFKA])])
def test_every_security_property_leads_to_an_option(name: str) -> None:
    message = refusal(Producer, name)
    assert message.startswith(f"unknown option {name!r}; ")
    hinted = {word for word in re.findall(r"[a-z_]+", message) if word in PRODUCER}
    assert hinted or "tickets of kinit" in message or "without options" in message
    meant = option_hints.RENAMED.get(name.replace(".", "_"), name.replace(".", "_"))
    if "did you mean" in message:
        # Not a name that merely looks alike.
        assert f"did you mean {meant!r}?" in message


@pytest.mark.parametrize("name", OF_SECURITY_IN_LIBRDKAFKA)
def test_the_security_properties_exist_in_librdkafka(name: str) -> None:
    message = ""
    try:
        confluent_kafka.Consumer({name: "1", "group.id": "g"})
    except (confluent_kafka.KafkaException, TypeError) as error:
        message = str(error)
    assert "No such configuration property" not in message


def test_renamed_options_exist_and_absent_ones_do_not() -> None:
    assert {*option_hints.RENAMED.values()} <= PRODUCER | CONSUMER
    for name in (*option_hints.RENAMED, *option_hints.ABSENT):
        assert name not in PRODUCER | CONSUMER, f"{name} is an option: it needs no hint"
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
        "fetch.wait.max.ms", "group.protocol.type",
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
