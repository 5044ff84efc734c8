"""The requests of a transaction as messages, and what their answers say.

Protocol source: InitProducerId, AddPartitionsToTxn (0 to 3; later versions are for brokers),
AddOffsetsToTxn, TxnOffsetCommit and EndTxn; KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from aiokafkawire.cluster import CoordinatorType, ToCoordinator
from aiokafkawire.connection import ByVersion
from aiokafkawire.errors import CommitFailed, KafkaError, ProducerFenced, UnsupportedVersion
from aiokafkawire.producer.transactions.outcomes import Outcome, worst
from aiokafkawire.producer.transactions.states import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    End,
    Ended,
    Event,
    Init,
    Initialised,
    OffsetCommit,
    OffsetsAdded,
    OffsetsCommitted,
    PartitionsAdded,
    Protocol,
    Request,
)
from aiokafkawire.types import (
    GroupMetadata,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
)
from aiokafkawire.wire import ApiKey, ErrorCode, encode, error_for
from aiokafkawire.wire import Request as WireRequest
from aiokafkawire.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from aiokafkawire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from aiokafkawire.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokafkawire.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aiokafkawire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

__all__ = (
    "FIRST_IMPLICIT",
    "FIRST_RAISING",
    "Outgoing",
    "Reading",
    "check_commit",
    "outgoing",
    "read",
    "refusal",
    "was_raised",
)

FIRST_RAISING = 3
"""The first version of InitProducerId that raises the epoch of a given identity (KIP-360)."""

LAST_ADD_PARTITIONS = 3
LAST_CLASSIC = 4
FIRST_IMPLICIT = 5
FIRST_WITH_MEMBER = 3

_MEMBERSHIP_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Outgoing(NamedTuple):
    """A message, where it goes, and the versions in which it may."""

    message: WireRequest[Any] | ByVersion[Any]
    route: ToCoordinator
    min_version: int = 0
    max_version: int | None = None


def outgoing(request: Request, transactional_id: str, timeout_ms: int) -> Outgoing:
    """The message of a request; `timeout_ms` is that of the producer's transactions."""
    route = ToCoordinator(transactional_id, CoordinatorType.TRANSACTION)
    match request:  # what is asked most comes first
        case End(identity, protocol, committed):
            end = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=committed,
            )
            return Outgoing(end, route, *_versions(protocol))
        case Init(previous):
            init = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            if previous is None:
                return Outgoing(init, route)
            init.producer_id, init.producer_epoch = previous.producer_id, previous.epoch
            return Outgoing(init, route, FIRST_RAISING)
        case AddPartitions(identity, partitions):
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                    for topic, numbers in _by_topic(partitions).items()
                ],
            )
            return Outgoing(adding, route, 0, LAST_ADD_PARTITIONS)
        case AddOffsets(identity, group_id):
            offsets = AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group_id,
            )
            return Outgoing(offsets, route)
        case CommitOffsets():
            return _commit_offsets(request, transactional_id)


def _versions(protocol: Protocol) -> tuple[int, int | None]:
    return (0, LAST_CLASSIC) if protocol is Protocol.CLASSIC else (FIRST_IMPLICIT, None)


def check_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
    """Raise `TypeError` or `ValueError` for offsets, or a group, that no request can carry."""
    commit = OffsetCommit(group, offsets)
    request = CommitOffsets(ProducerIdAndEpoch(0, 0), Protocol.IMPLICIT, commit)
    encode(_commit_message(request, "", FIRST_IMPLICIT), FIRST_IMPLICIT)


def _commit_offsets(request: CommitOffsets, transactional_id: str) -> Outgoing:
    return Outgoing(
        ByVersion(ApiKey.TXN_OFFSET_COMMIT, partial(_commit_message, request, transactional_id)),
        ToCoordinator(request.commit.group.group_id, CoordinatorType.GROUP),
        *_versions(request.protocol),
    )


