from __future__ import annotations

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Drop
from aiokafkawire.cli.demo.topic import Topic
from aiokafkawire.errors import BrokerError
from aiokafkawire.wire import ApiKey, ErrorCode


async def test_it_is_there_inside_and_gone_after() -> None:
    async with Broker(3, auto_create_topics=False) as broker:
        async with Topic(broker.bootstrap_servers, "words", 12):
            assert broker.topics == {"words": 12}
        assert broker.topics == {}


async def test_it_goes_when_the_body_fails_too() -> None:
    async with Broker(1) as broker:
        with pytest.raises(ZeroDivisionError):
            async with Topic(broker.bootstrap_servers, "words", 12):
                raise ZeroDivisionError
        assert broker.topics == {}


async def test_one_that_exists_is_refused() -> None:
    async with Broker(1) as broker:
        await broker.create_topic("words")
        with pytest.raises(BrokerError, match="words") as failure:
            async with Topic(broker.bootstrap_servers, "words", 12):
                pytest.fail("there is such a topic")
        assert failure.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.slow
async def test_after_a_cancellation_deleting_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiokafkawire.cli.demo.topic.DELETE_TIMEOUT_S", 1000.0)
    async with Broker(1) as broker:
        broker.on(ApiKey.DELETE_TOPICS, Drop())
        with anyio.fail_after(20), anyio.CancelScope() as scope:
            async with Topic(broker.bootstrap_servers, "words", 1):
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert "words" in broker.topics


async def test_a_topic_that_cannot_be_deleted_is_told_and_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker(1) as broker:
        broker.on(ApiKey.DELETE_TOPICS, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        async with Topic(broker.bootstrap_servers, "words", 1):
            assert "words" in broker.topics
    assert "topic words was not deleted: TOPIC_AUTHORIZATION_FAILED" in caplog.text
