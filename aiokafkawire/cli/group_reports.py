"""Groups of all types with members, offsets and lag, as `groups describe` prints them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aiokafkawire.cli.admin_command import split_errors
from aiokafkawire.cli.consume_plan import format_partitions
from aiokafkawire.cli.tables import format_table, pluralize
from aiokafkawire.errors import BrokerError, KafkaError
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode

if TYPE_CHECKING:
    from aiokafkawire.admin import (
        Admin,
        ClassicGroupDescription,
        ConsumerGroupDescription,
        MemberDescription,
        ShareGroupDescription,
        StreamsGroupDescription,
    )

__all__ = (
    "GroupReport",
    "MemberRow",
    "OffsetRow",
    "describe_groups",
    "group_text",
    "group_to_dict",
)

OTHER_TYPE_CODES = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
"""Errors of `describe_consumer_groups` for a group of another type, or of none."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a group; `partitions` is its assignment, empty during a rebalance.

    Brokers report `member_epoch` where they assign the partitions, and the target assignment and
    the `protocol` of a member in a group of the consumer protocol.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()
    member_epoch: int | None = None
    target_partitions: tuple[TopicPartition, ...] | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """Offsets of a group in a partition; None if unknown.

    `committed` is the committed offset, or the start offset of a share group.
    """

    partition: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    member_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with its members and offsets.

    `group_type` is None before Kafka 3.8. A classic group has no epochs.
    """

    group_id: str
    group_type: str | None
    state: str
    protocol_type: str
    protocol: str
    coordinator: int | None
    members: tuple[MemberRow, ...] = ()
    offsets: tuple[OffsetRow, ...] = ()
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None

    @property
    def lag(self) -> int | None:
        """Total lag of the partitions whose lag is known; None if it is for none."""
        known = [each.lag for each in self.offsets if each.lag is not None]
        return sum(known) if known else None

    @property
    def unknown_lags(self) -> int:
        """Number of partitions whose lag is unknown."""
        return sum(each.lag is None for each in self.offsets)


async def describe_groups(
    client: Admin, group_ids: Iterable[str]
) -> tuple[list[GroupReport], list[KafkaError]]:
    """Describe groups of any type; return those found in order, and the errors of the others."""
    wanted = list(dict.fromkeys(group_ids))
    described: Mapping[
        str, ConsumerGroupDescription | KafkaError
    ] = await client.describe_consumer_groups(wanted, return_errors=True)
    reports: dict[str, GroupReport | KafkaError] = {
        name: each if isinstance(each, KafkaError) else _consumer_report(each)
        for name, each in described.items()
    }
    others = [name for name, each in reports.items() if _may_have_other_type(each)]
    if others:
        reports |= await _describe_others(client, others)
    found, errors = split_errors({name: reports[name] for name in wanted})
    with_committed = [name for name, each in found.items() if not each.offsets]
    lags, lag_errors = await _committed(client, with_committed, found)
    return [replace(found[name], offsets=lags.get(name, found[name].offsets)) for name in found], [
        *errors,
        *lag_errors,
    ]


def _may_have_other_type(report: GroupReport | KafkaError) -> bool:
    return isinstance(report, BrokerError) and report.code in OTHER_TYPE_CODES


async def _describe_others(
    client: Admin, names: Sequence[str]
) -> dict[str, GroupReport | KafkaError]:
    """Describe share groups, streams groups, and classic groups that are not of consumers."""
    from aiokafkawire.admin import GroupType  # noqa: PLC0415 - it imports every message

    types = {each.group_id: each.type for each in await client.list_groups()}
    share = [name for name in names if types.get(name) is GroupType.SHARE]
    streams = [name for name in names if types.get(name) is GroupType.STREAMS]
    classic = [name for name in names if name not in {*share, *streams}]
    reports: dict[str, GroupReport | KafkaError] = {}
    if share:
        reports |= await _share_reports(client, share)
    if streams:
        described_streams = await client.describe_streams_groups(streams, return_errors=True)
        for name, group in described_streams.items():
            reports[name] = group if isinstance(group, KafkaError) else _streams_report(group)
    if classic:
        reports |= await _classic_reports(client, classic)
    return reports


async def _classic_reports(
    client: Admin, names: Sequence[str]
) -> dict[str, GroupReport | KafkaError]:
    described = await client.describe_classic_groups(names, return_errors=True)
    reports: dict[str, GroupReport | KafkaError] = {}
    for name, group in described.items():
        if not isinstance(group, KafkaError):
            reports[name] = _classic_report(group)
            continue
        reports[name] = group
        if isinstance(group, BrokerError) and group.code == ErrorCode.GROUP_ID_NOT_FOUND:
            # Before Kafka 0.10.1 a group without members is Dead, also with committed offsets.
            lags, _ = split_errors(await client.lag([name], return_errors=True))
            if any(lag.partitions for lag in lags.values()):
                reports[name] = GroupReport(name, None, "Dead", "", "", None)
    return reports


async def _share_reports(
    client: Admin, names: Sequence[str]
) -> dict[str, GroupReport | KafkaError]:
    described = await client.describe_share_groups(names, return_errors=True)
    offsets = await client.list_share_group_offsets(names, return_errors=True)
    ends = await _end_offsets(
        client, {tp for starts in split_errors(offsets)[0].values() for tp in starts}
    )
    reports: dict[str, GroupReport | KafkaError] = {}
    for name, group in described.items():
        starts = offsets[name]
        if isinstance(group, KafkaError):
            reports[name] = group
            continue
        if isinstance(starts, KafkaError):
            reports[name] = starts
            continue
        rows = tuple(
            OffsetRow(tp, start.start_offset, ends.get(tp), start.lag)
            for tp, start in sorted(starts.items())
            if start is not None
        )
        reports[name] = _share_report(group, rows)
    return reports


async def _committed(
    client: Admin, names: Sequence[str], reports: Mapping[str, GroupReport]
) -> tuple[dict[str, tuple[OffsetRow, ...]], list[KafkaError]]:
    """Return committed offsets, ends and lags of groups; assigned partitions may have none."""
    if not names:
        return {}, []
    lags, errors = split_errors(await client.lag(names, return_errors=True))
    owned = {tp for name in names for each in reports[name].members for tp in each.partitions}
    uncommitted = owned - {tp for lag in lags.values() for tp in lag.partitions}
    ends = await _end_offsets(client, uncommitted)
    rows: dict[str, tuple[OffsetRow, ...]] = {}
    for name, lag in lags.items():
        owners = {tp: each.member_id for each in reports[name].members for tp in each.partitions}
        rows[name] = tuple(
            OffsetRow(tp, known.committed_offset, known.log_end_offset, known.lag, owners.get(tp))
            if (known := lag.partitions.get(tp)) is not None
            else OffsetRow(tp, None, ends.get(tp), None, owners[tp])
            for tp in sorted({*lag.partitions, *owners})
        )
    return rows, errors


async def _end_offsets(
    client: Admin, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Return the log end offsets of the partitions that could be read."""
    from aiokafkawire.admin import OffsetSpec  # noqa: PLC0415 - it imports every message

    if not partitions:
        return {}
    specs = dict.fromkeys(sorted(partitions), OffsetSpec.LATEST)
    listed = await client.list_offsets(specs, return_errors=True)
    return {tp: each.offset for tp, each in split_errors(listed)[0].items()}


