"""The inter-broker APIs in each version of each release, successful and with an injected error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.broker import Answer, Broker
from aiokafkawire.broker.apis import CONTROLLER_HANDLERS
from aiokafkawire.broker.releases import RELEASES
from aiokafkawire.broker.replication.controller_commands import (
    LeaderAndIsr,
    LeaderAndIsrCommand,
    StopReplicaCommand,
    UpdateMetadataCommand,
    build_leader_and_isr_request,
    build_stop_replica_request,
    build_update_metadata_request,
)
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafkawire.wire.messages.controlled_shutdown import ControlledShutdownRequest

from ..raw_client import connected
from ..test_apis import codes

E = ErrorCode
CONTROLLER = {"controller_id": 1, "controller_epoch": 1}
LEADERSHIP = {("t", 0): LeaderAndIsr(1, 9, (1,), (1,))}
STRANGER = 77

REQUESTS: dict[ApiKey, tuple[Callable[[int], Request[Any]], set[int]]] = {
    ApiKey.LEADER_AND_ISR: (
        lambda v: build_leader_and_isr_request(
            LeaderAndIsrCommand(
                **CONTROLLER, partitions=LEADERSHIP, leaders={}, topic_ids={"t": ZERO_UUID}
            ),
            v,
        ),
        {E.NONE, E.STALE_CONTROLLER_EPOCH},
    ),
    ApiKey.STOP_REPLICA: (
        lambda v: build_stop_replica_request(
            StopReplicaCommand(**CONTROLLER, partitions={("t", 0): False}), v
        ),
        {E.NONE},
    ),
    ApiKey.UPDATE_METADATA: (
        lambda v: build_update_metadata_request(
            UpdateMetadataCommand(**CONTROLLER, partitions=LEADERSHIP, live={}), v
        ),
        {E.NONE},
    ),
    ApiKey.CONTROLLED_SHUTDOWN: (
        lambda v: ControlledShutdownRequest(broker_id=STRANGER),
        {E.BROKER_NOT_AVAILABLE},
    ),
}

EVERY_VERSION = ["0.8", "0.9", "0.10.0", "0.10.2", "1.0", "2.2", "2.4", "2.6", "2.8"]


def test_every_api_has_a_case() -> None:
    assert set(REQUESTS) == set(CONTROLLER_HANDLERS)
    served = {
        (key, RELEASES[name].served[key].high)
        for name in RELEASES
        for key in REQUESTS
        if key in RELEASES[name].served
    }
    reached = {
        (key, RELEASES[{"0.8": "0.8.2", "0.9": "0.9.0"}.get(name, name)].served[key].high)
        for name in EVERY_VERSION
        for key in REQUESTS
    }
    assert served == reached, "each release that brought a version is asked for it"


@pytest.mark.parametrize("as_of", [*EVERY_VERSION, "3.9", None])
async def test_every_version_is_answered_and_can_be_made_to_fail(as_of: str | None) -> None:
    async with Broker(as_of=as_of, replicate=True) as broker, connected(broker) as client:
        served = broker._release.served
        for key, (make, expected) in REQUESTS.items():
            low, high = served[key]
            for version in range(low, high + 1):
                assert set(codes(await client.call(make(version), version))) <= expected, key
            rule = broker.on(key, Answer(E.UNKNOWN_SERVER_ERROR))
            for version in range(low, high + 1):
                failed = set(codes(await client.call(make(version), version)))
                assert failed == {E.UNKNOWN_SERVER_ERROR}, (key, version)
            rule.remove()


async def test_without_replication_leader_and_isr_is_not_sent() -> None:
    async with Broker(as_of="0.10") as broker:
        for make, _ in REQUESTS.values():
            async with connected(broker) as client:
                await client.send(make(1), 1)
                assert await client.closed()


@pytest.mark.parametrize("as_of", ["3.0", "4.3", None])
async def test_kraft_releases_do_not_advertise_inter_broker_apis(as_of: str | None) -> None:
    async with Broker(nodes=2, as_of=as_of, replicate=True) as broker:
        asked = broker.requests.of(ApiKey.API_VERSIONS)[0]
        assert asked.client_id == "broker-1"
        assert isinstance(asked.response, ApiVersionsResponse)
        assert {each.api_key for each in asked.response.api_keys} >= set(REQUESTS)
        async with connected(broker) as client:
            answer = await client.call(ApiVersionsRequest(), 0)
        assert not {each.api_key for each in answer.api_keys} & set(REQUESTS)
