"""Reaction of the client to each error code that the protocol documentation names.

`ROWS` has the reaction to each code in the response of an API. The other modules here test each
row, and docs/error-codes.md is generated from the rows and from `CODES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from aiokafkawire.wire import ApiKey, ErrorCode

__all__ = ["LISTED", "REMARKS", "ROWS", "Reaction", "Row", "rows_of"]

E = ErrorCode


class Reaction(Enum):
    """Reaction of the client to an error code."""

    TREAT_AS_SUCCESS = "treats it as success"
    IGNORE = "ignores it"
    RETRY = "retries"
    REFRESH_METADATA = "refreshes its metadata and retries"
    FIND_COORDINATOR = "looks up the coordinator and retries there"
    REJOIN = "joins the group again with the same member id"
    REJOIN_AS_NEW_MEMBER = "joins the group again as a new member"
    JOIN_WITH_GIVEN_ID = "joins again with the member id of the response"
    RETRY_AFTER_REBALANCE = "retries after the rebalance, if it still owns the partition"
    RESET_POSITION = "resets the position according to `auto_offset_reset`"
    SPLIT_BATCH = "sends the records again in smaller batches"
    RAISE = "raises"


@dataclass(frozen=True, slots=True)
class Row:
    """A code in the response of an API. `listed`: the documentation lists it for the API."""

    api: ApiKey
    code: ErrorCode
    reaction: Reaction
    note: str = ""
    listed: bool = True

    @property
    def name(self) -> str:
        """Return the test id."""
        return f"{self.code.value}-{self.code.name}"


def _rows(
    api: ApiKey,
    reaction: Mapping[Reaction, Iterable[ErrorCode]],
    notes: Mapping[ErrorCode, str] = {},
) -> list[Row]:
    listed = LISTED[api]
    rows = [
        Row(api, code, action, notes.get(code, ""), code in listed)
        for action, codes in reaction.items()
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
"""The "possible error codes" of the guide. For APIs between brokers, which it does not describe,
the codes that brokers return."""

_BETWEEN = (
    "This API is for requests between brokers; the clients do not use it. Your own request raises"
    " the code and is not retried."
)

REMARKS: Mapping[ApiKey, str] = {
    ApiKey.LEADER_AND_ISR: _BETWEEN + " A broker that no longer leads a partition answers Produce"
    " with 6.",
    ApiKey.STOP_REPLICA: _BETWEEN + " A broker that no longer has the replica answers Produce and"
    " Fetch with 3.",
    ApiKey.UPDATE_METADATA: _BETWEEN + " If a leader is not a live broker, Metadata returns"
    " 5 for the partition, and -1 as the leader.",
    ApiKey.CONTROLLED_SHUTDOWN: _BETWEEN,
    ApiKey.LIST_GROUPS: "`aiokafkawire groups` sends it to every broker.",
    ApiKey.DESCRIBE_GROUPS: "`aiokafkawire groups` sends it to the group's coordinator.",
}
"""Remarks on an API as a whole."""

ROWS: tuple[Row, ...] = (
    *_rows(
        ApiKey.METADATA,
        {
            Reaction.IGNORE: [E.REPLICA_NOT_AVAILABLE],
            Reaction.REFRESH_METADATA: [E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE],
            Reaction.RAISE: [E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED],
        },
        {
            E.UNKNOWN_TOPIC_OR_PARTITION: "raises `UnknownTopic` at the timeout of the call",
            E.LEADER_NOT_AVAILABLE: "for a topic, or for a partition (whose leader is then -1)",
            E.REPLICA_NOT_AVAILABLE: "the partition has a leader, which the client uses",
        },
    ),
    *_rows(
        ApiKey.PRODUCE,
        {
            Reaction.TREAT_AS_SUCCESS: [E.NONE],
            Reaction.RETRY: [
                E.CORRUPT_MESSAGE,
                E.REQUEST_TIMED_OUT,
                E.NOT_ENOUGH_REPLICAS,
                E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            ],
            Reaction.REFRESH_METADATA: [
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.NOT_LEADER_OR_FOLLOWER,
                E.NETWORK_EXCEPTION,
            ],
            Reaction.SPLIT_BATCH: [E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE],
            Reaction.RAISE: [
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
                "without idempotence, and logs a warning; with `enable_idempotence=True` raises"
            ),
        },
    ),
    *_rows(
        ApiKey.FETCH,
        {
            Reaction.RETRY: [E.UNKNOWN_SERVER_ERROR],
            Reaction.RESET_POSITION: [E.OFFSET_OUT_OF_RANGE],
            Reaction.REFRESH_METADATA: [
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.NOT_LEADER_OR_FOLLOWER,
                E.REPLICA_NOT_AVAILABLE,
            ],
            Reaction.RAISE: [E.INVALID_FETCH_SIZE, E.TOPIC_AUTHORIZATION_FAILED],
        },
        {
            E.UNKNOWN_SERVER_ERROR: "and logs a warning",
            E.OFFSET_OUT_OF_RANGE: 'with "none" raises `NoOffsetForPartition`',
            E.INVALID_FETCH_SIZE: "once, then retries",
            E.TOPIC_AUTHORIZATION_FAILED: "once, then retries",
        },
    ),
    *_rows(
        ApiKey.LIST_OFFSETS,
        {
            Reaction.TREAT_AS_SUCCESS: [E.UNSUPPORTED_FOR_MESSAGE_FORMAT],
            Reaction.REFRESH_METADATA: [
                E.UNKNOWN_SERVER_ERROR,
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.NOT_LEADER_OR_FOLLOWER,
                E.REPLICA_NOT_AVAILABLE,
            ],
            Reaction.RAISE: [E.TOPIC_AUTHORIZATION_FAILED],
        },
        {E.UNSUPPORTED_FOR_MESSAGE_FORMAT: "there is no record at that time: None"},
    ),
    *_rows(
        ApiKey.LEADER_AND_ISR,
        {Reaction.RAISE: [E.UNKNOWN_TOPIC_OR_PARTITION, E.STALE_CONTROLLER_EPOCH]},
    ),
    *_rows(
        ApiKey.STOP_REPLICA,
        {Reaction.RAISE: [E.UNKNOWN_TOPIC_OR_PARTITION, E.STALE_CONTROLLER_EPOCH]},
    ),
    *_rows(ApiKey.UPDATE_METADATA, {Reaction.RAISE: [E.STALE_CONTROLLER_EPOCH]}),
    *_rows(
        ApiKey.CONTROLLED_SHUTDOWN,
        {Reaction.RAISE: [E.BROKER_NOT_AVAILABLE, E.STALE_CONTROLLER_EPOCH]},
    ),
    *_rows(
        ApiKey.OFFSET_COMMIT,
        {
            Reaction.RETRY: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Reaction.FIND_COORDINATOR: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Reaction.RETRY_AFTER_REBALANCE: [E.REBALANCE_IN_PROGRESS],
            Reaction.RAISE: [
                E.OFFSET_METADATA_TOO_LARGE,
                E.ILLEGAL_GENERATION,
                E.UNKNOWN_MEMBER_ID,
                E.INVALID_COMMIT_OFFSET_SIZE,
                E.TOPIC_AUTHORIZATION_FAILED,
                E.GROUP_AUTHORIZATION_FAILED,
            ],
        },
        {
            E.ILLEGAL_GENERATION: "`CommitFailed`, and sends a heartbeat at once",
            E.UNKNOWN_MEMBER_ID: "`CommitFailed`, and sends a heartbeat at once",
        },
    ),
    *_rows(
        ApiKey.OFFSET_FETCH,
        {
            Reaction.TREAT_AS_SUCCESS: [E.UNKNOWN_TOPIC_OR_PARTITION],
            Reaction.RETRY: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Reaction.FIND_COORDINATOR: [E.NOT_COORDINATOR],
            Reaction.RAISE: [
                E.ILLEGAL_GENERATION,
                E.UNKNOWN_MEMBER_ID,
                E.TOPIC_AUTHORIZATION_FAILED,
                E.GROUP_AUTHORIZATION_FAILED,
            ],
        },
        {E.UNKNOWN_TOPIC_OR_PARTITION: "no committed offset: ZooKeeper has no node for it"},
    ),
    *_rows(
        ApiKey.FIND_COORDINATOR,
        {
            Reaction.RETRY: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Reaction.RAISE: [E.GROUP_AUTHORIZATION_FAILED],
        },
    ),
    *_rows(
        ApiKey.JOIN_GROUP,
        {
            Reaction.REJOIN: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Reaction.FIND_COORDINATOR: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Reaction.REJOIN_AS_NEW_MEMBER: [E.UNKNOWN_MEMBER_ID],
            Reaction.JOIN_WITH_GIVEN_ID: [E.MEMBER_ID_REQUIRED],
            Reaction.RAISE: [
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
            Reaction.FIND_COORDINATOR: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Reaction.REJOIN: [E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS],
            Reaction.REJOIN_AS_NEW_MEMBER: [E.UNKNOWN_MEMBER_ID],
            Reaction.RAISE: [E.GROUP_AUTHORIZATION_FAILED],
        },
        {
            E.COORDINATOR_NOT_AVAILABLE: "and sends JoinGroup",
            E.NOT_COORDINATOR: "and sends JoinGroup",
        },
    ),
    *_rows(
        ApiKey.HEARTBEAT,
        {
            Reaction.FIND_COORDINATOR: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Reaction.REJOIN: [E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS],
            Reaction.REJOIN_AS_NEW_MEMBER: [E.UNKNOWN_MEMBER_ID],
            Reaction.RAISE: [E.GROUP_AUTHORIZATION_FAILED],
        },
        {
            E.ILLEGAL_GENERATION: "loses its partitions",
            E.UNKNOWN_MEMBER_ID: "loses its partitions",
            E.REBALANCE_IN_PROGRESS: "revokes its partitions (eager: all; cooperative: some)",
        },
    ),
    *_rows(
        ApiKey.LEAVE_GROUP,
        {
            Reaction.RETRY: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Reaction.FIND_COORDINATOR: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Reaction.IGNORE: [E.UNKNOWN_MEMBER_ID, E.GROUP_AUTHORIZATION_FAILED],
        },
    ),
    *_rows(
        ApiKey.DESCRIBE_GROUPS,
        {
            Reaction.RETRY: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Reaction.FIND_COORDINATOR: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
            Reaction.RAISE: [E.TOPIC_AUTHORIZATION_FAILED],
        },
    ),
    *_rows(
        ApiKey.LIST_GROUPS,
        {
            Reaction.RETRY: [E.COORDINATOR_NOT_AVAILABLE],
            Reaction.RAISE: [E.TOPIC_AUTHORIZATION_FAILED],
        },
        {E.TOPIC_AUTHORIZATION_FAILED: "the command lists the groups of the other brokers"},
    ),
    *_rows(
        ApiKey.INIT_PRODUCER_ID,
        {
            Reaction.RETRY: [E.COORDINATOR_LOAD_IN_PROGRESS],
            Reaction.RAISE: [E.CLUSTER_AUTHORIZATION_FAILED],
        },
        {E.CLUSTER_AUTHORIZATION_FAILED: "the producer fails permanently"},
    ),
)
"""Every code that the documentation lists for an API, and some others."""


def rows_of(api: ApiKey) -> list[Row]:
    """Return the rows of one API."""
    return [row for row in ROWS if row.api is api]
