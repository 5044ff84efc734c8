"""Writing of rows from Arrow columns to Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
from crc32c import crc32c
from pyarrow import compute

from aiokafkawire import blocking
from aiokafkawire.errors import DeliveriesFailed, KafkaError
from aiokafkawire.producer import Producer

from .clients import borrow_client
from .exactly_once import CHECKSUM_MODULUS, Fingerprint

if TYPE_CHECKING:
    from aiokafkawire.records import Header

__all__ = ("compute_fingerprint", "flush_rows", "producer_options", "send_rows", "write_rows")

BATCH_BYTES = 512 * 1024
"""Default of `kafka.batch.size` in sinks, where throughput matters more than the latency of a row.

With the producer's own 16 KiB each row takes four times as long."""


def write_rows(
    client: Mapping[str, Any], topic: str | None, batches: Iterator[pyarrow.RecordBatch]
) -> int:
    """Send all rows and wait until all are acknowledged.

    Blocks.

    Args:
        client: Arguments of `Producer`.
        topic: The topic of all rows; None uses the column `topic`.
        batches: The rows.

    Returns:
        The number of rows.

    Raises:
        KafkaError: A record failed. The error has topic, partition and reason.
    """
    rows = 0
    with borrow_client(Producer, producer_options(client)) as producer:
        for batch in batches:
            blocking.call(send_rows, producer, topic, batch)
            rows += batch.num_rows
        blocking.call(flush_rows, producer)
    return rows


def producer_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the producer options of sinks."""
    max_request_size = client.get("max_request_size_bytes", BATCH_BYTES)
    return {"batch_size_bytes": min(BATCH_BYTES, max_request_size), **client}


def compute_fingerprint(batch: pyarrow.RecordBatch) -> Fingerprint:
    """Compute the fingerprint of rows from their keys, or from values where a key is null."""
    keys = _to_binary(batch.column("value"))
    if "key" in batch.schema.names:
        keys = compute.coalesce(_to_binary(batch.column("key")), keys)
    checksum = sum(map(crc32c, keys.drop_null().to_pylist()))
    return Fingerprint(batch.num_rows, checksum % CHECKSUM_MODULUS)


async def send_rows(producer: Producer, topic: str | None, batch: pyarrow.RecordBatch) -> None:
    """Append rows to the producer's buffer, and wait while it is full."""
    columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
    for name, partition, part in _group_rows(columns, topic, batch.num_rows):
        keys = part.get("key")
        await producer.send_many(
            name,
            _to_binary(part["value"]),
            None if keys is None or keys.null_count == len(keys) else _to_binary(keys),
            partition,
            headers=_headers(part.get("headers")),
        )


async def flush_rows(producer: Producer) -> None:
    """Wait until all rows are acknowledged.

    Raises:
        KafkaError: A record failed. The error has topic, partition and reason.
    """
    try:
        await producer.flush()
    except DeliveriesFailed as error:
        first = error.first
        partitions = ", ".join(f"{tp} ({count})" for tp, count in sorted(error.counts.items()))
        raise KafkaError(
            f"{error.count} records failed, in {partitions}; the first error: {first}",
            topic=getattr(first, "topic", None),
            partition=getattr(first, "partition", None),
        ) from first


Columns = dict[str, Any]


def _group_rows(
    columns: Columns, topic: str | None, rows: int
) -> Iterator[tuple[str, int | None, Columns]]:
    """Group the rows by topic and partition, and keep their order."""
    names = columns.pop("topic", None)
    numbers = columns.pop("partition", None)
    if not rows:
        return
    if topic is None:
        if names.null_count:
            raise KafkaError(
                "a row's topic is null: fill the column, or set the option topic for all rows"
            )
        topics = names.unique().to_pylist()
    else:
        topics = [topic]
    partitions = [None] if numbers is None else numbers.unique().to_pylist()
    if len(topics) == len(partitions) == 1:
        yield topics[0], partitions[0], columns
        return
    for name in topics:
        for partition in partitions:
            chosen = None if topic is not None else compute.equal(names, name)
            if numbers is not None and len(partitions) > 1:
                same = numbers.is_null() if partition is None else compute.equal(numbers, partition)
                same = same.fill_null(False)
                chosen = same if chosen is None else compute.and_(chosen, same)
            part = {key: column.filter(chosen) for key, column in columns.items()}
            if len(part["value"]):
                yield name, partition, part


def _to_binary(column: Any) -> Any:
    """Convert strings to binary (UTF-8)."""
    kind = column.type
    if pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
        return column
    return column.cast(pyarrow.large_binary() if pyarrow.types.is_large_string(kind) else BINARY)


BINARY = pyarrow.binary()


def _headers(column: Any) -> Sequence[Sequence[Header]] | None:
    if column is None or column.null_count == len(column):
        return None
    return [
        [(header["key"], header["value"]) for header in row or () if header is not None]
        for row in column.to_pylist()
    ]
