"""Faults of the topics and the commits of workers: steps for the scenario `worker`."""

from __future__ import annotations

import base64
import dataclasses
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio

from aiokafkawire.admin import Admin
from aiokafkawire.broker import Acl
from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.broker.groups.offsets import CommittedOffset
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import with_runtime
from aiokafkawire.worker.finished_records import PREFIX, FinishedRecords, encode_metadata
from verify.simulation.harness import Harness
from verify.simulation.plan import PlannedClient, Step
from verify.simulation.worker_ledger import WorkerLedger

__all__ = ("ACLS", "METADATA", "WorkerFaults", "draw_worker_faults", "remove_members")

ACLS = (
    Acl("User:*", "All", topic="*"),
    Acl("User:*", "All", group="*"),
    Acl("User:*", "All", transactional_id="*"),
    Acl("User:*", "All", cluster=True),
)
"""Let everyone do everything, until a step forbids to write dead letters."""

SMALL_BYTES = (100, 300)
"""Limits of a batch of dead letters: too small for each, and for those with a stack trace."""

METADATA = ("text", "other offset", "damaged")
"""Forms of metadata that the worker must not trust."""

ADMIN_HOST = "10.0.3.1"

CLAIMED = 1_000
"""Records that foreign metadata names as finished."""


def draw_worker_faults(
    rng: random.Random, workers: Sequence[PlannedClient], partitions: int, to_s: float
) -> list[Step]:
    """Draw faults of dead letters, compactions, metadata of other programs, and removals."""

    def step(kind: str, **arguments: Any) -> Step:
        return Step(round(rng.uniform(0.1, to_s), 3), kind, arguments)

    steps: list[Step] = []
    for _ in range(rng.choice((0, 1, 3))):
        kind = rng.choice(("forbid dead letters", "limit dead letters", "delete dead letters"))
        more = {"max_bytes": rng.choice(SMALL_BYTES)} if kind == "limit dead letters" else {}
        steps.append(step(kind, for_s=round(rng.uniform(0.5, 10), 3), **more))
    for _ in range(rng.choice((0, 1, 3))):
        steps.append(
            step("compact", partition=rng.randrange(partitions), share=rng.choice((0.3, 1.0)))
        )
    for _ in range(rng.choice((0, 1, 3))):
        steps.append(step("foreign metadata", form=rng.choice(METADATA)))
        # The next owner reads it.
        died = {"worker": rng.choice(workers).name, "for_s": 0.5, "silent": False}
        steps.append(Step(steps[-1].at_s, "die", died))
    steps += [step("remove members") for _ in range(rng.choice((0, 0, 1, 3)))]
    return steps


async def remove_members(harness: Harness, group: str) -> None:
    """Remove all members of a group, as an administrator may: they lose their partitions."""
    options = {"request_timeout_ms": 2_000, "default_api_timeout_ms": 3_000}
    admin = Admin(**harness.client_options, **options, client_id="admin")
    try:
        async with with_runtime(admin, harness.runtime(ADMIN_HOST)):
            await admin.remove_members_from_consumer_group(group)
    except KafkaError as error:
        harness.note(f"admin: {error}")


class WorkerFaults:
    """The actions of these steps.

    Args:
        harness: Runs the steps.
        ledger: Is asked about commits, and knows the dead letters that were deleted.
        group: Group of the workers.
        topic: The topic that the workers read.
        dead: The dead letter topic.
    """

    def __init__(
        self, harness: Harness, ledger: WorkerLedger, group: str, topic: str, dead: str
    ) -> None:
        self._harness = harness
        self._ledger = ledger
        self._group = group
        self._topic = topic
        self._dead = dead
        harness.on("forbid dead letters", self.forbid_dead_letters)
        harness.on("limit dead letters", self.limit_dead_letters)
        harness.on("delete dead letters", self.delete_dead_letters)
        harness.on("compact", self.compact)
        harness.on("foreign metadata", self.write_foreign_metadata)
        harness.on("remove members", partial(remove_members, harness, group))

    # --- dead letters ---

    async def forbid_dead_letters(self, for_s: float) -> None:
        """Forbid to write dead letters for a time."""
        authorizer: Any = self._harness.broker._authorizer
        binding = Acl("User:*", "Write", topic=self._dead, deny=True).binding
        authorizer.add(binding)
        await anyio.sleep(for_s)
        authorizer.remove(binding)

    async def limit_dead_letters(self, for_s: float, max_bytes: int) -> None:
        """Limit the size of dead letters for a time."""
        self._set_configs({"max.message.bytes": str(max_bytes)})
        await anyio.sleep(for_s)
        self._set_configs({})

    def _set_configs(self, configs: dict[str, str]) -> None:
        if self._dead in self._harness.broker.topics:
            cluster = self._harness.broker._running.cluster
            cluster.alter_configs(ConfigResourceType.TOPIC, self._dead, configs)

    async def delete_dead_letters(self, for_s: float) -> None:
        """Delete the dead letter topic, and create it after a time, unless a worker has."""
        if self._dead in self._harness.broker.topics:
            self._ledger.keep_dead_letters()
            await self._harness.broker.delete_topic(self._dead)
        await anyio.sleep(for_s)
        if self._dead not in self._harness.broker.topics:
            await self._harness.broker.create_topic(self._dead, partitions=1)

    # --- logs and commits ---

    async def compact(self, partition: int, share: float) -> None:
        """Remove a share of the records that have a later one with the same key."""
        self._harness.compact(self._topic, partition, share)

    async def write_foreign_metadata(self, form: str) -> None:
        """Replace the metadata of the commits of the topic, as another program may."""
        offsets = self._harness.broker._running.group_coordinator.offsets
        committed = offsets.committed(self._group)
        offsets.commit(
            self._group,
            {
                tp: dataclasses.replace(commit, metadata=foreign_metadata(form, commit))
                for tp, commit in committed.items()
                if tp.topic == self._topic
            },
        )


def foreign_metadata(form: str, commit: CommittedOffset) -> str:
    """Return metadata for a commit that does not say which records are finished.

    Args:
        form: "text" of another program, or that of a worker for an "other offset" or "damaged".
        commit: The commit that gets the metadata.
    """
    if form == "text":
        return "payments 1.7"
    offset = commit.offset - (form == "other offset")
    claimed = ((offset + 1, offset + 1 + CLAIMED),)
    metadata = encode_metadata(FinishedRecords(offset, 2**31 - 1, claimed))
    if form == "damaged":
        data = bytearray(base64.b64decode(metadata.removeprefix(PREFIX)))
        data[-1] ^= 1  # of the checksum
        metadata = PREFIX + base64.b64encode(data).decode()
    return metadata
