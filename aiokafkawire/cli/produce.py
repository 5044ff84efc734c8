"""`aiokafkawire produce`: records from stdin or files."""

from __future__ import annotations

import sys
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
    one_topic,
    parse_delimiter,
    parse_header,
    require_utf8,
)
from aiokafkawire.cli.json_lines import InvalidLine, Outgoing, from_json
from aiokafkawire.cli.problems import Failure, explain, one_line
from aiokafkawire.cli.progress import Progress
from aiokafkawire.cli.running import Interruption, run
from aiokafkawire.cli.shared import PATIENCE_MS, client_arguments
from aiokafkawire.cli.standard import note
from aiokafkawire.cli.streams import Input, Splitter
from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import DeliveriesFailed, InvalidOption, KafkaError, RecordTooLarge
from aiokafkawire.producer import Delivery, Producer

__all__ = ("produce",)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ANY_PARTITION = -1
CLOSE_TIMEOUT_MS = 300
"""For a command that is cut off; any other waits for all deliveries before it closes."""
FAILURES_TOLD = 5
"""Failed records told one by one; all are counted."""

FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
ANY_FILE = CompletionItem("", type="file")

Parser = Callable[[bytes], Outgoing | None]


@dataclass(frozen=True, slots=True)
class Form:
    """How bytes become records; what a record of JSON says of itself goes before `key`."""

    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    empty_is_null: bool = False

    def plain(self, piece: bytes) -> Outgoing:
        """A record of plain text; without a key delimiter in it all of it is the value."""
        value: bytes | None = piece
        key = self.key
        if self.key_delimiter is not None:
            before, found, after = piece.partition(self.key_delimiter)
            if found:
                key, value = before, after
        if self.empty_is_null:
            key, value = key or None, value or None
        return Outgoing(value=value, key=key, headers=self.headers)

    def json(self, piece: bytes) -> Outgoing | None:
        """A record of a line of JSON; None for an empty line."""
        return from_json(piece) if piece.strip() else None


@click.command(short_help="Send records from stdin or files.")
@client_arguments(ProducerConfig)
@click.option("-t", "--topic", help="Topic; with --json it goes before what a line says.")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=ANY_PARTITION),
    help="Partition; by default what a line of JSON says, else by key. -1: by key in any case.",
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="What parts key and value in a line.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="What ends a record.")
@click.option("-k", "--key", help="The key of all records that have none of their own.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of all."
)
@click.option("-Z", "--null", is_flag=True, help="Send empty keys and values as null.")
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Compression codec.")
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("-l", "--lines", is_flag=True, help="Files hold a record a line, as stdin does.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; see docs/cli.md.")
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
    """Send each line of stdin to TOPIC as a record, or each FILE as one (with -l, its lines).

    With -t, and with --json, all arguments are FILEs. Delimiters may be written \\n, \\t, \\xNN.
    Exits with 1 unless every record was delivered.
    """
    topic, files = parse_arguments(topic, arguments, as_json=as_json)
    form = Form(
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
            "default_api_timeout_ms": PATIENCE_MS,
            "max_block_ms": PATIENCE_MS,
        },
        # A file may name that of an application, which another producer would fence.
        chosen={"transactional_id": None},
        config=config,
    )
    parser: Parser = form.json if as_json else form.plain
    whole_files = bool(files) and not lines and not as_json

    async def send(interruption: Interruption) -> None:
        pieces = Pieces(files, None if whole_files else form.delimiter)
        sender = Sender(topic, partition, parser)
        shown = not quiet and sys.stderr.isatty() and not sys.stdin.isatty()
        progress = Progress("records", shown=shown)
        await sender.run(pieces, options, count, progress, interruption)

    run(send, backend=backend)


def parse_arguments(
    topic: str | None, arguments: tuple[str, ...], *, as_json: bool
) -> tuple[str | None, tuple[Path, ...]]:
    """Read `[TOPIC] [FILE]...`, where there is a TOPIC only if neither -t nor --json is given."""
    names = arguments
    require_utf8(topic)
    if topic is None and not as_json:
        if names and Path(names[0]).is_file():
            raise InvalidOption(
                f"{names[0]!r} is a file: say which topic to send it to, as produce TOPIC FILE"
                " (-t for a topic of that name)"
            )
        usage = "produce TOPIC [FILE]…"
        topic, names = one_topic(None, names[:1], "", usage), names[1:]
    try:
        return topic, tuple(FILE.convert(name, None, None) for name in names)
    except click.BadParameter as error:
        also = "; with --json all arguments are files: -t gives the topic"
        hint = also if as_json and topic is None else ""
        raise InvalidOption(f"{error.format_message().rstrip('.')}{hint}") from None


