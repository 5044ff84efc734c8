"""What a consumer with a group has more than one without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.group.assignors import Assignor
from aiokafkawire.group.coordinator import GroupMember
from aiokafkawire.group.offsets import Committed, Credentials, GroupOffsets
from aiokafkawire.runtime import Host, Runtime, wait_until
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition

from .assignment import Assignment
from .rebalance import Hooks, Rebalance

__all__ = ("GroupParts", "News")


class News:
    """Wakes all that wait at the time."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def tell(self) -> None:
        """Wake them."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self, deadline: float) -> bool:
        """Wait for the next `tell`; False if the deadline came first."""
        return await wait_until(self._event, deadline)


class GroupParts:
    """A member of the group, its rebalances, and the offsets that are committed.

    `manual`: partitions are chosen by hand, so this is to be no member. `parting`: how many commits
    of such partitions are under way; they have to be over before it becomes one again.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        host: Host,
        config: ConsumerConfig,
        *,
        assignors: Sequence[Assignor],
        assignment: Assignment,
        hooks: Hooks,
        news: News,
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
    ) -> None:
        self._news = news
        assert config.group_id is not None
        self.offsets = GroupOffsets(
            cluster,
            runtime,
            config.group_id,
            credentials=self.credentials,
            on_doubt=self._doubt,
            on_committed=on_committed,
            storage=config.offsets_storage,
        )
        self.rebalance = Rebalance(
            runtime, host, config, assignment=assignment, offsets=self.offsets, hooks=hooks
        )
        self.member = GroupMember(
            cluster, runtime, host, config, assignors=assignors, owner=self.rebalance
        )
        self.manual = False
        self.parting = 0

    def credentials(self) -> Credentials | None:
        """As whom to commit at present, if at all."""
        return Credentials() if self.member.away else self.member.credentials()

    def metadata(self) -> GroupMetadata:
        """As whom a transaction is to commit offsets."""
        return GroupMetadata(self.member.group_id) if self.manual else self.member.metadata()

    def _doubt(self) -> None:
        if not self.manual:
            self.member.doubt()

    async def outside(self, deadline: float) -> bool:
        """Wait until the group is left, if partitions are chosen by hand; False at the deadline."""
        while self.manual and not self.member.away:
            if not await self._news.wait(deadline):
                return False
        return True

    async def need_outside(self, deadline: float, api: str) -> None:
        """As `outside`, before a request of `api`. Raises `RequestTimedOut` at the deadline."""
        if not await self.outside(deadline):
            raise RequestTimedOut(
                "partitions are assigned by hand, and the group was not left before the deadline",
                sent=False,
                api=api,
                group=self.member.group_id,
            )

    async def fetch(self, partitions: Sequence[TopicPartition], deadline: float) -> Committed:
        """What is committed, once nothing newer is on its way (`positioner.CommittedOffsets`)."""
        await self.need_outside(deadline, "OffsetFetch")
        await self.offsets.quiet(partitions, deadline)
        return await self.offsets.fetch(partitions, deadline)
