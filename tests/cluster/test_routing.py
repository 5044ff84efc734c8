from __future__ import annotations

import random

import pytest

from aiokafkawire.cluster.routing import (
    NodeLoad,
    Route,
    ToAnyNode,
    ToController,
    ToCoordinator,
    ToNode,
    error_codes,
    least_loaded_node,
    not_ready_code,
    routing_error_code,
)
from aiokafkawire.wire import ErrorCode, Response
from aiokafkawire.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.list_groups import ListGroupsResponse
from aiokafkawire.wire.messages.metadata import MetadataResponse
from aiokafkawire.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

NOW = 100.0
RNG = random.Random(3)


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([], None),
        ([NodeLoad(1, True, 5, 0.0), NodeLoad(2, True, 4, 0.0)], 2),
        ([NodeLoad(1, True, 90, 0.0), NodeLoad(2, False, 0, 0.0)], 1),
        ([NodeLoad(1, False, 0, 200.0), NodeLoad(2, False, 0, 0.0)], 2),
        ([NodeLoad(1, False, 0, 200.0), NodeLoad(2, False, 0, 150.0)], 2),
        ([NodeLoad(1, True, 3, 200.0), NodeLoad(2, False, 0, 50.0)], 1),
        ([NodeLoad(1, True, 0, 0.0, 101.0), NodeLoad(2, True, 9, 0.0)], 2),
        ([NodeLoad(1, True, 0, 0.0, 101.0), NodeLoad(2, False, 0, 0.0)], 2),
        ([NodeLoad(1, True, 0, 0.0, 101.0), NodeLoad(2, True, 9, 0.0, 100.5)], 2),
        ([NodeLoad(1, True, 0, 0.0, 99.0), NodeLoad(2, True, 9, 0.0)], 1),
    ],
)
def test_the_least_loaded_node(loads: list[NodeLoad], chosen: int | None):
    assert least_loaded_node(loads, NOW, RNG) == chosen


def test_ties_are_broken_at_random():
    loads = [NodeLoad(number, False, 0, 0.0) for number in range(4)]
    assert {least_loaded_node(loads, NOW, RNG) for _ in range(100)} == {0, 1, 2, 3}


def commit_response(code: int) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = OffsetCommitResponseTopic(name="t", partitions=[partition])
    return OffsetCommitResponse(topics=[topic])


def test_error_codes_are_found_at_every_depth():
    assert list(error_codes(commit_response(16))) == [16]
    assert list(error_codes(HeartbeatResponse(error_code=0))) == []
    group = OffsetFetchResponseGroup(group_id="g", topics=[], error_code=14)
    assert list(error_codes(OffsetFetchResponse(groups=[group]))) == [14]
    assert list(error_codes(MetadataResponse(brokers=[], topics=[], error_code=129))) == [129]


CREATED = CreateTopicsResponse(
    topics=[CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)]
)


@pytest.mark.parametrize(
    ("response", "route", "code"),
    [
        (CREATED, ToController(), ErrorCode.NOT_CONTROLLER),
        (CREATED, ToCoordinator("g"), None),
        (CREATED, ToNode(1), None),
        (commit_response(16), ToCoordinator("g"), ErrorCode.NOT_COORDINATOR),
        (commit_response(15), ToCoordinator("g"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (commit_response(14), ToCoordinator("g"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (commit_response(25), ToCoordinator("g"), None),
        (commit_response(16), ToAnyNode(), None),
        (commit_response(16), ToController(), None),
    ],
)
def test_codes_of_a_wrong_route(response: Response, route: Route, code: int | None):
    assert routing_error_code(response, route) == code


@pytest.mark.parametrize(("code", "said"), [(0, None), (14, 14), (15, 15), (16, None), (29, None)])
def test_codes_of_a_coordinator_that_is_not_ready(code: int, said: int | None):
    assert not_ready_code(ListGroupsResponse(error_code=code, groups=[])) == said
