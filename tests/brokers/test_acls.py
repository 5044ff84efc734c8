"""The embedded broker and real Kafka 4.3.0 refuse the same requests with the same codes."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire import AuthorizationFailed, Consumer, Producer, TopicPartition
from aiokafkawire.broker import Acl, Broker
from aiokafkawire.broker.acls import AclBindingFilter
from aiokafkawire.broker.client_log import error_codes
from aiokafkawire.broker.releases import RELEASES
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokafkawire.wire.messages.create_acls import CreateAclsRequest
from aiokafkawire.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from aiokafkawire.wire.messages.describe_acls import DescribeAclsRequest
from aiokafkawire.wire.messages.describe_cluster import DescribeClusterRequest
from aiokafkawire.wire.messages.describe_groups import DescribeGroupsRequest
from aiokafkawire.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.list_groups import ListGroupsRequest
from aiokafkawire.wire.messages.list_transactions import ListTransactionsRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafkawire.wire.messages.offset_commit import OffsetCommitRequest
from aiokafkawire.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokafkawire.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.raw_client import RawClient
from tests.broker.test_acl_apis import creation, fields_of, upsert
from tests.broker.test_authorization import (
    FORBIDDEN,
    ROWS,
    TOPICS,
    Row,
    add_partitions,
    cluster,
    commit,
    configs,
    create_partitions,
    create_topics,
    delete_topics,
    group,
    init_producer_id,
    metadata,
    offset_fetch_8,
    offset_fetch_request,
    transactional,
    txn_commit,
)
from tests.broker.test_authorization import topic as of_topic
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka, Node
from tests.brokers.process import HOST, free_ports

PASSWORDS = {"root": "root-pw", "alice": "alice-pw"}
TIMEOUT_S = 60
POLL_S = 0.02
SERVED = RELEASES["4.3"].served
COMPARED = FORBIDDEN | {ErrorCode.OPERATION_NOT_ATTEMPTED}

COMPARABLE = [
    row
    for row in ROWS
    if SERVED[ApiKey(row.request.api_key)].low
    <= row.version
    <= SERVED[ApiKey(row.request.api_key)].high
]


class AclKafka(Kafka):
    """One broker with StandardAuthorizer, and a listener for the users of PLAIN."""

    sasl_port = 0

    def _settings(self, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
        settings = super()._settings(node, nodes)
        (self.sasl_port,) = free_ports(1)
        listener = f"SASL_PLAINTEXT://{HOST}:{self.sasl_port}"
        settings["listeners"] += f",{listener}"
        settings["advertised.listeners"] += f",{listener}"
        users = " ".join(f'user_{user}="{word}"' for user, word in PASSWORDS.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return settings | {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The node itself is anonymous.
            "super.users": "User:ANONYMOUS;User:root",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.security.protocol.map": ",".join(
                (
                    "CONTROLLER:PLAINTEXT",
                    "PLAINTEXT:PLAINTEXT",
                    "SASL_PLAINTEXT:SASL_PLAINTEXT",
                )
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        }


@pytest.fixture(scope="module")
def kafka() -> Iterator[AclKafka]:
    with what_real_kafka_needs():
        cluster = AclKafka()
        with cluster:
            yield cluster


@asynccontextmanager
async def logged_in(address: Address, user: str) -> AsyncIterator[RawClient]:
    transport = await RealRuntime().connect(address)
    try:
        client = RawClient(transport)
        assert not (await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code
        token = f"\0{user}\0{PASSWORDS[user]}".encode()
        assert not (await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code
        yield client
    finally:
        await transport.aclose()


async def set_acls(root: RawClient, acls: Sequence[Acl]) -> None:
    """Replace all ACLs, and wait until the broker knows."""
    everything = fields_of(AclBindingFilter())
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**everything)])
    assert not list(error_codes(await root.call(request, 3)))
    creations = [creation(acl.binding) for acl in acls]
    assert not list(error_codes(await root.call(CreateAclsRequest(creations=creations), 3)))
    while True:
        answer = await root.call(DescribeAclsRequest(**everything), 3)
        if sum(len(resource.acls) for resource in answer.resources) == len(acls):
            return
        await anyio.sleep(POLL_S)


async def wait_until_ready(root: RawClient) -> None:
    """Wait until the broker has made the topics of its coordinators."""
    for key_type, key in ((0, "g"), (1, "x")):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        await until_accepted(root, request, 4)
    await until_accepted(root, commit("t"), 8)


async def create_all(root: RawClient) -> None:
    """Create the topics, the group, and the transactional id."""
    for topic in TOPICS:
        request = create_topics(topic)
        request.validate_only = False
        await root.call(request, 5)
    await wait_until_ready(root)
    await until_accepted(root, init_producer_id("x"), 4)


async def until_accepted(root: RawClient, request: Request[Any], version: int) -> None:
    while True:
        if not list(error_codes(await root.call(request, version))):
            return
        await anyio.sleep(POLL_S)


async def codes_of(alice: RawClient, row: Row) -> list[ErrorCode]:
    return sorted(set(error_codes(await alice.call(row.request, row.version))) & COMPARED)


async def observe(address: Address) -> dict[str, list[list[ErrorCode]]]:
    """Return the codes of each row without ACLs, without each ACL it needs, and with all."""
    seen: dict[str, list[list[ErrorCode]]] = {}
    with anyio.fail_after(TIMEOUT_S):
        async with logged_in(address, "root") as root, logged_in(address, "alice") as alice:
            await create_all(root)
            for row in COMPARABLE:
                needed = row.needed
                some = [[*needed[:i], *needed[i + 1 :]] for i in range(len(needed))]
                seen[row.name] = []
                for acls in ([], *some, needed):
                    await set_acls(root, acls)
                    # Makes the group exist.
                    await root.call(commit("t"), 8)
                    seen[row.name].append(await codes_of(alice, row))
    return seen


IGNORED = {"throttle_time_ms", "host", "port", "cluster_id", "topic_id", "records", "brokers"}
"""Fields that each broker has its own values of."""


WITH_OTHER_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
"""Kafka's text for the cluster contains the request as a Java object."""


