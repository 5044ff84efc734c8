"""Writes the pages that stand in the code: options.md from config/, errors.md from errors.py,
error-codes.md from the tables of tests/errors.

`make docs` runs it (`python -m docs.generate`); a test holds the pages equal to what it makes.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

from aiokafkawire import errors
from aiokafkawire.broker.options import MAX_INT64, BrokerConfig
from aiokafkawire.config import (
    MAX_INT32,
    ClientConfig,
    ConsumerConfig,
    Option,
    ProducerConfig,
    options_of,
)
from aiokafkawire.kafka07 import Kafka07Config
from aiokafkawire.wire import APIS
from tests.errors.codes import CODES, Code
from tests.errors.table import REMARKS, ROWS, Row

__all__ = ("ERRORS", "PAGES", "error_codes_page", "errors_page", "options_page", "write")

DOCS = Path(__file__).parent

GENERATED = "<!-- Written by docs/generate.py: change the code, not this page. -->\n\n"

OPTIONS_INTRODUCTION = """\
# Options

Options are keyword arguments of `Producer(…)`, `Consumer(…)` and `Broker(…)`. Names are Kafka's in
snake_case; where Kafka's name hides the unit it is appended (`linger.ms` is `linger_ms`,
`batch.size` is `batch_size_bytes`). Times are in milliseconds, sizes in bytes; defaults are those
of Kafka. All are checked when the client is made: an unknown name, a value of the wrong type or out
of its range, and options that contradict each other raise `InvalidOption`. Below each name stands
that of the Java client, where it has such an option. Options of aiokafka,
kafka-python, librdkafka and the Java client are answered with the option that stands for them.

```python
from aiokafkawire.errors import InvalidOption

try:
    Producer(bootstrap_servers="localhost:9092", linger=50)
except InvalidOption as error:
    assert str(error) == "unknown option 'linger'; did you mean 'linger_ms'?"
```

The options of a client are its attribute `config`, a frozen `ProducerConfig` or `ConsumerConfig`;
those of the embedded broker are `options`.
"""

ERRORS_INTRODUCTION = """\
# Errors

Every error of this package is in `aiokafkawire.errors` and derives from `KafkaError`. What an
application raises itself, in the body of `async with` or in a callback, comes out as it is: never
wrapped, never in an `ExceptionGroup`. A wrong argument (a key that is no bytes, a partition that
is no number) is Python's own `TypeError` or `ValueError`.

```python
from aiokafkawire import errors

async with Producer(bootstrap_servers="localhost:9092") as producer:
    try:
        await producer.send_and_wait("orders", value=b"book")
    except errors.KafkaError as error:
        again = error.retriable  # whether the same call can succeed later
        where = (error.broker, error.api, error.topic, error.partition)
```

"Retriable" below is what `error.retriable` says. The clients repeat by themselves what can be
repeated, until the deadline of the call is over; what an application gets to see has already been
tried again where that could help.
"""

ERROR_CODES_INTRODUCTION = """\
# Error codes

What a broker's error codes mean, and what the clients do about each by themselves. The codes are
those of the documents of the protocol, from the guide of 0.8 to the protocol page of 0.10, with all
the names that they give them, and two later ones; each line of the second part is a test.

For all other codes the rule is Kafka's: what it calls retriable is tried again until the deadline
of the call, anything else is raised as `BrokerError` with `code` and `name`; a code that is not
known here as `UnknownServerError` with the number. What is raised at last, and what to do then:
[Errors](errors.md).

"Retriable" is what Kafka 4.3 says of the code, and `error.retriable`; where the documents say
otherwise it is noted.
"""

ERROR_CODES_ROWS = """\

## What the client does

By API. A code that the documents do not list for the API is marked with a star. Whatever is tried
again is tried again after a pause (`retry_backoff_ms`), until the deadline of the call or of the
record. "Raises" means at once: a `BrokerError`, unless another class is named, which bears the
broker, the API and what of topic, partition, offset and group is known.
"""

ERRORS: Mapping[str, tuple[str, ...]] = {
    "Any call": ("KafkaError", "InvalidOption", "IllegalState", "ClientClosed", "WrongEventLoop"),
    "The network": (
        "NoBrokerAvailable",
        "ConnectionFailed",
        "ConnectionLost",
        "RequestTimedOut",
        "AuthenticationFailed",
    ),
    "The protocol": (
        "ProtocolError",
        "MalformedFrame",
        "MalformedMessage",
        "UnsupportedVersion",
        "BrokerError",
        "UnknownServerError",
    ),
    "Records": ("CorruptRecords", "RecordTooLarge"),
    "The producer": (
        "BufferFull",
        "DeliveryTimedOut",
        "DeliveryUnknown",
        "DeliveriesFailed",
    ),
    "Transactions": (
        "TransactionFailed",
        "TransactionAborted",
        "ProducerFenced",
        "WrongTransactionState",
    ),
    "The consumer and the group": (
        "UnknownTopic",
        "NoOffset",
        "LogTruncated",
        "CommitFailed",
        "GroupFailed",
        "MemberFenced",
    ),
}
"""The errors under the headings of their page."""

TO_DO = "What to do: "

KAFKA_NAMES = {
    "batch_size_bytes": "batch.size",
    "buffer_memory_bytes": "buffer.memory",
    "compression_level": "compression.{gzip,lz4,zstd}.level",
    "max_request_size_bytes": "max.request.size",
    "partitioner": "partitioner.class",
}
"""Options whose name differs from Kafka's by more than dots for underscores."""

