"""A running consumer: its cluster client, fetcher, positions and group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import ClientClosed, InvalidOption, KafkaError
from aiokafkawire.group.assignors import Assignor
from aiokafkawire.group.membership.context import GroupMembershipOperation
from aiokafkawire.hooks import HookFunctions
from aiokafkawire.records import Record
from aiokafkawire.runtime import Runtime, Session, Supervisor, copy_error, get_loop_checkpoint
from aiokafkawire.telemetry import CONSUMER, ClientTelemetryReporter, MetricsSource
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .assignment import ConsumerAssignment
from .delivery import RecordDelivery
from .fetch_messages import isolation_level
from .fetcher import Fetcher
from .group_session import GroupSession
from .list_offsets import OffsetLister
from .notifier import Notifier
from .partition import AssignedPartition
from .partition_states import Validating
from .position_resolver import PositionResolver
from .topic_subscription import TopicSubscription

__all__ = ("ConsumerSession",)


class ConsumerSession(Session):
    """The parts of a running consumer; their tasks run in a supervisor."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        assignors: Sequence[Assignor],
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.cluster = Cluster(config, runtime, supervisor)
        self.notifier = Notifier(runtime.clock, supervisor)
        self.assignment = ConsumerAssignment()
        self.delivery = RecordDelivery(
            self.assignment, runtime, self.notifier, config.max_partition_fetch_bytes
        )
        self.lister = OffsetLister(self.cluster, runtime, isolation_level(config))
        self.checkpoint = get_loop_checkpoint()
        self._supervisor = supervisor
        self.group: GroupSession | None = None
        if config.group_id is not None:
            self.group = GroupSession(
                self.cluster,
                runtime,
                supervisor,
                config,
                assignors=assignors,
                assignment=self.assignment,
                delivery=self.delivery,
                notifier=self.notifier,
            )
        self.topics = TopicSubscription(
            self.cluster,
            runtime.clock,
            supervisor,
            assignment=self.assignment,
            delivery=self.delivery,
            notifier=self.notifier,
            group=self.group,
            auto_offset_reset=config.auto_offset_reset,
        )
        self.fetcher = Fetcher(
            self.cluster,
            runtime,
            supervisor,
            config,
            assignment=self.assignment,
            notifier=self.notifier,
        )
        self.position_resolver = PositionResolver(
            self.cluster,
            runtime,
            supervisor,
            assignment=self.assignment,
            group=self.group,
            lister=self.lister,
            policy=config.auto_offset_reset,
            notifier=self.notifier,
        )
        source = self._metrics_source()
        self.telemetry = ClientTelemetryReporter(self.cluster, runtime, supervisor, source)

    def _metrics_source(self) -> MetricsSource:
        counters, group = self.assignment.counters, self.group
        durations = {"fetch.manager.fetch.latency": counters.fetch_latency}
        ratios: dict[str, Callable[[], float]] = {}
        if group is not None:
            durations["coordinator.commit.latency"] = group.offsets.commit_latency
            durations["coordinator.rebalance.latency"] = counters.rebalance_latency
            ratios["poll.idle.ratio.avg"] = group.polling_s
        return MetricsSource(CONSUMER, self.metrics, self._telemetry_labels, durations, ratios)

    def _telemetry_labels(self) -> dict[str, str | None]:
        """Return the labels of pushed metrics."""
        return {
            "client_rack": self.config.client_rack,
            "group_id": self.config.group_id,
            "group_instance_id": self.config.group_instance_id,
            "group_member_id": None if self.group is None else self.group.metadata().member_id,
        }

    @property
    def hooks(self) -> HookFunctions:
        """The hooks of the consumer."""
        return self._supervisor.hooks

    # --- start and close ---

    async def start(self) -> None:
        """Connect to the cluster and start all tasks."""
        now = self.runtime.clock.now()
        await self.cluster.start(now + self.config.default_api_timeout_ms / 1000)
        self.cluster.add_metadata_listener(self.topics.metadata_changed)
        self._supervisor.spawn(self.fetcher.run, name="fetcher")
        self._supervisor.spawn(self.position_resolver.run, name="position-resolver")
        if self.group is not None:
            self.group.start()

    @property
    def has_pending_commits(self) -> bool:
        """True if `close` must wait for the coordinator: for a commit, or for the member id."""
        if self.group is None:
            return False
        if self.group.member.awaiting_member_id:
            return True
        if self.group.manual_commits or self.group.offsets.has_waiters:
            return True
        return self.group.auto_commit is not None and any(
            partition.offset_to_commit() is not None for partition in self.assignment.values()
        )

    async def close(
        self,
        deadline: float,
        limit: float,
        operation: GroupMembershipOperation = "default",
    ) -> None:
        """Commit processed records, leave the group and close the connections.

        Args:
            deadline: Time at which to give up. A rebalance callback that runs then moves it.
            limit: The latest deadline.
            operation: Effect on the membership of the group.
        """
        self.delivery.stop()
        if self.group is not None:
            await self._leave_group(self.group, deadline, limit, operation)
        await self.telemetry.close()
        await self.cluster.aclose()

    async def _leave_group(
        self,
        group: GroupSession,
        deadline: float,
        limit: float,
        operation: GroupMembershipOperation,
    ) -> None:
        clock, rebalance = self.runtime.clock, group.rebalance
        allowed_s = deadline - clock.now()
        rebalance.close_deadline = deadline
        if group.manual and group.auto_commit is not None:
            await group.wait_until_left(deadline)
            await rebalance.commit_processed(self.assignment.values())
        while not await group.member.close(deadline, operation) and self.in_callback:
            while self.in_callback and await self.notifier.wait(limit):
                pass
            if clock.now() >= limit:
                break
            rebalance.close_deadline = deadline = min(limit, clock.now() + allowed_s)

    def close_limit(self, deadline: float) -> float:
        """Return the close deadline plus the time that a rebalance callback may take."""
        if self.group is None or self.group.rebalance.listener is None:
            return deadline
        return deadline + self.config.rebalance_callback_timeout_ms / 1000

    def on_task_failed(self, failure: KafkaError) -> None:
        """Wake all waiting calls, which raise the failure of a background task."""
        self.notifier.notify_all()

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        """Wake all waiting calls, because all tasks of the event loop were cancelled."""
        self.notifier.notify_all()

    def unreported_error(self) -> Exception | None:
        """Return the background error that the next call would have raised, if any."""
        error = self.notifier.take_error()
        if error is not None:
            return error
        if self.group is None or self.group.member.unreported_error is None:
            return None
        return copy_error(self.group.member.unreported_error)

    # --- calls for records ---

    def poll_started(self, caller: object) -> None:
        """Note that the application calls for records, as Kafka's `poll` does."""
        if self.delivery.cursor is not None:
            self.delivery.stop()
        self.delivery.mark_processed(caller)
        if self.group is not None:
            self.group.member.poll_started()

    def poll_finished(self) -> None:
        """Note that the call for records returns."""
        if self.group is not None:
            self.group.member.poll_finished()

    def next_buffered(self, owner: object) -> Record[Any, Any] | None:
        """Return the next record of this owner's cursor, if any; this resets the poll timer."""
        cursor = self.delivery.cursor
        if cursor is None or cursor.owner is not owner:
            return None
        record = cursor.next()
        # mutation: buffered-records-do-not-reset-poll-timer
        if record is not None and self.group is not None:
            self.group.member.record_poll()
        return record

    @property
    def close_waits_for(self) -> str:
        """Noun for the log: whom `close` waits for now."""
        return "the rebalance listener" if self.in_callback else super().close_waits_for

    @property
    def close_waits_until(self) -> float:
        """When this wait ends: without a callback, before the limit of `close`."""
        if self.group is None or self.in_callback:
            return super().close_waits_until
        return self.group.rebalance.close_deadline

    @property
    def in_callback(self) -> bool:
        """True while a rebalance callback runs. Until it ends, no records may be delivered."""
        return self.delivery.pending_callbacks > 0

    def raise_errors(self) -> None:
        """Raise an error that the application must know about, if there is one."""
        if (raised := self.notifier.pending_error) is not None:
            self.notifier.pending_error = None
            raise raised
        if self.group is not None and (error := self.group.member.error) is not None:
            self.group.member.mark_error_reported()
            raise copy_error(error)
        if self.assignment.failed:
            self.raise_partition_error()
        self.topics.raise_error()

    def raise_partition_error(self) -> None:
        """Raise the error of a partition that cannot be read, if there is one."""
        error = self.assignment.take_partition_error()
        if error is not None:
            # A reported error may be retried.
            self.notifier.check_all()
            raise copy_error(error)

    def metrics(self) -> dict[str, int | float]:
        """Return the metrics of the consumer and its cluster client."""
        group = {} if self.group is None else self.group.metrics()
        return self.delivery.metrics() | group | self.cluster.metrics()

    # --- positions ---

    def validated_position(self, partition: AssignedPartition) -> int | None:
        """Return the position, or None until it is validated against the leader's log."""
        partition.update_leader(self.cluster.metadata.leader(partition.tp))
        if isinstance(partition.state, Validating):
            self.notifier.to_resolve.add([partition])
            return None
        return partition.position

    def on_position_changed(self) -> None:
        """Stop the current delivery, because the application has sought, paused or resumed."""
        self.delivery.stop()
        self.notifier.state_changed()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that `commit()` would commit.

        Raises `CommitFailed`, once, if delivered records were lost before they were committed.
        """
        if self.group is not None:
            self.group.raise_uncommitted(self.group.rebalance.released_uncommitted)
        return self.assignment.delivered_offsets()

    def require_group(self) -> GroupSession:
        """Return the group. Raises `InvalidOption` without a `group_id`."""
        if self.group is None:
            raise InvalidOption("committed offsets require a group_id")
        return self.group
