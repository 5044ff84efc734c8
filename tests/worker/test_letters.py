"""Names and headers of retries and dead letters."""

from __future__ import annotations

import contextvars
import dataclasses
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.config import WorkerConfig, list_options
from aiokafkawire.errors import DeserializationFailed
from aiokafkawire.types import require_whole_number
from aiokafkawire.worker.handlers import call_in_context
from aiokafkawire.worker.letters import (
    ERROR_FIELDS,
    HEADER_FORMATS,
    RETRY_PREFIX,
    FailedRecord,
    HeaderFormat,
    Origin,
    RetryState,
    dead_letter_headers,
    read_dead_letter,
    read_origin,
    read_retry_state,
    retry_headers,
    retry_topic,
    retry_topic_delay,
)
from aiokafkawire.worker.outcomes import DeadLetter
from tests.docs.pages import ROOT
from tests.worker.helpers import record

ORIGIN = Origin("orders", 3, 1_234_567_890_123, 1_700_000_000_000)
STATE = RetryState(ORIGIN, 4, 1, 1_700_000_060_000, 1_700_000_000_500)


def failed(error: BaseException, **arguments: object) -> FailedRecord:
    return FailedRecord(record(5, **arguments), ORIGIN, "billing", 4, "all attempts failed", error)


@pytest.mark.parametrize(
    ("delay_ms", "name"),
    [
        (250, "g.retry.250ms"),
        (10_000, "g.retry.10s"),
        (90_000, "g.retry.90s"),
        (600_000, "g.retry.10m"),
        (3_600_000, "g.retry.1h"),
        (172_800_000, "g.retry.2d"),
    ],
)
def test_a_retry_topic_has_its_delay_in_its_name(delay_ms: int, name: str):
    assert retry_topic("g", delay_ms) == name


NUMBERS = st.integers(0, 2**63 - 1)


@given(st.text(), NUMBERS, NUMBERS)
def test_the_state_of_a_retry_is_read_as_written(topic: str, offset: int, time_ms: int):
    state = STATE._replace(
        origin=Origin(topic.encode(errors="replace").decode(), 3, offset, time_ms),
        not_before_ms=time_ms,
    )
    written = retry_headers(record(0, headers=[("trace", b"x")]), state)
    assert written[0] == ("trace", b"x")
    assert read_retry_state(record(1, headers=written)) == state


def test_an_older_state_is_replaced():
    first = retry_headers(record(0, headers=[("trace", None)]), STATE)
    second = retry_headers(record(1, headers=first), STATE._replace(tier=2))
    assert len(second) == len(first)
    assert read_retry_state(record(2, headers=second)).tier == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from([name for name, _ in retry_headers(record(0), STATE)]) | st.text(),
            st.none() | st.binary(max_size=30),
        ),
        max_size=12,
    )
)
def test_headers_of_others_are_a_value_error(headers: list[tuple[str, bytes | None]]):
    try:
        read_retry_state(record(0, headers=headers))
    except ValueError:
        pass
    else:
        assert len({name for name, _ in headers if name.startswith(RETRY_PREFIX)}) == 8


def test_the_option_and_the_page_have_every_format():
    option = next(each for each in list_options(WorkerConfig) if each.name == "dead_letter_headers")
    assert option.kind == " | ".join(map(repr, HEADER_FORMATS))
    assert get_args(HeaderFormat) == (*HEADER_FORMATS,) == (*ERROR_FIELDS,)
    page = (ROOT / "docs" / "worker.md").read_text("utf-8")
    table = page.partition("\n| `dead_letter_headers` |")[2].partition("\n\n")[0]
    assert re.findall(r'^\| `"(\w+)"`', table, re.MULTILINE) == [*HEADER_FORMATS]


@pytest.mark.parametrize("header_format", HEADER_FORMATS)
def test_the_origin_has_three_headers(header_format: HeaderFormat):
    """`read_origin` takes the headers whose names end so, in the order of the format."""
    ends = [re.search("(topic|partition|offset)$", name) for name in HEADER_FORMATS[header_format]]
    assert [end[0] for end in ends if end is not None] == ["topic", "partition", "offset"]


@pytest.mark.parametrize("header_format", HEADER_FORMATS)
def test_a_dead_letter_says_where_the_record_was_written(header_format: HeaderFormat):
    headers = dead_letter_headers(
        failed(ValueError("broken"), headers=[("trace", b"x")], timestamp_ms=ORIGIN.timestamp_ms),
        header_format,
    )
    assert headers[0] == ("trace", b"x")
    letter = record(0, headers=headers, timestamp_ms=ORIGIN.timestamp_ms)
    origin = read_origin(letter, header_format)
    assert origin is not None
    assert origin[:3] == ORIGIN[:3]
    # A dead letter of a dead letter has each header once.
    again = dead_letter_headers(failed(ValueError("broken"), headers=headers), header_format)
    assert [name for name, _ in again] == [name for name, _ in headers]


@pytest.mark.parametrize("header_format", HEADER_FORMATS)
def test_a_record_of_others_has_no_origin(header_format: HeaderFormat):
    assert read_origin(record(0, headers=[("trace", b"x")]), header_format) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("offset", b"x"), ("offset", b"-1"), ("partition", b"9" * 20), ("topic", b"\xff")],
)
def test_impossible_headers_are_no_origin(name: str, value: bytes):
    headers = dict(dead_letter_headers(failed(ValueError("broken")), "kafka"))
    headers[f"__dlq.errors.{name}"] = value
    assert read_origin(record(0, headers=[*headers.items()]), "kafka") is None


