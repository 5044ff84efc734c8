"""The group of a consumer: its membership, rebalances and committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import CommitFailed, KafkaError, RequestTimedOut
from aiokafkawire.group.assignors import Assignor
from aiokafkawire.group.classic_member import ClassicMember
from aiokafkawire.group.consumer_member import ConsumerProtocolMember
from aiokafkawire.group.member import CommittingMember
from aiokafkawire.group.offset_fetch import Committed
from aiokafkawire.group.offsets import CommitIdentity, GroupOffsets
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import Runtime, Supervisor, checkpoint
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition

from .assignment import ConsumerAssignment
from .auto_commit import AutoCommit
from .delivery import RecordDelivery
from .notifier import Notifier
from .rebalance import RebalanceHandler

__all__ = ("GroupSession",)

logger = logging.getLogger("aiokafkawire.consumer")


class GroupSession:
    """A group member, its rebalance handler and its offset manager.

    Attributes:
        auto_commit: Commits at intervals, with `enable_auto_commit`.
        manual: Partitions are assigned manually, so that the consumer must not be a member.
        manual_commits: Commits in flight of partitions that were assigned manually. The consumer
            joins after them.
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig,
        *,
        assignors: Sequence[Assignor],
        assignment: ConsumerAssignment,
        delivery: RecordDelivery,
        notifier: Notifier,
    ) -> None:
        self._supervisor = supervisor
        self._clock = runtime.clock
        self._timeout_s = config.default_api_timeout_ms / 1000
        self._assignment = assignment
        self._notifier = notifier
        assert config.group_id is not None
        self.offsets = GroupOffsets(
            cluster,
            runtime,
            config.group_id,
            commit_identity=self.commit_identity,
            on_rejected=self._verify_membership,
            on_committed=self._on_committed,
            storage=config.offsets_storage,
        )
        self.rebalance = RebalanceHandler(
            runtime,
            supervisor,
            config,
            assignment=assignment,
            offsets=self.offsets,
            delivery=delivery,
            notifier=notifier,
        )
        context = (cluster, runtime, supervisor, config)
        self._make_classic = partial(
            ClassicMember, *context, assignors=assignors, owner=self.rebalance
        )
        self.member = self._make_member(context, config)
        self.auto_commit = (
            AutoCommit(
                cluster,
                runtime.clock,
                supervisor,
                config,
                assignment=assignment,
                offsets=self.offsets,
            )
            if config.enable_auto_commit
            else None
        )
        self.manual = False
        self.manual_commits = 0

    def _make_member(
        self, context: tuple[Cluster, Runtime, Supervisor, ConsumerConfig], config: ConsumerConfig
    ) -> CommittingMember:
        if config.group_protocol == "classic":
            return self._make_classic()
        may_fall_back = config.group_protocol == "auto"
        return ConsumerProtocolMember(
            *context,
            owner=self.rebalance,
            use_classic=self._use_classic if may_fall_back else None,
        )

    def start(self) -> None:
        """Start the tasks of the member and of the offsets."""
        self._supervisor.spawn(self.member.run, name="membership")
        self._supervisor.spawn(self.offsets.run, name="commits")
        if self.auto_commit is not None:
            self._supervisor.spawn(self.auto_commit.run, name="auto-commit")

    def _use_classic(self, error: KafkaError) -> None:
        """Replace the member, which has not joined, by one of the classic protocol."""
        before = self.member
        logger.info(
            "Group %s: cannot use the consumer protocol: %s; using the classic protocol",
            before.group_id,
            error.reason,
            extra=log_fields(self._supervisor.fields, error=error, group=before.group_id),
        )
        self.member = self._make_classic()
        self.member.take_over(before)
        self._supervisor.spawn(self.member.run, name="membership")

    def polling_s(self) -> float:
        """Return how long calls for records have been running in total, in seconds."""
        return self.member.poll_timer.polling_s(self._clock.now())

    def metrics(self) -> dict[str, int | float]:
        """Return which protocol the member uses."""
        return {f'group_protocol{{protocol="{self.member.protocol}"}}': 1}

    def commit_identity(self) -> CommitIdentity | None:
        """Return the generation and member id to commit with; None if no commit is possible."""
        return CommitIdentity() if self.member.is_outside_group else self.member.commit_identity()

    def metadata(self) -> GroupMetadata:
        """Return the group metadata for a transaction's offsets (KIP-447)."""
        return GroupMetadata(self.member.group_id) if self.manual else self.member.metadata()

    def _verify_membership(self) -> None:
        if not self.manual:
            self.member.verify_membership()

    def _on_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that the coordinator has acknowledged these offsets."""
        self._assignment.counters.commits += 1
        self._assignment.mark_committed(offsets)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets. Raises `CommitFailed` for a partition that is not assigned."""
        if not self.manual and not self._assignment.has_all(offsets):
            for tp in offsets:
                if tp not in self._assignment:
                    reason = self.rebalance.lost_uncommitted.pop(tp, None)
                    raise CommitFailed(
                        "the partition is not assigned to this consumer"
                        + (f": {reason}" if reason else ""),
                        group=self.member.group_id,
                        topic=tp.topic,
                        partition=tp.partition,
                    )
        await checkpoint()
        deadline = self._clock.now() + self._timeout_s
        if self.manual:
            await self.require_not_member(deadline, "OffsetCommit")
        commit_id = self.offsets.submit(
            offsets, before_revocation=self.rebalance.is_any_being_revoked(offsets)
        )
        try:
            await self.offsets.wait_acknowledged([commit_id], deadline)
        except KafkaError:
            self._assignment.counters.commit_failures += 1
            raise

    def raise_uncommitted(self, partitions: dict[TopicPartition, str]) -> None:
        """Raise `CommitFailed`, once, if delivered records were lost before they were committed.

        Args:
            partitions: `lost_uncommitted` or `released_uncommitted` of `rebalance`.
        """
        if not partitions:
            return
        names = ", ".join(map(str, sorted(partitions)))
        reason = next(iter(partitions.values()))
        partitions.clear()
        raise CommitFailed(
            f"these partitions were lost before their records were committed: {names} ({reason})",
            group=self.member.group_id,
        )

    async def wait_until_left(self, deadline: float) -> bool:
        """Wait until the member has left the group, if partitions are assigned manually.

        Returns:
            False at the deadline.
        """
        while self.manual and not self.member.is_outside_group:
            if not await self._notifier.wait(deadline):
                return False
        return True

    async def require_not_member(self, deadline: float, api: str) -> None:
        """Wait until the member has left the group, before a request of `api`.

        Raises:
            RequestTimedOut: It has not left before the deadline.
        """
        if not await self.wait_until_left(deadline):
            raise RequestTimedOut(
                "partitions are assigned manually, and the consumer has not left the group before"
                " the deadline",
                sent=False,
                api=api,
                group=self.member.group_id,
            )

    async def fetch(self, partitions: Sequence[TopicPartition], deadline: float) -> Committed:
        """Return the committed offsets, after all commits in flight are acknowledged."""
        if self.manual:
            await self.require_not_member(deadline, "OffsetFetch")
        await self.offsets.wait_idle(partitions, deadline)
        return await self.offsets.fetch(partitions, deadline)
