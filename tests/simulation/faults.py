"""What may befall the network and the nodes: one table, from which plans draw."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from aiokafkawire.broker import Answer, Close, Delay, Drop
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.simulation.plan import BROKER_HOST, Step

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

__all__ = ("FAULTS", "Fault", "Scene", "draw_steps")

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """What faults may hit: nodes, hosts of clients, partitions of topics, coordinated ids."""

    nodes: int
    hosts: Sequence[str]
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """`draw` chooses the arguments, `befall` does it and undoes it. `weight`: how often it is drawn
    beside the others."""

    draw: Callable[[random.Random, Scene], Arguments]
    befall: Callable[..., Awaitable[None]]
    weight: int = 10


def draw_steps(
    rng: random.Random,
    scene: Scene,
    *,
    count: int,
    from_s: float = 0.0,
    to_s: float,
    kinds: Iterable[str] | None = None,
) -> tuple[Step, ...]:
    """So many faults between two times, in their order; of these kinds, or of all."""
    names = list(FAULTS if kinds is None else kinds)
    weights = [FAULTS[name].weight for name in names]
    steps = []
    for _ in range(count):
        at_s = round(rng.uniform(from_s, to_s), 3)
        kind = rng.choices(names, weights)[0]
        steps.append(Step(at_s, kind, FAULTS[kind].draw(rng, scene)))
    return tuple(sorted(steps, key=lambda step: step.at_s))


def _seconds(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), 3)


# --- nodes ---


def _a_node(rng: random.Random, scene: Scene) -> Arguments:
    return {"node": rng.randint(1, scene.nodes), "for_s": _seconds(rng, 0.1, 3)}


async def _kill(stage: Stage, node: int, for_s: float) -> None:
    if node not in stage.broker.live_nodes:
        return
    await stage.broker.kill(node)
    await anyio.sleep(for_s)
    await stage.broker.restart(node)


async def _shut_down(stage: Stage, node: int, for_s: float) -> None:
    if node not in stage.broker.live_nodes:
        return
    await stage.broker.shut_down(node)
    await anyio.sleep(for_s)
    await stage.broker.restart(node)


async def _hang(stage: Stage, node: int, for_s: float) -> None:
    stage.broker.pause(node)
    await anyio.sleep(for_s)
    stage.broker.resume(node)


def _a_partition(rng: random.Random, scene: Scene) -> Arguments:
    topic = rng.choice(list(scene.topics))
    partition = rng.randrange(scene.topics[topic])
    return {"topic": topic, "partition": partition, "node": rng.randint(1, scene.nodes)}


async def _move_leader(stage: Stage, topic: str, partition: int, node: int) -> None:
    if partition >= stage.broker.topics.get(topic, 0) or node not in stage.broker.live_nodes:
        return
    if node in stage.broker.isr(topic, partition):
        stage.broker.move_leader(topic, partition, node)


# --- the network ---


def _a_host(rng: random.Random, scene: Scene) -> Arguments:
    return {"host": rng.choice(list(scene.hosts))}


def _a_host_for(rng: random.Random, scene: Scene) -> Arguments:
    return _a_host(rng, scene) | {"for_s": _seconds(rng, 0.1, 6)}


async def _sever(stage: Stage, host: str, for_s: float) -> None:
    stage.world.network.sever(host, BROKER_HOST)
    await anyio.sleep(for_s)
    stage.world.network.heal(host, BROKER_HOST)


async def _reset(stage: Stage, host: str) -> None:
    stage.world.network.reset(host, BROKER_HOST)


# --- single requests ---

APIS = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
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
    ApiKey.OFFSET_COMMIT: COORDINATORS,
    ApiKey.OFFSET_FETCH: COORDINATORS,
    ApiKey.INIT_PRODUCER_ID: COORDINATORS,
    ApiKey.ADD_PARTITIONS_TO_TXN: TRANSACTIONS,
    ApiKey.ADD_OFFSETS_TO_TXN: TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT: COORDINATORS,
    ApiKey.END_TXN: TRANSACTIONS,
}
"""What a broker may answer without carrying out the request, and a client is to try again."""


def _a_request(rng: random.Random, scene: Scene) -> Arguments:
    return {"api": rng.choice(APIS).name, "times": rng.randint(1, 3)}


def _a_lost_request(rng: random.Random, scene: Scene) -> Arguments:
    return _a_request(rng, scene) | {"carried_out": rng.random() < 0.6}


def _a_late_request(rng: random.Random, scene: Scene) -> Arguments:
    return _a_request(rng, scene) | {"by_s": _seconds(rng, 0.05, 4)}


def _a_refused_request(rng: random.Random, scene: Scene) -> Arguments:
    api = rng.choice(list(REFUSALS))
    return {"api": api.name, "times": rng.randint(1, 4), "code": rng.choice(REFUSALS[api]).name}


async def _close_request(stage: Stage, api: str, times: int, carried_out: bool) -> None:
    stage.broker.on(ApiKey[api], Close(carried_out=carried_out), times=times)


async def _drop_request(stage: Stage, api: str, times: int, carried_out: bool) -> None:
    stage.broker.on(ApiKey[api], Drop(carried_out=carried_out), times=times)


async def _delay_request(stage: Stage, api: str, times: int, by_s: float) -> None:
    stage.broker.on(ApiKey[api], Delay(by_s), times=times)


async def _refuse_request(stage: Stage, api: str, times: int, code: str) -> None:
    stage.broker.on(ApiKey[api], Answer(ErrorCode[code]), times=times)


FAULTS: Mapping[str, Fault] = {
    "kill": Fault(_a_node, _kill),
    "shut down": Fault(_a_node, _shut_down, weight=4),
    "hang": Fault(_a_node, _hang),
    "move leader": Fault(_a_partition, _move_leader),
    "sever": Fault(_a_host_for, _sever),
    "reset": Fault(_a_host, _reset),
    "close instead of an answer": Fault(_a_lost_request, _close_request),
    "no answer": Fault(_a_lost_request, _drop_request, weight=5),
    "late answer": Fault(_a_late_request, _delay_request, weight=5),
    "refusal": Fault(_a_refused_request, _refuse_request),
}
"""All faults by their names."""
