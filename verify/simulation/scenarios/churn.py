"""Members of a group that join, leave, die and stall, with every assignor, and an upgrade."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from aiokafkawire.broker import Answer, Close, SeenRequest
from aiokafkawire.errors import GroupFailed
from aiokafkawire.wire import ApiKey, ErrorCode
from verify.invariants.checker import Guarantees
from verify.simulation.faults import FAULTS, Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    COMMITS,
    FAILURES,
    READS,
    CommitOnRevoke,
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
    send_steadily,
)

GROUP = "billing"
TO_S = 20.0
MOST_WORKERS = 23
REFUSED_S = 0.5
"""Time after a member's return in which the group is taken to be rebalancing."""

MISSED = 0.12
"""Share of runs in which a static member misses a generation."""
PATIENT: Mapping[str, Any] = {
    "static": True,
    "session_timeout_ms": 20_000,
    "commits": "automatic",
    "work_s": 0.0,
}
"""Options of a member that stays in the group without a timely rejoin, and goes on polling."""

LATER_S = 1.5
REBALANCE_APIS = (ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT)
"""Requests of a member to its coordinator during a rebalance."""

UPGRADE: Sequence[Sequence[str]] = (
    ["range"],
    ["cooperative-sticky", "range"],
    ["cooperative-sticky"],
)
"""Upgrade from eager to cooperative in two rounds: members may differ by one round."""

MIXES: Mapping[str, Sequence[Sequence[str]]] = {
    "range": (["range"],),
    "roundrobin": (["roundrobin"],),
    "sticky": (["sticky"],),
    "cooperative": (["cooperative-sticky"],),
    "mixed": (["sticky", "range"], ["range", "cooperative-sticky"], ["roundrobin", "range"]),
    "upgrade": (UPGRADE[0],),
}
"""Assignors of workers in turn; all lists of one mix have one assignor in common."""


