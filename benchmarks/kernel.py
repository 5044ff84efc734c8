"""Measure the kernel's loops on one core, compared with aiokafka's compiled record code.

    python -m benchmarks.kernel
    python -m benchmarks.kernel --rounds 9

Batches of 100-byte values without keys. Each round runs all rows, every second round in the
opposite order. Times are CPU time. The minimum is shown too, because other programs may disturb
the median.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiokafka.record import _crecords

from aiokafkawire import about
from aiokafkawire.records import BatchBuilder, Columns, Records, decode_fetch, kernel

RECORDS = 600
"""Records of one batch: as many as fit in 64 KiB."""
BATCHES = 96
"""Batches of one measurement."""
VALUE = b"v" * 100
TIME_MS = 1_700_000_000_000

VALUES = [VALUE] * RECORDS


def batch(base_offset: int = 0) -> bytes:
    builder = BatchBuilder(max_bytes=1 << 20)
    for number in range(RECORDS):
        builder.append(TIME_MS + number // 100, None, VALUE)
    return b"".join(builder.close().encode(base_offset=base_offset))


BATCH = batch()
PAYLOAD = BATCH[61:]
ANSWER_BATCHES = 16
ANSWER = b"".join(batch(number * RECORDS) for number in range(ANSWER_BATCHES))
"""A Fetch response of one partition: 1 MiB."""


def encode() -> None:
    add = kernel.RecordBuffer(1 << 20).add
    for value in VALUES:
        add(TIME_MS, None, value, b"\0")


def encode_with_deliveries() -> None:
    under_way = kernel.RecordBuffer(1 << 20)
    under_way.add(TIME_MS, None, VALUE, b"\0")
    put = under_way.put
    for value in VALUES:
        put(TIME_MS, None, value)


def encode_columns() -> None:
    kernel.RecordBuffer(1 << 20).put_many(TIME_MS, None, VALUES, 0, RECORDS)


def their_encode() -> None:
    append = _crecords.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20).append
    for offset, value in enumerate(VALUES):
        append(offset, TIME_MS, None, value, [])


def to_columns() -> Columns:
    columns = Columns(PAYLOAD, RECORDS)
    kernel.decode_records(columns, 0, RECORDS, 0, TIME_MS, 0, -1)
    return columns


COLUMNS = to_columns()


def to_records() -> None:
    kernel.make_records(COLUMNS, 0, RECORDS, "topic", 0, 0, -1)


def to_values() -> None:
    kernel.slices(PAYLOAD, COLUMNS.value_start, COLUMNS.value_length, 0, RECORDS)


def fetched() -> Records:
    return decode_fetch("topic", 0, ANSWER, 0).take(ANSWER_BATCHES * RECORDS)


def fetch_to_records() -> None:
    for record in fetched():
        assert record.value is not None


def their_fetch_to_records() -> None:
    memory = _crecords.MemoryRecords(ANSWER)
    while (found := memory.next_batch()) is not None:
        found.validate_crc()
        for record in found:
            assert record.value is not None


def fetch_to_values() -> None:
    fetched().values()


def to_arrow() -> None:
    fetched().to_arrow()


def hashes() -> None:
    murmur2 = kernel.murmur2
    for _ in VALUES:
        murmur2(b"customer-1234567")


@dataclass(slots=True)
class Row:
    name: str
    run: Callable[[], object]
    aim: float | None = None  # millions a second
    batches: int = 1  # of one run
    times: list[float] = field(default_factory=list)

    def measure(self) -> None:
        gc.collect()
        began = time.process_time_ns()
        for _ in range(BATCHES // self.batches):
            self.run()
        self.times.append((time.process_time_ns() - began) / (BATCHES * RECORDS))

    def line(self) -> str:
        median, least = statistics.median(self.times), min(self.times)
        aim = "" if self.aim is None else f"{self.aim:6.0f}"
        return f"{self.name:<48} {median:8.1f} {least:8.1f} {1000 / median:8.1f} {aim:>6}"

    @property
    def reached(self) -> bool:
        return self.aim is None or 1000 / statistics.median(self.times) >= self.aim


def rows() -> list[Row]:
    return [
        Row("records encoded one by one", encode, 10),
        Row("the same, and a delivery for each", encode_with_deliveries),
        Row("records encoded from a list", encode_columns),
        Row("aiokafka: records encoded one by one", their_encode),
        Row("decoded to columns", to_columns, 50),
        Row("Records made of columns", to_records, 10),
        Row(
            "a fetched megabyte to Records, with checksums", fetch_to_records, None, ANSWER_BATCHES
        ),
        Row("aiokafka: the same", their_fetch_to_records, None, ANSWER_BATCHES),
        Row("a fetched megabyte to a list of values", fetch_to_values, None, ANSWER_BATCHES),
        Row("a fetched megabyte to Arrow", to_arrow, 10, ANSWER_BATCHES),
        Row("hashes of keys of 16 bytes", hashes),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    found = rows()
    for number in range(given.rounds + 1):
        for row in found[:: -1 if number % 2 else 1]:
            row.measure()
            if not number:
                row.times.clear()  # the first round warms up
    print(f"{about()}; {given.rounds} rounds of {BATCHES} batches of {RECORDS} records")
    print(f"{'':<48} {'ns each':>8} {'least':>8} {'M/s':>8} {'aim':>6}")
    for row in found:
        print(row.line())
    missed = [row.name for row in found if not row.reached]
    if missed:
        print(f"below the aim: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
