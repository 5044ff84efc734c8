"""Build the wire messages of a transaction's requests, and parse the responses.

Protocol source: InitProducerId, AddPartitionsToTxn (0 to 3; later versions are for brokers),
AddOffsetsToTxn, TxnOffsetCommit and EndTxn; KIP-98, KIP-360, KIP-447, KIP-890,
KIP-1319.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from aiokafkawire.cluster import CoordinatorType, ToCoordinator
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import CommitFailed, KafkaError, ProducerFenced, UnsupportedVersion
from aiokafkawire.producer.transactions.actions import TransactionAction, most_severe
from aiokafkawire.producer.transactions.states import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    OffsetCommit,
    OffsetsAddedToTxn,
    PartitionsAddedToTxn,
    ProducerIdReceived,
    RequestProducerId,
    TransactionEvent,
    TransactionRequest,
    TransactionVersion,
    TxnEnded,
    TxnOffsetCommit,
    TxnOffsetsCommitted,
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
from aiokafkawire.wire.primitives import ZERO_UUID

__all__ = (
    "FIRST_WITH_EPOCH_BUMP",
    "FIRST_WITH_TOPIC_IDS",
    "FIRST_WITH_TV_2",
    "ParsedTxnResponse",
    "RoutedRequest",
    "build_request",
    "check_encodable",
    "error_from_response",
    "is_successor",
    "parse_response",
)

FIRST_WITH_EPOCH_BUMP = 3
"""First version of InitProducerId that bumps the epoch of an existing producer id (KIP-360)."""

LAST_ADD_PARTITIONS = 3
LAST_WITH_TV_0 = 4
FIRST_WITH_TV_2 = 5
FIRST_WITH_GROUP_METADATA = 3
FIRST_WITH_TOPIC_IDS = 6
"""First version of TxnOffsetCommit that names topics by id (KIP-1319)."""

_MEMBERSHIP_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class RoutedRequest(NamedTuple):
    """A message, its coordinator, the lowest and highest API version, and ids of its topics."""

    message: WireRequest[Any] | VersionedRequest[Any]
    route: ToCoordinator
    min_version: int = 0
    max_version: int | None = None
    topic_ids: Mapping[str, UUID] = MappingProxyType({})


def build_request(
    request: TransactionRequest,
    transactional_id: str,
    transaction_timeout_ms: int,
    topic_id: Callable[[str], UUID] = lambda _: ZERO_UUID,
) -> RoutedRequest:
    """Build the message of a request.

    Args:
        request: The request.
        transactional_id: The producer's `transactional_id`.
        transaction_timeout_ms: The producer's `transaction_timeout_ms`, for InitProducerId.
        topic_id: Returns the id of a topic, for TxnOffsetCommit; `ZERO_UUID` if it is unknown.
    """
    route = ToCoordinator(transactional_id, CoordinatorType.TRANSACTION)
    match request:  # the most frequent first
        case EndTxn(identity, transaction_version, committed):
            end = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=committed,
            )
            return RoutedRequest(end, route, *_version_range(transaction_version))
        case RequestProducerId(previous):
            init = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
            )
            if previous is None:
                return RoutedRequest(init, route)
            init.producer_id, init.producer_epoch = previous.producer_id, previous.epoch
            return RoutedRequest(init, route, FIRST_WITH_EPOCH_BUMP)
        case AddPartitionsToTxn(identity, partitions):
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                    for topic, numbers in _by_topic(partitions).items()
                ],
            )
            return RoutedRequest(adding, route, 0, LAST_ADD_PARTITIONS)
        case AddOffsetsToTxn(identity, group_id):
            offsets = AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group_id,
            )
            return RoutedRequest(offsets, route)
        case TxnOffsetCommit():
            return _route_offset_commit(request, transactional_id, topic_id)


def _version_range(transaction_version: TransactionVersion) -> tuple[int, int | None]:
    return (
        (0, LAST_WITH_TV_0)
        if transaction_version is TransactionVersion.TV_0
        else (FIRST_WITH_TV_2, None)
    )


def check_encodable(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
) -> None:
    """Raise `TypeError` or `ValueError` if no request can carry the offsets or the group."""
    commit = OffsetCommit(group, offsets)
    request = TxnOffsetCommit(ProducerIdAndEpoch(0, 0), TransactionVersion.TV_2, commit)
    encode(_offset_commit_message(request, "", {}, FIRST_WITH_TV_2), FIRST_WITH_TV_2)


def _route_offset_commit(
    request: TxnOffsetCommit, transactional_id: str, topic_id: Callable[[str], UUID]
) -> RoutedRequest:
    low, high = _version_range(request.transaction_version)
    topic_ids = {topic: topic_id(topic) for topic in _by_topic(request.commit.offsets)}
    if high is None and ZERO_UUID in topic_ids.values():
        high = FIRST_WITH_TOPIC_IDS - 1
    return RoutedRequest(
        VersionedRequest(
            ApiKey.TXN_OFFSET_COMMIT,
            partial(_offset_commit_message, request, transactional_id, topic_ids),
        ),
        ToCoordinator(request.commit.group.group_id, CoordinatorType.GROUP),
        low,
        high,
        topic_ids,
    )


def _offset_commit_message(
    request: TxnOffsetCommit, transactional_id: str, topic_ids: Mapping[str, UUID], version: int
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
                topic_id=topic_ids.get(topic, ZERO_UUID),
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
    if version >= FIRST_WITH_GROUP_METADATA:
        message.generation_id_or_member_epoch = group.generation_id
        message.member_id = group.member_id
        message.group_instance_id = group.group_instance_id
    elif group.member_id:
        raise UnsupportedVersion(
            "brokers before Kafka 2.5 cannot check that the consumer is still a member of its"
            " group (KIP-447): use one transactional_id per input partition, and send the offsets"
            " with GroupMetadata(group_id) to skip the check",
            api="TxnOffsetCommit",
            group=group.group_id,
        )
    return message


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, number in partitions:
        grouped.setdefault(topic, []).append(number)
    return grouped


class ParsedTxnResponse(NamedTuple):
    """A response: the action, the error code that determined it, and the partition of that code.

    `event` is the event of the state machine if the action is `DONE`.
    """

    action: TransactionAction
    error_code: int
    partition: TopicPartition | None
    event: TransactionEvent


def parse_response(
    request: TransactionRequest,
    response: Any,
    topic_ids: Mapping[str, UUID] = MappingProxyType({}),
) -> ParsedTxnResponse:
    """Parse a response.

    A partition that the response omits, and an invalid producer id, count as
    UNKNOWN_SERVER_ERROR. `topic_ids` are those of the request.
    """
    match request:  # the most frequent first
        case EndTxn(identity, transaction_version):
            assert isinstance(response, EndTxnResponse)
            next_identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            bumped = transaction_version is TransactionVersion.TV_2 and is_successor(
                identity, next_identity
            )
            return _parsed(
                request, {None: response.error_code}, TxnEnded(next_identity if bumped else None)
            )
        case RequestProducerId():
            assert isinstance(response, InitProducerIdResponse)
            identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            code = response.error_code
            if code == ErrorCode.NONE and not _is_valid(identity):
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            return _parsed(request, {None: code}, ProducerIdReceived(identity))
        case AddPartitionsToTxn(_, partitions):
            assert isinstance(response, AddPartitionsToTxnResponse)
            codes = {
                TopicPartition(topic.name, result.partition_index): result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            }
            return _parsed(
                request, _codes_by_partition(partitions, codes), PartitionsAddedToTxn(partitions)
            )
        case AddOffsetsToTxn(_, group_id):
            assert isinstance(response, AddOffsetsToTxnResponse)
            return _parsed(request, {None: response.error_code}, OffsetsAddedToTxn(group_id))
        case TxnOffsetCommit(_, _, commit):
            assert isinstance(response, TxnOffsetCommitResponse)
            names = {topic_id: name for name, topic_id in topic_ids.items() if topic_id.int}
            codes = {
                TopicPartition(
                    topic.name or names.get(topic.topic_id, ""), result.partition_index
                ): result.error_code
                for topic in response.topics
                for result in topic.partitions
            }
            return _parsed(
                request, _codes_by_partition(commit.offsets, codes), TxnOffsetsCommitted(commit)
            )


def is_successor(identity: ProducerIdAndEpoch, following: ProducerIdAndEpoch) -> bool:
    """Return True if a coordinator's new producer id and epoch can follow `identity`."""
    if following.producer_id != identity.producer_id:
        return _is_valid(following)
    return following.epoch > identity.epoch


