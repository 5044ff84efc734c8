from __future__ import annotations

import pytest

from aiokafkawire import Broker
from aiokafkawire.cli.admin_command import admin_options
from aiokafkawire.cli.client_session import open_session, require_topics
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.errors import NoBrokerAvailable


async def test_all_topics_are_known_at_once() -> None:
    async with Broker() as broker:
        await broker.create_topic("orders")
        async with open_session(admin_options(broker.bootstrap_servers, ())) as session:
            assert list(session.cluster.metadata.topics) == ["orders"]
            require_topics(session, ["orders"])
            with pytest.raises(
                CommandFailed, match="'order' does not exist; did you mean 'orders'"
            ):
                require_topics(session, ["orders", "order"])


async def test_what_goes_wrong_inside_comes_out_as_it_is() -> None:
    async with Broker() as broker:
        options = admin_options(broker.bootstrap_servers, ())
        with pytest.raises(ZeroDivisionError):
            async with open_session(options):
                raise ZeroDivisionError


async def test_no_broker_is_reported_at_the_deadline() -> None:
    options = admin_options("127.0.0.1:1", ["default_api_timeout_ms=50"])
    with pytest.raises(NoBrokerAvailable):
        async with open_session(options):
            raise AssertionError