def shape(value: Any) -> Any:
    """Return a response without the values that are of one broker alone."""
    if isinstance(value, list):
        return sorted((shape(each) for each in value), key=repr)
    if dataclasses.is_dataclass(value):
        shaped = {
            field.name: shape(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in IGNORED
        }
        if shaped.get("error_code") in WITH_OTHER_TEXTS:
            del shaped["error_message"]
        return shaped
    return value


def with_pattern(pattern: int, name: str = "t", resource_type: int = 2) -> CreateAclsRequest:
    wrong = creation(Acl("User:a", "Read", topic="t").binding)
    wrong.resource_pattern_type, wrong.resource_name = pattern, name
    wrong.resource_type = resource_type
    return CreateAclsRequest(creations=[wrong, creation(Acl("User:b", "Read", topic="t").binding)])


def commit_of_nobody(*names: str) -> OffsetCommitRequest:
    request = commit(*names)
    request.member_id, request.generation_id_or_member_epoch = "nobody", 7
    return request


def scram(*changes: ScramCredentialUpsertion) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=list(changes))


ASK_ALL = MetadataRequest(topics=None)
ASK_OPERATIONS = MetadataRequest(
    topics=[MetadataRequestTopic(name="t")],
    include_topic_authorized_operations=True,
    include_cluster_authorized_operations=True,
)
EVERYTHING = fields_of(AclBindingFilter())

