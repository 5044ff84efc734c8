"""Requests of share groups, for tests of every API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)

__all__ = ("SHARE_REQUESTS",)

SHARE_REQUESTS: dict[ApiKey, tuple[Callable[[int, UUID], Request[Any]], set[ErrorCode]]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: (
        lambda v, i: share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: (
        lambda v, i: share_group_describe.ShareGroupDescribeRequest(
            group_ids=["s"], include_authorized_operations=True
        ),
        {ErrorCode.GROUP_ID_NOT_FOUND},
    ),
    ApiKey.SHARE_FETCH: (
        lambda v, i: share_fetch.ShareFetchRequest(
            group_id="s",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=1,
            max_records=10 if v else 0,
            batch_size=10 if v else 0,
            topics=[
                share_fetch.ShareFetchTopic(
                    topic_id=i,
                    partitions=[
                        share_fetch.ShareFetchPartition(
                            partition_index=0, acknowledgement_batches=[]
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
        ),
        {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR},
    ),
    ApiKey.SHARE_ACKNOWLEDGE: (
        lambda v, i: share_acknowledge.ShareAcknowledgeRequest(
            group_id="s", member_id="m", share_session_epoch=1, topics=[]
        ),
        {ErrorCode.SHARE_SESSION_NOT_FOUND},
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        lambda v, i: describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[
                describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                    group_id="s",
                    topics=[
                        describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
                            topic_name="t", partitions=[0]
                        )
                    ],
                )
            ]
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        lambda v, i: alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id="s",
            topics=[
                alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                    topic_name="t",
                    partitions=[
                        alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                            partition_index=0, start_offset=0
                        )
                    ],
                )
            ],
        ),
        {ErrorCode.NONE},
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        lambda v, i: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id="s",
            topics=[delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="t")],
        ),
        {ErrorCode.GROUP_ID_NOT_FOUND},
    ),
}
"""Request and expected error codes of each API."""
