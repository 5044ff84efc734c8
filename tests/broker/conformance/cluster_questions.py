"""Questions about the cluster: what it speaks, its topics, and what they are set to."""

from __future__ import annotations

from typing import Any

from aiokafkawire.wire import ZERO_UUID, ApiKey, Request
from aiokafkawire.wire.messages import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    init_producer_id,
    metadata,
)
from tests.broker.conformance.questions import (
    ALONE,
    LED,
    NO_SUCH_ID,
    NOWHERE,
    PARTITIONS,
    SMALL,
    WRITTEN,
    Interview,
    other,
    question,
)

FEATURES = {"supportedFeatures", "finalizedFeaturesEpoch", "finalizedFeatures"}

# --- what a release speaks -----------------------------------------------------------------------


@question()
async def an_api_that_there_is_not(to: Interview) -> None:
    await to.say("API 999 v0", 999, 0)


@question()
async def a_version_that_there_is_not(to: Interview) -> None:
    await to.say("Heartbeat v99", ApiKey.HEARTBEAT, 99, bytes(64))
    await to.say("ApiVersions v99", ApiKey.API_VERSIONS, 99, bytes(3))


@question()
async def a_request_that_is_cut_off(to: Interview) -> None:
    await to.say("Metadata v0 without its end", ApiKey.METADATA, 0, b"\0\0")


@question(ApiKey.API_VERSIONS, 3)
async def a_client_without_a_name(to: Interview) -> None:
    request = api_versions.ApiVersionsRequest(
        client_software_name="", client_software_version="(none)"
    )
    await to.ask(request, hide=FEATURES)


# --- metadata ------------------------------------------------------------------------------------


def topics_named(to: Interview, *names: str, create: bool = False) -> Request[Any]:
    """Before version 4 every question would make what there is not."""
    create = create or to.version(ApiKey.METADATA) < 4
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )


@question(ApiKey.METADATA)
async def metadata_of_a_topic(to: Interview) -> None:
    await to.ask(topics_named(to, LED))


@question(ApiKey.METADATA)
async def metadata_of_a_topic_twice(to: Interview) -> None:
    await to.ask(topics_named(to, ALONE, ALONE))


@question(ApiKey.METADATA, 0, exactly=True)
async def metadata_of_version_0(to: Interview) -> None:
    await to.ask(topics_named(to, WRITTEN, create=True), 0)


@question(ApiKey.METADATA)
async def metadata_of_a_name_that_is_none(to: Interview) -> None:
    await to.ask(topics_named(to, "a b", create=True))
    await to.ask(topics_named(to, "n" * 300, create=True))


@question(ApiKey.METADATA, 4)
async def metadata_of_a_topic_that_is_not_to_be_made(to: Interview) -> None:
    await to.ask(topics_named(to, NOWHERE))


@question(ApiKey.METADATA)
async def metadata_makes_a_topic(to: Interview) -> None:
    await to.ask(topics_named(to, "made", create=True))


@question(ApiKey.METADATA)
async def metadata_made_a_topic(to: Interview) -> None:
    await to.look(topics_named(to, "made", create=True))
    await to.until_led("made", PARTITIONS)
    # Who leads is drawn.
    drawn = {"leaderId", "replicaNodes", "isrNodes"}
    await to.ask(topics_named(to, "made"), hide=drawn)


@question(ApiKey.METADATA, 1)
async def metadata_of_no_topic(to: Interview) -> None:
    await to.ask(topics_named(to))


@question(ApiKey.METADATA, 12)
async def metadata_of_an_id_that_nobody_has(to: Interview) -> None:
    asked = metadata.MetadataRequestTopic(topic_id=NO_SUCH_ID, name=None)
    await to.ask(metadata.MetadataRequest(topics=[asked]))


# --- topics --------------------------------------------------------------------------------------


def made(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: list[list[int]] | None = None,
    configs: dict[str, str] | None = None,
) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replicas,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in enumerate(assignments or [])
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ],
    )


async def create(to: Interview, *topics: create_topics.CreatableTopic, **fields: Any) -> None:
    request = create_topics.CreateTopicsRequest(topics=list(topics), timeout_ms=5_000, **fields)
    # Real brokers return all configs of a created topic; only those of our options are compared.
    await to.ask(request, node=await to.controller(), hide={"configs"})


