"""Share partitions and share sessions of all nodes.

A share partition lives at the leader of its partition. Another leader loads the persisted state, in
which acquired records are available again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.groups.consumer_group.deadlines import Deadlines
from aiokafkawire.broker.share.configs import ShareGroupConfigs, duration_ms
from aiokafkawire.broker.share.dead_letters import DeadLetterQueue
from aiokafkawire.broker.share.persister import (
    NO_START_OFFSET,
    SharePartitionKey,
    SharePersister,
    ShareState,
)
from aiokafkawire.broker.share.share_partition import SharePartition, StateUpdate
from aiokafkawire.broker.share.share_sessions import (
    SessionPartition,
    ShareSession,
    ShareSessionCache,
)
from aiokafkawire.broker.topics import Partition
from aiokafkawire.runtime import AutoResetEvent, Clock
from aiokafkawire.wire import ErrorCode

__all__ = ("LeaderSharePartition", "SharePartitionManager")

logger = logging.getLogger("aiokafkawire.broker")

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"


@dataclass(slots=True, eq=False)
class LeaderSharePartition:
    """A share partition at its leader, which has loaded it in an epoch."""

    key: SharePartitionKey
    share_partition: SharePartition
    leader_epoch: int
    state_epoch: int
    on_change: Callbacks = field(default_factory=Callbacks)


@dataclass(slots=True, eq=False)
class _NodeShares:
    """Share partitions and sessions of one node."""

    sessions: ShareSessionCache
    partitions: dict[SharePartitionKey, LeaderSharePartition] = field(default_factory=dict)


class SharePartitionManager:
    """Loads share partitions, releases expired locks, and ends sessions with their connections."""

    def __init__(
        self,
        cluster: ClusterState,
        persister: SharePersister,
        clock: Clock,
        configs: ShareGroupConfigs,
        max_sessions: int,
        *,
        dead_letters: DeadLetterQueue,
    ) -> None:
        self.persister = persister
        self.configs = configs
        self._cluster = cluster
        self._clock = clock
        self._max_sessions = max_sessions
        self._dead_letters = dead_letters
        self._nodes: dict[int, _NodeShares] = {}
        self._deadlines: Deadlines[tuple[int, SharePartitionKey]] = Deadlines()
        self._wakeup = AutoResetEvent()
        self._next_wakeup = 0.0

    def sessions(self, node_id: int) -> ShareSessionCache:
        """Return the sessions of a node."""
        return self._node(node_id).sessions

    def _node(self, node_id: int) -> _NodeShares:
        if node_id not in self._nodes:
            self._nodes[node_id] = _NodeShares(ShareSessionCache(self._max_sessions))
        return self._nodes[node_id]

    # --- share partitions --------------------------------------------------------------------

    def get(
        self, node_id: int, key: SharePartitionKey, partition: Partition
    ) -> LeaderSharePartition | None:
        """Return a share partition with its current configs, None if the node has not loaded it."""
        node = self._node(node_id)
        found = node.partitions.get(key)
        if found is None:
            return None
        state = self.persister.read(key)
        is_current = (
            state is not None
            and found.state_epoch == state.state_epoch
            and found.leader_epoch == partition.leader_epoch
        )
        if not is_current:
            self._drop(node_id, key)
            return None
        found.share_partition.settings = self.configs.of_partitions(key.group_id)
        return found

    def _current(self, node_id: int, key: SharePartitionKey) -> LeaderSharePartition | None:
        """Return a share partition, None if the node has not loaded it or another leads now.

        The locks of an earlier leader are lost: they must not change what the current one stores.
        """
        try:
            topic = self._cluster.topic_by_id(key.topic_id)
            partition = self._cluster.partition(topic, key.partition)
        except ApiError:
            self._drop(node_id, key)
            return None
        return self.get(node_id, key, partition)

    def load(
        self, node_id: int, key: SharePartitionKey, partition: Partition
    ) -> LeaderSharePartition:
        """Load a share partition at the leader of its partition.

        Raises:
            ApiError: The group has not initialized it.
        """
        state = self.persister.read(key)
        if state is None:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        leader_epoch = partition.leader_epoch

        def write(update: StateUpdate) -> None:
            self.persister.write(key, update, leader_epoch)

        share_partition = SharePartition(
            self._start_offset(key.group_id, state, partition),
            write,
            state.batches,
            self.configs.of_partitions(key.group_id),
            functools.partial(self._dead_letters.write, key, partition),
        )
        share_partition.advance_log_start(partition.log.start_offset)
        loaded = LeaderSharePartition(key, share_partition, leader_epoch, state.state_epoch)
        self._node(node_id).partitions[key] = loaded
        return loaded

    def _start_offset(self, group_id: str, state: ShareState, partition: Partition) -> int:
        if state.start_offset != NO_START_OFFSET:
            return state.start_offset
        reset = self.configs.offset_reset(group_id)
        log, end = partition.log, partition.high_watermark
        if reset == EARLIEST:
            return log.start_offset
        if not reset.startswith(BY_DURATION):
            return end
        since_ms = self._clock.wall_ms() - duration_ms(reset.removeprefix(BY_DURATION))
        found = log.find_offset_by_timestamp(since_ms)
        return end if found is None else min(found.offset, end)

    def _drop(self, node_id: int, key: SharePartitionKey) -> None:
        found = self._node(node_id).partitions.pop(key, None)
        self._deadlines.cancel((node_id, key))
        if found is not None:
            found.on_change.notify()

    def forget(self, keys: Iterable[SharePartitionKey]) -> None:
        """Drop share partitions whose state was deleted or reset, at all nodes."""
        for key in list(keys):
            for node_id in self._nodes:
                self._drop(node_id, key)

    def changed(self, node_id: int, partition: LeaderSharePartition) -> None:
        """Take over the deadlines of a share partition, and wake fetches that wait for it."""
        self.schedule(node_id, partition)
        partition.on_change.notify()

    def schedule(self, node_id: int, partition: LeaderSharePartition) -> None:
        """Take over the deadlines of a share partition after records were acquired."""
        deadline = partition.share_partition.next_deadline
        if deadline == math.inf:
            self._deadlines.cancel((node_id, partition.key))
            return
        self._deadlines.set((node_id, partition.key), deadline)
        if deadline < self._next_wakeup:
            self._wakeup.set()

    # --- sessions ----------------------------------------------------------------------------

    def release_session(self, node_id: int, session: ShareSession) -> None:
        """Release what a member has acquired of the partitions of its session."""
        self._release(node_id, session.key.group_id, session.key.member_id, session.partitions)

    def _release(
        self, node_id: int, group_id: str, member_id: str, partitions: Iterable[SessionPartition]
    ) -> None:
        now = self._clock.now()
        for each in partitions:
            found = self._current(node_id, SharePartitionKey(group_id, *each))
            if found is None:
                continue
            # Records that cannot be released now are released when their lock expires.
            with contextlib.suppress(StorageError):
                found.share_partition.release(member_id, now)
            self.changed(node_id, found)

    def disconnect(self, node_id: int, connection: object) -> None:
        """End the session of a connection that was closed."""
        node = self._node(node_id)
        ended = node.sessions.disconnect(connection)
        if ended is None:
            return
        key, session = ended
        if node_id not in self._cluster.live:
            # The locks of a node that is down are lost.
            self.forget_node(node_id)
            return
        if session is not None:
            self.release_session(node_id, session)
        if not node.sessions.has_group(key.group_id):
            for partition in [each for each in node.partitions if each.group_id == key.group_id]:
                self._drop(node_id, partition)

    def forget_node(self, node_id: int) -> None:
        """Drop everything that a node had in memory."""
        node = self._nodes.pop(node_id, None)
        for key in () if node is None else node.partitions:
            self._deadlines.cancel((node_id, key))

    # --- time --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Release records whose lock has expired, until the broker closes."""
        while True:
            self._next_wakeup = self._deadlines.next()
            await self._wakeup.wait(self._next_wakeup)
            now = self._clock.now()
            for node_id, key in self._deadlines.take_expired(now):
                found = self._current(node_id, key)
                if found is None:
                    continue
                if found.share_partition.expire(now):
                    self.changed(node_id, found)
                else:
                    self.schedule(node_id, found)
