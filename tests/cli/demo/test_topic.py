from __future__ import annotations

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Drop
from aiokafkawire.cli.demo.topic import DemoTopic
from aiokafkawire.errors import BrokerError
from aiokafkawire.wire import ApiKey, ErrorCode


async def test_the_topic_exists_inside_the_block_only() -> None:
    async with Broker(3, auto_create_topics=False) as broker:
        async with DemoTopic(broker.bootstrap_servers, "words", 12):
            assert broker.topics == {"words": 12}
        assert broker.topics == {}


async def test_the_topic_is_deleted_when_the_body_fails() -> None:
    async with Broker(1) as broker:
        with pytest.raises(ZeroDivisionError):
            async with DemoTopic(broker.bootstrap_servers, "words", 12):
                raise ZeroDivisionError
        assert broker.topics == {}


async def test_an_existing_topic_is_an_error() -> None:
    async with Broker(1) as broker:
        await broker.create_topic("words")
        with pytest.raises(BrokerError, match="words") as failure:
            async with DemoTopic(broker.bootstrap_servers, "words", 12):
                pytest.fail("there is such a topic")
        assert failure.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.slow
async def test_a_cancellation_waits_only_briefly_for_the_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiokafkawire.cli.demo.topic.DELETE_TIMEOUT_S", 1000.0)
    async with Broker(1) as broker:
        broker.on(ApiKey.DELETE_TOPICS, Drop())
        with anyio.fail_after(20), anyio.CancelScope() as scope:
            async with DemoTopic(broker.bootstrap_servers, "words", 1):
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert "words" in broker.topics


async def test_a_failed_deletion_is_logged_and_not_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker(1) as broker:
        broker.on(ApiKey.DELETE_TOPICS, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        async with DemoTopic(broker.bootstrap_servers, "words", 1):
            assert "words" in broker.topics
    assert "topic words was not deleted: TOPIC_AUTHORIZATION_FAILED" in caplog.text
