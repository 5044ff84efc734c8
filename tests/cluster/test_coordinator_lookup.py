"""Lookups of several coordinators at once."""

from __future__ import annotations

from typing import Any

from aiokafkawire.cluster import CoordinatorType, ToCoordinator
from aiokafkawire.cluster.coordinator_lookup import find_coordinators
from aiokafkawire.errors import KafkaError, ProtocolError
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.messages.find_coordinator import Coordinator as Entry
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorResponse
from tests.connection.scripted import speaks

from .scripted import ScriptedCluster, client_of, scripted_cluster
from .test_cluster import soon

G, H, OTHER = (ToCoordinator(name, CoordinatorType.GROUP) for name in ("g", "h", "other"))


def answer(scripted: ScriptedCluster, *entries: Entry) -> list[list[str]]:
    """Let each FindCoordinator response have these entries; return the requested keys."""
    asked: list[list[str]] = []

    async def find(_: Any, request: Any) -> Response | None:
        asked.append(request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=list(entries))

    for node in scripted.nodes.values():
        node.answers[ApiKey.FIND_COORDINATOR] = find
    return asked


def entry(scripted: ScriptedCluster, key: str, node: int) -> Entry:
    address = scripted.servers[node].address
    return Entry(key=key, node_id=node, host=address.host, port=address.port, error_code=0)


async def test_all_coordinators_are_found_by_one_request_and_cached() -> None:
    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        asked = answer(scripted, entry(scripted, "h", 2), entry(scripted, "g", 1))
        for _ in range(2):
            found = await find_coordinators(cluster, [G, H, G], deadline=soon())
            assert found == {G: 1, H: 2}
        assert asked == [["g", "h"]]


async def test_an_error_of_one_group_does_not_affect_the_others() -> None:
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        refused = Entry(
            key="h",
            node_id=-1,
            host="",
            port=-1,
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
            error_message="ask the owner",
        )
        answer(scripted, entry(scripted, "g", 1), refused)
        found = await find_coordinators(cluster, [G, H, OTHER], deadline=soon())
        assert found[G] == 1
        error = found[H]
        assert isinstance(error, KafkaError)
        assert "GROUP_AUTHORIZATION_FAILED" in str(error)
        assert "ask the owner" in str(error)
        assert isinstance(found[OTHER], ProtocolError)  # the response has no entry for it


async def test_a_coordinator_at_an_impossible_address_is_an_error() -> None:
    async with scripted_cluster(1) as scripted, client_of(scripted) as cluster:
        await cluster.start(soon())
        answer(scripted, Entry(key="g", node_id=8, host="", port=9092, error_code=0))
        found = await find_coordinators(cluster, [G], deadline=soon())
        assert "its address is invalid: broker 8" in str(found[G])


async def test_brokers_that_find_one_coordinator_per_request_get_one_request_each() -> None:
    async def old(_: Any, __: Any) -> Response | None:
        return speaks({ApiKey.METADATA: (0, 13), ApiKey.FIND_COORDINATOR: (0, 3)})

    asked: list[str] = []

    async def find(_: Any, request: Any) -> Response | None:
        asked.append(request.key)
        address = scripted.servers[1].address
        code = 0 if request.key == "g" else ErrorCode.GROUP_AUTHORIZATION_FAILED
        return FindCoordinatorResponse(
            node_id=1, host=address.host, port=address.port, error_code=code
        )

    async with scripted_cluster(2) as scripted, client_of(scripted) as cluster:
        for node in scripted.nodes.values():
            node.answers |= {ApiKey.API_VERSIONS: old, ApiKey.FIND_COORDINATOR: find}
        await cluster.start(soon())
        found = await find_coordinators(cluster, [G, H], deadline=soon())
        assert found[G] == 1
        assert "GROUP_AUTHORIZATION_FAILED" in str(found[H])
        assert sorted(asked) == ["g", "h"]
