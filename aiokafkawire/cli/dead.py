"""`aiokafkawire dead`: list, show, retry and drop the dead letters of workers."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aiokafkawire.cli.admin_command import (
    AdminCommand,
    Changing,
    Errors,
    admin_command,
    changing,
    print_results,
    split_errors,
)
from aiokafkawire.cli.common_options import SuggestingGroup, json_option
from aiokafkawire.cli.error_text import CommandFailed, printable
from aiokafkawire.cli.json_lines import to_json
from aiokafkawire.cli.partition_arguments import expand_partitions, parse_partitions
from aiokafkawire.cli.standard_streams import print_stderr
from aiokafkawire.cli.tables import pluralize
from aiokafkawire.config import ClientConfig
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.types import TopicPartition

if TYPE_CHECKING:
    from aiokafkawire.admin import Admin
    from aiokafkawire.admin.offsets import IsolationLevel
    from aiokafkawire.records import Record
    from aiokafkawire.worker.letters import DeadLetterContent

__all__ = ("dead",)

TOPIC_METAVAR = "TOPIC[:PARTITIONS]"

MAX_IN_FLIGHT = 500
"""Dead letters that are sent again before the first of them must be acknowledged."""

POLL_MS = 500

SHOWN_CHARACTERS = 80
"""Limit of a message in a list."""

COMMON = frozenset(field.name for field in dataclasses.fields(ClientConfig))


class StoredDeadLetter(NamedTuple):
    """A record of a dead letter topic; the content is None if its headers do not say it."""

    record: Record
    content: DeadLetterContent | None

    @property
    def row(self) -> dict[str, Any]:
        """The dead letter as a line of a list."""
        record, content = self.record, self.content
        origin = None if content is None else content.origin
        return {
            "partition": record.partition,
            "offset": record.offset,
            "time": datetime.fromtimestamp(record.timestamp_ms / 1_000, UTC).isoformat(
                timespec="seconds"
            ),
            "origin": origin and f"{origin.topic}-{origin.partition}@{origin.offset}",
            "error": content and content.error,
            "message": content and content.message,
        }


def _short_name(error: str) -> str:
    """Return the name of an exception without the module, if the package or Python defines it."""
    module, _, name = error.rpartition(".")
    return name if module.partition(".")[0] in {"aiokafkawire", "builtins"} else error


def _shortened(message: str) -> str:
    """Return the beginning of a long message, with an ellipsis."""
    if len(message) <= SHOWN_CHARACTERS:
        return message
    return f"{message[: SHOWN_CHARACTERS - 1]}…"


@click.group(cls=SuggestingGroup, short_help="List, show, retry and drop dead letters.")
def dead() -> None:
    """List, show, retry and drop the dead letters of workers, and those of Spring and Connect."""


def error_option(function: Any) -> Any:
    """Add `--error`."""
    return click.option(
        "--error", metavar="TEXT", help="Only those whose exception or its text contains TEXT."
    )(function)


@dead.command("list", short_help="Print a line for each dead letter.")
@admin_command
@json_option
@error_option
@click.argument("topic", metavar=TOPIC_METAVAR)
def list_command(admin: AdminCommand, *, as_json: bool, error: str | None, topic: str) -> int:
    """Print where each dead letter of TOPIC comes from, and why it failed.

    Records whose headers do not say where they come from are no dead letters: they are counted on
    stderr.
    """

    async def show(client: Admin) -> Errors:
        rows: list[dict[str, Any]] = []
        others = 0
        async for letter in _letters(admin, client, topic, error=error):
            if letter.content is None:
                others += 1
            else:
                rows.append(letter.row)
        if not as_json:
            for row in rows:
                row["error"] = _short_name(row["error"])
                row["message"] = _shortened(row["message"])
        await admin.print_rows(rows, "dead letters", as_json=as_json)
        if others and not admin.quiet:
            print_stderr(
                f"% left out {pluralize(others, 'record')} of {topic} without the headers of a dead"
                " letter"
            )
        return ()

    return admin.execute(show)


@dead.command("show", short_help="Print a dead letter with its stack trace.")
@admin_command
@json_option
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.argument("offset", type=click.IntRange(min=0))
def show_command(admin: AdminCommand, *, as_json: bool, partition: str, offset: int) -> int:
    """Print the dead letter at OFFSET: its origin, exception, headers, key and value."""
    tp = _parse_partition(partition)

    async def show(client: Admin) -> Errors:
        found = [each async for each in _letters(admin, client, partition, offset=offset)]
        if not found:
            raise CommandFailed(f"{tp} has no record at offset {offset}")
        text = to_json(found[0].record).decode() if as_json else _details(found[0])
        await print_results(text)
        return ()

    return admin.execute(show)


@dead.command("retry", short_help="Send dead letters to their topics again.")
@admin_command
@changing(confirms=True)
@error_option
@click.option("--offset", type=click.IntRange(min=0), help="Only the one at this offset.")
@click.option("--to", "target", metavar="TOPIC", help="Send to this topic instead of the origin.")
@click.argument("topic", metavar=TOPIC_METAVAR)
def retry_command(
    admin: AdminCommand,
    *,
    change: Changing,
    error: str | None,
    offset: int | None,
    target: str | None,
    topic: str,
) -> int:
    """Send the dead letters of TOPIC to the topics of their origin, with the same key and value.

    The headers of the failure are removed. All groups that read these topics get the records. The
    dead letters stay: delete them with `drop --through`, or a second call sends them again.
    """
    if offset is not None:
        _parse_partition(topic)
    change.confirm(f"Send the dead letters of {topic} again?")

    async def retry(client: Admin) -> Errors:
        letters = [
            letter async for letter in _letters(admin, client, topic, error=error, offset=offset)
        ]
        unknown = [letter for letter in letters if letter.content is None and target is None]
        failures: dict[int, Exception] = {}
        if not change.dry_run:
            failures = await _send_again(admin, letters, target)
        rows = [
            {**letter.record.topic_partition._asdict(), "offset": letter.record.offset, "to": to}
            for number, letter in enumerate(letters)
            if number not in failures and (to := _target(letter, target)) is not None
        ]
        await change.show(rows, always=True)
        if not letters:
            admin.note_empty("dead letters")
        return [
            *(
                CommandFailed(
                    f"{letter.record.topic_partition} offset {letter.record.offset}: the headers do"
                    " not say where the record comes from; give --to TOPIC"
                )
                for letter in unknown
            ),
            *(
                CommandFailed(
                    f"{letters[number].record.topic_partition} offset"
                    f" {letters[number].record.offset}: not sent: {error}"
                )
                for number, error in sorted(failures.items())
            ),
        ]

    return admin.execute(retry)


@dead.command("drop", short_help="Delete dead letters up to an offset.")
@admin_command
@changing(confirms=True)
@click.option(
    "--through",
    type=click.IntRange(min=0),
    help="The last one to delete, in one partition. Default: all that exist now.",
)
@click.argument("topic", metavar=TOPIC_METAVAR)
def drop_command(admin: AdminCommand, *, change: Changing, through: int | None, topic: str) -> int:
    """Delete the dead letters of TOPIC from the oldest one on. This cannot be undone.

    After `retry`, give --through: without it, those are deleted too that came after the retry.
    Needs Kafka 0.11 or later.
    """
    if through is not None:
        _parse_partition(topic)
    given = parse_partitions([topic])
    which = "all dead letters" if through is None else f"the dead letters through {through}"
    change.confirm(f"Delete {which} of {topic}?")

    async def drop(client: Admin) -> Errors:
        partitions = await expand_partitions(client, given)
        starts, ends = await _bounds(client, partitions)
        before = {
            tp: end if through is None else min(through + 1, end)
            for tp, end in ends.items()
            if starts[tp] < (end if through is None else min(through + 1, end))
        }
        for tp in before:
            await _check_oldest(admin, client, tp)
        errors: list[KafkaError] = []
        if before and not change.dry_run:
            _, errors = split_errors(await client.delete_records(before, return_errors=True))
        failed = {(each.topic, each.partition) for each in errors}
        await change.show(
            (
                {**tp._asdict(), "deleted_from": starts[tp], "deleted_before": end}
                for tp, end in before.items()
                if tp not in failed
            ),
            always=True,
        )
        if not before:
            admin.note_empty("dead letters")
        return errors

    return admin.execute(drop)


async def _check_oldest(admin: AdminCommand, client: Admin, tp: TopicPartition) -> None:
    """Check that the oldest record of a partition is a dead letter.

    Raises:
        InvalidOption: It is not: the topic may be another one than was meant.
    """
    letters = _letters(admin, client, f"{tp.topic}:{tp.partition}")
    async with contextlib.aclosing(letters):
        async for record, content in letters:
            if content is None:
                raise InvalidOption(
                    f"{tp.topic}-{tp.partition} offset {record.offset} is no dead letter: its"
                    " headers do not say where it comes from; to delete records use"
                    " `aiokafkawire records delete`"
                )
            return


def _parse_partition(argument: str) -> TopicPartition:
    given = parse_partitions([argument])
    if len(given) != 1 or not isinstance(given[0], TopicPartition):
        raise InvalidOption(f"{argument!r}: an offset needs one partition, as billing.dead:0")
    return given[0]


async def _bounds(
    client: Admin,
    partitions: Sequence[TopicPartition],
    isolation_level: IsolationLevel = "read_uncommitted",
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Return the first offset of each partition, and the one after the last."""
    from aiokafkawire.admin import OffsetSpec  # noqa: PLC0415 - it imports every message

    found = [
        await client.list_offsets(dict.fromkeys(partitions, spec), isolation_level=isolation_level)
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    ]
    starts, ends = ({tp: each.offset or 0 for tp, each in offsets.items()} for offsets in found)
    return starts, ends


