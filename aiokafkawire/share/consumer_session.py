"""A running share consumer: its cluster client, membership and share sessions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.metadata import MetadataUpdate
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.consumer.missing_topics import MissingTopics
from aiokafkawire.consumer.notifier import Notifier
from aiokafkawire.errors import ClientClosed, IllegalState, KafkaError
from aiokafkawire.group.membership.states import Assignment
from aiokafkawire.group.share_member import ShareMember
from aiokafkawire.group.topic_id_partition import Partitions, TopicIdPartition
from aiokafkawire.hooks import GroupEvent
from aiokafkawire.runtime import (
    AutoResetEvent,
    Runtime,
    Session,
    Supervisor,
    copy_error,
    get_loop_checkpoint,
)
from aiokafkawire.telemetry import SHARE_CONSUMER, ClientTelemetryReporter, MetricsSource

from .delivery import ShareDelivery
from .sessions import ShareSessions

__all__ = ("ShareConsumerSession",)


MAINTENANCE_INTERVAL_S = 0.1
"""Interval at which ended tasks and locks to renew are looked for."""


LEAVE_S = 1.0
"""Time of `close` that is reserved for leaving the group, but at most half of it."""


class ShareConsumerSession(Session):
    """The parts of a running share consumer; their tasks run in a supervisor."""

    def __init__(
        self, config: ShareConsumerConfig, runtime: Runtime, supervisor: Supervisor
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.hooks = supervisor.hooks
        self.cluster = Cluster(config, runtime, supervisor)
        self.notifier = Notifier(runtime.clock, supervisor)
        self.delivery = ShareDelivery(
            runtime.clock,
            implicit=config.share_acknowledgement_mode == "implicit",
            renewal_limit_s=config.share_renewal_limit_ms / 1000,
            max_poll_records=config.max_poll_records,
        )
        self.sessions = ShareSessions(
            self.cluster,
            runtime,
            supervisor,
            config,
            delivery=self.delivery,
            notifier=self.notifier,
        )
        self.member = ShareMember(self.cluster, runtime, supervisor, config, owner=self)
        self.sessions.member_id = self.member.member_id
        source = MetricsSource(
            SHARE_CONSUMER,
            self.metrics,
            lambda: {
                "client_rack": config.client_rack,
                "group_id": config.group_id,
                "group_member_id": self.member.member_id,
            },
            {"share.fetch.manager.fetch.latency": self.sessions.fetch_latency},
        )
        self.telemetry = ClientTelemetryReporter(self.cluster, runtime, supervisor, source)
        self.checkpoint = get_loop_checkpoint()
        self._supervisor = supervisor
        self._assignment: Partitions = ()  # by the coordinator
        self._missing_topics = MissingTopics(config.default_api_timeout_ms / 1000)
        self._maintenance_due = AutoResetEvent()
        self._maintaining = False

    # --- start and close ---

    async def start(self) -> None:
        """Connect to the cluster and start all tasks."""
        now = self.runtime.clock.now()
        await self.cluster.start(now + self.config.default_api_timeout_ms / 1000)
        self.cluster.add_metadata_listener(self._metadata_changed)
        self._supervisor.spawn(self.member.run, name="membership")
        self._supervisor.spawn(self._maintain, name="share-maintenance")

    async def close(self, deadline: float) -> None:
        """Send all acknowledgements, release other records, and leave the group.

        The sessions are closed first: leaving does not release the locks. A broker that does not
        respond leaves time for the group.
        """
        self.delivery.clear()
        left_s = deadline - self.runtime.clock.now()
        try:
            await self.sessions.close(deadline - min(LEAVE_S, left_s / 2))
        finally:
            self.sessions.abandon("the share consumer has closed before the broker responded")
        await self.member.close(deadline)
        await self.telemetry.close()
        await self.cluster.aclose()

    def on_task_failed(self, failure: KafkaError) -> None:
        """Wake all waiting calls, which raise the failure of a background task."""
        self.sessions.fail_unconfirmed(str(failure))
        self.delivery.stop()
        self.notifier.notify_all()

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        """Wake all waiting calls, because all tasks of the event loop were cancelled."""
        self.sessions.abandon(str(error))
        self.notifier.notify_all()

    async def _maintain(self) -> None:
        """Maintain delivered records at intervals, while there are some."""
        while True:
            self._maintaining = False
            await self._maintenance_due.wait()
            self._maintaining = True
            while self._maintaining:
                await self._maintenance_due.wait(self.runtime.clock.now() + MAINTENANCE_INTERVAL_S)
                self.delivery.maintain()
                self._maintaining = self.delivery.has_delivered

    # --- subscription ---

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Replace the subscription."""
        before = self.member.topics
        self.cluster.add_topics(topics)
        self.member.subscribe(topics)
        self.cluster.remove_topics(before)
        self._read_assignment()
        self.notifier.notify_all()

    def replace_assignment(self, partitions: Partitions) -> None:
        """Read exactly these partitions from now on."""
        self._assignment = partitions
        self._read_assignment()

    def _read_assignment(self) -> None:
        """Read the assigned partitions, without those of topics not subscribed to any more."""
        topics = self.member.topics
        partitions = tuple(known for known in self._assignment if known.topic in topics)
        before = self.sessions.assignment
        self.sessions.replace_assignment(partitions)
        self._report("revoked", [known for known in before if known not in partitions])
        self._report("assigned", [known for known in partitions if known not in before])

    def lose(self, partitions: Assignment, reason: str) -> None:
        """Read nothing: the coordinator has removed the member."""
        before = self.sessions.assignment
        self._assignment = ()
        self.sessions.replace_assignment(())
        self._report("lost", before, reason)

    def _report(
        self,
        kind: Literal["assigned", "revoked", "lost"],
        partitions: Collection[TopicIdPartition],
        reason: str = "",
    ) -> None:
        """Call the hook for a change of the assignment."""
        on_group_event = self.hooks.on_group_event
        if on_group_event is not None and partitions:
            changed = tuple(known.topic_partition for known in partitions)
            on_group_event(GroupEvent(kind, changed, reason))

    def interrupt_poll(self) -> None:
        """Do nothing: nothing is revoked in a share group."""

    def on_coordinator_result(self, failure: KafkaError | None) -> None:
        """Note whether the coordinator responds."""
        self.notifier.request_finished(failure)

    def raise_error(self, error: KafkaError) -> None:
        """Raise an error of the coordinator in the application's next call."""
        self.sessions.raise_in_next_call(error)

    def on_state_changed(self, *, outside_group: bool, rebalancing: bool) -> None:
        """Wake calls, which raise the error of an ended membership."""
        self.notifier.notify_all()

    def _metadata_changed(self, update: MetadataUpdate) -> None:
        self.member.metadata_changed()
        self.sessions.route()
        self.notifier.notify_all()

    # --- calls ---

    def poll_started(self, caller: object) -> None:
        """Note that the application calls for records, as Kafka's `poll` does."""
        self.sessions.poll_started()
        self.delivery.mark_processed(caller)
        self.member.poll_started()

    def poll_finished(self) -> None:
        """Note that the call for records returns."""
        self.member.poll_finished()
        self.sessions.poll_finished()
        if not self._maintaining and self.delivery.has_delivered:
            self._maintenance_due.set()

    def metrics(self) -> dict[str, int | float]:
        """Return the counters of the consumer and its cluster client."""
        return self.sessions.metrics() | self.cluster.metrics()

    def raise_errors(self) -> None:
        """Raise an error that the application must know about, if there is one."""
        if (raised := self._take_error()) is not None:
            raise raised
        if (error := self.member.error) is not None:
            self.member.mark_error_reported()
            raise copy_error(error)
        if not self.member.topics:
            raise IllegalState("nothing to read: call subscribe() first")
        missing = self._missing_topics.find_error(
            self.cluster.metadata, self.member.topics, self.runtime.clock.now()
        )
        if missing is not None:
            self.cluster.request_update()
            raise missing

    def _take_error(self) -> Exception | None:
        """Return the error to raise in this call, if any."""
        return self.notifier.take_error() or self.delivery.take_corrupt_error()

    def unreported_error(self) -> Exception | None:
        """Return the background error that the next call would have raised, if any."""
        error = self._take_error()
        if error is not None:
            return error
        unreported = self.member.unreported_error
        return None if unreported is None else copy_error(unreported)
