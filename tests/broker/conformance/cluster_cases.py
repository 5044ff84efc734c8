"""Cases about the cluster: versions, topics and configs."""

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
from tests.broker.conformance.cases import (
    ALONE,
    LED,
    NO_SUCH_ID,
    NOWHERE,
    PARTITIONS,
    SMALL,
    WRITTEN,
    ConformanceClient,
    conformance_case,
    other,
)

FEATURES = {"supportedFeatures", "finalizedFeaturesEpoch", "finalizedFeatures"}

# --- what a release speaks -----------------------------------------------------------------------


@conformance_case()
async def unknown_api(to: ConformanceClient) -> None:
    await to.send_raw("API 999 v0", 999, 0)


@conformance_case()
async def unknown_version(to: ConformanceClient) -> None:
    await to.send_raw("Heartbeat v99", ApiKey.HEARTBEAT, 99, bytes(64))
    await to.send_raw("ApiVersions v99", ApiKey.API_VERSIONS, 99, bytes(3))


@conformance_case()
async def truncated_request(to: ConformanceClient) -> None:
    await to.send_raw("Metadata v0 without its end", ApiKey.METADATA, 0, b"\0\0")


@conformance_case(ApiKey.API_VERSIONS, 3)
async def null_client_id(to: ConformanceClient) -> None:
    request = api_versions.ApiVersionsRequest(
        client_software_name="", client_software_version="(none)"
    )
    await to.request(request, hide=FEATURES)


# --- metadata ------------------------------------------------------------------------------------


def topics_named(to: ConformanceClient, *names: str, create: bool = False) -> Request[Any]:
    """Before version 4 every metadata request would create missing topics."""
    create = create or to.version(ApiKey.METADATA) < 4
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )


@conformance_case(ApiKey.METADATA)
async def metadata_of_a_topic(to: ConformanceClient) -> None:
    await to.request(topics_named(to, LED))


@conformance_case(ApiKey.METADATA)
async def metadata_of_a_repeated_topic(to: ConformanceClient) -> None:
    await to.request(topics_named(to, ALONE, ALONE))


@conformance_case(ApiKey.METADATA, 0, this_version_only=True)
async def metadata_of_version_0(to: ConformanceClient) -> None:
    await to.request(topics_named(to, WRITTEN, create=True), 0)


@conformance_case(ApiKey.METADATA)
async def metadata_of_an_invalid_name(to: ConformanceClient) -> None:
    await to.request(topics_named(to, "a b", create=True))
    await to.request(topics_named(to, "n" * 300, create=True))


@conformance_case(ApiKey.METADATA, 4)
async def metadata_without_auto_creation(to: ConformanceClient) -> None:
    await to.request(topics_named(to, NOWHERE))


@conformance_case(ApiKey.METADATA)
async def metadata_auto_creates_a_topic(to: ConformanceClient) -> None:
    await to.request(topics_named(to, "made", create=True))


@conformance_case(ApiKey.METADATA)
async def metadata_of_an_auto_created_topic(to: ConformanceClient) -> None:
    await to.request_unrecorded(topics_named(to, "made", create=True))
    await to.until_led("made", PARTITIONS)
    # The leader is random.
    drawn = {"leaderId", "replicaNodes", "isrNodes"}
    await to.request(topics_named(to, "made"), hide=drawn)


@conformance_case(ApiKey.METADATA, 1)
async def metadata_of_no_topic(to: ConformanceClient) -> None:
    await to.request(topics_named(to))


@conformance_case(ApiKey.METADATA, 12)
async def metadata_of_an_unknown_topic_id(to: ConformanceClient) -> None:
    asked = metadata.MetadataRequestTopic(topic_id=NO_SUCH_ID, name=None)
    await to.request(metadata.MetadataRequest(topics=[asked]))


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


async def create(
    to: ConformanceClient, *topics: create_topics.CreatableTopic, **fields: Any
) -> None:
    request = create_topics.CreateTopicsRequest(topics=list(topics), timeout_ms=5_000, **fields)
    # Real brokers return all configs of a created topic; only those of our options are compared.
    await to.request(request, node=await to.controller(), hide={"configs"})


@conformance_case(ApiKey.CREATE_TOPICS)
async def create_a_topic(to: ConformanceClient) -> None:
    await create(to, made("created", 2, 2, configs={"retention.ms": "1000"}))
    await create(to, made("created"))