def _is_valid(identity: ProducerIdAndEpoch) -> bool:
    return identity.producer_id >= 0 and identity.epoch >= 0


def _codes_by_partition(
    partitions: Iterable[TopicPartition], codes: dict[TopicPartition, int]
) -> dict[TopicPartition | None, int]:
    return {tp: codes.get(tp, int(ErrorCode.UNKNOWN_SERVER_ERROR)) for tp in partitions}


def _parsed(
    request: TransactionRequest, codes: dict[TopicPartition | None, int], event: TransactionEvent
) -> ParsedTxnResponse:
    if not any(codes.values()):
        return ParsedTxnResponse(TransactionAction.DONE, 0, next(iter(codes), None), event)
    action, code = most_severe(request.kind, codes.values())
    partition = next((tp for tp, partition_code in codes.items() if partition_code == code), None)
    return ParsedTxnResponse(action, code, partition, event)


def error_from_response(
    request: TransactionRequest,
    parsed: ParsedTxnResponse,
    *,
    broker: str,
    transactional_id: str,
    hint: str = "",
) -> KafkaError:
    """Return the error of an unsuccessful response; `hint` completes `ProducerFenced`."""
    context: dict[str, Any] = {
        "broker": broker,
        "api": request.kind.value,
        "transactional_id": transactional_id,
    }
    if parsed.partition is not None:
        context["topic"], context["partition"] = parsed.partition
    if isinstance(request, AddOffsetsToTxn):
        context["group"] = request.group_id
    elif isinstance(request, TxnOffsetCommit):
        context["group"] = request.commit.group.group_id
    if parsed.action is TransactionAction.FENCED:
        return ProducerFenced(
            "another producer with the same transactional id took over, or the coordinator ended"
            f" the transaction{hint}",
            **context,
        )
    error: KafkaError = error_for(parsed.error_code, **context)
    if parsed.error_code in _MEMBERSHIP_CODES:
        cause = error
        error = CommitFailed(
            f"the consumer's group membership is outdated: {cause.reason}",
            **context,
        )
        error.__cause__ = cause
    return error
