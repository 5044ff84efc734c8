"""Brokers of items: coordinators of groups, leaders of partitions, brokers named by the caller."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

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
from aiokafkawire.types import NodeId, TopicPartition, no_partition_text
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, error_for
from aiokafkawire.wire.lazy_arrays import iter_fields
from aiokafkawire.wire.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from aiokafkawire.admin.requester import Requester

__all__ = ("forget_locations", "locate", "locate_brokers", "require_brokers", "topic_metadata")

K = TypeVar("K", bound=Hashable)

_TARGETS_WITHOUT_CONTROLLERS = frozenset(Target) - {Target.ANY_BROKER, Target.CONTROLLER}

_COORDINATOR_CODES = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

_COORDINATOR_TYPES = {
    Target.GROUP_COORDINATOR: CoordinatorType.GROUP,
    Target.TRANSACTION_COORDINATOR: CoordinatorType.TRANSACTION,
}


class Located(NamedTuple, Generic[K]):
    """Items by the route to their broker, and the errors of those without one."""

    by_route: Mapping[Route, Sequence[K]]
    failed: Mapping[K, KafkaError]


async def locate(
    requester: Requester, request: ItemRequest[K, Any], keys: Sequence[K]
) -> Located[K]:
    """Return the routes of items, and the errors of lookups."""
    target = request.effective_target
    if requester.uses_controllers:
        require_brokers(requester, request.api_key)
        return Located({ToController(): keys}, {})
    try:
        match target:
            case Target.ANY_BROKER:
                return Located({ToAnyNode(): keys}, {})
            case Target.CONTROLLER:
                return Located({ToController(): keys}, {})
            case Target.NAMED_BROKER:
                nodes = {key: request.place(key) for key in keys}
                return _by_route(await locate_brokers(requester, nodes))
            case Target.PARTITION_LEADER:
                return await _locate_leaders(requester, request, keys)
            case Target.GROUP_COORDINATOR | Target.TRANSACTION_COORDINATOR:
                kind = _COORDINATOR_TYPES[target]
                wanted = {key: ToCoordinator(request.place(key), kind) for key in keys}
                found = await find_coordinators(
                    requester.cluster, list(wanted.values()), deadline=requester.deadline
                )
                return _by_route({key: _route(found[route]) for key, route in wanted.items()})
            case _:
                raise AssertionError(f"items cannot be sent to {target.value}")
    except KafkaError as error:
        return Located({}, dict.fromkeys(keys, error))


def _by_route(routes: Mapping[K, Route | KafkaError]) -> Located[K]:
    by_route: dict[Route, list[K]] = {}
    failed: dict[K, KafkaError] = {}
    for key, route in routes.items():
        if isinstance(route, KafkaError):
            failed[key] = route
        else:
            by_route.setdefault(route, []).append(key)
    return Located(by_route, failed)


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


async def _locate_leaders(
    requester: Requester, request: ItemRequest[K, Any], keys: Sequence[K]
) -> Located[K]:
    """Return the routes to the leaders of partitions, by one Metadata request for all."""
    partitions: Sequence[Any] = keys
    if request.locate is not None:
        partitions = [request.locate(key) for key in keys]
    names = list(dict.fromkeys([tp.topic for tp in partitions]))
    response = await requester.request(metadata_request(names, allow_creation=False))
    # The nodes alone: a snapshot of all partitions would cost more than the rest of the lookup.
    nodes = EMPTY_SNAPSHOT.with_response(replace(response, topics=[]), []).snapshot.nodes
    for node_id in nodes.keys() - requester.cluster.metadata.nodes.keys():
        address = nodes[node_id].address
        requester.cluster.add_node(node_id, address.host, address.port)
    topics = {topic.name: topic for topic in response.topics}
    leaders: dict[str | None, dict[int, NodeId]] = {
        name: dict(iter_fields(topic, "partitions", "partition_index", "leader_id"))
        for name, topic in topics.items()
        if topic.error_code == ErrorCode.NONE
    }
    by_node: dict[NodeId, list[K]] = {node_id: [] for node_id in nodes}
    failed: dict[K, KafkaError] = {}
    for key, tp in zip(keys, partitions, strict=True):
        topic, number = tp
        try:
            by_node[leaders[topic][number]].append(key)
        except KeyError:
            failed[key] = _no_leader(tp, topics.get(topic))
    return Located({ToNode(node_id): some for node_id, some in by_node.items() if some}, failed)


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


def forget_locations(
    cluster: Cluster, request: ItemRequest[K, Any], results: Mapping[K, object]
) -> None:
    """Forget the coordinators of items that have moved, so that the next attempt finds them."""
    kind = _COORDINATOR_TYPES.get(request.effective_target)
    if kind is None:
        return
    for key, result in results.items():
        if isinstance(result, BrokerError):
            has_moved = result.code in _COORDINATOR_CODES
        else:
            has_moved = isinstance(result, KafkaError)
        if has_moved:
            cluster.mark_coordinator_unknown(request.place(key), kind)
