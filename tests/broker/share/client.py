"""A member of a share group, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from aiokafkawire.wire.messages import share_acknowledge, share_fetch, share_group_heartbeat
from tests.broker.raw_client import RawClient, batch, build_update_metadata_request, produce_request

Ranges = Sequence[tuple[int, int, int]]
"""First and last offset, and the type of the acknowledgement."""


class ShareMember:
    """A member with one share session, at one node."""

    def __init__(self, client: RawClient, group: str = "g", member: str = "m") -> None:
        self.client = client
        self.group = group
        self.member = member
        self.topic_id = UUID(int=0)
        self.epoch = 0
        self.member_epoch = 0

    async def join(self, topic: str = "t") -> Any:
        """Join the group, and send heartbeats until there is an assignment."""
        metadata = await self.client.call(build_update_metadata_request(topic), 12)
        self.topic_id = metadata.topics[0].topic_id
        await self.heartbeat(0, [topic])
        return await self.heartbeat(self.member_epoch, [topic])

    async def heartbeat(self, epoch: int, names: list[str] | None = None) -> Any:
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=epoch,
            subscribed_topic_names=names,
        )
        response = await self.client.call(request, 1)
        if not response.error_code:
            self.member_epoch = response.member_epoch
        return response

    async def fetch(
        self, ranges: Ranges = (), *, epoch: int | None = None, version: int = 2, **fields: Any
    ) -> Any:
        """Send ShareFetch for partition 0; return the response."""
        fields = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 100, "batch_size": 100, **fields}
        names = self.epoch == 0 or ranges
        partition = share_fetch.ShareFetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                share_fetch.ShareFetchAcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                )
                for first, last, kind in ranges
            ],
        )
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[share_fetch.ShareFetchTopic(topic_id=self.topic_id, partitions=[partition])]
            if names
            else [],
            forgotten_topics_data=[],
            **fields,
        )
        response = await self.client.call(request, version)
        self._advance(response)
        return response

    async def acquired(self, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch; return first and last offset and delivery count of what was acquired."""
        response = await self.fetch(**fields)
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in response.responses
            for partition in topic.partitions
            for each in partition.acquired_records
        ]

    async def acknowledge(self, *ranges: tuple[int, int, int], epoch: int | None = None) -> Any:
        """Send ShareAcknowledge for partition 0; return the result of the partition."""
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=any(kind == 4 for _, _, kind in ranges),
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                share_acknowledge.ShareAcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                                )
                                for first, last, kind in ranges
                            ],
                        )
                    ],
                )
            ]
            if ranges
            else [],
        )
        response = await self.client.call(request, 2)
        self._advance(response)
        if not ranges or response.error_code:
            return response
        return response.responses[0].partitions[0]

    async def produce(self, count: int, topic: str = "t") -> None:
        """Append one batch to partition 0."""
        await self.client.call(produce_request(topic, 0, batch(*[b"v"] * count)), 9)

    def _advance(self, response: Any) -> None:
        if not response.error_code:
            self.epoch += 1
