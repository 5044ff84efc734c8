from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import InvalidOption
from aiokafkawire.group.assignors import RangeAssignor

GROUP: dict[str, Any] = {"bootstrap_servers": "h:1", "group_id": "g"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"group_id": None, "group_protocol": "consumer"}, "group_protocol needs a group_id"),
        ({"group_id": None, "group_protocol": "auto"}, "group_protocol needs a group_id"),
        (
            {"group_id": None, "group_remote_assignor": "uniform"},
            "group_remote_assignor needs a group_id",
        ),
        ({"group_protocol": "auto", "offsets_storage": "zookeeper"}, "stores offsets in Kafka"),
        ({"group_remote_assignor": "uniform"}, "needs group_protocol='consumer' or 'auto'"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9_000}, "session_timeout_ms"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 1_000}, "heartbeat_interval_ms"),
        (
            {
                "group_protocol": "consumer",
                "partition_assignment_strategy": [RangeAssignor()],
            },
            "partition_assignment_strategy",
        ),
    ],
)
def test_options_that_do_not_fit_the_group_protocol(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        ConsumerConfig(**GROUP | options)


@pytest.mark.parametrize(
    "options",
    [
        {"group_protocol": "consumer", "group_remote_assignor": "range"},
        {"group_protocol": "auto", "session_timeout_ms": 9_000},
        {"group_protocol": "classic", "heartbeat_interval_ms": 1_000},
    ],
)
def test_options_that_fit_the_group_protocol(options: dict[str, Any]) -> None:
    config = ConsumerConfig(**GROUP | options)
    assert config.group_protocol == options["group_protocol"]