async def _letters(
    admin: AdminCommand,
    client: Admin,
    topic: str,
    *,
    error: str | None = None,
    offset: int | None = None,
) -> AsyncGenerator[StoredDeadLetter, None]:
    """Yield the dead letters that exist now, partition by partition.

    Args:
        admin: Options of the consumer.
        client: Finds the partitions.
        topic: The topic, with partitions.
        error: Only those whose exception or its text contains this.
        offset: Only the one at this offset.
    """
    from aiokafkawire.consumer import Consumer  # noqa: PLC0415 - slow to import
    from aiokafkawire.worker.letters import read_dead_letter  # noqa: PLC0415

    partitions = await expand_partitions(client, parse_partitions([topic]))
    starts, ends = await _bounds(client, partitions, "read_committed")
    async with Consumer(**_common_options(admin), isolation_level="read_committed") as consumer:
        for tp in partitions:
            start, end = starts[tp], ends[tp]
            if offset is not None:
                start, end = max(start, offset), min(end, offset + 1)
            if start >= end:
                continue
            consumer.assign(tp)
            consumer.seek(tp, start)
            while await consumer.position(tp) < end:
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    for record in records:
                        letter = StoredDeadLetter(record, read_dead_letter(record))
                        if record.offset < end and (error is None or _has_error(letter, error)):
                            yield letter


