from __future__ import annotations

import pytest

from aiokafkawire.cluster.coordinators import (
    MAX_COORDINATORS,
    CoordinatorCache,
    FoundCoordinator,
    find_coordinator_request,
    read_find_coordinator,
)
from aiokafkawire.cluster.routing import CoordinatorType, ToCoordinator
from aiokafkawire.errors import ProtocolError
from aiokafkawire.wire import decode, encode
from aiokafkawire.wire.messages.find_coordinator import (
    Coordinator as CoordinatorEntry,
)
from aiokafkawire.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = ToCoordinator("g")
TRANSACTION = ToCoordinator("g", CoordinatorType.TRANSACTION)


@pytest.mark.parametrize("version", range(7))
def test_every_version_can_find_a_group_coordinator(version: int):
    request, min_version = find_coordinator_request(GROUP)
    assert min_version == 0
    sent = decode(FindCoordinatorRequest, version, encode(request.build(version), version))
    assert (sent.key or sent.coordinator_keys[0]) == "g"
    assert sent.key_type == 0


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_need_the_key_type(version: int):
    request, min_version = find_coordinator_request(TRANSACTION)
    assert min_version == 1
    sent = decode(FindCoordinatorRequest, version, encode(request.build(version), version))
    assert sent.key_type == 1


def test_both_response_formats_are_read():
    flat = FindCoordinatorResponse(error_code=0, node_id=3, host="h", port=9)
    assert read_find_coordinator(flat, "g") == FoundCoordinator(0, "", 3, "h", 9)
    entry = [
        CoordinatorEntry(key=key, node_id=node, host="h", port=9, error_code=0)
        for key, node in (("x", 1), ("g", 2))
    ]
    assert read_find_coordinator(FindCoordinatorResponse(coordinators=entry), "g").node_id == 2


def test_a_response_for_other_keys_is_a_protocol_error():
    entry = CoordinatorEntry(key="x", node_id=1, host="h", port=9, error_code=0)
    with pytest.raises(ProtocolError, match="'g'"):
        read_find_coordinator(FindCoordinatorResponse(coordinators=[entry]), "g")


def test_groups_and_transactional_ids_with_one_name_are_separate():
    cache = CoordinatorCache()
    cache.put(GROUP, 1)
    cache.put(TRANSACTION, 2)
    assert (cache.known.get(GROUP), cache.known.get(TRANSACTION)) == (1, 2)
    cache.forget(GROUP)
    cache.forget(GROUP)
    assert (cache.known.get(GROUP), cache.known.get(TRANSACTION)) == (None, 2)


def test_the_cache_is_bounded():
    cache = CoordinatorCache()
    for number in range(MAX_COORDINATORS + 1):
        cache.put(ToCoordinator(str(number)), number)
    assert cache.known.get(ToCoordinator("0")) is None
    assert cache.known.get(ToCoordinator("1")) == 1