def _commit_message(
    request: CommitOffsets, transactional_id: str, version: int
) -> TxnOffsetCommitRequest:
    group, offsets = request.commit.group, request.commit.offsets
    message = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=request.identity.producer_id,
        producer_epoch=request.identity.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=(offset := offsets[TopicPartition(topic, number)]).offset,
                        committed_leader_epoch=offset.leader_epoch,
                        committed_metadata=offset.metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(offsets).items()
        ],
    )
    if version >= FIRST_WITH_MEMBER:
        message.generation_id = group.generation_id
        message.member_id = group.member_id
        message.group_instance_id = group.group_instance_id
    elif group.member_id:
        raise UnsupportedVersion(
            "brokers before Kafka 2.5 cannot check that the consumer is still a member of its"
            " group (KIP-447): give each input partition a transactional id of its own, and"
            " send offsets with GroupMetadata(group_id) to do without the check",
            api="TxnOffsetCommit",
            group=group.group_id,
        )
    return message


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, number in partitions:
        grouped.setdefault(topic, []).append(number)
    return grouped


class Reading(NamedTuple):
    """What an answer says: its outcome, the code that decided it and the partition it is of, and
    the event if the request was carried out."""

    outcome: Outcome
    code: int
    partition: TopicPartition | None
    event: Event


def read(request: Request, response: Any) -> Reading:
    """Read an answer. A partition that it leaves out counts as failed in the broker, as does an
    identity that is none."""
    match request:  # what is asked most comes first
        case End(identity, protocol):
            assert isinstance(response, EndTxnResponse)
            given = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            gave = protocol is Protocol.IMPLICIT and was_raised(identity, given)
            return _reading(request, {None: response.error_code}, Ended(given if gave else None))
        case Init():
            assert isinstance(response, InitProducerIdResponse)
            identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            code = response.error_code
            if code == ErrorCode.NONE and not _is_one(identity):
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            return _reading(request, {None: code}, Initialised(identity))
        case AddPartitions(_, partitions):
            assert isinstance(response, AddPartitionsToTxnResponse)
            told = {
                TopicPartition(topic.name, result.partition_index): result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            }
            return _reading(request, _each(partitions, told), PartitionsAdded(partitions))
        case AddOffsets(_, group_id):
            assert isinstance(response, AddOffsetsToTxnResponse)
            return _reading(request, {None: response.error_code}, OffsetsAdded(group_id))
        case CommitOffsets(_, _, commit):
            assert isinstance(response, TxnOffsetCommitResponse)
            told = {
                TopicPartition(topic.name, result.partition_index): result.error_code
                for topic in response.topics
                for result in topic.partitions
            }
            return _reading(request, _each(commit.offsets, told), OffsetsCommitted(commit))


def was_raised(identity: ProducerIdAndEpoch, given: ProducerIdAndEpoch) -> bool:
    """Whether what a coordinator gave can follow an identity."""
    if given.producer_id != identity.producer_id:
        return _is_one(given)
    return given.epoch > identity.epoch


def _is_one(identity: ProducerIdAndEpoch) -> bool:
    return identity.producer_id >= 0 and identity.epoch >= 0


def _each(
    asked: Iterable[TopicPartition], told: dict[TopicPartition, int]
) -> dict[TopicPartition | None, int]:
    return {tp: told.get(tp, int(ErrorCode.UNKNOWN_SERVER_ERROR)) for tp in asked}


def _reading(request: Request, codes: dict[TopicPartition | None, int], event: Event) -> Reading:
    if not any(codes.values()):
        return Reading(Outcome.DONE, 0, next(iter(codes), None), event)
    outcome, code = worst(request.kind, codes.values())
    partition = next((tp for tp, told in codes.items() if told == code), None)
    return Reading(outcome, code, partition, event)


def refusal(
    request: Request, reading: Reading, *, broker: str, transactional_id: str, hint: str = ""
) -> KafkaError:
    """The error of an answer that is not a success; `hint` is for `ProducerFenced`."""
    context: dict[str, Any] = {
        "broker": broker,
        "api": request.kind.value,
        "transactional_id": transactional_id,
    }
    if reading.partition is not None:
        context["topic"], context["partition"] = reading.partition
    if isinstance(request, AddOffsets):
        context["group"] = request.group_id
    elif isinstance(request, CommitOffsets):
        context["group"] = request.commit.group.group_id
    if reading.outcome is Outcome.FENCED:
        return ProducerFenced(
            "another producer with the same transactional id took over, or the coordinator ended"
            f" the transaction{hint}",
            **context,
        )
    error: KafkaError = error_for(reading.code, **context)
    if reading.code in _MEMBERSHIP_CODES:
        cause = error
        error = CommitFailed(
            f"the consumer is not in that generation of its group any more: {cause.reason}",
            **context,
        )
        error.__cause__ = cause
    return error