def draw(rng: random.Random) -> Plan:
    count = rng.choices((rng.randint(2, 5), rng.randint(6, MOST_WORKERS)), (12, 1))[0]
    topics = {f"orders{n}": rng.randint(1, 4 + count // 4) for n in range(rng.choice((1, 1, 2, 3)))}
    mix = rng.choice(list(MIXES))
    workers = tuple(_draw_worker(rng, number, list(topics)) for number in range(count))
    sender = PlannedClient("sender", "10.0.1.1", "sends", {"pause_s": 0.08})
    hosts = [client.host for client in (sender, *workers)]
    scene = Scene(3, hosts, topics, groups=(GROUP,))
    worker_steps = draw_worker_steps(rng, workers, rng.randint(1, 4 + count), TO_S)
    faults = draw_steps(rng, scene, count=rng.randint(0, 4), from_s=0.1, to_s=TO_S)
    answers = _bad_answers(rng)
    upgrade = _draw_upgrade(rng, workers) if mix == "upgrade" else ()
    plan = Plan(
        broker={
            "nodes": 3,
            "as_of": rng.choice((None, None, None, "2.0", "2.8", "3.9")),
            "group_min_session_timeout_ms": 100,
            "group_initial_rebalance_delay_ms": rng.choice((0, 0, 500)),
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics=topics,
        options={"mix": mix},
        records=rng.randint(20, 120),
        clients=(sender, *workers),
        steps=tuple(
            sorted((*worker_steps, *faults, *answers, *upgrade), key=lambda step: step.at_s)
        ),
    )
    crossed = _crossed(rng, workers)
    steps = sorted((*plan.steps, *crossed), key=lambda step: step.at_s)
    plan = replace(plan, steps=tuple(steps))
    return _missing(rng, plan) if rng.random() < MISSED else plan


def _draw_worker(rng: random.Random, number: int, topics: Sequence[str]) -> PlannedClient:
    some = topics if number == 0 else rng.sample(topics, rng.randint(1, len(topics)))
    arguments = {
        "topics": sorted(some),
        "number": number,
        "comes_at_s": round(rng.choice((0.0, rng.uniform(0, TO_S / 2))), 3),
        "reads": rng.choice(list(READS)),
        "commits": rng.choice(COMMITS),
        "work_s": rng.choice((0.0, 0.01, 0.1)),
        "random_action_rate": rng.choice((0.0, 0.0, 0.1)),
        "listens": rng.random() < 0.5,
        "static": rng.random() < 0.25,
    }
    return PlannedClient(f"worker-{number}", host_of(number), "works", arguments)


def _bad_answers(rng: random.Random) -> tuple[Step, ...]:
    """Draw lost responses of coordinators, and rejected commits."""
    steps = []
    for _ in range(rng.choice((0, 0, 1, 4))):
        at_s = round(rng.uniform(0.1, TO_S), 3)
        if rng.random() < 0.6:
            lost = {"api": rng.choice(("JOIN_GROUP", "SYNC_GROUP")), "times": 1}
            steps.append(Step(at_s, "close instead of an answer", {**lost, "carried_out": True}))
        else:
            code = rng.choice(("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"))
            refused = {"api": "OFFSET_COMMIT", "times": rng.randint(1, 2), "code": code}
            steps.append(Step(at_s, "refusal", refused))
    return tuple(steps)


def _crossed(rng: random.Random, workers: Sequence[PlannedClient]) -> list[Step]:
    """Draw rebalances that start during a commit of another member."""
    steps = []
    for _ in range(rng.choice((0, 0, 1, 3))):
        worker, for_s = rng.choice(workers).name, round(rng.uniform(0.3, 1.5), 3)
        at_s = round(rng.uniform(2, TO_S), 3)
        steps.append(Step(at_s, "refuse commits", {"worker": worker, "for_s": for_s}))
    return steps


def _missing(rng: random.Random, plan: Plan) -> Plan:
    """Draw few other faults, and a static member that misses a generation of its group."""
    sender, first, *others = plan.clients
    late = {**first.arguments, **PATIENT, "comes_at_s": 2.0, "topics": sorted(plan.topics)}
    while len(others) < 2:
        number = len(others) + 1
        others.append(_draw_worker(rng, number, list(plan.topics)))
    leaves = {"static": False, "comes_at_s": 0.0, "topics": sorted(plan.topics)}
    others = [replace(each, arguments={**each.arguments, **leaves}) for each in others[:4]]
    miss = {"worker": first.name, "other": others[0].name, "for_s": round(rng.uniform(6.2, 8), 3)}
    steps = [step for step in plan.steps if step.kind in FAULTS][:1]
    steps += [Step(round(rng.uniform(5, 8), 3), "miss", miss)]
    return replace(
        plan,
        broker={**plan.broker, "as_of": None},
        topics={topic: max(3, count) for topic, count in plan.topics.items()},
        options={"mix": "cooperative"},
        records=120,
        clients=(sender, replace(first, arguments=late), *others),
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


def _draw_upgrade(rng: random.Random, workers: Sequence[PlannedClient]) -> tuple[Step, ...]:
    """Restart each worker twice, one after the other."""
    gap_s = TO_S / (2 * len(workers))
    names = [worker.name for worker in workers] * 2
    return tuple(
        Step(round(gap_s * number, 3), "upgrade", {"worker": name, "for_s": rng.uniform(0, 0.5)})
        for number, name in enumerate(names)
    )


class Rounds:
    """Upgrade progress of each worker. It advances when a life begins."""

    def __init__(self, workers: Sequence[PlannedClient]) -> None:
        self.wanted = dict.fromkeys((worker.name for worker in workers), 0)
        self._rounds = dict(self.wanted)

    def assignors(self, worker: str) -> Sequence[str]:
        """Return the assignors of a worker that begins now: no one may be two rounds ahead of
        another."""
        soonest = min(self._rounds.values()) + 1
        self._rounds[worker] = min(self.wanted[worker], soonest, len(UPGRADE) - 1)
        return UPGRADE[self._rounds[worker]]


async def miss(
    harness: Harness, group_workers: GroupWorkers, worker: str, other: str, for_s: float
) -> None:
    """`other` leaves and comes back; the rebalance is over when `worker` sends its next request,
    which is JoinGroup."""
    life = group_workers.current_lives.get(worker)
    if life is None:
        return
    received_at: dict[ApiKey, float] = {}

    def inject(seen: SeenRequest) -> Close | None:
        if seen.client_id != life.name:
            return None
        if seen.api_key is ApiKey.JOIN_GROUP and not received_at:
            received_at.update(dict.fromkeys(REBALANCE_APIS, harness.now() + for_s + LATER_S))
            received_at[ApiKey.JOIN_GROUP] -= LATER_S
        return Close() if harness.now() < received_at.get(seen.api_key, 0.0) else None

    rules = [harness.broker.on(api, inject) for api in REBALANCE_APIS]
    await group_workers.leave(other, 0.3)
    await anyio.sleep(for_s + 2 * LATER_S)
    for each in rules:
        each.remove()


async def run(harness: Harness) -> None:
    await harness.make_topics()
    workers = harness.plan.of("works")
    rounds = Rounds(workers)
    mix = MIXES[harness.plan.options["mix"]]
    upgraded = mix is MIXES["upgrade"]

    async def work(life: WorkerLife) -> None:
        name, number = life.client.name, life.argument("number")
        options: dict[str, Any] = {
            "group_id": GROUP,
            "enable_auto_commit": life.argument("commits") == "automatic",
            "partition_assignment_strategy": (
                rounds.assignors(name) if upgraded else mix[number % len(mix)]
            ),
        }
        if life.argument("static") and harness.plan.broker["as_of"] != "2.0":
            options["group_instance_id"] = name
        if life.argument("session_timeout_ms"):
            options["session_timeout_ms"] = life.argument("session_timeout_ms")
        worker = life.consumer(**options)
        listener = CommitOnRevoke(worker, life) if life.argument("listens") else None
        worker.subscribe(life.argument("topics"), listener=listener)
        async with worker:
            await READS[life.argument("reads")](worker, life)

    async with anyio.create_task_group() as tasks:
        # The list of a dead worker counts until its session ends.
        expects = (*FAILURES, GroupFailed) if upgraded else FAILURES
        group_workers = GroupWorkers(harness, tasks, workers, work, expects=expects)

        async def upgrade(worker: str, for_s: float) -> None:
            if worker in rounds.wanted:
                rounds.wanted[worker] += 1
            await group_workers.leave(worker, for_s)

        async def refuse_commits(worker: str, for_s: float) -> None:
            """One leaves and comes back; the others' commits get its REBALANCE_IN_PROGRESS."""
            await group_workers.leave(worker, for_s)
            refused = harness.broker.on(
                ApiKey.OFFSET_COMMIT, Answer(ErrorCode.REBALANCE_IN_PROGRESS)
            )
            await anyio.sleep(REFUSED_S)
            refused.remove()

        harness.on("miss", partial(miss, harness, group_workers))
        harness.on("upgrade", upgrade)
        harness.on("refuse commits", refuse_commits)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send_steadily, harness, client)
        if workers:
            await harness.until_consumed(*read_by(workers))
            await harness.until_settled()
        await group_workers.stop_all()


def read_by(workers: Sequence[PlannedClient]) -> list[str]:
    """Return the subscribed topics."""
    return sorted({topic for worker in workers for topic in worker.arguments["topics"]})


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_groups=(GROUP,))


SCENARIO = Scenario("churn", draw, run, guarantees, share=25)