@question(ApiKey.CREATE_TOPICS)
async def create_a_topic(to: Interview) -> None:
    await create(to, made("created", 2, 2, configs={"retention.ms": "1000"}))
    await create(to, made("created"))


@question(ApiKey.CREATE_TOPICS)
async def create_what_cannot_be(to: Interview) -> None:
    await create(to, made("a b"))
    await create(to, made("fine", replicas=9))
    await create(to, made("fine", partitions=0))
    await create(to, made("fine", replicas=0))


@question(ApiKey.CREATE_TOPICS)
async def create_with_settings_that_there_are_not(to: Interview) -> None:
    await create(to, made("unset", configs={"no.such.thing": "1"}))
    await create(to, made("unset", configs={"retention.ms": "long"}))


@question(ApiKey.CREATE_TOPICS)
async def create_where_nobody_is(to: Interview) -> None:
    await create(to, made("astray", assignments=[[9]]))


@question(ApiKey.CREATE_TOPICS)
async def create_with_replicas_that_cannot_be(to: Interview) -> None:
    await create(to, made("twofold", assignments=[[1, 1]]))
    await create(to, made("uneven", assignments=[[1], [1, 2]]))
    both = made("overset", assignments=[[1]])
    both.num_partitions = 1
    await create(to, both)


@question(ApiKey.CREATE_TOPICS)
async def create_twice_at_once(to: Interview) -> None:
    await create(to, made("double"), made("double"))


@question(ApiKey.CREATE_TOPICS, 1)
async def create_to_see_whether_it_could_be(to: Interview) -> None:
    await create(to, made("possible", 2), made(LED), validate_only=True)


@question(ApiKey.CREATE_TOPICS)
async def create_at_another_node(to: Interview) -> None:
    request = create_topics.CreateTopicsRequest(topics=[made(LED)], timeout_ms=5_000)
    await to.ask(request, node=other(await to.controller()))


@question(ApiKey.DELETE_TOPICS)
async def delete_what_there_is_not(to: Interview) -> None:
    version = to.version(ApiKey.DELETE_TOPICS)
    named = [delete_topics.DeleteTopicState(name=NOWHERE, topic_id=ZERO_UUID)]
    request = (
        delete_topics.DeleteTopicsRequest(topics=named, timeout_ms=5_000)
        if version >= 6
        else delete_topics.DeleteTopicsRequest(topic_names=[NOWHERE], timeout_ms=5_000)
    )
    await to.ask(request, node=await to.controller())


@question(ApiKey.CREATE_PARTITIONS)
async def too_few_partitions(to: Interview) -> None:
    for name, count in ((LED, 2), (LED, 1), (LED, 0), (NOWHERE, 3)):
        topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = create_partitions.CreatePartitionsRequest(
            topics=[topic], timeout_ms=5_000, validate_only=True
        )
        await to.ask(request, node=await to.controller())


# --- settings ------------------------------------------------------------------------------------


TOPIC, BROKER = 2, 4
"""Kinds of resources."""


def settings_of(kind: int, name: str, *keys: str) -> Request[Any]:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return describe_configs.DescribeConfigsRequest(resources=[resource])


@question(ApiKey.DESCRIBE_CONFIGS)
async def the_settings_of_a_topic(to: Interview) -> None:
    keys = ("max.message.bytes", "cleanup.policy", "message.timestamp.type", "no.such.thing")
    await to.ask(settings_of(TOPIC, SMALL, *keys), hide={"documentation", "synonyms"})


@question(ApiKey.DESCRIBE_CONFIGS)
async def the_settings_of_what_there_is_not(to: Interview) -> None:
    for kind, name in ((TOPIC, NOWHERE), (TOPIC, "a b"), (BROKER, "77"), (99, "thing")):
        await to.ask(settings_of(kind, name, "cleanup.policy"), hide={"documentation"})


@question(ApiKey.DESCRIBE_CLUSTER)
async def the_cluster(to: Interview) -> None:
    for kind in (1, 3):
        fields = {"endpoint_type": kind} if to.version(ApiKey.DESCRIBE_CLUSTER) >= 1 else {}
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=False, **fields
        )
        await to.ask(request)


@question(ApiKey.INIT_PRODUCER_ID)
async def the_id_of_a_producer(to: Interview) -> None:
    await to.new_producer_id()
    for timeout_ms in (60_000, -1):
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=timeout_ms
        )
        await to.ask(request)
