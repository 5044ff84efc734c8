"""Faults of the network and the nodes: one table, from which plans draw."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from aiokafkawire.broker import Answer, Close, Delay, Drop, SeenRequest
from aiokafkawire.testing.simulation import NetworkOptions
from aiokafkawire.wire import ApiKey, ErrorCode
from verify.simulation.plan import BROKER_HOST, Step

if TYPE_CHECKING:
    from verify.simulation.harness import Harness

__all__ = ("FAULTS", "Fault", "Scene", "draw_steps")

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """Targets of faults: nodes, hosts of clients, partitions of topics, coordinated ids."""

    nodes: int
    hosts: Sequence[str]
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    replicated: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """`draw` chooses the arguments; `inject` injects the fault and reverts it.

    `weight` is relative to the other faults; with 0 only scenarios that name the fault use it.
    `applies` returns whether a scene allows it.
    """

    draw: Callable[[random.Random, Scene], Arguments]
    inject: Callable[..., Awaitable[None]]
    weight: int = 10
    applies: Callable[[Scene], bool] = lambda scene: True


def draw_steps(
    rng: random.Random,
    scene: Scene,
    *,
    count: int,
    from_s: float = 0.0,
    to_s: float,
    kinds: Iterable[str] | None = None,
) -> tuple[Step, ...]:
    """Draw `count` faults between two times, in their order; of these kinds, or of all."""
    chosen = FAULTS if kinds is None else kinds
    names = [name for name in chosen if FAULTS[name].applies(scene)]
    weights = [FAULTS[name].weight if kinds is None else 1 for name in names]
    steps = []
    for _ in range(count):
        at_s = round(rng.uniform(from_s, to_s), 3)
        kind = rng.choices(names, weights)[0]
        steps.append(Step(at_s, kind, FAULTS[kind].draw(rng, scene)))
    return tuple(sorted(steps, key=lambda step: step.at_s))


def _seconds(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), 3)


# --- nodes ---


def _draw_node(rng: random.Random, scene: Scene) -> Arguments:
    return {"node": rng.randint(1, scene.nodes), "for_s": _seconds(rng, 0.1, 3)}


def _draw_node_that_hangs(rng: random.Random, scene: Scene) -> Arguments:
    """Pause a node; sometimes for so long that the others take over its partitions."""
    arguments = _draw_node(rng, scene)
    return arguments | {"for_s": _seconds(rng, 9, 15)} if rng.random() < 0.1 else arguments


async def _kill(harness: Harness, node: int, for_s: float) -> None:
    if node not in harness.broker.live_nodes:
        return
    await harness.broker.kill(node)
    await anyio.sleep(for_s)
    await harness.broker.restart(node)


async def _shut_down(harness: Harness, node: int, for_s: float) -> None:
    if node not in harness.broker.live_nodes:
        return
    await harness.broker.shut_down(node)
    await anyio.sleep(for_s)
    await harness.broker.restart(node)


async def _hang(harness: Harness, node: int, for_s: float) -> None:
    harness.broker.pause(node)
    await anyio.sleep(for_s)
    harness.broker.resume(node)


async def _kill_losing(harness: Harness, node: int, for_s: float) -> None:
    """Kill a node that loses unsynced data: never two nodes at once, nor the last copy."""
    broker = harness.broker
    if harness.losing or node not in broker.live_nodes or broker.alone_in_sync(node):
        await _kill(harness, node, for_s)
        return
    harness.losing = True
    await broker.kill(node, lose_unsynced=True)
    await anyio.sleep(for_s)
    await broker.restart(node)
    harness.losing = False


def _draw_coordinator(rng: random.Random, scene: Scene) -> Arguments:
    key = rng.choice([*scene.groups, *scene.transactional_ids])
    return {"key": key, "node": rng.randint(1, scene.nodes)}


async def _move_coordinator(harness: Harness, key: str, node: int) -> None:
    if node in harness.broker.live_nodes:
        harness.broker.move_coordinator(key, node)


def _is_coordinated(scene: Scene) -> bool:
    return bool(scene.groups or scene.transactional_ids)


def _draw_partition(rng: random.Random, scene: Scene) -> Arguments:
    topic = rng.choice(list(scene.topics))
    partition = rng.randrange(scene.topics[topic])
    return {"topic": topic, "partition": partition, "node": rng.randint(1, scene.nodes)}


async def _move_leader(harness: Harness, topic: str, partition: int, node: int) -> None:
    if partition >= harness.broker.topics.get(topic, 0) or node not in harness.broker.live_nodes:
        return
    if node in harness.broker.isr(topic, partition):
        harness.broker.move_leader(topic, partition, node)


# --- the network ---


def _draw_host(rng: random.Random, scene: Scene) -> Arguments:
    return {"host": rng.choice(list(scene.hosts))}


def _draw_host_for(rng: random.Random, scene: Scene) -> Arguments:
    return _draw_host(rng, scene) | {"for_s": _seconds(rng, 0.1, 6)}


async def _sever(harness: Harness, host: str, for_s: float) -> None:
    harness.world.network.sever(host, BROKER_HOST)
    await anyio.sleep(for_s)
    harness.world.network.heal(host, BROKER_HOST)


async def _lose_power(harness: Harness, host: str, for_s: float) -> None:
    harness.world.network.lose_power(host)
    await anyio.sleep(for_s)
    harness.world.network.restore(host)


async def _reset(harness: Harness, host: str) -> None:
    harness.world.network.reset(host, BROKER_HOST)


def _draw_pair(rng: random.Random, scene: Scene) -> Arguments:
    """Draw a client's host, a node, and the direction."""
    node = rng.randint(1, scene.nodes)
    return _draw_host(rng, scene) | {"node": node, "from_client": rng.random() < 0.5}


