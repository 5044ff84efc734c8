"""Exit codes, and errors as one line that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire import errors
from aiokafkawire.wire import ErrorCode

__all__ = (
    "FAILED",
    "INTERRUPTED",
    "OK",
    "TERMINATED",
    "USAGE",
    "CommandFailed",
    "explain",
    "one_line",
    "printable",
)

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""Ended by Ctrl-C (128 + SIGINT), as shells have it."""
TERMINATED = 143
"""Ended by SIGTERM (128 + SIGTERM)."""


class CommandFailed(Exception):
    """A command ends with a failure that it has found itself; the text says what to do."""


ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (errors.NoBrokerAvailable, "check -b, and that the broker runs"),
    (errors.ConnectionFailed, "check -b, and that the broker runs"),
    (errors.ConnectionLost, "try again"),
    (errors.MalformedFrame, "check that the port in -b is Kafka's"),
    (errors.ProtocolError, "check that what listens there is Kafka"),
    (errors.AuthenticationFailed, "check the credentials"),
    (errors.UnknownTopic, "check its name, or create the topic"),
    (errors.DeliveryTimedOut, "it is safe to send again; -X delivery_timeout_ms gives more time"),
    (errors.DeliveryUnknown, "the log may hold it or not: look before sending again"),
    (errors.RequestTimedOut, "check that the broker is well, or raise -X request_timeout_ms"),
    (errors.RecordTooLarge, "raise -X max_request_size_bytes and the topic's limit"),
    (errors.CorruptRecords, "go on past it with -p PARTITION -o OFFSET"),
    (errors.NoOffset, "say where to start with -o"),
    (errors.LogTruncated, "say where to go on with -p PARTITION -o OFFSET"),
    (errors.CommitFailed, "another member has the partitions now and reads them again"),
    (errors.MemberFenced, "another member runs with the same group_instance_id"),
    (errors.GroupFailed, "check the group id and the group's other members"),
    (errors.UnsupportedVersion, "compare the broker's version with what this needs"),
)

ADVICE_BY_CODE: Mapping[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`aiokafkawire topics list` tells which there are",
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-missing passes over it",
    ErrorCode.INVALID_PARTITIONS: "partitions can only be added, from those that it has",
    ErrorCode.INVALID_REPLICATION_FACTOR: "give -r at most the number of brokers",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is off at the brokers",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first",
    ErrorCode.GROUP_ID_NOT_FOUND: "`aiokafkawire groups list` tells which there are",
    ErrorCode.INVALID_GROUP_ID: "check the group's name",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask whoever runs the cluster for the right",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask whoever runs the cluster for the right",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask whoever runs the cluster for the right",
}

MIN_RELEASE_BY_API: Mapping[str, str] = {
    "DescribeGroups": "0.9.0",
    "ListGroups": "0.9.0",
    "CreateTopics": "0.10.1",
    "DeleteTopics": "0.10.1",
    "DescribeConfigs": "0.11.0",
    "CreatePartitions": "1.0",
    "DeleteGroups": "1.1",
    "OffsetDelete": "2.4",
    "DescribeTransactions": "3.0",
    "ListTransactions": "3.0",
}
"""Since which release of Kafka brokers have what `topics`, `groups` and `txns` ask for."""

PARTITION_ADVICE = "-p -1 leaves the partition to the key"

CODE_ONLY_HINT = ", and allow_auto_create_topics is off"
"""Said of an option that is set in code; it is no news to somebody at a shell."""


def explain(error: BaseException) -> str:
    """What happened and what to do about it, in one line."""
    if isinstance(error, errors.DeliveriesFailed):
        count = "1 record was" if error.count == 1 else f"{error.count} records were"
        first = "" if error.first is None else f": {explain(error.first)}"
        return f"{count} not delivered{first}"
    text = one_line(str(error)).replace(CODE_ONLY_HINT, "") or type(error).__name__
    if isinstance(error, errors.UnknownTopic) and error.partition is not None:
        return f"{text}; {PARTITION_ADVICE}"
    if isinstance(error, errors.UnsupportedVersion):
        if error.api is None or ";" in text:
            # No broker was asked, or the text says what to do.
            return text
        if error.api in MIN_RELEASE_BY_API:
            return f"{text}; this needs Kafka {MIN_RELEASE_BY_API[error.api]} or later"
    if isinstance(error, errors.BrokerError) and error.code in ADVICE_BY_CODE:
        return f"{text}; {ADVICE_BY_CODE[error.code]}"
    # A deadline that a failed connection has used up is not too short.
    cause = error.__cause__ if isinstance(error, errors.RequestTimedOut) else None
    advised = cause if isinstance(cause, errors.ConnectionFailed) else error
    for kind, advice in ADVICE:
        if isinstance(advised, kind):
            return f"{text}; {advice}"
    return text


def one_line(text: str) -> str:
    """Return a text of others, as a broker's, as one line that is safe for a terminal."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a text with the control characters escaped that would act on a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