def _consumer_report(group: ConsumerGroupDescription) -> GroupReport:
    return GroupReport(
        group.group_id,
        str(group.type),
        str(group.group_state),
        "" if group.is_simple_consumer_group else "consumer",
        group.partition_assignor,
        group.coordinator_id,
        tuple(map(_consumer_row, group.members)),
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.target_assignment_epoch,
    )


def _consumer_row(member: MemberDescription) -> MemberRow:
    protocol = None if member.upgraded is None else ("consumer" if member.upgraded else "classic")
    return MemberRow(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.host,
        member.assignment,
        member.member_epoch,
        member.target_assignment,
        protocol,
    )


def _classic_report(group: ClassicGroupDescription) -> GroupReport:
    return GroupReport(
        group.group_id,
        "Classic",
        str(group.state),
        group.protocol,
        group.protocol_data,
        group.coordinator_id,
        tuple(map(_consumer_row, group.members)),
    )


def _share_report(group: ShareGroupDescription, offsets: tuple[OffsetRow, ...]) -> GroupReport:
    return GroupReport(
        group.group_id,
        "Share",
        str(group.group_state),
        "share",
        "",
        group.coordinator_id,
        tuple(
            MemberRow(
                each.member_id,
                None,
                each.client_id,
                each.host,
                each.assignment,
                each.member_epoch,
            )
            for each in group.members
        ),
        offsets,
        group.group_epoch,
        group.target_assignment_epoch,
    )


