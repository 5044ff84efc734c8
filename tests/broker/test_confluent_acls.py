"""ACLs and SCRAM users through librdkafka's admin client, and what its users then may do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafkawire.broker import Acl

from .threaded_broker import DEADLINE_S, ThreadedBroker, threaded_broker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.slow

PASSWORDS = {"root": "root-pw", "alice": "alice-pw"}
READ = Acl("User:alice", "Read", topic="orders")
DENY = Acl("User:alice", "All", group="secret-", prefixed=True, deny=True)


@pytest.fixture(params=["asyncio", "trio"])
def threaded(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    options: dict[str, Any] = {"sasl": PASSWORDS, "acls": [], "super_users": ["User:root"]}
    with threaded_broker(request.param, **options) as broker:
        yield broker


def settings(threaded: ThreadedBroker, user: str, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": threaded.servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-pw",
        **options,
    }


def admin_client(threaded: ThreadedBroker, user: str) -> Any:
    return admin.AdminClient(settings(threaded, user), logger=logging.getLogger("librdkafka"))


def binding(acl: Acl) -> Any:
    """Return an ACL as confluent-kafka has it."""
    parts = acl.binding
    return admin.AclBinding(
        admin.ResourceType[parts.resource_type.name],
        parts.name,
        admin.ResourcePatternType[parts.pattern_type.name],
        parts.principal,
        parts.host,
        admin.AclOperation[parts.operation.name],
        admin.AclPermissionType[parts.permission_type.name],
    )


def every(principal: str | None = None) -> Any:
    return admin.AclBindingFilter(
        admin.ResourceType.ANY,
        None,
        admin.ResourcePatternType.ANY,
        principal,
        None,
        admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )


def results(futures: Any) -> list[Any]:
    return [future.result(DEADLINE_S) for future in futures.values()]


def acls(threaded: ThreadedBroker) -> set[Acl]:
    return set(threaded.call(lambda: threaded.broker.acls))


def test_acls_are_created_described_and_deleted(threaded: ThreadedBroker) -> None:
    client = admin_client(threaded, "root")
    wanted = [binding(READ), binding(DENY)]
    assert results(client.create_acls(wanted, request_timeout=DEADLINE_S)) == [None, None]
    assert acls(threaded) == {READ, DENY}
    found = client.describe_acls(every(), request_timeout=DEADLINE_S).result(DEADLINE_S)
    assert set(found) == set(wanted)
    deleted = results(client.delete_acls([every("User:alice")], request_timeout=DEADLINE_S))
    assert [set(each) for each in deleted] == [set(wanted)]
    assert acls(threaded) == set()


def test_a_user_without_permission_is_refused(threaded: ThreadedBroker) -> None:
    client = admin_client(threaded, "alice")
    # For describe_acls, librdkafka returns an empty list in spite of the error code.
    for call in (
        lambda: results(client.create_acls([binding(READ)])),
        lambda: results(client.delete_acls([every()])),
    ):
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            call()
        code = refused.value.args[0].code()
        assert code == confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert acls(threaded) == set()


def test_an_acl_takes_effect_at_once(threaded: ThreadedBroker) -> None:
    client = admin_client(threaded, "root")
    results(client.create_topics([admin.NewTopic("orders", 1, 1)]))

    def send() -> Any:
        # A producer keeps what metadata said about a topic for a while, so each is new.
        producer = confluent_kafka.Producer(
            settings(threaded, "alice"), logger=logging.getLogger("librdkafka")
        )
        errors: list[Any] = []
        producer.produce("orders", b"v", on_delivery=lambda error, message: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        (error,) = errors
        return error if error is None else error.code()

    assert send() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    results(client.create_acls([binding(READ)]))
    assert send() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    results(client.create_acls([binding(Acl("User:alice", "Write", topic="orders"))]))
    assert send() is None
    results(client.delete_acls([every()]))
    assert send() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert threaded.call(lambda: threaded.broker.end_offset("orders", 0)) == 1


def test_scram_users_are_created_described_and_deleted(threaded: ThreadedBroker) -> None:
    client = admin_client(threaded, "root")
    info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, 8_192)
    results(
        client.alter_user_scram_credentials(
            [admin.UserScramCredentialUpsertion("carol", info, b"carol-pw")]
        )
    )
    described = client.describe_user_scram_credentials(["carol"])
    (found,) = results(described)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
        (admin.ScramMechanism.SCRAM_SHA_256, 8_192)
    ]
    carol = admin.AdminClient(
        settings(threaded, "carol", **{"sasl.mechanism": "SCRAM-SHA-256"}),
        logger=logging.getLogger("librdkafka"),
    )
    assert carol.list_topics(timeout=DEADLINE_S).topics == {}
    results(
        client.alter_user_scram_credentials(
            [admin.UserScramCredentialDeletion("carol", admin.ScramMechanism.SCRAM_SHA_256)]
        )
    )
    with pytest.raises(confluent_kafka.KafkaException) as missing:
        results(client.describe_user_scram_credentials(["carol"]))
    assert missing.value.args[0].code() == confluent_kafka.KafkaError.RESOURCE_NOT_FOUND
