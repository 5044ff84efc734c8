"""Brokers of items: coordinators of groups, leaders of partitions, brokers named by the caller."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafkawire.admin.items import ItemRequest
from aiokafkawire.admin.routing import TARGETS, Target
from aiokafkawire.cluster import (
    Cluster,
    CoordinatorType,
    MetadataSnapshot,
    Route,
    ToAnyNode,
    ToController,
    ToCoordinator,
    ToNode,
)
from aiokafkawire.cluster.bootstrap import metadata_request
from aiokafkawire.cluster.coordinator_lookup import find_coordinators
from aiokafkawire.cluster.metadata import EMPTY_SNAPSHOT
from aiokafkawire.errors import BrokerError, ConnectionFailed, IllegalState, KafkaError
from aiokafkawire.types import TopicPartition, no_partition_text
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, error_for
from aiokafkawire.wire.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from aiokafkawire.admin.requester import Requester

__all__ = ("forget_location", "locate", "locate_brokers", "require_brokers", "topic_metadata")

K = TypeVar("K", bound=Hashable)

_TARGETS_WITHOUT_CONTROLLERS = frozenset(Target) - {Target.ANY_BROKER, Target.CONTROLLER}

_COORDINATOR_CODES = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

_COORDINATOR_TYPES = {
    Target.GROUP_COORDINATOR: CoordinatorType.GROUP,
    Target.TRANSACTION_COORDINATOR: CoordinatorType.TRANSACTION,
}


async def locate(
    requester: Requester, request: ItemRequest[K, Any], keys: Sequence[K]
) -> Mapping[K, Route | KafkaError]:
    """Return the route of each item, or the error of its lookup."""
    target = request.effective_target
    if requester.uses_controllers:
        require_brokers(requester, request.api_key)
        return dict.fromkeys(keys, ToController())
    try:
        match target:
            case Target.ANY_BROKER:
                return dict.fromkeys(keys, ToAnyNode())
            case Target.CONTROLLER:
                return dict.fromkeys(keys, ToController())
            case Target.NAMED_BROKER:
                places = {key: request.place(key) for key in keys}
                return await locate_brokers(requester, places)
            case Target.PARTITION_LEADER:
                return await _leaders(requester, {key: request.place(key) for key in keys})
            case Target.GROUP_COORDINATOR | Target.TRANSACTION_COORDINATOR:
                kind = _COORDINATOR_TYPES[target]
                wanted = {key: ToCoordinator(request.place(key), kind) for key in keys}
                found = await find_coordinators(
                    requester.cluster, list(wanted.values()), deadline=requester.deadline
                )
                nodes = {route: _route(node) for route, node in found.items()}
                return {key: nodes[route] for key, route in wanted.items()}
            case _:
                raise AssertionError(f"items cannot be sent to {target.value}")
    except KafkaError as error:
        return dict.fromkeys(keys, error)


def require_brokers(requester: Requester, api_key: ApiKey) -> None:
    """Raise `IllegalState` for a request that controllers cannot answer."""
    if requester.uses_controllers and TARGETS[api_key] in _TARGETS_WITHOUT_CONTROLLERS:
        api = APIS[api_key].name
        raise IllegalState(
            f"the client uses bootstrap_controllers, but {api} is sent to"
            f" {TARGETS[api_key].value}: use bootstrap_servers",
            api=api,
        )


def _route(node: int | KafkaError) -> Route | KafkaError:
    return node if isinstance(node, KafkaError) else ToNode(node)


async def locate_brokers(
    requester: Requester, nodes: Mapping[K, int | None]
) -> dict[K, Route | KafkaError]:
    """Return the routes to brokers; None is any broker."""
    cluster = requester.cluster
    await cluster.wait_nodes(requester.deadline)
    if not cluster.metadata.nodes.keys() >= set(nodes.values()) - {None}:
        # A node that joined a moment ago is not in older metadata.
        version = cluster.metadata.version
        cluster.request_update()
        await cluster.wait_update(version, requester.deadline)
    known = cluster.metadata.nodes
    return {
        key: ToAnyNode()
        if node_id is None
        else ToNode(node_id)
        if node_id in known
        else _no_broker(node_id, known)
        for key, node_id in nodes.items()
    }


def _no_broker(node_id: int, known: Iterable[int]) -> ConnectionFailed:
    return ConnectionFailed(
        f"the cluster has no broker {node_id}; its brokers are"
        f" {', '.join(map(str, sorted(known)))}",
        broker=str(node_id),
        retriable=False,
    )


async def _leaders(
    requester: Requester, partitions: Mapping[K, TopicPartition]
) -> dict[K, Route | KafkaError]:
    """Return the routes to the leaders of partitions, by one Metadata request for all."""
    names = list(dict.fromkeys(tp.topic for tp in partitions.values()))
    response = await requester.request(metadata_request(names, allow_creation=False))
    # The nodes alone: a snapshot of all partitions would cost more than the rest of the lookup.
    nodes = EMPTY_SNAPSHOT.with_response(replace(response, topics=[]), []).snapshot.nodes
    for node_id in nodes.keys() - requester.cluster.metadata.nodes.keys():
        address = nodes[node_id].address
        requester.cluster.add_node(node_id, address.host, address.port)
    routes = {node_id: ToNode(node_id) for node_id in nodes}
    topics = {topic.name: topic for topic in response.topics}
    leaders = {
        name: {part.partition_index: part.leader_id for part in topic.partitions}
        for name, topic in topics.items()
        if topic.error_code == ErrorCode.NONE
    }

    def route(tp: TopicPartition) -> Route | KafkaError:
        found = leaders.get(tp.topic, _NO_LEADERS).get(tp.partition)
        known = None if found is None else routes.get(found)
        return known or _no_leader(tp, topics.get(tp.topic))

    return {key: route(tp) for key, tp in partitions.items()}


_NO_LEADERS: Mapping[int, int] = {}


def _no_leader(tp: TopicPartition, topic: MetadataResponseTopic | None) -> KafkaError:
    """Return the reason why a partition has no leader."""
    context = {"api": "Metadata", "topic": tp.topic, "partition": tp.partition}
    if topic is None:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **context)
    if topic.error_code != ErrorCode.NONE:
        return error_for(topic.error_code, **context)
    numbers = [part.partition_index for part in topic.partitions]
    if tp.partition in numbers:
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, **context)
    error = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **context)
    error.reason = f"{error.name}: {no_partition_text(tp.topic, tp.partition, numbers)}"
    return error


async def topic_metadata(requester: Requester, topics: Iterable[str] | None) -> MetadataSnapshot:
    """Request the metadata of topics, None for all; impossible entries are left out."""
    wanted = None if topics is None else list(topics)
    response = await requester.request(metadata_request(wanted, allow_creation=False))
    return EMPTY_SNAPSHOT.with_response(response, wanted).snapshot


def forget_location(cluster: Cluster, request: ItemRequest[K, Any], key: K, result: object) -> None:
    """Forget the coordinator of an item that has moved, so that the next attempt finds it."""
    kind = _COORDINATOR_TYPES.get(request.effective_target)
    if kind is None or not isinstance(result, KafkaError):
        return
    if not isinstance(result, BrokerError) or result.code in _COORDINATOR_CODES:
        cluster.mark_coordinator_unknown(request.place(key), kind)