class Pieces:
    """The records of files one after the other, or of stdin, cut but not looked at."""

    def __init__(self, files: Iterable[Path], delimiter: bytes | None) -> None:
        """Without a delimiter each file is one record."""
        self._delimiter = delimiter
        self._sources: deque[Path | int] = deque(files)
        if not self._sources:
            self._sources.append(sys.stdin.fileno())
        self._file: BinaryIO | None = None
        self._input: Input | None = None
        self._splitter = Splitter(delimiter or b"\n")

    async def next(self) -> list[bytes] | None:
        """As many as there are now, None at the end of all."""
        if self._input is None:
            if not self._sources:
                return None
            source = self._sources.popleft()
            if self._delimiter is None and isinstance(source, Path):
                return [source.read_bytes()]
            self._input = Input(self._open(source))
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


class Sender:
    """Sends pieces of input and keeps the account of them."""

    def __init__(self, topic: str | None, partition: int | None, parser: Parser) -> None:
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self._topic = topic
        self._partition = partition
        self._parser = parser
        self._pending: deque[tuple[int, Delivery]] = deque()  # bounded by the producer's buffer

    async def run(
        self,
        pieces: Pieces,
        options: dict[str, Any],
        count: int | None,
        progress: Progress,
        interruption: Interruption,
    ) -> None:
        """Send all; raises `Failure` unless all were delivered."""
        try:
            async with Producer(**options) as producer, progress:
                await self._send_all(producer, pieces, count, progress)
        except KafkaError as error:
            raise Failure(f"{explain(error)}{self._account(interruption)}") from error
        finally:
            pieces.close()
            if interruption.happened:
                self._say(f"interrupted{self._account(interruption)}")
        if account := self._account(interruption):
            raise Failure(account.removeprefix("; "))

    async def _send_all(
        self, producer: Producer, pieces: Pieces, count: int | None, progress: Progress
    ) -> None:
        number = 0
        try:
            while self.sent != count and (some := await pieces.next()) is not None:
                for piece in some:
                    number += 1
                    await self._send(producer, number, piece)
                    if self.sent == count:
                        break
                self._reap()
                progress.count = self.sent
        except Failure:
            await self._flush(producer)
            raise
        await self._flush(producer)

    async def _flush(self, producer: Producer) -> None:
        # Each failure is told by its own delivery.
        with suppress(DeliveriesFailed):
            await producer.flush()
        self._reap()

    async def _send(self, producer: Producer, number: int, piece: bytes) -> None:
        try:
            record = self._parser(piece)
        except InvalidLine as error:
            raise Failure(f"line {number} of the input: {error}") from None
        if record is None:
            return
        topic = self._topic or record.topic
        if topic is None:
            raise Failure(f"line {number} of the input names no topic; give one there or with -t")
        partition = record.partition if self._partition is None else self._partition
        self.sent += 1
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
            self._fail(number, error)
        else:
            self._pending.append((number, delivery))

    def _reap(self, *, tell: bool = True) -> None:
        """Look at the deliveries that are done, oldest first."""
        while self._pending and self._pending[0][1].done:
            number, delivery = self._pending.popleft()
            try:
                delivery.result()
            except KafkaError as error:
                if tell:
                    self._fail(number, error)
            else:
                self.delivered += 1

    def _fail(self, number: int, error: KafkaError) -> None:
        self.failed += 1
        if self.failed <= FAILURES_TOLD:
            self._say(f"record {number} was not delivered: {explain(error)}")

    def _account(self, interruption: Interruption) -> str:
        """How many records are missing at the end, as the rest of a sentence, or nothing."""
        self._reap(tell=not interruption.happened)
        missing = self.sent - self.delivered
        if not missing:
            return ""
        return f"; {missing:,} of {self.sent:,} records were not delivered"

    def _say(self, text: str) -> None:
        note(one_line(f"aiokafkawire: {text}"))
