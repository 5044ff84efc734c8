from __future__ import annotations

import anyio
import pytest

from aiokafkawire import Broker
from aiokafkawire.cli.client_session import (
    admin_options,
    open_session,
    require_topics,
    response_error,
)
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.topics import create_topics
from aiokafkawire.errors import InvalidOption, KafkaError, NoBrokerAvailable, UnsupportedVersion


def test_options_are_those_of_every_client():
    options = admin_options("h:1", ["request.timeout.ms=5"])
    assert (options["bootstrap_servers"], options["request_timeout_ms"]) == ("h:1", 5)
    assert not options["allow_auto_create_topics"]
    with pytest.raises(
        InvalidOption, match="'linger_ms' is a producer option, not one of a client"
    ):
        admin_options("h:1", ["linger_ms=5"])


async def test_all_topics_are_known_at_once_where_they_are_wanted():
    async with Broker() as broker:
        await broker.create_topic("orders")
        options = admin_options(broker.bootstrap_servers, ())
        async with open_session(options, all_topics=True) as session:
            assert list(session.cluster.metadata.topics) == ["orders"]
            assert 0 < session.timeout_ms <= options["default_api_timeout_ms"]
            require_topics(session, ["orders"])
            with pytest.raises(
                CommandFailed, match="'order' does not exist; did you mean 'orders'"
            ):
                require_topics(session, ["orders", "order"])
        async with open_session(options) as session:
            assert not session.cluster.metadata.topics


async def test_what_goes_wrong_inside_comes_out_as_it_is():
    async with Broker() as broker:
        options = admin_options(broker.bootstrap_servers, ())
        with pytest.raises(ZeroDivisionError):
            async with open_session(options):
                raise ZeroDivisionError


async def test_no_broker_is_reported_at_the_deadline():
    options = admin_options("127.0.0.1:1", ["default_api_timeout_ms=50"])
    with pytest.raises(NoBrokerAvailable):
        async with open_session(options):
            raise AssertionError


async def test_what_old_brokers_lack_is_reported_at_once():
    async with Broker(as_of="0.8.2") as broker:
        options = admin_options(broker.bootstrap_servers, ())
        async with open_session(options) as session:
            # They do not report a controller, and the request would wait for one.
            assert session.cluster.metadata.controller_id < 0
            with (
                anyio.fail_after(20),
                pytest.raises(UnsupportedVersion, match="support CreateTopics"),
            ):
                await create_topics(session, ["orders"])


def test_the_brokers_message_follows_the_error_code():
    assert response_error(0) is None
    error = response_error(36, "it is there", api="CreateTopics", topic="t")
    assert isinstance(error, KafkaError)
    assert str(error) == "TOPIC_ALREADY_EXISTS: it is there (api CreateTopics, topic t)"
