"""Levels of loggers: DescribeConfigs and IncrementalAlterConfigs of BROKER_LOGGER."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from aiokafkawire import Admin
from aiokafkawire.admin import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from aiokafkawire.broker import Broker
from aiokafkawire.broker.loggers import BrokerLoggers
from aiokafkawire.errors import PartialFailure

NAME = "aiokafkawire.broker"
LOGGER = logging.getLogger(NAME)
NODE = ConfigResource(ConfigResourceType.BROKER_LOGGER, "1")


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(autouse=True)
def _level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOGGER, "level", logging.INFO)


async def described(admin: Admin) -> dict[str, str | None]:
    configs = (await admin.describe_configs([NODE]))[NODE]
    assert {each.source for each in configs.values()} == {ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG}
    assert not any(each.is_read_only or each.is_sensitive for each in configs.values())
    return {name: each.value for name, each in configs.items()}


async def test_the_level_of_a_logger_is_changed_and_reset(admin: Admin) -> None:
    assert await described(admin) == {NAME: "INFO"}
    await admin.incremental_alter_configs({NODE: {NAME: "DEBUG"}}, validate_only=True)
    assert LOGGER.level == logging.INFO
    await admin.incremental_alter_configs({NODE: {NAME: "DEBUG"}})
    assert LOGGER.level == logging.DEBUG
    assert await described(admin) == {NAME: "DEBUG"}
    await admin.incremental_alter_configs({NODE: {NAME: "TRACE"}})
    assert await described(admin) == {NAME: "TRACE"}
    await admin.incremental_alter_configs({NODE: {NAME: None}})
    assert LOGGER.level == logging.INFO


async def test_the_levels_are_restored_when_the_broker_stops() -> None:
    async with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.incremental_alter_configs({NODE: {NAME: "ERROR"}})
        assert LOGGER.level == logging.ERROR
    assert LOGGER.level == logging.INFO


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (AlterConfigOp("kafka", "INFO"), "Logger kafka does not exist!"),
        (AlterConfigOp(NAME, "LOUD"), "LOUD as it is not a supported log level. Valid log"),
        (
            AlterConfigOp(NAME, "INFO", AlterConfigOpType.APPEND),
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
    ],
)
async def test_what_cannot_be_changed(admin: Admin, operation: AlterConfigOp, reason: str) -> None:
    with pytest.raises(PartialFailure, match=reason):
        await admin.incremental_alter_configs({NODE: [operation]})
    assert LOGGER.level == logging.INFO


def test_levels_between_those_of_kafka() -> None:
    loggers = BrokerLoggers()
    for level, name in [(1, "TRACE"), (25, "WARN"), (60, "FATAL")]:
        LOGGER.setLevel(level)
        assert loggers.describe() == {NAME: name}
