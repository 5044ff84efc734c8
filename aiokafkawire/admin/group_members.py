"""Removal of members from groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aiokafkawire.admin.items import ItemRequest, ItemResult
from aiokafkawire.admin.requester import Requester
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

__all__ = ("leave_group",)

FIRST_WITH_MEMBERS = 3
DEFAULT_REASON = "member was removed by an admin"
MAX_REASON_LENGTH = 255


async def leave_group(
    requester: Requester, group_id: str, members: Mapping[str, str], reason: str
) -> dict[str, KafkaError | None]:
    """Send LeaveGroup for members.

    Args:
        requester: The call.
        group_id: Name of the group.
        members: Member ids of dynamic members, by member id; "" by group instance id for static
            ones.
        reason: Reason for the brokers' logs; "" for the default.
    """
    text = f"{DEFAULT_REASON}: {reason}" if reason else DEFAULT_REASON

    def build(names: Sequence[str], version: int, timeout_ms: int) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(
                    member_id=members[name],
                    group_instance_id=None if members[name] else name,
                    reason=text[:MAX_REASON_LENGTH],
                )
                for name in names
            ],
        )

    request: ItemRequest[str, None] = ItemRequest(
        api_key=ApiKey.LEAVE_GROUP,
        build=build,
        read=_read,
        locate=lambda name: group_id,
        min_version=FIRST_WITH_MEMBERS,
    )
    results = await requester.request_items(request, members)
    if any(isinstance(error, UnsupportedVersion) for error in results.values()):
        dynamic = [name for name in members if members[name]]
        for name in dynamic:
            results |= await requester.request_items(_old_request(group_id, name), [name])
    return results


def _read(response: LeaveGroupResponse) -> Iterator[ItemResult]:
    for member in response.members:
        yield ItemResult(member.group_instance_id or member.member_id, code=member.error_code)


def _old_request(group_id: str, member_id: str) -> ItemRequest[str, None]:
    """Return the request about one dynamic member, for brokers before 2.4."""

    def build(names: Sequence[str], version: int, timeout_ms: int) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=group_id, member_id=member_id)

    return ItemRequest(
        api_key=ApiKey.LEAVE_GROUP,
        build=build,
        read=lambda response: [ItemResult(member_id)],
        locate=lambda name: group_id,
        max_version=FIRST_WITH_MEMBERS - 1,
    )