@pytest.mark.parametrize("name", ["tier", "partition", "attempts", "first-failure-ms"])
def test_impossible_states_are_refused(name: str):
    headers = dict(retry_headers(record(0), STATE))
    headers[RETRY_PREFIX + name] = b"-5"
    with pytest.raises(ValueError, match="out of range"):
        read_retry_state(record(1, headers=[*headers.items()]))


def test_texts_are_bounded_and_need_no_utf8():
    error = ValueError("\ud800" * 20_000)
    headers = dict(dead_letter_headers(failed(error), "kafka"))
    message, stacktrace = headers["__dlq.errors.message"], headers["__dlq.errors.stacktrace"]
    assert message is not None
    assert stacktrace is not None
    assert message.startswith(b"all attempts failed: \\ud800")
    assert len(message) < 10_000
    assert len(stacktrace) < 100_000


@pytest.mark.parametrize(
    ("reason", "error", "message"),
    [
        ("no such customer", DeadLetter("no such customer"), b"no such customer"),
        ("the handler raised DeadLetter", DeadLetter(), b"the handler raised DeadLetter"),
        ("all attempts failed", ValueError(), b"all attempts failed"),
        ("all attempts failed", ValueError("no customer"), b"all attempts failed: no customer"),
    ],
)
def test_a_message_repeats_no_reason(reason: str, error: Exception, message: bytes):
    letter = dataclasses.replace(failed(error), reason=reason)
    assert dict(dead_letter_headers(letter, "kafka"))["__dlq.errors.message"] == message


def test_a_stack_trace_begins_in_the_handler():
    def handle(number: object) -> None:
        try:
            require_whole_number("number", number, "1")
        except TypeError as error:
            raise KeyError(number) from error

    _, error = call_in_context(contextvars.copy_context(), handle, "-1")
    assert error is not None
    stacktrace = dict(dead_letter_headers(failed(error), "kafka"))["__dlq.errors.stacktrace"]
    assert stacktrace is not None
    functions = re.findall(rb", line \d+, in (.*)", stacktrace)
    # Of this package, only what the handler calls.
    assert functions == [b"handle", b"require_whole_number", b"handle"]


def test_a_dead_letter_has_the_text_of_the_deserializer():
    error = DeserializationFailed("the record cannot be deserialized: ValueError")
    error.__cause__ = ValueError("no amount")
    headers = dict(dead_letter_headers(failed(error), "kafka"))
    assert headers["__dlq.errors.message"] == (
        b"all attempts failed: the record cannot be deserialized: ValueError: no amount"
    )


def test_the_format_of_kafka_is_text():
    headers = dict(dead_letter_headers(failed(KeyError("customer")), "kafka"))
    assert headers.pop("__dlq.errors.stacktrace")
    assert headers == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"1234567890123",
        "__dlq.errors.group": b"billing",
        "__dlq.errors.delivery.count": b"4",
        "__dlq.errors.message": b"all attempts failed: 'customer'",
        "__dlq.errors.exception": b"builtins.KeyError",
    }


def test_the_format_of_spring_has_binary_numbers():
    headers = dict(dead_letter_headers(failed(KeyError("customer")), "spring"))
    assert headers["kafka_dlt-original-partition"] == b"\0\0\0\3"
    assert headers["kafka_dlt-original-offset"] == (1_234_567_890_123).to_bytes(8, "big")
    assert headers["kafka_dlt-exception-fqcn"] == b"builtins.KeyError"


@pytest.mark.parametrize(
    ("topic", "delay_ms"),
    [
        ("billing.retry.10s", 10_000),
        ("billing.retry.1500ms", 1_500),
        ("billing.retry.2d", 172_800_000),
        ("billing.retry", None),
        ("billing.retry.retry.1m", None),
        ("billing.retry.0s", None),
        ("billing.retry.1w", None),
        ("billing.retry.1m.dead", None),
        ("xbilling.retry.1m", None),
    ],
)
def test_names_of_retry_topics_are_recognized(topic: str, delay_ms: int | None):
    assert retry_topic_delay("billing", topic) == delay_ms
    if delay_ms is not None:
        assert retry_topic("billing", delay_ms) == topic


@pytest.mark.parametrize("header_format", HEADER_FORMATS)
def test_the_content_of_a_dead_letter_is_read(header_format: HeaderFormat):
    read = record(7, value=b"v", headers=[("trace", b"1")])
    failed = FailedRecord(read, ORIGIN, "billing", 3, "all attempts failed", ValueError("broken"))
    letter = record(0, value=b"v", headers=dead_letter_headers(failed, header_format))
    content = read_dead_letter(letter)
    assert content is not None
    assert content.origin[:3] == ORIGIN[:3]
    assert content.error == "builtins.ValueError"
    assert "broken" in content.message
    assert content.stacktrace.startswith("ValueError")
    assert content.headers == [("trace", b"1")]


def test_a_record_that_is_no_dead_letter_has_no_content():
    assert read_dead_letter(record(0, value=b"v")) is None