CONVERSATIONS: dict[str, tuple[list[Acl], str, Request[Any], int]] = {
    "metadata of all": ([of_topic("Read")], "alice", ASK_ALL, 12),
    "missing": ([], "alice", metadata("missing"), 12),
    "missing, created": ([], "alice", metadata("missing", create=True), 12),
    "described, not created": (
        [of_topic("Describe", "missing")],
        "alice",
        metadata("missing", create=True),
        12,
    ),
    "unknown id": ([], "alice", metadata(None, UUID(int=7)), 12),
    "operations": ([of_topic("Read")], "alice", ASK_OPERATIONS, 8),
    "operations on all": ([of_topic("All"), cluster("Describe")], "alice", ASK_OPERATIONS, 8),
    "operations of root": ([], "root", ASK_OPERATIONS, 8),
    "cluster": (
        [cluster("Describe"), cluster("Create")],
        "alice",
        DescribeClusterRequest(include_cluster_authorized_operations=True),
        1,
    ),
    "one topic of two": ([group("Read"), of_topic("Read")], "alice", commit(*TOPICS), 8),
    "no topic": ([group("Read")], "alice", commit(*TOPICS), 8),
    "wrong member": ([group("Read"), of_topic("Read")], "alice", commit_of_nobody(*TOPICS), 8),
    "offsets": (
        [group("Describe"), of_topic("Describe")],
        "alice",
        offset_fetch_request(*TOPICS),
        7,
    ),
    "offsets of all": (
        [group("Describe"), of_topic("Describe")],
        "alice",
        offset_fetch_8(None),
        8,
    ),
    "added": (
        [transactional("Write"), of_topic("Write")],
        "alice",
        add_partitions("t", "other", "missing"),
        3,
    ),
    "committed in a transaction": (
        [transactional("Write"), group("Read"), of_topic("Read")],
        "alice",
        txn_commit(*TOPICS),
        3,
    ),
    "committed in a transaction, no topic": (
        [transactional("Write"), group("Read")],
        "alice",
        txn_commit(*TOPICS),
        3,
    ),
    "created": ([of_topic("Create", "new")], "alice", create_topics("new"), 7),
    "not created": ([], "alice", create_topics("new"), 7),
    "created by cluster": (
        [cluster("Create"), of_topic("Describe", "new")],
        "alice",
        create_topics("new"),
        7,
    ),
    "deleted, missing": ([], "alice", delete_topics("missing"), 6),
    "deleted, described": ([of_topic("Describe")], "alice", delete_topics("t"), 6),
    "deleted, described and missing": (
        [of_topic("Describe", "missing")],
        "alice",
        delete_topics("missing"),
        6,
    ),
    "partitions": ([of_topic("Describe")], "alice", create_partitions("t"), 3),
    "groups": ([], "alice", ListGroupsRequest(), 4),
    "described group": (
        [group("Delete")],
        "alice",
        DescribeGroupsRequest(groups=["g", "other"], include_authorized_operations=True),
        5,
    ),
    "transactions": (
        [transactional("Describe")],
        "alice",
        ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
        0,
    ),
    "configs": ([], "alice", configs(2, "t"), 4),
    "broker configs": ([], "alice", configs(4, "1"), 4),
    "acls": ([], "alice", DescribeAclsRequest(**EVERYTHING), 3),
    "acls of root": (
        [of_topic("Read"), group("Read")],
        "root",
        DescribeAclsRequest(**EVERYTHING),
        3,
    ),
    "acls created": ([], "alice", with_pattern(3), 3),
    "acls deleted": (
        [],
        "alice",
        DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)]),
        3,
    ),
    "any pattern": ([], "root", with_pattern(1), 3),
    "match pattern": ([], "root", with_pattern(2), 3),
    "unknown pattern": ([], "root", with_pattern(99), 3),
    "any resource": ([], "root", with_pattern(3, resource_type=1), 3),
    "unknown resource": ([], "root", with_pattern(3, resource_type=99), 3),
    "acls matched": (
        [of_topic("Read"), Acl("User:a", "Read", topic="*"), Acl("User:a", "Read", topic="b")],
        "root",
        DescribeAclsRequest(
            **EVERYTHING
            | {"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 2}
        ),
        3,
    ),
    "acls deleted by root": (
        [of_topic("Read"), group("Read")],
        "root",
        DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)] * 2),
        3,
    ),
    "no name": ([], "root", with_pattern(3, ""), 3),
    "another cluster": ([], "root", with_pattern(3, "t", 4), 3),
    "scram of alice": (
        [],
        "alice",
        DescribeUserScramCredentialsRequest(users=[UserName(name="a"), UserName(name="b")]),
        0,
    ),
    "no scram": (
        [],
        "root",
        DescribeUserScramCredentialsRequest(users=[UserName(name="a"), UserName(name="a")]),
        0,
    ),
    "no scram user": (
        [],
        "root",
        DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")]),
        0,
    ),
    "scram refused": ([], "alice", scram(upsert("a")), 0),
    "no user name": ([], "root", scram(upsert("")), 0),
    "few iterations": ([], "root", scram(upsert("a", iterations=1)), 0),
    "many iterations": ([], "root", scram(upsert("a", iterations=16_385)), 0),
    "unknown mechanism": ([], "root", scram(upsert("a", mechanism=3)), 0),
    "twice": ([], "root", scram(upsert("a"), upsert("a")), 0),
    "both mechanisms, one wrong": (
        [],
        "root",
        scram(upsert("a"), upsert("a", mechanism=2, iterations=1), upsert("b")),
        0,
    ),
    "not deleted": (
        [],
        "root",
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="c", mechanism=1)], upsertions=[]
        ),
        0,
    ),
}


async def converse(address: Address) -> dict[str, Any]:
    seen = {}
    with anyio.fail_after(TIMEOUT_S):
        async with logged_in(address, "root") as root, logged_in(address, "alice") as alice:
            await create_all(root)
            for name, (acls, user, request, version) in CONVERSATIONS.items():
                await set_acls(root, acls)
                client = root if user == "root" else alice
                seen[name] = shape(await client.call(request, version))
    return seen


