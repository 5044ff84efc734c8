"""What a programme plays on: a world, a broker in it, clients that are written down, and faults."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.testing.simulation import NetworkOptions, SimulatedRuntime, World
from tests.simulation.faults import FAULTS
from tests.simulation.plan import BROKER_HOST, Plan, Step

__all__ = ("Stage", "Unsettled", "world_of")

HEALED_WITHIN_S = 60.0
"""All that there is must be consumed so soon after the last fault has ended (simulated)."""

POLL_S = 0.25


class Unsettled(Exception):
    """What a programme waited for did not come in time."""


class Stage:
    """Given to a programme's run. All times are simulated seconds since the beginning.

    `world`, `broker`, `plan`, `recorder` and `servers` are there when the run begins; steps of the
    plan happen when `carry_out` is awaited.
    """

    def __init__(self, world: World, plan: Plan, recorder: Any) -> None:
        self.world = world
        self.plan = plan
        self.recorder = recorder
        self.chance = world.rng("programme")
        self.broker = Broker(
            host=BROKER_HOST, runtime=world.runtime(BROKER_HOST), **dict(plan.broker)
        )
        self.healed_at: float | None = None
        self._meanings: dict[str, Callable[..., Awaitable[None]]] = {}

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self.broker.bootstrap_servers

    @property
    def node_ends(self) -> dict[int, str]:
        """The ends of the network at which the nodes listen."""
        return {node: str(address) for node, address in self.broker.nodes.items()}

    def now(self) -> float:
        return self.world.now()

    def rng(self, purpose: str) -> random.Random:
        """Chance of its own: what one client draws must not depend on whether another is there."""
        return self.world.rng(purpose)

    def runtime(self, host: str) -> SimulatedRuntime:
        return self.world.runtime(host)

    def note(self, text: str) -> None:
        """Say something in the trace. It must be the same in every process."""
        self.world.trace.note(text)

    async def make_topics(self) -> None:
        """The topics of the plan, with as many replicas as the broker gives by default."""
        for topic, partitions in self.plan.topics.items():
            await self.broker.create_topic(topic, partitions=partitions)

    # --- steps ---

    def on(self, kind: str, meaning: Callable[..., Awaitable[None]]) -> None:
        """What steps of a kind of the programme's own do; called with the step's arguments."""
        self._meanings[kind] = meaning

    async def fault(self, step: Step) -> None:
        """Carry out one step now; comes back when it is undone."""
        self.note(f"step {step.kind} {dict(step.arguments)}")
        meaning = self._meanings.get(step.kind)
        if meaning is not None:
            await meaning(**step.arguments)
        else:
            await FAULTS[step.kind].befall(self, **step.arguments)

    async def carry_out(self) -> None:
        """Carry out all steps of the plan at their times; then everything is `heal`ed."""
        async with anyio.create_task_group() as group:
            for step in self.plan.steps:
                await anyio.sleep_until(step.at_s)
                group.start_soon(self.fault, step)
        await self.heal()

    async def heal(self) -> None:
        """End whatever is left of any fault."""
        self.world.network.heal_all()
        self.broker.clear_faults()
        for node in self.broker.nodes:
            if node not in self.broker.live_nodes:
                await self.broker.restart(node)
            self.broker.resume(node)
        self.healed_at = self.now()
        self.note("healed")

    # --- waiting ---

    async def until(
        self, done: Callable[[], bool], what: str, within_s: float = HEALED_WITHIN_S
    ) -> None:
        """Wait until something is so. Raises `Unsettled`, by default 60 s after the last fault."""
        deadline = self.now() + within_s
        while not done():
            if self.now() >= deadline:
                raise Unsettled(f"after {within_s} s not yet: {what}")
            await anyio.sleep(POLL_S)


def world_of(seed: int, backend: Any, plan: Plan) -> World:
    return World(seed, backend=backend, network=NetworkOptions(**dict(plan.network)))
