"""`aiokafkawire produce`: send records from stdin or files."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click
from click.shell_completion import CompletionItem

from aiokafkawire.cli.arguments import (
    client_options,
    parse_delimiter,
    parse_header,
    require_one_topic,
    require_utf8,
)
from aiokafkawire.cli.common_options import DEFAULT_TIMEOUT_MS, IntegerRange, client_arguments
from aiokafkawire.cli.error_text import CommandFailed, explain, one_line
from aiokafkawire.cli.json_lines import InputRecord, InvalidLine, from_json
from aiokafkawire.cli.progress import Progress
from aiokafkawire.cli.run_loop import Interruption, run_command
from aiokafkawire.cli.standard_streams import print_stderr
from aiokafkawire.cli.streams import InputStream, RecordSplitter
from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import (
    ClientClosed,
    DeliveriesFailed,
    DeliveryUnknown,
    InvalidOption,
    KafkaError,
    RecordTooLarge,
)
from aiokafkawire.producer import Delivery, Producer
from aiokafkawire.producer.delivery import is_appended
from aiokafkawire.types import require_topic_name

__all__ = ("produce",)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STDERR = 2
ANY_PARTITION = -1
CLOSE_TIMEOUT_MS = 300
"""For an interrupted command; otherwise all deliveries finish before the producer closes."""
MAX_REPORTED_FAILURES = 5
"""Failed records to report one by one; all are counted."""

FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
ANY_FILE = CompletionItem("", type="file")

Parser = Callable[[bytes], InputRecord | None]


@dataclass(frozen=True, slots=True)
class InputFormat:
    """Options that turn input bytes into records."""

    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    empty_is_null: bool = False

    def parse_text(self, data: bytes) -> InputRecord:
        """Parse a text record; without a key delimiter in it the whole text is the value."""
        value: bytes | None = data
        key = self.key
        if self.key_delimiter is not None:
            before, delimiter, after = data.partition(self.key_delimiter)
            if delimiter:
                key, value = before, after
        if self.empty_is_null:
            key, value = key or None, value or None
        return InputRecord(value=value, key=key, headers=self.headers)

    def parse_json(self, data: bytes) -> InputRecord | None:
        """Parse a line of JSON; return None for an empty line."""
        return from_json(data) if data.strip() else None


@click.command(short_help="Send records from stdin or files.")
@client_arguments(ProducerConfig)
@click.option("-t", "--topic", help="Topic; with --json it overrides the topic of each line.")
@click.option(
    "-p",
    "--partition",
    type=IntegerRange(min=ANY_PARTITION),
    help="Partition; by default from the line of JSON, else by key. -1: always by key.",
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Delimiter between key and value.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Record delimiter.")
@click.option("-k", "--key", help="Key of records without a key.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record."
)
@click.option("-Z", "--null", is_flag=True, help="Send empty keys and values as null.")
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Compression codec.")
@click.option("-c", "--count", type=IntegerRange(min=1), help="Maximum number of records.")
@click.option("-l", "--lines", is_flag=True, help="Send each line of the files as a record.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line; see docs/cli.md.")
@click.argument(
    "arguments", nargs=-1, metavar="[TOPIC] [FILE]...", shell_complete=lambda *_: [ANY_FILE]
)
def produce(
    *,
    brokers: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
    backend: str,
    topic: str | None,
    partition: int | None,
    key_delimiter: str | None,
    delimiter: str,
    key: str | None,
    headers: tuple[str, ...],
    null: bool,
    compression: str | None,
    count: int | None,
    lines: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """Send each line of stdin to TOPIC as a record, or each FILE as one (with -l, each line).

    With -t or --json all arguments are FILEs. Delimiters may use \\n, \\t, \\xNN. The exit code is
    0 only if every record was delivered.
    """
    topic, files = parse_arguments(topic, arguments, as_json=as_json)
    input_format = InputFormat(
        delimiter=b"\n" if as_json else parse_delimiter("-D", delimiter),
        key_delimiter=None if key_delimiter is None else parse_delimiter("-K", key_delimiter),
        key=None if key is None else key.encode("utf-8", "surrogateescape"),
        headers=tuple(parse_header(text) for text in headers),
        empty_is_null=null,
    )
    options = client_options(
        ProducerConfig,
        assignments,
        {"bootstrap_servers": brokers, "compression_type": compression},
        {
            "close_timeout_ms": CLOSE_TIMEOUT_MS,
            "default_api_timeout_ms": DEFAULT_TIMEOUT_MS,
            "max_block_ms": DEFAULT_TIMEOUT_MS,
        },
        # The file may belong to an application: reusing its transactional id would fence it.
        command_values={"transactional_id": None},
        config=config,
    )
    parser: Parser = input_format.parse_json if as_json else input_format.parse_text
    whole_files = bool(files) and not lines and not as_json

    async def send(interruption: Interruption) -> None:
        source = RecordSource(files, None if whole_files else input_format.delimiter)
        sender = RecordSender(topic, partition, parser)
        shows_progress = not quiet and sys.stderr.isatty() and not sys.stdin.isatty()
        progress = Progress("records", shown=shows_progress)
        await sender.run(source, options, count, progress, interruption)

    run_command(send, backend=backend)


def parse_arguments(
    topic: str | None, arguments: tuple[str, ...], *, as_json: bool
) -> tuple[str | None, tuple[Path, ...]]:
    """Parse `[TOPIC] [FILE]...`; the first argument is a TOPIC unless -t or --json is given."""
    names = arguments
    require_utf8(topic)
    if topic is None and not as_json:
        if names and Path(names[0]).is_file():
            raise InvalidOption(
                f"{names[0]!r} is a file: give the topic first, as in produce TOPIC FILE"
                " (or use -t for a topic of that name)"
            )
        usage = "produce TOPIC [FILE]…"
        topic, names = require_one_topic(None, names[:1], "", usage), names[1:]
    if topic:
        try:
            require_topic_name(topic)
        except ValueError as error:
            raise InvalidOption(str(error)) from None
    try:
        return topic, tuple(FILE.convert(name, None, None) for name in names)
    except click.BadParameter as error:
        also = "; with --json all arguments are files: give the topic with -t"
        hint = also if as_json and topic is None else ""
        raise InvalidOption(f"{error.format_message().rstrip('.')}{hint}") from None


class RecordSource:
    """Unparsed records from files in order, or from stdin."""

    def __init__(self, files: Iterable[Path], delimiter: bytes | None) -> None:
        """Read files, or stdin without files. Without a delimiter each file is one record."""
        self._delimiter = delimiter
        self._sources: deque[Path | int] = deque(files)
        if not self._sources:
            self._sources.append(sys.stdin.fileno())
        self._file: BinaryIO | None = None
        self._input: InputStream | None = None
        self._splitter = RecordSplitter(delimiter or b"\n")

    async def next(self) -> list[bytes] | None:
        """Return the records available now, None at the end of the input."""
        if self._input is None:
            if not self._sources:
                return None
            source = self._sources.popleft()
            if self._delimiter is None and isinstance(source, Path):
                return [source.read_bytes()]
            self._input = InputStream(self._open(source))
        chunk = await self._input.read()
        if chunk:
            return self._splitter.feed(chunk)
        self.close()
        return self._splitter.finish()

    def _open(self, source: Path | int) -> int:
        if isinstance(source, int):
            return source
        self._file = source.open("rb")
        return self._file.fileno()

    def close(self) -> None:
        self._input = None
        if self._file is not None:
            self._file.close()
            self._file = None


class RecordSender:
    """Sends records and counts deliveries and failures."""

    def __init__(self, topic: str | None, partition: int | None, parser: Parser) -> None:
        self.sent = 0
        self.delivered = 0
        self.failed = 0  # only records that are certainly not in the log
        self._reported = 0
        self._interruption_reported = threading.Lock()
        self._topic = topic
        self._partition = partition
        self._parser = parser
        self._pending: deque[tuple[int, Delivery]] = deque()  # bounded by the producer's buffer

    async def run(
        self,
        source: RecordSource,
        options: dict[str, Any],
        count: int | None,
        progress: Progress,
        interruption: Interruption,
    ) -> None:
        """Send all records. Raises `CommandFailed` unless all were delivered."""
        # Closing the producer fails each buffered record, which can take longer than the hard stop.
        interruption.before_exit.append(self._report_interruption)
        try:
            async with Producer(**options) as producer, progress:
                await self._send_all(producer, source, count, progress)
        except KafkaError as error:
            if not interruption.happened:
                self._collect_results()
            undelivered = "".join(f"; {text}" for text in self._undelivered_texts())
            raise CommandFailed(f"{explain(error)}{undelivered}") from error
        finally:
            source.close()
            if interruption.happened:
                self._report_interruption()
        if texts := self._undelivered_texts():
            raise CommandFailed("; ".join(texts))

    async def _send_all(
        self, producer: Producer, source: RecordSource, count: int | None, progress: Progress
    ) -> None:
        number = 0
        try:
            while self.sent != count and (batch := await source.next()) is not None:
                for data in batch:
                    number += 1
                    await self._send(producer, number, data)
                    if self.sent == count:
                        break
                self._collect_results()
                progress.count = self.sent
        except CommandFailed:
            await self._flush(producer)
            raise
        await self._flush(producer)

    async def _flush(self, producer: Producer) -> None:
        # Each failed delivery is reported separately.
        with suppress(DeliveriesFailed):
            await producer.flush()
        self._collect_results()

    async def _send(self, producer: Producer, number: int, data: bytes) -> None:
        try:
            record = self._parser(data)
        except InvalidLine as error:
            raise CommandFailed(f"line {number} of the input: {error}") from None
        if record is None:
            return
        topic = self._topic or record.topic
        if topic is None:
            raise CommandFailed(
                f"line {number} of the input has no topic: add one there or give -t"
            )
        partition = record.partition if self._partition is None else self._partition
        try:
            delivery = await producer.send(
                topic,
                value=record.value,
                key=record.key,
                partition=None if partition == ANY_PARTITION else partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
        except RecordTooLarge as error:
            self.sent += 1
            self._count_failure(number, error)
        except KafkaError:
            self.sent += 1
            self.failed += 1
            raise
        else:
            self.sent += 1
            self._pending.append((number, delivery))

    def _collect_results(self) -> None:
        """Count and report finished deliveries, oldest first."""
        while self._pending and self._pending[0][1].done:
            number, delivery = self._pending.popleft()
            try:
                delivery.result()
            except KafkaError as error:
                self._count_failure(number, error)
            else:
                self.delivered += 1

    def _count_failure(self, number: int, error: KafkaError) -> None:
        is_unknown = isinstance(error, (ClientClosed, DeliveryUnknown))
        if not is_unknown:
            self.failed += 1
        self._reported += 1
        if self._reported <= MAX_REPORTED_FAILURES:
            outcome = "acknowledged" if is_unknown else "delivered"
            self._report(f"record {number} was not {outcome}: {explain(error)}")

    def _undelivered_texts(self) -> list[str]:
        """Return the numbers of records that failed and whose outcome is unknown, if any."""
        sent, failed = self.sent, self.failed
        # The copy is atomic: a thread calls this, too, before a hard exit.
        pending = [delivery for _, delivery in self._pending.copy()]
        unknown = sent - failed - self.delivered - sum(map(is_appended, pending))
        texts = []
        if failed:
            texts.append(f"{_count(failed, sent)} not delivered")
        if unknown > 0:
            may_be = "it may" if unknown == 1 else "they may"
            texts.append(f"{_count(unknown, sent)} not acknowledged ({may_be} be in the log)")
        return texts

    def _report_interruption(self) -> None:
        """Report on stderr what was sent before a signal; once, and without a lock on stderr."""
        texts = self._undelivered_texts()
        if not texts and self.sent:
            all_sent = f"all {self.sent:,} records were" if self.sent > 1 else "the record was"
            texts = [f"{all_sent} delivered"]
        if self._interruption_reported.acquire(blocking=False):
            line = one_line("; ".join(["aiokafkawire: interrupted", *texts]))
            with suppress(OSError):
                os.write(STDERR, f"{line}\n".encode())

    def _report(self, text: str) -> None:
        print_stderr(one_line(f"aiokafkawire: {text}"))


def _count(count: int, total: int) -> str:
    return f"{count:,} of {total:,} records {'was' if count == 1 else 'were'}"