def _streams_report(group: StreamsGroupDescription) -> GroupReport:
    return GroupReport(
        group.group_id,
        "Streams",
        str(group.group_state),
        "streams",
        "",
        group.coordinator_id,
        tuple(
            MemberRow(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                member_epoch=each.member_epoch,
            )
            for each in group.members
        ),
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.target_assignment_epoch,
    )


# --- output ----------------------------------------------------------------------------------


def group_to_dict(group: GroupReport) -> dict[str, Any]:
    """Return a group as in `groups describe --json`."""
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "target_assignment_epoch": group.target_assignment_epoch,
        "lag": group.lag,
        "unknown_lags": group.unknown_lags,
        "members": [_member_to_dict(member) for member in group.members],
        "offsets": [
            {
                **each.partition._asdict(),
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "member_id": each.member_id,
            }
            for each in group.offsets
        ],
    }


def _member_to_dict(member: MemberRow) -> dict[str, Any]:
    target = member.target_partitions
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": [tp._asdict() for tp in member.partitions],
        "member_epoch": member.member_epoch,
        "target_partitions": None if target is None else [tp._asdict() for tp in target],
        "protocol": member.protocol,
    }


def _lag_text(group: GroupReport) -> str:
    if group.lag is None:
        return "lag unknown"
    unknown = pluralize(group.unknown_lags, "partition")
    return f"lag {group.lag}" + (f" (unknown in {unknown})" if group.unknown_lags else "")


def group_text(group: GroupReport) -> str:
    """Return a group as `groups describe` prints it."""
    parts = [
        f"{group.group_id}: "
        + ("" if group.group_type in {None, "Classic"} else f"{group.group_type} group, ")
        + group.state
    ]
    if group.protocol:
        parts.append(group.protocol)
    if group.coordinator is not None:
        parts.append(f"coordinator {group.coordinator}")
    if group.group_epoch is not None:
        parts.append(f"epoch {group.group_epoch}")
        parts.append(f"target epoch {group.target_assignment_epoch}")
    parts += [pluralize(len(group.members), "member"), _lag_text(group)]
    text = ", ".join(parts) + "\n"
    if group.offsets:
        names: dict[str | None, int] = {
            member.member_id: number for number, member in enumerate(group.members, 1)
        }
        text += format_table(
            (
                "topic",
                "partition",
                "start" if group.group_type == "Share" else "committed",
                "end",
                "lag",
                "member",
            ),
            [
                (*each.partition, each.committed, each.end, each.lag, names.get(each.member_id))
                for each in group.offsets
            ],
            "  ",
        )
    if group.members:
        text += "\n" + _member_table(group)
    return text


def _member_table(group: GroupReport) -> str:
    """Return the members as a table; only a group with epochs has the columns about them."""
    heads = ["member", "id", "instance", "client", "host", "partitions"]
    rows: list[list[object]] = [
        [
            number,
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.host,
            format_partitions(member.partitions),
        ]
        for number, member in enumerate(group.members, 1)
    ]
    if group.group_epoch is not None:
        heads.append("epoch")
        for row, member in zip(rows, group.members, strict=True):
            row.append(member.member_epoch)
    if any(member.target_partitions is not None for member in group.members):
        heads += ["target", "protocol"]
        for row, member in zip(rows, group.members, strict=True):
            row += [format_partitions(member.target_partitions or ()), member.protocol]
    return format_table(tuple(heads), [tuple(row) for row in rows], "  ")