def _has_error(letter: StoredDeadLetter, text: str) -> bool:
    content = letter.content
    return content is not None and (text in content.error or text in content.message)


def _target(letter: StoredDeadLetter, target: str | None) -> str | None:
    if target is not None or letter.content is None:
        return target
    return letter.content.origin.topic


async def _send_again(
    admin: AdminCommand, letters: Sequence[StoredDeadLetter], target: str | None
) -> dict[int, Exception]:
    """Send dead letters, and wait until all in-sync replicas have them.

    Returns:
        The errors of those that were not sent, by place.
    """
    from aiokafkawire.producer import Producer  # noqa: PLC0415 - slow to import

    failures: dict[int, Exception] = {}
    async with Producer(**_common_options(admin)) as producer:
        for first in range(0, len(letters), MAX_IN_FLIGHT):
            deliveries = {}
            for number in range(first, min(first + MAX_IN_FLIGHT, len(letters))):
                letter = letters[number]
                topic = _target(letter, target)
                if topic is None:
                    continue
                headers = (
                    letter.record.headers if letter.content is None else letter.content.headers
                )
                try:
                    deliveries[number] = await producer.send(
                        topic, letter.record.value, key=letter.record.key, headers=headers
                    )
                except (KafkaError, ValueError) as error:
                    failures[number] = error
            for number, delivery in deliveries.items():
                try:
                    await delivery
                except KafkaError as error:
                    failures[number] = error
    return failures


def _common_options(admin: AdminCommand) -> dict[str, Any]:
    return {name: value for name, value in admin.options.items() if name in COMMON}


def _details(letter: StoredDeadLetter) -> str:
    record, content = letter.record, letter.content
    row = letter.row
    if content is not None:
        row["error"] = _short_name(content.error)
    lines = [f"{name}: {printable(str(value))}" for name, value in row.items() if value is not None]
    headers = record.headers if content is None else content.headers
    lines += [f"header {printable(name)}: {_shown(value)}" for name, value in headers]
    lines += [f"key: {_shown(record.key)}", f"value: {_shown(record.value)}"]
    if content is not None and content.stacktrace:
        lines += [printable(line) for line in content.stacktrace.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _shown(value: bytes | None) -> str:
    return "null" if value is None else printable(value.decode(errors="backslashreplace"))