async def test_the_same_responses(kafka: AclKafka) -> None:
    real = await converse(Address(HOST, kafka.sasl_port))
    async with Broker(
        as_of="4.3", sasl=PASSWORDS, acls=[], super_users=["User:root"], default_partitions=2
    ) as broker:
        embedded = await converse(broker.nodes[1])
    different = {
        name: (embedded[name], real[name]) for name in real if embedded[name] != real[name]
    }
    assert different == {}


async def test_the_same_requests_are_refused(kafka: AclKafka) -> None:
    real = await observe(Address(HOST, kafka.sasl_port))
    async with Broker(as_of="4.3", sasl=PASSWORDS, acls=[], super_users=["User:root"]) as broker:
        embedded = await observe(broker.nodes[1])
    assert embedded == real
    assert len(real) == len(COMPARABLE) > 30
    for codes in real.values():
        assert codes[0]
        assert not codes[-1]


# --- clients -------------------------------------------------------------------------------------

T0 = TopicPartition("t", 0)
Call = Callable[[Mapping[str, Any]], Awaitable[object]]


async def send(options: Mapping[str, Any]) -> None:
    async with Producer(**options, enable_idempotence=False) as producer:
        await producer.send_and_wait("t", b"v")


async def send_idempotently(options: Mapping[str, Any]) -> None:
    async with Producer(**options) as producer:
        await producer.send_and_wait("t", b"v")


async def transact(options: Mapping[str, Any]) -> None:
    async with Producer(**options, transactional_id="x") as producer, producer.transaction():
        await producer.send_and_wait("t", b"v")


async def read(options: Mapping[str, Any]) -> None:
    async with Consumer("t", **options) as consumer:
        await consumer.getone()


async def read_assigned(options: Mapping[str, Any]) -> None:
    async with Consumer(**options) as consumer:
        consumer.assign(T0)
        await consumer.getone()


async def read_in_group(options: Mapping[str, Any]) -> None:
    async with Consumer("t", **options, group_id="g") as consumer:
        await consumer.getone()


async def commit_offset(options: Mapping[str, Any]) -> None:
    async with Consumer(**options, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign(T0)
        await consumer.commit({T0: 1})


async def find_offsets(options: Mapping[str, Any]) -> None:
    async with Consumer(**options) as consumer:
        await consumer.end_offsets(T0)


CALLS: list[tuple[Call, list[Acl], tuple[str, str | None, str]]] = [
    (send, [], ("topic", "t", "Describe")),
    (send, [of_topic("Read")], ("topic", "t", "Write")),
    (send_idempotently, [of_topic("Read")], ("cluster", None, "IdempotentWrite")),
    (transact, [of_topic("Write")], ("transactional_id", "x", "Describe")),
    (
        transact,
        [of_topic("Write"), transactional("Describe")],
        ("transactional_id", "x", "Write"),
    ),
    (read, [], ("topic", "t", "Describe")),
    (read, [of_topic("Describe")], ("topic", "t", "Read")),
    (read_assigned, [], ("topic", "t", "Describe")),
    (read_assigned, [of_topic("Describe")], ("topic", "t", "Read")),
    (read_in_group, [of_topic("Read")], ("group", "g", "Describe")),
    (read_in_group, [of_topic("Read"), group("Describe")], ("group", "g", "Read")),
    (read_in_group, [group("Read")], ("topic", "t", "Describe")),
    (commit_offset, [of_topic("Read"), group("Describe")], ("group", "g", "Read")),
    (commit_offset, [of_topic("Describe"), group("Read")], ("topic", "t", "Read")),
    (find_offsets, [], ("topic", "t", "Describe")),
]


@pytest.mark.parametrize("is_real", [True, False], ids=["real", "embedded"])
async def test_clients_name_the_missing_permission(kafka: AclKafka, is_real: bool) -> None:
    async with Broker(sasl=PASSWORDS, acls=[], super_users=["User:root"]) as broker:
        address = Address(HOST, kafka.sasl_port) if is_real else broker.nodes[1]
        options = {
            "bootstrap_servers": str(address),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": PASSWORDS["alice"],
        }
        with anyio.fail_after(TIMEOUT_S):
            async with logged_in(address, "root") as root:
                await create_all(root)
                for call, acls, expected in CALLS:
                    await set_acls(root, acls)
                    with pytest.raises(AuthorizationFailed) as refused:
                        await call(options)
                    error = refused.value
                    found = error.resource_type, error.resource_name, error.operation
                    assert found == expected, call.__name__
