"""The messages of requests, and parsed responses."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aiokafkawire import wire
from aiokafkawire.cluster import CoordinatorType, ToCoordinator
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import BrokerError, CommitFailed, ProducerFenced, UnsupportedVersion
from aiokafkawire.producer.transactions.actions import TransactionAction
from aiokafkawire.producer.transactions.requests import (
    ParsedTxnResponse,
    build_request,
    error_from_response,
    parse_response,
)
from aiokafkawire.producer.transactions.states import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    OffsetCommit,
    OffsetsAddedToTxn,
    PartitionsAddedToTxn,
    ProducerIdReceived,
    RequestProducerId,
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
from aiokafkawire.wire import APIS, ApiKey, ErrorCode
from aiokafkawire.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from aiokafkawire.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aiokafkawire.wire.messages.end_txn import EndTxnResponse
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdResponse
from aiokafkawire.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ME, NEXT = ProducerIdAndEpoch(7, 3), ProducerIdAndEpoch(7, 4)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MEMBER = GroupMetadata("g", 4, "m", "static")
COMMIT = OffsetCommit(MEMBER, {A0: OffsetAndMetadata(5, "note", 2), B0: OffsetAndMetadata(6)})
IDS = {"a": UUID(int=1), "b": UUID(int=2)}
BARE = OffsetCommit(GroupMetadata("g"), COMMIT.offsets)
TV_0, TV_2 = TransactionVersion.TV_0, TransactionVersion.TV_2
TRANSACTION = ToCoordinator("id", CoordinatorType.TRANSACTION)

REQUESTS: list[tuple[TransactionRequest, ApiKey, ToCoordinator, int, int]] = [
    (RequestProducerId(None), ApiKey.INIT_PRODUCER_ID, TRANSACTION, 0, 5),
    (RequestProducerId(ME), ApiKey.INIT_PRODUCER_ID, TRANSACTION, 3, 5),
    (AddPartitionsToTxn(ME, (A0, B0, A1)), ApiKey.ADD_PARTITIONS_TO_TXN, TRANSACTION, 0, 3),
    (AddOffsetsToTxn(ME, "g"), ApiKey.ADD_OFFSETS_TO_TXN, TRANSACTION, 0, 4),
    (TxnOffsetCommit(ME, TV_0, BARE), ApiKey.TXN_OFFSET_COMMIT, ToCoordinator("g"), 0, 4),
    (TxnOffsetCommit(ME, TV_2, COMMIT), ApiKey.TXN_OFFSET_COMMIT, ToCoordinator("g"), 5, 6),
    (EndTxn(ME, TV_0, committed=True), ApiKey.END_TXN, TRANSACTION, 0, 4),
    (EndTxn(ME, TV_2, committed=False), ApiKey.END_TXN, TRANSACTION, 5, 5),
]


@pytest.mark.parametrize(("request_", "key", "route", "low", "high"), REQUESTS)
def test_coordinator_and_version_range_of_each_request(
    request_: TransactionRequest, key: ApiKey, route: ToCoordinator, low: int, high: int
) -> None:
    out = build_request(request_, "id", 60_000, lambda topic: IDS[topic])
    assert (out.route, out.message.api_key, out.min_version) == (route, key, low)
    assert high == (APIS[key].max_stable_version if out.max_version is None else out.max_version)
    for version in range(low, high + 1):
        message = out.message
        built: Any = message.build(version) if isinstance(message, VersionedRequest) else message
        decoded = wire.decode(type(built), version, wire.encode(built, version))
        assert wire.to_json(decoded, version) == wire.to_json(built, version)


def test_the_fields_of_the_messages() -> None:
    first: Any = build_request(RequestProducerId(None), "id", 60_000).message
    assert (first.transactional_id, first.transaction_timeout_ms) == ("id", 60_000)
    assert (first.producer_id, first.producer_epoch) == (-1, -1)
    again: Any = build_request(RequestProducerId(ME), "id", 60_000).message
    assert (again.producer_id, again.producer_epoch) == (7, 3)
    adding: Any = build_request(AddPartitionsToTxn(ME, (A0, B0, A1)), "id", 1).message
    topics = {topic.name: topic.partitions for topic in adding.v3_and_below_topics}
    assert topics == {"a": [0, 1], "b": [0]}
    end: Any = build_request(EndTxn(ME, TV_0, committed=True), "id", 1).message
    assert (end.transactional_id, end.producer_id, end.committed) == ("id", 7, True)


def test_offset_commits_name_the_member_where_it_is_checked() -> None:
    out = build_request(TxnOffsetCommit(ME, TV_0, COMMIT), "id", 1)
    assert isinstance(out.message, VersionedRequest)
    message: Any = out.message.build(3)
    assert (
        message.generation_id_or_member_epoch,
        message.member_id,
        message.group_instance_id,
    ) == (
        4,
        "m",
        "static",
    )
    (a, b) = message.topics
    assert (a.partitions[0].committed_offset, a.partitions[0].committed_metadata) == (5, "note")
    assert (a.partitions[0].committed_leader_epoch, b.name) == (2, "b")
    with pytest.raises(UnsupportedVersion, match=r"before Kafka 2.5 .* GroupMetadata") as refused:
        out.message.build(2)
    assert refused.value.group == "g"


def test_offset_commits_have_names_unless_all_topics_have_ids() -> None:
    for ids, high in ((IDS, None), (IDS | {"b": UUID(int=0)}, 5)):
        out = build_request(TxnOffsetCommit(ME, TV_2, COMMIT), "id", 1, ids.__getitem__)
        assert (out.min_version, out.max_version, out.topic_ids) == (5, high, ids)


def test_a_response_with_ids_has_the_codes_of_the_topics() -> None:
    response = TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                topic_id=topic_id,
                partitions=[TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)],
            )
            for topic_id, code in ((IDS["a"], 0), (IDS["b"], 100), (UUID(int=9), 3))
        ],
    )
    parsed = parse_response(TxnOffsetCommit(ME, TV_2, COMMIT), response, IDS)
    assert (parsed.action, parsed.error_code, parsed.partition) == (
        TransactionAction.RETRY,
        100,
        B0,
    )


def partitions(**codes: int) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
                ],
            )
            for name, code in codes.items()
        ],
    )


def offsets(**codes: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=name,
                partitions=[TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)],
            )
            for name, code in codes.items()
        ],
    )


def end(code: int = 0, producer_id: int = -1) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0, error_code=code, producer_id=producer_id, producer_epoch=4
    )


ADDING = AddPartitionsToTxn(ME, (A0, B0))
COMMITTING = TxnOffsetCommit(ME, TV_2, COMMIT)
DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("request_", "response", "expected"),
    [
        (
            RequestProducerId(None),
            InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=3),
            ParsedTxnResponse(TransactionAction.DONE, 0, None, ProducerIdReceived(ME)),
        ),
        (
            RequestProducerId(None),
            InitProducerIdResponse(error_code=0, producer_id=-1, producer_epoch=-1),
            ParsedTxnResponse(
                TransactionAction.FATAL, -1, None, ProducerIdReceived(ProducerIdAndEpoch(-1, -1))
            ),
        ),
        (
            ADDING,
            partitions(a=0, b=0),
            ParsedTxnResponse(TransactionAction.DONE, 0, A0, PartitionsAddedToTxn((A0, B0))),
        ),
        (
            ADDING,
            partitions(a=0, b=DENIED),
            ParsedTxnResponse(TransactionAction.ABORT, DENIED, B0, PartitionsAddedToTxn((A0, B0))),
        ),
        (
            ADDING,
            partitions(a=0),
            ParsedTxnResponse(TransactionAction.ABORT, -1, B0, PartitionsAddedToTxn((A0, B0))),
        ),
        (
            AddOffsetsToTxn(ME, "g"),
            AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=16),
            ParsedTxnResponse(TransactionAction.FIND_COORDINATOR, 16, None, OffsetsAddedToTxn("g")),
        ),
        (
            COMMITTING,
            offsets(a=0, b=0),
            ParsedTxnResponse(TransactionAction.DONE, 0, A0, TxnOffsetsCommitted(COMMIT)),
        ),
        (
            COMMITTING,
            offsets(a=0, b=14),
            ParsedTxnResponse(TransactionAction.RETRY, 14, B0, TxnOffsetsCommitted(COMMIT)),
        ),
        (
            EndTxn(ME, TV_2, committed=True),
            end(0, 7),
            ParsedTxnResponse(TransactionAction.DONE, 0, None, TxnEnded(NEXT)),
        ),
        (
            EndTxn(ME, TV_2, committed=True),
            end(),
            ParsedTxnResponse(TransactionAction.DONE, 0, None, TxnEnded(None)),
        ),
        # A lower epoch is ignored.
        (
            EndTxn(NEXT, TV_2, committed=True),
            end(0, 7),
            ParsedTxnResponse(TransactionAction.DONE, 0, None, TxnEnded(None)),
        ),
        (
            EndTxn(ME, TV_0, committed=True),
            end(0, 7),
            ParsedTxnResponse(TransactionAction.DONE, 0, None, TxnEnded(None)),
        ),
        (
            EndTxn(ME, TV_0, committed=True),
            end(90),
            ParsedTxnResponse(TransactionAction.FENCED, 90, None, TxnEnded(None)),
        ),
    ],
)
def test_parsed_responses(
    request_: TransactionRequest, response: Any, expected: ParsedTxnResponse
) -> None:
    assert parse_response(request_, response) == expected


def error_of(request: TransactionRequest, response: Any, hint: str = "") -> Any:
    parsed = parse_response(request, response)
    return error_from_response(request, parsed, broker="1", transactional_id="id", hint=hint)


def test_a_fencing_error_names_the_transactional_id() -> None:
    error = error_of(EndTxn(ME, TV_0, committed=True), end(90), ", for its age")
    assert type(error) is ProducerFenced
    assert (error.transactional_id, error.broker, error.api) == ("id", "1", "EndTxn")
    assert "took over, or the coordinator ended the transaction, for its age" in str(error)


def test_an_error_names_the_rejected_partition() -> None:
    error = error_of(ADDING, partitions(a=0, b=DENIED))
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic, error.partition) == (DENIED, "b", 0)


def test_an_error_names_the_group() -> None:
    error = error_of(
        AddOffsetsToTxn(ME, "g"), AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=30)
    )
    assert (error.group, error.api) == ("g", "AddOffsetsToTxn")


@pytest.mark.parametrize("code", [22, 25, 27, 82, 113])
def test_a_lost_membership_is_a_failed_commit(code: int) -> None:
    error = error_of(COMMITTING, offsets(a=code, b=0))
    assert type(error) is CommitFailed
    assert error.group == "g"
    assert isinstance(error.__cause__, BrokerError)
