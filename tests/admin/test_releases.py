"""The releases of API versions agree with those of the embedded broker."""

from __future__ import annotations

import pytest

from aiokafkawire.admin.releases import INTRODUCED_IN, add_release, release_with
from aiokafkawire.admin.routing import TARGETS
from aiokafkawire.broker import releases
from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.wire import ApiKey


@pytest.mark.parametrize("api", sorted(INTRODUCED_IN.keys() & releases._HIGHEST.keys()))
def test_each_version_is_introduced_in_the_same_release(api: ApiKey) -> None:
    for entry in releases._HIGHEST[api].split():
        release, _, version = entry.partition(":")
        assert release_with(api, int(version)) == release


def test_each_api_has_releases() -> None:
    assert TARGETS.keys() <= INTRODUCED_IN.keys()


def test_the_release_of_a_version() -> None:
    assert release_with(ApiKey.CREATE_TOPICS) == "0.10.1"
    assert release_with(ApiKey.CREATE_TOPICS, 4) == "2.4"
    assert release_with(ApiKey.CREATE_TOPICS, 99) is None
    assert release_with(ApiKey.PRODUCE) is None


def test_the_text_names_the_release_once() -> None:
    error = UnsupportedVersion("the broker does not support CreateTopics")
    for _ in range(2):
        add_release(error, ApiKey.CREATE_TOPICS)
    assert error.reason == (
        "the broker does not support CreateTopics: CreateTopics needs Kafka 0.10.1 or later"
    )


def test_the_text_names_the_release_with_kraft_where_it_is_later() -> None:
    error = UnsupportedVersion("no")
    add_release(error, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    assert error.reason == (
        "no: AlterUserScramCredentials needs Kafka 2.7 or later (3.5 with KRaft)"
    )
