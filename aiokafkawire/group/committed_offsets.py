"""Lookup of committed offsets, repeated while the coordinator or the member epoch changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.runtime import Runtime
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchResponse

from .membership.states import NO_GENERATION
from .offset_fetch import (
    FIRST_WITH_REQUIRE_STABLE,
    Committed,
    MemberEpochRejected,
    offset_fetch_request,
    read_committed_offsets,
)
from .offset_storage import CommitIdentity, OffsetStorage, explain_unsupported

__all__ = ("CommittedOffsets",)


class CommittedOffsets:
    """Fetches the committed offsets of one group.

    `commit_identity` returns the current membership, and `on_rejected` is called when the
    coordinator rejects its epoch (KIP-848).
    """

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        group_id: str,
        *,
        storage: OffsetStorage,
        backoff: Backoff,
        commit_identity: Callable[[], CommitIdentity | None],
        on_rejected: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._runtime = runtime
        self._group_id = group_id
        self._storage = storage
        self._backoff = backoff
        self._commit_identity = commit_identity
        self._on_rejected = on_rejected

    async def fetch(
        self, partitions: Sequence[TopicPartition], deadline: float, *, stable: bool = False
    ) -> Committed:
        """Return the committed offset per partition; None where nothing is committed.

        Args:
            partitions: Partitions to look up.
            deadline: Time of the runtime's clock, in seconds.
            stable: Require offsets without open transactions (KIP-447, OffsetFetch v7+).

        Raises:
            BrokerError: The coordinator returned an error that is not retriable.
            RequestTimedOut: No response before the deadline.
            UnsupportedVersion: The broker does not support the storage, or `stable`.
        """
        attempt = 0
        while True:
            attempt += 1
            ids = {tp.topic: self._cluster.metadata.topic_id(tp.topic) for tp in partitions}
            identity = self._commit_identity()
            member = identity if identity is not None and identity.has_epoch else None
            response, broker = await self._send(partitions, ids, deadline, member, stable=stable)
            try:
                return read_committed_offsets(
                    response, self._group_id, partitions, ids, has_epoch=member is not None
                )
            except KafkaError as error:
                error.group, error.broker = self._group_id, broker
                retry_at = self._runtime.clock.now() + self._backoff.delay(
                    attempt, self._runtime.rng
                )
                if isinstance(error, MemberEpochRejected):
                    # The next heartbeat returns the epoch, or that the member was removed.
                    self._on_rejected()
                if not error.retriable or retry_at >= deadline:
                    raise
                # mutation: offset-fetch-repeated-at-once
                await self._runtime.clock.sleep_until(retry_at)

    async def _send(
        self,
        partitions: Sequence[TopicPartition],
        ids: Mapping[str, UUID],
        deadline: float,
        member: CommitIdentity | None,
        *,
        stable: bool,
    ) -> tuple[OffsetFetchResponse, str]:
        request, max_version = offset_fetch_request(
            self._group_id,
            partitions,
            ids,
            member_id=None if member is None else member.member_id,
            member_epoch=NO_GENERATION if member is None else member.generation,
        )
        route, low, high = self._storage
        try:
            return await self._cluster.request_with_broker(
                request,
                to=route,
                deadline=deadline,
                min_version=FIRST_WITH_REQUIRE_STABLE if stable else low,
                max_version=max_version if high is None else high,
            )
        except UnsupportedVersion as error:
            if stable:
                error.reason += "; brokers from 2.5 exclude offsets of open transactions (KIP-447)"
            else:
                explain_unsupported(error)
            raise