def _draw_pair_for(rng: random.Random, scene: Scene) -> Arguments:
    return _draw_pair(rng, scene) | {"for_s": _seconds(rng, 0.1, 6)}


def _ends(harness: Harness, host: str, node: int, from_client: bool) -> tuple[str, str]:
    ends = host, harness.node_ends[node]
    return ends if from_client else (ends[1], ends[0])


async def _sever_node(
    harness: Harness, host: str, node: int, *, from_client: bool, for_s: float, one_way: bool
) -> None:
    ends = _ends(harness, host, node, from_client)
    harness.world.network.sever(*ends, one_way=one_way)
    await anyio.sleep(for_s)
    harness.world.network.heal(*ends)


def _draw_cut(rng: random.Random, scene: Scene) -> Arguments:
    return _draw_pair_for(rng, scene) | {"one_way": rng.random() < 0.6}


async def _reset_mid_write(harness: Harness, host: str, node: int, from_client: bool) -> None:
    harness.world.network.reset_mid_write(*_ends(harness, host, node, from_client))


def _draw_loss(rng: random.Random, scene: Scene) -> Arguments:
    return _draw_pair(rng, scene) | {"silent": rng.random() < 0.5}


async def _half_open(
    harness: Harness, host: str, node: int, from_client: bool, silent: bool
) -> None:
    """Remove one end of a connection; with `silent` the other end gets no reset."""
    harness.world.network.half_open(*_ends(harness, host, node, from_client), silent=silent)


async def _refuse_connects(harness: Harness, node: int, for_s: float) -> None:
    end = harness.node_ends[node]
    harness.world.network.refuse_connects(end)
    await anyio.sleep(for_s)
    harness.world.network.allow_connects(end)


async def _hang_connects(harness: Harness, node: int, for_s: float) -> None:
    end = harness.node_ends[node]
    harness.world.network.hang_connects(end)
    await anyio.sleep(for_s)
    harness.world.network.allow_connects(end)


def _draw_slow_link(rng: random.Random, scene: Scene) -> Arguments:
    way = rng.choice(
        [
            {"min_delay_s": 0.2, "max_delay_s": 1.0},
            {"bandwidth_bytes_per_s": 2_000},
            {"slow_packets": 0.2, "max_slow_delay_s": 3.0},
            {"single_bytes": 0.5},
        ]
    )
    return _draw_host_for(rng, scene) | {"way": way}


async def _slow_link(harness: Harness, host: str, for_s: float, way: Arguments) -> None:
    harness.world.network.set_link(host, BROKER_HOST, NetworkOptions(**way))
    await anyio.sleep(for_s)
    harness.world.network.set_link(host, BROKER_HOST, None)


# --- single requests ---

OF_ALL = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS)
OF_PRODUCERS = (ApiKey.INIT_PRODUCER_ID,)
OF_GROUPS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)
OF_TRANSACTIONS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)

COORDINATORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
TRANSACTIONS = (*COORDINATORS, ErrorCode.CONCURRENT_TRANSACTIONS)

REFUSALS: Mapping[ApiKey, Sequence[ErrorCode]] = {
    ApiKey.PRODUCE: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    ApiKey.FETCH: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    ApiKey.LIST_OFFSETS: (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE),
    ApiKey.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
    ApiKey.JOIN_GROUP: COORDINATORS,
    ApiKey.SYNC_GROUP: (*COORDINATORS, ErrorCode.REBALANCE_IN_PROGRESS),
    ApiKey.HEARTBEAT: (*COORDINATORS, ErrorCode.REBALANCE_IN_PROGRESS),
    ApiKey.OFFSET_COMMIT: (*COORDINATORS, ErrorCode.REBALANCE_IN_PROGRESS),
    ApiKey.OFFSET_FETCH: COORDINATORS,
    ApiKey.INIT_PRODUCER_ID: COORDINATORS,
    ApiKey.ADD_PARTITIONS_TO_TXN: TRANSACTIONS,
    ApiKey.ADD_OFFSETS_TO_TXN: TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT: COORDINATORS,
    ApiKey.END_TXN: TRANSACTIONS,
}
"""Retriable errors that a broker may return without handling the request."""


