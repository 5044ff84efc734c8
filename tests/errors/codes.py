"""Names and meaning of each error code in the protocol documents."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.wire import ErrorCode

__all__ = ["CODES", "Code"]

E = ErrorCode


@dataclass(frozen=True, slots=True)
class Code:
    """A code in the documents.

    `page` is its name on the protocol page of 0.10, `guide` in the guide to the protocol, `old` in
    the guide of 0.8 (None if missing). `lists` are names in the guide's lists of possible errors
    that differ from `page`. `retriable` is that of page and guide.
    """

    code: ErrorCode
    meaning: str
    page: str | None
    guide: str | None
    old: str | None
    retriable: bool = False
    lists: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All distinct names; that of Kafka 4.3 is first."""
        given = (self.code.name, self.page, self.guide, self.old, *self.lists)
        return tuple(dict.fromkeys(name for name in given if name is not None))

    @property
    def differs(self) -> bool:
        """True if Kafka 4.3 and the documents disagree on `retriable`."""
        return self.retriable != self.code.retriable


def _group(code: ErrorCode, meaning: str, name: str) -> Code:
    """Return a code whose name in the guide ends in "Code", and which 0.8 lacks."""
    words = [word.capitalize() for word in name.split("_")]
    return Code(code, meaning, name, "".join(words) + "Code", None)


