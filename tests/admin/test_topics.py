"""Operations on topics: what they read from responses."""

from __future__ import annotations

from typing import Any

from aiokafkawire.admin import ConfigEntry, ConfigSource
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from tests.admin.scripted import ScriptedAdmin, ScriptedCluster


def created(*configs: CreatableTopicConfigs) -> Any:
    topic = CreatableTopicResult(
        name="t", error_code=0, num_partitions=1, replication_factor=1, configs=list(configs)
    )
    return lambda request: CreateTopicsResponse(topics=[topic])


async def test_configs_of_a_created_topic_have_their_source(anyio_backend: object):
    cluster = ScriptedCluster()
    given = {"value": "1", "read_only": False, "is_sensitive": False}
    cluster.answer(
        ApiKey.CREATE_TOPICS,
        created(
            CreatableTopicConfigs(name="own", config_source=1, **given),
            CreatableTopicConfigs(name="default", config_source=5, **given),
            CreatableTopicConfigs(name="newer", config_source=99, **given),
        ),
    )
    topics = await ScriptedAdmin(cluster).create_topics(["t"])
    assert topics["t"].configs == {
        "own": ConfigEntry("own", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        "default": ConfigEntry("default", "1", ConfigSource.DEFAULT_CONFIG),
        "newer": ConfigEntry("newer", "1", ConfigSource.UNKNOWN),
    }
