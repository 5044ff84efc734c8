"""Exit codes, and error texts of one line with a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aiokafkawire import errors
from aiokafkawire.config import did_you_mean
from aiokafkawire.runtime import copy_error
from aiokafkawire.wire import ErrorCode

__all__ = (
    "FAILED",
    "INTERRUPTED",
    "OK",
    "TERMINATED",
    "USAGE",
    "CommandFailed",
    "explain",
    "explain_retried",
    "no_topic",
    "one_line",
    "printable",
)

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""Ended by Ctrl-C (128 + SIGINT)."""
TERMINATED = 143
"""Ended by SIGTERM (128 + SIGTERM)."""


class CommandFailed(Exception):
    """A command failed for another reason than a `KafkaError`; the text has the remedy."""


def no_topic(name: str, known: Sequence[str]) -> CommandFailed:
    """Return the error for a topic that does not exist; it suggests one of the known topics."""
    return CommandFailed(
        f"topic {name!r} does not exist{did_you_mean(name, known)};"
        " `aiokafkawire topics list` lists the topics"
    )


ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (errors.NoBrokerAvailable, "check -b and that the broker is running"),
    (errors.TokenUnavailable, "check the identity provider"),
    (errors.ConnectionFailed, "check -b and that the broker is running"),
    (errors.ConnectionLost, "try again"),
    (errors.MalformedFrame, "check that the port in -b is Kafka's"),
    (errors.ProtocolError, "check that the server is a Kafka broker"),
    (errors.TlsError, "see docs/security.md"),
    (errors.AuthenticationFailed, "check the credentials"),
    (errors.AuthorizationFailed, "ask the cluster's administrator for the permission"),
    (errors.UnknownTopic, "check the name or create the topic"),
    (errors.DeliveryTimedOut, "it is safe to send again; raise -X delivery_timeout_ms if needed"),
    (errors.DeliveryUnknown, "the record may be in the log: check before sending again"),
    (errors.RequestTimedOut, "check the broker, or raise -X request_timeout_ms"),
    (errors.RecordTooLarge, "raise -X max_request_size_bytes and the topic's max.message.bytes"),
    (errors.CorruptRecord, "skip it with -p PARTITION -o OFFSET"),
    (errors.NoOffsetForPartition, "give a start offset with -o"),
    (errors.LogTruncated, "give the next offset with -p PARTITION -o OFFSET"),
    (errors.CommitFailed, "another member owns the partitions and reads the records again"),
    (errors.FencedInstanceId, "another member uses the same group_instance_id"),
    (errors.GroupFailed, "check the group id and the group's other members"),
    (errors.UnsupportedVersion, "check the broker's version"),
)

ADVICE_WITHOUT_FLAGS: Mapping[type[BaseException], str] = {
    errors.NoBrokerAvailable: "check bootstrap_servers and that the broker is running",
    errors.ConnectionFailed: "check bootstrap_servers and that the broker is running",
    errors.MalformedFrame: "check that the port in bootstrap_servers is Kafka's",
    errors.DeliveryTimedOut: "raise delivery_timeout_ms if needed",
    errors.RequestTimedOut: "check the broker, or raise request_timeout_ms",
    errors.RecordTooLarge: "raise max_request_size_bytes and the topic's max.message.bytes",
    errors.CorruptRecord: "skip it with `aiokafkawire offsets reset`",
    errors.NoOffsetForPartition: "set auto_offset_reset in consumer_options",
    errors.LogTruncated: "give the next offset with `aiokafkawire offsets reset`",
}
"""What replaces the entries of `ADVICE` for a worker, whose options are in its module."""

ADVICE_BY_CODE: Mapping[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`aiokafkawire topics list` lists the topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-missing ignores existing topics",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions can only grow",
    ErrorCode.INVALID_REPLICATION_FACTOR: "give -r at most the number of brokers",
    ErrorCode.TOPIC_DELETION_DISABLED: "the brokers have delete.topic.enable=false",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that subscribe to the topic first",
    ErrorCode.GROUP_ID_NOT_FOUND: "`aiokafkawire groups list` lists the groups",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`aiokafkawire txns list` lists the transactional ids",
    ErrorCode.RESOURCE_NOT_FOUND: "`aiokafkawire users list` lists the users",
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer (authorizer.class.name)",
    ErrorCode.INVALID_GROUP_ID: "check the group's name",
}

PARTITION_ADVICE = "-p -1 chooses the partition by key"

CODE_ONLY_HINT = ", and allow_auto_create_topics is off"
"""Part of an error text about an option of the Python API; not useful in a shell."""


def explain(error: BaseException, *, has_flags: bool = True) -> str:
    """Return the error and its remedy as one line.

    Args:
        error: The error.
        has_flags: The command has `-b`, `-X` and the like. If not, the remedy names options of
            the clients.
    """
    if isinstance(error, errors.DeliveriesFailed):
        count = "1 record was" if error.count == 1 else f"{error.count} records were"
        first = "" if error.first is None else f": {explain(error.first, has_flags=has_flags)}"
        return f"{count} not delivered{first}"
    text = one_line(str(error)).replace(CODE_ONLY_HINT, "") or type(error).__name__
    if isinstance(error, errors.UnknownTopic) and error.partition is not None and has_flags:
        return f"{text}; {PARTITION_ADVICE}"
    if isinstance(error, errors.UnsupportedVersion) and (
        error.api is None or ";" in text or "needs Kafka" in text
    ):
        # No broker is involved, or the text already has a remedy.
        return text
    if isinstance(error, errors.BrokerError) and error.code in ADVICE_BY_CODE:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND and error.group is not None:
            text = f"group {error.group!r} does not exist"
        return f"{text}; {ADVICE_BY_CODE[error.code]}"
    # A deadline that a failed connection has used up is not too short.
    cause = error.__cause__ if isinstance(error, errors.RequestTimedOut) else None
    advised = cause if isinstance(cause, errors.ConnectionFailed) else error
    for kind, advice in ADVICE:
        if isinstance(advised, kind):
            in_code = None if has_flags else ADVICE_WITHOUT_FLAGS.get(kind)
            return _with_advice(text, in_code or advice)
    return text


def _with_advice(text: str, advice: str) -> str:
    """Append a remedy, unless it says to check something and the text does so more exactly."""
    if advice.startswith("check ") and re.search(r"[:;] check ", text):
        return text
    return f"{text}; {advice}"


def explain_retried(error: BaseException) -> str:
    """Return the error of a command that repeats its requests as one line.

    An error that passes has no remedy, and only the context that a user knows.
    """
    has_advice = isinstance(error, errors.UnknownTopic) or (
        isinstance(error, errors.BrokerError) and error.code in ADVICE_BY_CODE
    )
    if not isinstance(error, errors.KafkaError) or not error.retriable or has_advice:
        return explain(error)
    shown = copy_error(error)
    shown.api = shown.attempt = None
    if isinstance(shown, errors.BrokerError):
        shown.reason = shown.reason.removeprefix(f"{shown.name}: ")
    return f"{one_line(str(shown))}; trying again"


def one_line(text: str) -> str:
    """Return a text, for example of a broker, as one line that is safe for a terminal."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Escape control characters, which would act on a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