CODES: tuple[Code, ...] = (
    Code(
        E.UNKNOWN_SERVER_ERROR,
        "the broker failed, and there is no code for the failure",
        "UNKNOWN",
        "Unknown",
        "Unknown",
    ),
    Code(E.NONE, "no error", "NONE", "NoError", "NoError"),
    Code(
        E.OFFSET_OUT_OF_RANGE,
        "the offset is before the start or after the end of the log",
        "OFFSET_OUT_OF_RANGE",
        "OffsetOutOfRange",
        "OffsetOutOfRange",
    ),
    Code(
        E.CORRUPT_MESSAGE,
        "checksum, size or format of a message is wrong",
        "CORRUPT_MESSAGE",
        "InvalidMessage / CorruptMessage",
        "InvalidMessage",
        retriable=True,
    ),
    Code(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        "the broker does not have this partition, which may be new or deleted",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UnknownTopicOrPartition",
        "UnknownTopicOrPartition",
        retriable=True,
        lists=("UnknownTopic",),
    ),
    Code(
        E.INVALID_FETCH_SIZE,
        "the fetch size (in 0.8: the message size) is negative",
        "INVALID_FETCH_SIZE",
        "InvalidMessageSize",
        "InvalidMessageSize",
    ),
    Code(
        E.LEADER_NOT_AVAILABLE,
        "the partition has no leader; an election is in progress",
        "LEADER_NOT_AVAILABLE",
        "LeaderNotAvailable",
        "LeaderNotAvailable",
        retriable=True,
    ),
    Code(
        E.NOT_LEADER_OR_FOLLOWER,
        "another broker leads the partition",
        "NOT_LEADER_FOR_PARTITION",
        "NotLeaderForPartition",
        "NotLeaderForPartition",
        retriable=True,
    ),
    Code(
        E.REQUEST_TIMED_OUT,
        "the timeout in the request has passed, for example without enough acknowledgements",
        "REQUEST_TIMED_OUT",
        "RequestTimedOut",
        "RequestTimedOut",
        retriable=True,
    ),
    Code(
        E.BROKER_NOT_AVAILABLE,
        "a broker is not alive; only for brokers and tools",
        "BROKER_NOT_AVAILABLE",
        "BrokerNotAvailable",
        "BrokerNotAvailable",
    ),
    Code(
        E.REPLICA_NOT_AVAILABLE,
        "a replica is missing; in Metadata this is harmless if there is a leader",
        "REPLICA_NOT_AVAILABLE",
        "ReplicaNotAvailable",
        "Unused",
        lists=("REPLICAS_NOT_AVAILABLE",),
    ),
    Code(
        E.MESSAGE_TOO_LARGE,
        "a batch exceeds the topic's max.message.bytes",
        "MESSAGE_TOO_LARGE",
        "MessageSizeTooLarge",
        "MessageSizeTooLarge",
    ),
    Code(
        E.STALE_CONTROLLER_EPOCH,
        "another broker is the controller now; only between brokers",
        "STALE_CONTROLLER_EPOCH",
        "StaleControllerEpochCode",
        "StaleControllerEpochCode",
    ),
    Code(
        E.OFFSET_METADATA_TOO_LARGE,
        "the metadata string of a committed offset exceeds offset.metadata.max.bytes",
        "OFFSET_METADATA_TOO_LARGE",
        "OffsetMetadataTooLargeCode",
        "OffsetMetadataTooLargeCode",
    ),
    Code(
        E.NETWORK_EXCEPTION,
        "the connection ended before the response; clients set this code themselves",
        "NETWORK_EXCEPTION",
        None,
        None,
        retriable=True,
    ),
    Code(
        E.COORDINATOR_LOAD_IN_PROGRESS,
        "the coordinator is still loading its groups",
        "GROUP_LOAD_IN_PROGRESS",
        "GroupLoadInProgressCode",
        "OffsetsLoadInProgressCode",
        retriable=True,
    ),
    Code(
        E.COORDINATOR_NOT_AVAILABLE,
        "there is no coordinator: its topic is being created, or the broker is shutting down",
        "GROUP_COORDINATOR_NOT_AVAILABLE",
        "GroupCoordinatorNotAvailableCode",
        "ConsumerCoordinatorNotAvailableCode",
        retriable=True,
        lists=("CONSUMER_COORDINATOR_NOT_AVAILABLE",),
    ),
    Code(
        E.NOT_COORDINATOR,
        "another broker is the coordinator",
        "NOT_COORDINATOR_FOR_GROUP",
        "NotCoordinatorForGroupCode",
        "NotCoordinatorForConsumerCode",
        retriable=True,
        lists=("NOT_COORDINATOR_FOR_CONSUMER",),
    ),
    Code(
        E.INVALID_TOPIC_EXCEPTION,
        "the topic name is invalid, or clients may not write to the topic",
        "INVALID_TOPIC_EXCEPTION",
        "InvalidTopicCode",
        None,
        lists=("InvalidTopic",),
    ),
    _group(
        E.RECORD_LIST_TOO_LARGE,
        "the batches exceed the size of a segment",
        "RECORD_LIST_TOO_LARGE",
    ),
    Code(
        E.NOT_ENOUGH_REPLICAS,
        "fewer replicas are in sync than min.insync.replicas; nothing was written",
        "NOT_ENOUGH_REPLICAS",
        "NotEnoughReplicasCode",
        None,
        retriable=True,
    ),
    Code(
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        "the same, but detected after the records were written",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NotEnoughReplicasAfterAppendCode",
        None,
        retriable=True,
    ),
    _group(
        E.INVALID_REQUIRED_ACKS,
        "acks is none of -1, 0 and 1",
        "INVALID_REQUIRED_ACKS",
    ),
    _group(E.ILLEGAL_GENERATION, "the group has another generation now", "ILLEGAL_GENERATION"),
    _group(
        E.INCONSISTENT_GROUP_PROTOCOL,
        "the member shares no assignor or protocol type with the group",
        "INCONSISTENT_GROUP_PROTOCOL",
    ),
    _group(E.INVALID_GROUP_ID, "the group id is empty", "INVALID_GROUP_ID"),
    Code(
        E.UNKNOWN_MEMBER_ID,
        "the group does not have this member (any more)",
        "UNKNOWN_MEMBER_ID",
        "UnknownMemberIdCode",
        None,
        lists=("UNKNOWN_CONSUMER_ID",),
    ),
    _group(
        E.INVALID_SESSION_TIMEOUT,
        "the session timeout is outside the range that the broker allows",
        "INVALID_SESSION_TIMEOUT",
    ),
    _group(
        E.REBALANCE_IN_PROGRESS,
        "the group rebalances: its members must join again",
        "REBALANCE_IN_PROGRESS",
    ),
    _group(
        E.INVALID_COMMIT_OFFSET_SIZE,
        "the data of a commit is too large",
        "INVALID_COMMIT_OFFSET_SIZE",
    ),
    Code(
        E.TOPIC_AUTHORIZATION_FAILED,
        "the client is not authorised for the topic",
        "TOPIC_AUTHORIZATION_FAILED",
        "TopicAuthorizationFailedCode",
        None,
        lists=("TopicAuthorizationFailed", "AUTHORIZATION_FAILED"),
    ),
    _group(
        E.GROUP_AUTHORIZATION_FAILED,
        "the client is not authorised for the group",
        "GROUP_AUTHORIZATION_FAILED",
    ),
    _group(
        E.CLUSTER_AUTHORIZATION_FAILED,
        "the client is not authorised for cluster operations",
        "CLUSTER_AUTHORIZATION_FAILED",
    ),
    Code(
        E.INVALID_TIMESTAMP,
        "a timestamp is too far from the broker's clock",
        "INVALID_TIMESTAMP",
        None,
        None,
    ),
    Code(
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        "the topic has an older message format, without the requested feature",
        None,
        None,
        None,
    ),
    Code(
        E.MEMBER_ID_REQUIRED,
        "a new member must join again with the member id of the response (KIP-394)",
        None,
        None,
        None,
    ),
)
"""Codes of the three documents, and two later ones with reactions of their own."""
