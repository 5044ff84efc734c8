"""Read the pipeline's results from topics, Parquet files and Spark's checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pyarrow.parquet as pq
from without_spark import BatchEnds, Row

from aiokafkawire import Consumer
from aiokafkawire.types import TopicPartition

__all__ = ("dead_letter", "parquet_rows", "read_batch_ends", "row", "table_files", "topic_rows")

READ_S = 60.0

_Seen = TypeVar("_Seen", bound=Hashable)


async def topic_rows(servers: str, topic: str, seen: Callable[[Any], _Seen]) -> Counter[_Seen]:
    """Count the records of a topic that a `read_committed` consumer reads."""
    found: Counter[_Seen] = Counter()
    async with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        tps = [TopicPartition(topic, number) for number in await consumer.partitions_for(topic)]
        consumer.assign(*tps)
        ends = await consumer.end_offsets(*tps)
        with anyio.fail_after(READ_S):
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found.update(map(seen, records))
    return found


def row(record: Any) -> Row:
    """Parse a record of `page-counts` or `sessions`; its key is one of the columns."""
    return _row(json.loads(record.value), record.key.decode())


def dead_letter(record: Any) -> tuple[int, int, bytes]:
    """Parse a dead letter: source partition, source offset, value."""
    source = dict(record.headers)
    return int(source["source.partition"]), int(source["source.offset"]), record.value


def parquet_rows(files: Path | Iterable[Path], key: str) -> Counter[Row]:
    """Count the rows of Parquet files, or of a folder of them."""
    paths = [files] if isinstance(files, Path) else list(files)
    rows = (one for path in paths for one in pq.read_table(path).to_pylist())
    return Counter(_row(one, one[key]) for one in rows)


def table_files(table: Path) -> list[Path]:
    """Return the committed files of a table; a task that failed may have left others."""
    logs = [path for path in (table / "_spark_metadata").iterdir() if path.name[0].isdigit()]
    named = {
        json.loads(line)["path"] for path in logs for line in path.read_text().splitlines()[1:]
    }
    return [Path(name.removeprefix("file://")) for name in sorted(named)]


def _row(given: Mapping[str, Any], key: str) -> Row:
    start, end = _ms(given["start"]), _ms(given["end"])
    return start, end, key, given["events"], given["words"]


def _ms(time: str | datetime) -> int:
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    # Times in Parquet have no time zone.
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return round(time.timestamp() * 1000)


def read_batch_ends(checkpoint: Path, topic: str) -> BatchEnds:
    """Return the end offsets of each batch of a query."""
    files = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    files.sort(key=lambda path: int(path.name))
    ends = [json.loads(path.read_text().splitlines()[2])[topic] for path in files]
    return [{int(number): offset for number, offset in end.items()} for end in ends]