@conformance_case(ApiKey.CREATE_TOPICS)
async def create_invalid_topics(to: ConformanceClient) -> None:
    await create(to, made("a b"))
    await create(to, made("fine", replicas=9))
    await create(to, made("fine", partitions=0))
    await create(to, made("fine", replicas=0))


@conformance_case(ApiKey.CREATE_TOPICS)
async def create_with_unknown_configs(to: ConformanceClient) -> None:
    await create(to, made("unset", configs={"no.such.thing": "1"}))
    await create(to, made("unset", configs={"retention.ms": "long"}))


@conformance_case(ApiKey.CREATE_TOPICS)
async def create_on_an_unknown_broker(to: ConformanceClient) -> None:
    await create(to, made("astray", assignments=[[9]]))


@conformance_case(ApiKey.CREATE_TOPICS)
async def create_with_invalid_replicas(to: ConformanceClient) -> None:
    await create(to, made("twofold", assignments=[[1, 1]]))
    await create(to, made("uneven", assignments=[[1], [1, 2]]))
    both = made("overset", assignments=[[1]])
    both.num_partitions = 1
    await create(to, both)


@conformance_case(ApiKey.CREATE_TOPICS)
async def create_twice_at_once(to: ConformanceClient) -> None:
    await create(to, made("double"), made("double"))


@conformance_case(ApiKey.CREATE_TOPICS, 1)
async def create_with_validate_only(to: ConformanceClient) -> None:
    await create(to, made("possible", 2), made(LED), validate_only=True)


@conformance_case(ApiKey.CREATE_TOPICS)
async def create_at_a_non_controller(to: ConformanceClient) -> None:
    request = create_topics.CreateTopicsRequest(topics=[made(LED)], timeout_ms=5_000)
    await to.request(request, node=other(await to.controller()))


@conformance_case(ApiKey.DELETE_TOPICS)
async def delete_an_unknown_topic(to: ConformanceClient) -> None:
    version = to.version(ApiKey.DELETE_TOPICS)
    named = [delete_topics.DeleteTopicState(name=NOWHERE, topic_id=ZERO_UUID)]
    request = (
        delete_topics.DeleteTopicsRequest(topics=named, timeout_ms=5_000)
        if version >= 6
        else delete_topics.DeleteTopicsRequest(topic_names=[NOWHERE], timeout_ms=5_000)
    )
    await to.request(request, node=await to.controller())


@conformance_case(ApiKey.CREATE_PARTITIONS)
async def create_partitions_with_invalid_counts(to: ConformanceClient) -> None:
    for name, count in ((LED, 2), (LED, 1), (LED, 0), (NOWHERE, 3)):
        topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = create_partitions.CreatePartitionsRequest(
            topics=[topic], timeout_ms=5_000, validate_only=True
        )
        await to.request(request, node=await to.controller())


# --- settings ------------------------------------------------------------------------------------


TOPIC, BROKER = 2, 4
"""Resource types."""


def settings_of(kind: int, name: str, *keys: str) -> Request[Any]:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return describe_configs.DescribeConfigsRequest(resources=[resource])


@conformance_case(ApiKey.DESCRIBE_CONFIGS)
async def describe_configs_of_a_topic(to: ConformanceClient) -> None:
    keys = ("max.message.bytes", "cleanup.policy", "message.timestamp.type", "no.such.thing")
    await to.request(settings_of(TOPIC, SMALL, *keys), hide={"documentation", "synonyms"})


@conformance_case(ApiKey.DESCRIBE_CONFIGS)
async def describe_configs_of_unknown_resources(to: ConformanceClient) -> None:
    for kind, name in ((TOPIC, NOWHERE), (TOPIC, "a b"), (BROKER, "77"), (99, "thing")):
        await to.request(settings_of(kind, name, "cleanup.policy"), hide={"documentation"})


@conformance_case(ApiKey.DESCRIBE_CLUSTER)
async def describe_the_cluster(to: ConformanceClient) -> None:
    for kind in (1, 3):
        fields = {"endpoint_type": kind} if to.version(ApiKey.DESCRIBE_CLUSTER) >= 1 else {}
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=False, **fields
        )
        await to.request(request)


@conformance_case(ApiKey.INIT_PRODUCER_ID)
async def init_producer_id_without_transactional_id(to: ConformanceClient) -> None:
    await to.new_producer_id()
    for timeout_ms in (60_000, -1):
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=timeout_ms
        )
        await to.request(request)
