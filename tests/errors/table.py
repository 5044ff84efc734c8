"""What the client does about each error code that the protocol documents name.

`ROWS` has what follows from a code in the answer of an API: the rows are tests (the other modules
here), and docs/error-codes.md is made of them and of `CODES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from aiokafkawire.wire import ApiKey, ErrorCode

__all__ = ["LISTED", "REMARKS", "ROWS", "Does", "Row", "rows_of"]

E = ErrorCode


class Does(Enum):
    """What the client does about an answer."""

    AS_NONE = "takes it for no error"
    IGNORE = "ignores it"
    REPEAT = "tries again"
    REFRESH = "refreshes its metadata and tries again"
    FIND = "looks for the coordinator and tries again there"
    REJOIN = "joins the group again as the same member"
    REJOIN_ANEW = "joins the group again as a new member"
    JOIN_AS_TOLD = "joins again with the id given"
    AFTER_REBALANCE = "tries again after the rebalance, if it still owns the partition"
    RESET = "resets the position as `auto_offset_reset` says"
    SPLIT = "sends the records again in smaller batches"
    FAIL = "raises"


@dataclass(frozen=True, slots=True)
class Row:
    """A code in the answer of an API. `listed`: the documents say that it may stand there."""

    api: ApiKey
    code: ErrorCode
    does: Does
    note: str = ""
    listed: bool = True

    @property
    def name(self) -> str:
        """For the name of a test."""
        return f"{self.code.value}-{self.code.name}"


def _rows(
    api: ApiKey, does: Mapping[Does, Iterable[ErrorCode]], notes: Mapping[ErrorCode, str] = {}
) -> list[Row]:
    listed = LISTED[api]
    rows = [
        Row(api, code, action, notes.get(code, ""), code in listed)
        for action, codes in does.items()
        for code in codes
    ]
    return sorted(rows, key=lambda row: row.code)


def _codes(*numbers: int) -> frozenset[ErrorCode]:
    return frozenset(map(ErrorCode, numbers))


LISTED: Mapping[ApiKey, frozenset[ErrorCode]] = {
    ApiKey.METADATA: _codes(3, 5, 17, 29),
    # The guide leaves Produce open.
    ApiKey.PRODUCE: _codes(2, 3, 6, 7, 10, 17, 18, 19, 20, 21, 29, 32),
    ApiKey.FETCH: _codes(-1, 1, 3, 6, 9),
    ApiKey.LIST_OFFSETS: _codes(-1, 3, 6),
    ApiKey.LEADER_AND_ISR: _codes(3, 11),
    ApiKey.STOP_REPLICA: _codes(3, 11),
    ApiKey.UPDATE_METADATA: _codes(11),
    ApiKey.CONTROLLED_SHUTDOWN: _codes(8, 11),
    ApiKey.FIND_COORDINATOR: _codes(15, 16, 30),
    ApiKey.OFFSET_COMMIT: _codes(12, 14, 15, 16, 22, 25, 27, 28, 29, 30),
    ApiKey.OFFSET_FETCH: _codes(3, 14, 16, 22, 25, 29, 30),
    ApiKey.JOIN_GROUP: _codes(14, 15, 16, 23, 25, 26, 30),
    ApiKey.SYNC_GROUP: _codes(15, 16, 22, 25, 27, 30),
    ApiKey.HEARTBEAT: _codes(15, 16, 22, 25, 27, 30),
    ApiKey.LEAVE_GROUP: _codes(14, 15, 16, 25, 30),
    ApiKey.LIST_GROUPS: _codes(15, 29),
    ApiKey.DESCRIBE_GROUPS: _codes(14, 15, 16, 29),
    ApiKey.INIT_PRODUCER_ID: _codes(),
}
"""The "possible error codes" of the guide; for the APIs between brokers, which it does not
describe, those that brokers were seen to answer."""

_BETWEEN = (
    "Between brokers: no client of this package asks this. The code is told to whoever does, and is"
    " not tried again."
)

REMARKS: Mapping[ApiKey, str] = {
    ApiKey.LEADER_AND_ISR: _BETWEEN + " A broker that leads a partition no more answers Produce"
    " with 6.",
    ApiKey.STOP_REPLICA: _BETWEEN + " A broker that has given a replica up answers Produce and"
    " Fetch with 3.",
    ApiKey.UPDATE_METADATA: _BETWEEN + " A leader that is not among the live brokers shows in"
    " Metadata as 5, with -1 in its place.",
    ApiKey.CONTROLLED_SHUTDOWN: _BETWEEN,
    ApiKey.LIST_GROUPS: "Asked of every broker by `aiokafkawire groups`.",
    ApiKey.DESCRIBE_GROUPS: "Asked of the group's coordinator by `aiokafkawire groups`.",
}
"""What there is to say of an API as a whole."""

ROWS: tuple[Row, ...] = (
    *_rows(
        ApiKey.METADATA,
        {
            Does.IGNORE: [E.REPLICA_NOT_AVAILABLE],
            Does.REFRESH: [E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE],
            Does.FAIL: [E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED],
        },
        {
            E.UNKNOWN_TOPIC_OR_PARTITION: "then `UnknownTopic` at the deadline of the call",
            E.LEADER_NOT_AVAILABLE: "of a topic, and of a partition, whose leader is -1 then",
            E.REPLICA_NOT_AVAILABLE: "of a partition with a leader, which is used",
        },
    ),
    *_rows(
        ApiKey.PRODUCE,
        {
            Does.AS_NONE: [E.NONE],
            Does.REPEAT: [
                E.CORRUPT_MESSAGE,
                E.REQUEST_TIMED_OUT,
                E.NOT_ENOUGH_REPLICAS,
                E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            ],
            Does.REFRESH: [
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.NOT_LEADER_OR_FOLLOWER,
                E.NETWORK_EXCEPTION,
            ],
            Does.SPLIT: [E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE],
            Does.FAIL: [
                E.INVALID_TOPIC_EXCEPTION,
                E.INVALID_REQUIRED_ACKS,
                E.TOPIC_AUTHORIZATION_FAILED,
                E.INVALID_TIMESTAMP,
            ],
        },
        {
            E.MESSAGE_TOO_LARGE: "a single record raises `RecordTooLarge`",
            E.RECORD_LIST_TOO_LARGE: "a single record raises `RecordTooLarge`",
            E.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
                "without idempotence, with a warning in the log; raises if that was asked for"
            ),
        },
    ),
    *_rows(
        ApiKey.FETCH,
        {
            Does.REPEAT: [E.UNKNOWN_SERVER_ERROR],
            Does.RESET: [E.OFFSET_OUT_OF_RANGE],
            Does.REFRESH: [
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.NOT_LEADER_OR_FOLLOWER,
                E.REPLICA_NOT_AVAILABLE,
            ],
            Does.FAIL: [E.INVALID_FETCH_SIZE, E.TOPIC_AUTHORIZATION_FAILED],
        },
        {
            E.UNKNOWN_SERVER_ERROR: "with a warning in the log",
            E.OFFSET_OUT_OF_RANGE: '`NoOffsetForPartition` where that is "none"',
            E.INVALID_FETCH_SIZE: "once, then it tries again",
            E.TOPIC_AUTHORIZATION_FAILED: "once, then it tries again",
        },
    ),
    *_rows(
        ApiKey.LIST_OFFSETS,
        {
            Does.AS_NONE: [E.UNSUPPORTED_FOR_MESSAGE_FORMAT],
            Does.REFRESH: [
                E.UNKNOWN_SERVER_ERROR,
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.NOT_LEADER_OR_FOLLOWER,
                E.REPLICA_NOT_AVAILABLE,
            ],
            Does.FAIL: [E.TOPIC_AUTHORIZATION_FAILED],
        },
        {E.UNSUPPORTED_FOR_MESSAGE_FORMAT: "there is no record of that time: None"},
    ),
    *_rows(
        ApiKey.LEADER_AND_ISR,
        {Does.FAIL: [E.UNKNOWN_TOPIC_OR_PARTITION, E.STALE_CONTROLLER_EPOCH]},
    ),
    *_rows(
        ApiKey.STOP_REPLICA,
        {Does.FAIL: [E.UNKNOWN_TOPIC_OR_PARTITION, E.STALE_CONTROLLER_EPOCH]},
    ),
    *_rows(ApiKey.UPDATE_METADATA, {Does.FAIL: [E.STALE_CONTROLLER_EPOCH]}),
    *_rows(
        ApiKey.CONTROLLED_SHUTDOWN,
        {Does.FAIL: [E.BROKER_NOT_AVAILABLE, E.STALE_CONTROLLER_EPOCH]},
    ),
    *_rows(
        ApiKey.OFFSET_COMMIT,
        {
            Does.REPEAT: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Does.FIND: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Does.AFTER_REBALANCE: [E.REBALANCE_IN_PROGRESS],
            Does.FAIL: [
                E.OFFSET_METADATA_TOO_LARGE,
                E.ILLEGAL_GENERATION,
                E.UNKNOWN_MEMBER_ID,
                E.INVALID_COMMIT_OFFSET_SIZE,
                E.TOPIC_AUTHORIZATION_FAILED,
                E.GROUP_AUTHORIZATION_FAILED,
            ],
        },
        {
            E.ILLEGAL_GENERATION: "`CommitFailed`; a heartbeat at once tells what is the matter",
            E.UNKNOWN_MEMBER_ID: "`CommitFailed`; a heartbeat at once tells what is the matter",
        },
    ),
    *_rows(
        ApiKey.OFFSET_FETCH,
        {
            Does.AS_NONE: [E.UNKNOWN_TOPIC_OR_PARTITION],
            Does.REPEAT: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Does.FIND: [E.NOT_COORDINATOR],
            Does.FAIL: [
                E.ILLEGAL_GENERATION,
                E.UNKNOWN_MEMBER_ID,
                E.TOPIC_AUTHORIZATION_FAILED,
                E.GROUP_AUTHORIZATION_FAILED,
            ],
        },
        {E.UNKNOWN_TOPIC_OR_PARTITION: "nothing is committed: ZooKeeper has no node for it"},
    ),
    *_rows(
        ApiKey.FIND_COORDINATOR,
        {
            Does.REPEAT: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Does.FAIL: [E.GROUP_AUTHORIZATION_FAILED],
        },
    ),
    *_rows(
        ApiKey.JOIN_GROUP,
        {
            Does.REJOIN: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Does.FIND: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Does.REJOIN_ANEW: [E.UNKNOWN_MEMBER_ID],
            Does.JOIN_AS_TOLD: [E.MEMBER_ID_REQUIRED],
            Does.FAIL: [
                E.INCONSISTENT_GROUP_PROTOCOL,
                E.INVALID_GROUP_ID,
                E.INVALID_SESSION_TIMEOUT,
                E.GROUP_AUTHORIZATION_FAILED,
            ],
        },
        {
            E.INCONSISTENT_GROUP_PROTOCOL: "`GroupFailed`",
            E.INVALID_GROUP_ID: "`GroupFailed`",
            E.INVALID_SESSION_TIMEOUT: (
                "`GroupFailed`; the default of 45 s is lowered to 30 s first, for brokers of 0.9"
            ),
        },
    ),
    *_rows(
        ApiKey.SYNC_GROUP,
        {
            Does.FIND: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Does.REJOIN: [E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS],
            Does.REJOIN_ANEW: [E.UNKNOWN_MEMBER_ID],
            Does.FAIL: [E.GROUP_AUTHORIZATION_FAILED],
        },
        {
            E.COORDINATOR_NOT_AVAILABLE: "with a JoinGroup",
            E.NOT_COORDINATOR: "with a JoinGroup",
        },
    ),
    *_rows(
        ApiKey.HEARTBEAT,
        {
            Does.FIND: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Does.REJOIN: [E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS],
            Does.REJOIN_ANEW: [E.UNKNOWN_MEMBER_ID],
            Does.FAIL: [E.GROUP_AUTHORIZATION_FAILED],
        },
        {
            E.ILLEGAL_GENERATION: "its partitions are lost",
            E.UNKNOWN_MEMBER_ID: "its partitions are lost",
            E.REBALANCE_IN_PROGRESS: "its partitions are revoked, as the protocol in use wants it",
        },
    ),
    *_rows(
        ApiKey.LEAVE_GROUP,
        {
            Does.REPEAT: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Does.FIND: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Does.IGNORE: [E.UNKNOWN_MEMBER_ID, E.GROUP_AUTHORIZATION_FAILED],
        },
    ),
    *_rows(
        ApiKey.DESCRIBE_GROUPS,
        {
            Does.REPEAT: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Does.FIND: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Does.FAIL: [E.TOPIC_AUTHORIZATION_FAILED],
        },
    ),
    *_rows(
        ApiKey.LIST_GROUPS,
        {
            Does.REPEAT: [E.COORDINATOR_NOT_AVAILABLE],
            Does.FAIL: [E.TOPIC_AUTHORIZATION_FAILED],
        },
        {E.TOPIC_AUTHORIZATION_FAILED: "the groups of the other brokers are listed"},
    ),
    *_rows(
        ApiKey.INIT_PRODUCER_ID,
        {
            Does.REPEAT: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Does.FAIL: [E.CLUSTER_AUTHORIZATION_FAILED],
        },
        {E.CLUSTER_AUTHORIZATION_FAILED: "the producer fails permanently"},
    ),
)
"""Every code in every answer where the documents have it, and some where they do not."""


def rows_of(api: ApiKey) -> list[Row]:
    """The rows of one API."""
    return [row for row in ROWS if row.api is api]