def _apis(scene: Scene) -> list[ApiKey]:
    """Return the APIs that clients of this scene use."""
    groups = OF_GROUPS if scene.groups else ()
    transactions = OF_TRANSACTIONS if scene.transactional_ids else ()
    return list(dict.fromkeys((*OF_ALL, *OF_PRODUCERS, *groups, *transactions)))


def _draw_request(rng: random.Random, scene: Scene) -> Arguments:
    return {"api": rng.choice(_apis(scene)).name, "times": rng.randint(1, 3)}


def _draw_lost_request(rng: random.Random, scene: Scene) -> Arguments:
    return _draw_request(rng, scene) | {"carried_out": rng.random() < 0.6}


def _draw_late_request(rng: random.Random, scene: Scene) -> Arguments:
    return _draw_request(rng, scene) | {"by_s": _seconds(rng, 0.05, 4)}


def _draw_refused_request(rng: random.Random, scene: Scene) -> Arguments:
    api = rng.choice([api for api in _apis(scene) if api in REFUSALS])
    return {"api": api.name, "times": rng.randint(1, 4), "code": rng.choice(REFUSALS[api]).name}


async def _close_request(harness: Harness, api: str, times: int, carried_out: bool) -> None:
    harness.broker.on(ApiKey[api], Close(carried_out=carried_out), times=times)


def _draw_outage(rng: random.Random, scene: Scene) -> Arguments:
    api = rng.choice([ApiKey.PRODUCE, rng.choice(_apis(scene))])
    return {"api": api.name, "for_s": _seconds(rng, 0.5, 12)}


async def _away_after_an_answer(harness: Harness, api: str, for_s: float) -> None:
    """Handle the next request without a response, and make its node unreachable."""
    met: list[str] = []

    def meet(seen: SeenRequest) -> Close | None:
        if met or seen.client_id.startswith("broker-"):
            return None
        met.append(harness.node_ends[seen.node_id])
        harness.world.network.refuse_connects(met[0])
        return Close(carried_out=True)

    rule = harness.broker.on(ApiKey[api], meet)
    await anyio.sleep(for_s)
    rule.remove()
    for end in met:
        harness.world.network.allow_connects(end)


async def _drop_request(harness: Harness, api: str, times: int, carried_out: bool) -> None:
    harness.broker.on(ApiKey[api], Drop(carried_out=carried_out), times=times)


async def _delay_request(harness: Harness, api: str, times: int, by_s: float) -> None:
    harness.broker.on(ApiKey[api], Delay(by_s), times=times)


async def _refuse_request(harness: Harness, api: str, times: int, code: str) -> None:
    harness.broker.on(ApiKey[api], Answer(ErrorCode[code]), times=times)


FAULTS: Mapping[str, Fault] = {
    "kill": Fault(_draw_node, _kill),
    "kill, losing what is not on disk": Fault(
        _draw_node,
        _kill_losing,
        weight=40,
        applies=lambda scene: scene.replicated,
    ),
    "shut down": Fault(_draw_node, _shut_down, weight=4),
    "hang": Fault(_draw_node_that_hangs, _hang),
    "move leader": Fault(_draw_partition, _move_leader),
    "move coordinator": Fault(_draw_coordinator, _move_coordinator, applies=_is_coordinated),
    "sever": Fault(_draw_host_for, _sever, weight=5),
    "sever from a node": Fault(_draw_cut, _sever_node),
    "lose power": Fault(_draw_host_for, _lose_power, weight=0),
    "reset": Fault(_draw_host, _reset),
    "reset in a write": Fault(_draw_pair, _reset_mid_write),
    "half open": Fault(_draw_loss, _half_open),
    "refuse connects": Fault(_draw_node, _refuse_connects, weight=5),
    "hang connects": Fault(_draw_node, _hang_connects, weight=5),
    "slow link": Fault(_draw_slow_link, _slow_link, weight=5),
    "close instead of an answer": Fault(_draw_lost_request, _close_request),
    "away after an answer": Fault(_draw_outage, _away_after_an_answer, weight=15),
    "no answer": Fault(_draw_lost_request, _drop_request, weight=5),
    "late answer": Fault(_draw_late_request, _delay_request, weight=5),
    "refusal": Fault(_draw_refused_request, _refuse_request),
}
"""All faults by name."""
