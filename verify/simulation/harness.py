"""Environment of a scenario: a world, a broker, recorded clients, and faults."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.broker.topics import Partition
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime import checkpoint
from aiokafkawire.security import Secret
from aiokafkawire.testing.simulation import NetworkOptions, SimulatedRuntime, World
from verify.invariants.broker_observer import BrokerObserver
from verify.invariants.checker import Violation
from verify.invariants.checks.groups import Owners
from verify.invariants.observed import Log, LogRecord, Observed, ShareAcquired, ShareLocksEnded
from verify.invariants.recorder import Recorder
from verify.simulation.faults import FAULTS
from verify.simulation.log_cleaner import clean_log, superseded_offsets
from verify.simulation.plan import BROKER_HOST, Plan, Step
from verify.simulation.security import PASSWORDS, USER
from verify.simulation.unread_records import UnreadRecords

__all__ = ("HEALED_WITHIN_S", "SLACK_S", "ConditionTimedOut", "Harness", "make_world")

HEALED_WITHIN_S = 60.0
"""Time after the last fault in which everything must be consumed (simulated seconds)."""

POLL_S = 0.25
UNDER_WAY_S = 0.5
"""Time after the heal in which delayed packets may still arrive, even from clients that are
gone."""

SLACK_S = 0.25
"""Tolerance for the end of a call: event-loop iterations take no time, but packets do."""

ALL_BYTES = 2**30

T = TypeVar("T")


class ConditionTimedOut(Exception):
    """A condition that a scenario waits for was not met in time."""


class Harness:
    """Passed to a scenario's `run`. All times are simulated seconds since the start.

    `world`, `broker`, `plan`, `recorder` and `servers` exist when the run starts; `run_steps`
    executes the steps of the plan.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.recorder = Recorder(world.now)
        self.chance = world.rng("programme")
        self.security = plan.security
        self._passwords = iter(PASSWORDS)
        self.password = next(self._passwords)
        """Password of all clients, which `rotate_password` changes."""
        self.broker = Broker(
            host=BROKER_HOST,
            runtime=world.runtime(BROKER_HOST),
            **plan.security.broker_arguments(self.password),
            **dict(plan.broker),
        )
        self.observed: Observed | None = None
        self.violations: list[Violation] = []
        self.losing = False
        self.rebalances = 0
        """Number of rebalances, where a scenario counts them."""
        self.copied_topics: tuple[str, ...] = ()
        """Topics whose records are copies, with the values of the records of other topics: the
        scenario checks them itself."""
        self._compacted: dict[tuple[str, int], set[LogRecord]] = {}
        self._watch: BrokerObserver | None = None
        self._consumed = UnreadRecords(self.broker, self.recorder)
        self._actions: dict[str, Callable[..., Awaitable[None]]] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the broker; at the end its contents are in `observed`."""
        async with self.broker:
            self._watch = BrokerObserver(self.broker)
            try:
                yield
            finally:
                self._watch.end()
                observed = self._watch.observed()
                logs = [
                    self._with_compacted(log)
                    for log in observed.logs
                    if log.topic not in self.copied_topics
                ]
                self.observed = dataclasses.replace(observed, logs=tuple(logs))

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self.broker.bootstrap_servers

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of every client: bootstrap servers, and those of security."""
        options = {"bootstrap_servers": self.servers}
        if self.security.protocol == "PLAINTEXT":
            return options

        async def password() -> str:
            return self.password

        options = self.broker.client_options()
        if "sasl_password" in options:
            options["sasl_password"] = password
        return options

    def rotate_password(self) -> None:
        """Change the password at the broker, and let the application know it."""
        self.password = next(self._passwords)
        self.broker._running.credentials.set_password(USER, Secret(self.password))

    @property
    def node_ends(self) -> dict[int, str]:
        """Network addresses at which the nodes listen."""
        return {node: str(address) for node, address in self.broker.nodes.items()}

    def now(self) -> float:
        return self.world.now()

    def rng(self, purpose: str) -> random.Random:
        """Return a random generator of its own: draws of one client must not depend on other
        clients."""
        return self.world.rng(purpose)

    def runtime(self, host: str) -> SimulatedRuntime:
        return self.world.runtime(host)

    def note(self, text: str) -> None:
        """Add a line to the trace. It must be equal in every process."""
        self.world.trace.note(text)

    def violated(self, invariant: int, text: str) -> None:
        """Report a violation found by the scenario itself; the run continues."""
        self.note(f"violated: ({invariant}) {text}")
        self.violations.append(Violation(invariant, text))

    # --- topics ---

    async def make_topics(self) -> None:
        """Create the topics of the plan with the default replication factor."""
        for topic, partitions in self.plan.topics.items():
            await self.make_topic(topic, partitions)

    async def make_topic(self, topic: str, partitions: int) -> None:
        await self.broker.create_topic(topic, partitions=partitions)
        self.recorder.topic_created(topic, partitions)

    async def grow_topic(self, topic: str, partitions: int) -> None:
        """Grow a topic to this total number of partitions."""
        await self.broker.add_partitions(topic, partitions)
        self.recorder.topic_created(topic, partitions)

    async def delete_topic(self, topic: str) -> None:
        assert self._watch is not None
        self.recorder.topic_deleted(topic)
        self._watch.topic_gone(topic)
        await self.broker.delete_topic(topic)

    def compact(self, topic: str, partition: int, share: float) -> None:
        """Remove a share of the records that have a later one with the same key.

        The checks of logs still find the removed records in `observed`.
        """
        before = self.log(topic, partition).records
        log = self.broker._partition(topic, partition).log
        superseded = superseded_offsets(log)
        removed = set(self.chance.sample(superseded, round(share * len(superseded))))
        clean_log(log, removed.__contains__)
        self._consumed.forget(topic, partition)
        self._compacted.setdefault((topic, partition), set()).update(
            record for record in before if record.offset in removed
        )

    def _with_compacted(self, log: Log) -> Log:
        removed = self._compacted.get((log.topic, log.partition), ())
        records = sorted((*log.records, *removed), key=attrgetter("offset"))
        return dataclasses.replace(log, records=tuple(records))

    # --- steps ---

    def on(self, kind: str, action: Callable[..., Awaitable[None]]) -> None:
        """Register the action for a kind of step; it is called with the step's arguments."""
        self._actions[kind] = action

    async def fault(self, step: Step) -> None:
        """Execute one step; returns when it is reverted."""
        self.note(f"step {step.kind} {dict(step.arguments)}")
        self.recorder.fault(str(step))
        action = self._actions.get(step.kind)
        if action is not None:
            await action(**step.arguments)
        else:
            await FAULTS[step.kind].inject(self, **step.arguments)

    async def run_steps(self) -> None:
        """Execute all steps of the plan at their times; then `heal`."""
        async with anyio.create_task_group() as group:
            for step in self.plan.steps:
                await anyio.sleep_until(step.at_s)
                for _ in range(step.iterations):
                    await checkpoint()
                group.start_soon(self.fault, step)
        await self.heal()

    async def heal(self) -> None:
        """End all faults."""
        self.world.network.heal_all()
        self.broker.clear_faults()
        for node in self.broker.nodes:
            self.broker.resume(node)
            if node not in self.broker.live_nodes:
                await self.broker.restart(node)
        self.recorder.healed()
        self.note("healed")

    def crash(self, host: str, scope: anyio.CancelScope, *names: str) -> None:
        """Crash a process: its connections are reset, and it sends nothing any more.

        `scope` contains everything that it does; `names` are its clients. Call `revive` for its
        host when the scope has ended.
        """
        for name in names:
            self.recorder.crashed(name)
        self.world.network.crash(host)
        self.world.network.lose_power(host)
        scope.cancel()

    def revive(self, host: str) -> None:
        """Make the host of a crashed process usable again."""
        self.world.network.restore(host)

    # --- waiting ---

    async def until(
        self, done: Callable[[], bool], what: str, within_s: float = HEALED_WITHIN_S
    ) -> None:
        """Wait until a condition holds. Raises `ConditionTimedOut`, by default after 60 s."""
        deadline = self.now() + within_s
        while not done():
            if self.now() >= deadline:
                raise ConditionTimedOut(f"after {within_s} s not yet: {what}")
            await anyio.sleep(POLL_S)

    async def until_consumed(
        self, *topics: str, committed: bool = False, group: str | None = None
    ) -> None:
        """Wait until each record of these topics (default: of the plan) was given to a consumer, or
        to a member of a group.

        `committed`: ignore records of open and aborted transactions. Raises `ConditionTimedOut`.
        """
        await anyio.sleep(UNDER_WAY_S)
        names = topics or tuple(self.plan.topics)
        missing = partial(self._consumed.missing, names, committed=committed, group=group)
        try:
            await self.until(lambda: not missing(), "consumed")
        except ConditionTimedOut as error:
            left = missing()
            raise ConditionTimedOut(f"{error}: {len(left)} records, {left[:5]}") from None

    async def until_settled(self) -> None:
        """Wait until each partition that a group reads has exactly one owner.

        Raises `ConditionTimedOut`.
        """
        owners = Owners()
        processed_events = 0

        def unsettled() -> list[str]:
            nonlocal processed_events
            for event in self.recorder.history[processed_events:]:
                owners.happened(event)
            processed_events = len(self.recorder.history)
            return [text for group in owners.groups for text in owners.unsettled(group)]

        try:
            await self.until(lambda: not unsettled(), "each partition has one owner")
        except ConditionTimedOut as error:
            raise ConditionTimedOut(f"{error}: {unsettled()}") from None
        self.recorder.settled(*owners.groups)

    async def until_replicated(self) -> None:
        """With `replicate`: wait until all nodes are in sync and hold the same batches."""
        replication = self.broker._running.replication
        if replication is None:
            return
        for topic, partitions in self.broker.topics.items():
            for partition in range(partitions):
                found = self.broker._partition(topic, partition)
                await self.broker.wait_for_isr(
                    topic, partition, *found.replicas, timeout_s=HEALED_WITHIN_S
                )
                held = [
                    batch_checksums(replication.replica(found, node)) for node in found.replicas
                ]
                if any(batches != held[0] for batches in held):
                    raise AssertionError(f"the replicas of {topic}/{partition} differ: {held}")

    def share_changes(self) -> Sequence[ShareAcquired | ShareLocksEnded]:
        """Return the acquisitions and the stored states of share groups so far."""
        assert self._watch is not None
        return self._watch.share_changes

    def log(self, topic: str, partition: int) -> Log:
        """Return the current contents of a partition."""
        return self._consumed.log(topic, partition)

    def records(self, topic: str) -> list[LogRecord]:
        """Return the records of all partitions of a topic; none if it does not exist."""
        partitions = range(self.broker.topics.get(topic, 0))
        return [record for number in partitions for record in self.log(topic, number).records]

    async def bounded(self, what: str, at_most_s: float, call: Awaitable[T]) -> T:
        """Await a call, which must end in this time with any result."""
        began = self.now()
        try:
            return await call
        finally:
            took = self.now() - began
            if took > at_most_s + SLACK_S:
                self.violated(9, f"{what} took {took:.3f} s, at most {at_most_s} s")


def batch_checksums(replica: Partition | None) -> list[tuple[int, int]]:
    """Return the base offset and checksum of each batch of a replica."""
    assert replica is not None
    batches = iter_batches(replica.log.read(0, ALL_BYTES))
    return [(batch.base_offset, batch.crc) for batch in batches]


def make_world(seed: int, backend: Any, plan: Plan) -> World:
    """Return the world of a run."""
    return World(seed, backend=backend, network=NetworkOptions(**dict(plan.network)))
