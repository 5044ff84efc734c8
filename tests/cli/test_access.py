from __future__ import annotations

import anyio
import pytest

from aiokafkawire import Broker
from aiokafkawire.cli.access import admin_options, connected, refusal, require_topics
from aiokafkawire.cli.problems import Failure
from aiokafkawire.cli.topics import create
from aiokafkawire.errors import InvalidOption, KafkaError, NoBrokerAvailable, UnsupportedVersion


def test_options_are_those_of_every_client():
    options = admin_options("h:1", ["request.timeout.ms=5"])
    assert (options["bootstrap_servers"], options["request_timeout_ms"]) == ("h:1", 5)
    assert not options["allow_auto_create_topics"]
    with pytest.raises(InvalidOption, match="unknown option 'linger_ms'"):
        admin_options("h:1", ["linger_ms=5"])


async def test_all_topics_are_known_at_once_where_they_are_wanted():
    async with Broker() as broker:
        await broker.create_topic("orders")
        options = admin_options(broker.bootstrap_servers, ())
        async with connected(options, all_topics=True) as access:
            assert list(access.cluster.metadata.topics) == ["orders"]
            assert 0 < access.timeout_ms <= options["default_api_timeout_ms"]
            require_topics(access, ["orders"])
            with pytest.raises(Failure, match="'order' does not exist; did you mean 'orders'"):
                require_topics(access, ["orders", "order"])
        async with connected(options) as access:
            assert not access.cluster.metadata.topics


async def test_what_goes_wrong_inside_comes_out_as_it_is():
    async with Broker() as broker:
        options = admin_options(broker.bootstrap_servers, ())
        with pytest.raises(ZeroDivisionError):
            async with connected(options):
                raise ZeroDivisionError


async def test_no_broker_is_told_at_the_deadline():
    options = admin_options("127.0.0.1:1", ["default_api_timeout_ms=50"])
    with pytest.raises(NoBrokerAvailable):
        async with connected(options):
            raise AssertionError


async def test_what_old_brokers_lack_is_told_at_once():
    async with Broker(as_of="0.8.2") as broker:
        options = admin_options(broker.bootstrap_servers, ())
        async with connected(options) as access:
            # They tell no controller either, which would be waited for.
            assert access.cluster.metadata.controller_id < 0
            with anyio.fail_after(20), pytest.raises(UnsupportedVersion, match="no CreateTopics"):
                await create(access, ["orders"])


def test_what_the_broker_adds_stands_behind_the_code():
    assert refusal(0) is None
    error = refusal(36, "it is there", api="CreateTopics", topic="t")
    assert isinstance(error, KafkaError)
    assert str(error) == "TOPIC_ALREADY_EXISTS: it is there (api CreateTopics, topic t)"
