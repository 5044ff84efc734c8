from __future__ import annotations

import inspect
import re

import pytest

from aiokafkawire import errors
from aiokafkawire.cli.error_text import (
    ADVICE,
    ADVICE_BY_CODE,
    ADVICE_WITHOUT_FLAGS,
    explain,
    explain_retried,
)
from aiokafkawire.wire import ErrorCode, error_for


def test_an_error_takes_one_line_and_says_what_to_do() -> None:
    text = explain(errors.NoBrokerAvailable("no broker answered\nat all", broker="h:1"))
    assert text == "no broker answered at all (broker h:1); check -b and that the broker is running"


def test_a_deadline_that_a_connection_has_used_up_is_not_called_too_short() -> None:
    error = errors.RequestTimedOut("no leader answered; the last error: refused")
    assert "request_timeout_ms" in explain(error)
    error.__cause__ = errors.ConnectionFailed("refused")
    assert explain(error) == f"{error}; check -b and that the broker is running"


def test_a_text_that_says_what_to_check_gets_no_second_such_advice() -> None:
    for reason in ("nothing listens there: check host and port", "refused; check the listener"):
        assert explain(errors.NoBrokerAvailable(reason)) == reason


def test_a_command_without_flags_gets_no_advice_with_flags() -> None:
    flag = re.compile(r"(^|\s)-{1,2}[a-zA-Z]")
    for kind, advice in ADVICE:
        given = ADVICE_WITHOUT_FLAGS.get(kind, advice)
        assert not flag.search(given), kind
        assert (given != advice) == bool(flag.search(advice)), kind
    missing = errors.UnknownTopic("the topic has 3 partitions", topic="t", partition=7)
    assert explain(missing, has_flags=False).endswith("; check the name or create the topic")
    refused = errors.NoBrokerAvailable("no broker answered")
    assert explain(refused, has_flags=False).startswith("no broker answered; check bootstrap_")


def test_what_a_broker_says_does_not_act_on_the_terminal() -> None:
    text = explain(errors.CommitFailed("no\x1b[2J\r\nroom\x9b é"))
    assert text.startswith("no\\x1b[2J room\\x9b é; ")


def test_an_error_that_a_repeated_command_outlives_has_no_remedy() -> None:
    where = {"broker": "1 at h:1", "api": "DescribeGroups", "group": "billing", "attempt": 4}
    loading = error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, **where)
    expected = "the coordinator is still loading its state (broker 1 at h:1, group billing)"
    assert explain_retried(loading) == f"{expected}; trying again"
    assert loading.attempt == 4
    late = errors.RequestTimedOut("no response before the deadline", **where)
    assert explain_retried(late).endswith(
        " deadline (broker 1 at h:1, group billing); trying again"
    )
    for lasting in (error_for(ErrorCode.GROUP_ID_NOT_FOUND, group="billing"), TimeoutError()):
        assert explain_retried(lasting) == explain(lasting)


def test_a_group_that_does_not_exist_is_named() -> None:
    error = error_for(ErrorCode.GROUP_ID_NOT_FOUND, api="DescribeGroups", group="billing")
    assert explain(error).startswith("group 'billing' does not exist; `aiokafkawire groups list`")


def test_failed_deliveries_name_their_count_and_the_first() -> None:
    first = errors.RecordTooLarge("too large", topic="t")
    text = explain(errors.DeliveriesFailed("x", count=2, first=first))
    assert text.startswith("2 records were not delivered: too large (topic t); raise -X")
    assert (
        explain(errors.DeliveriesFailed("x", count=1, first=None)) == "1 record was not delivered"
    )


def test_options_of_the_code_are_not_reported_to_a_shell() -> None:
    reason = "topic 'x' does not exist, and allow_auto_create_topics is off"
    text = explain(errors.UnknownTopic(reason, topic="x"))
    assert text == "topic 'x' does not exist; check the name or create the topic"


def test_a_partition_that_is_not_there_is_left_to_the_key() -> None:
    text = explain(errors.UnknownTopic("the topic has 3 partitions", topic="t", partition=7))
    assert text.endswith("; -p -1 chooses the partition by key")


def test_an_error_without_text_is_named() -> None:
    assert explain(TimeoutError()) == "TimeoutError"


def test_the_more_special_advice_comes_first() -> None:
    kinds = [kind for kind, _ in ADVICE]
    for index, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:index]), kind


def test_every_kind_of_error_has_advice_or_says_all_itself() -> None:
    itself = {"KafkaError", "InvalidOption", "ClientClosed", "BrokerError", "UnknownServerError"}
    itself |= {"BufferFull", "DeliveriesFailed", "ProducerFenced", "WrongEventLoop"}
    itself |= {"IllegalState", "TransactionAborted", "TransactionFailed", "InvalidTxnState"}
    itself |= {"AcknowledgementFailed"}  # no command awaits one
    itself |= {"SerializationFailed", "DeserializationFailed"}  # commands write and read bytes
    itself |= {"PartialFailure"}  # a command prints the error of each item
    advised = tuple(kind for kind, _ in ADVICE)
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert inspect.isclass(kind)
        assert name in itself or issubclass(kind, advised), name


def test_an_old_version_is_compared_unless_the_text_says_what_to_do() -> None:
    bare = errors.UnsupportedVersion("no zstd", broker="1", api="Produce")
    assert explain(bare).endswith("; check the broker's version")
    said = errors.UnsupportedVersion("acks=2 is of 0.8; take 'all'", broker="1", api="Produce")
    assert explain(said) == str(said)
    known = errors.UnsupportedVersion("ListGroups needs Kafka 0.9", broker="1", api="ListGroups")
    assert explain(known) == str(known)
    own = errors.UnsupportedVersion("needs a codec")
    assert explain(own) == "needs a codec"


@pytest.mark.parametrize("code", ADVICE_BY_CODE)
def test_a_refusal_of_a_broker_says_what_to_do(code: int) -> None:
    assert explain(error_for(code, topic="t")).endswith(f"; {ADVICE_BY_CODE[code]}")


def test_another_refusal_is_reported_as_it_is() -> None:
    assert explain(error_for(85)) == "NO_REASSIGNMENT_IN_PROGRESS"