NOT_IN_KAFKA = {
    "api_version",
    "close_timeout_ms",
    "connect_on_start",
    "max_decompressed_bytes",
    "max_response_bytes",
    "rebalance_callback_timeout_ms",
}
"""Options that the Java client has no counterpart of."""


def options_page() -> str:
    """docs/options.md."""
    shared = {option.name for option in options_of(ClientConfig)}
    parts = [GENERATED, OPTIONS_INTRODUCTION]
    for heading, config_class in (
        ("Every client", ClientConfig),
        ("Producer", ProducerConfig),
        ("Consumer", ConsumerConfig),
        ("The client for Kafka 0.7", Kafka07Config),
        ("The embedded broker", BrokerConfig),
    ):
        derived = config_class in {ProducerConfig, ConsumerConfig}
        own = [
            option
            for option in options_of(config_class)
            if not derived or option.name not in shared
        ]
        parts.append(f"\n## {heading}\n\n")
        parts.append("| Option | Meaning | Type and default |\n|---|---|---|\n")
        is_client = issubclass(config_class, ClientConfig)
        parts += [_option_row(option, has_kafka_name=is_client) for option in own]
    return "".join(parts)


def errors_page() -> str:
    """docs/errors.md."""
    parts = [GENERATED, ERRORS_INTRODUCTION]
    for heading, names in ERRORS.items():
        parts.append(f"\n## {heading}\n")
        for name in names:
            parts.append(f"\n### {name}\n\n")
            parts += _error(getattr(errors, name))
    return "".join(parts)


def error_codes_page() -> str:
    """docs/error-codes.md."""
    parts = [GENERATED, ERROR_CODES_INTRODUCTION, "\n## The codes\n\n"]
    parts.append("| Code | Name in Kafka 4.3 | Other names | Meaning | Retriable |\n")
    parts.append("|---:|---|---|---|---|\n")
    parts += map(_code_row, CODES)
    parts.append(ERROR_CODES_ROWS)
    for api in sorted({row.api for row in ROWS}):
        parts.append(f"\n### {APIS[api].name}\n\n")
        if api in REMARKS:
            parts.append(f"{REMARKS[api]}\n\n")
        parts.append("| Code | Name | The client |\n|---:|---|---|\n")
        parts += [_action_row(row) for row in ROWS if row.api is api]
    return "".join(parts)


PAGES = {
    "options.md": options_page,
    "errors.md": errors_page,
    "error-codes.md": error_codes_page,
}


def write() -> None:
    """Write the pages that differ from what stands there."""
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _option_row(option: Option, *, has_kafka_name: bool) -> str:
    kafka_name = _kafka_name(option.name) if has_kafka_name else None
    name = _code(option.name) + (f"<br>{kafka_name}" if kafka_name is not None else "")
    cells = (name, option.meaning, _kind(option))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _kafka_name(name: str) -> str | None:
    """The name of an option in the Java client; None where that has no such option."""
    return None if name in NOT_IN_KAFKA else KAFKA_NAMES.get(name, name.replace("_", "."))


def _kind(option: Option) -> str:
    """Type, range, unit and default of an option, in one cell."""
    bounds = " ".join(part for part in (_range(option), option.unit) if part)
    kind = _code(option.kind) + (f", {bounds}" if bounds else "")
    default = _default(option.default)
    return f"{kind}<br>{default}" if default == "required" else f"{kind}<br>default {default}"


def _code_row(row: Code) -> str:
    others = ", ".join(map(_code, row.names[1:]))
    retriable = "yes" if row.code.retriable else "no"
    if row.page and row.differs:
        retriable += f" (in 0.10: {'yes' if row.retriable else 'no'})"
    cells = (str(row.code.value), _code(row.code.name), others, row.meaning, retriable)
    return f"| {' | '.join(cells)} |\n"


def _action_row(row: Row) -> str:
    star = "" if row.listed else "*"
    does = row.does.value + (f"; {row.note}" if row.note else "")
    return f"| {row.code.value}{star} | {_code(row.code.name)} | {does} |\n"


def _default(value: object) -> str:
    if value is dataclasses.MISSING:
        return "required"
    return f"{value:,}" if type(value) is int else _code(repr(value))


def _range(option: Option) -> str:
    if option.range is None:
        return ""
    low, high = option.range
    return f"from {low:,}" if high in {MAX_INT32, MAX_INT64} else f"{low:,} to {high:,}"


def _code(text: str) -> str:
    return f"`{text}`"


def _error(cls: type[errors.KafkaError]) -> Iterator[str]:
    meaning, _, to_do = (inspect.getdoc(cls) or "").partition(TO_DO)
    kinds = [base.__name__ for base in cls.__bases__ if base is not errors.KafkaError]
    yield meaning.rstrip() + "\n"
    facts = [f"Retriable: {_retriable(cls)}."]
    if cls is not errors.KafkaError and kinds:
        facts.append(f"Also a {' and a '.join(_code(kind) for kind in kinds)}.")
    yield f"\n- {' '.join(facts)}\n"
    if to_do:
        yield f"- {TO_DO}{_joined(to_do)}\n"


def _retriable(cls: type[errors.KafkaError]) -> str:
    if issubclass(cls, errors.BrokerError) or cls is errors.KafkaError:
        return "as the code says" if cls is not errors.KafkaError else "no, unless told so"
    return "yes" if cls.retriable else "no"


def _joined(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    write()
