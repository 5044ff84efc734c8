"""`aiokafkawire consume`: print records to stdout."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from aiokafkawire.cli.arguments import (
    OffsetArgument,
    OffsetKind,
    client_options,
    parse_assignments,
    parse_delimiter,
    parse_offset,
    require_one_topic,
    require_utf8,
)
from aiokafkawire.cli.common_options import (
    DEFAULT_TIMEOUT_MS,
    IntegerRange,
    client_arguments,
    kcat_json_option,
)
from aiokafkawire.cli.consume_plan import ConsumePlan, Reader
from aiokafkawire.cli.consume_share import SharePlan, read_shared, share_consumer_options
from aiokafkawire.cli.formats import NULL, RecordFormatter, compile_format, default_formatter
from aiokafkawire.cli.json_lines import to_json
from aiokafkawire.cli.kcat import json_formatter
from aiokafkawire.cli.progress import Progress
from aiokafkawire.cli.run_loop import Interruption, run_command
from aiokafkawire.cli.standard_streams import require_stdout
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.config import ConsumerConfig, reset_duration_ms
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import InvalidOption

__all__ = ("consume",)

MAX_POLL_RECORDS = 5_000
CLOSE_TIMEOUT_MS = 5_000
RESETS = {OffsetKind.BEGINNING: "earliest", OffsetKind.END: "latest"}


@click.command(short_help="Print records of a topic, or as a member of a group.")
@client_arguments(ConsumerConfig)
@click.option("-t", "--topic", help="Topic; the same as TOPIC.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=IntegerRange(min=0),
    multiple=True,
    help="Partition. May be repeated.  [default: all]",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Start offset: beginning, end, stored, N, -N (the last N of each partition), s@TIME"
    " (2026-11-24T10:00:00Z, or milliseconds since 1970). e@TIME stops at a time. With -G:"
    " beginning or end, for partitions without a committed offset."
    "  [default: beginning; end with -G]",
)
@click.option("-c", "--count", type=IntegerRange(min=1), help="Maximum number of records.")
@click.option(
    "-e",
    "--exit",
    "exit_at_end",
    is_flag=True,
    help="Stop at the end offsets that the partitions have at the start.",
)
@click.option(
    "-f",
    "--format",
    "form",
    help="Format: %s value, %k key, %t topic, %p partition, %o offset, %T timestamp in ms,"
    " %h headers, %S and %K sizes of value and key, %R size as 4 bytes, \\n, \\t, \\xNN.",
)
@click.option("-D", "--delimiter", help="Record delimiter.  [default: \\n]")
@click.option("-K", "--key-delimiter", help="Print keys, followed by this delimiter.")
@click.option("-Z", "--null", is_flag=True, help="Print null keys and values as NULL.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line; see docs/cli.md.")
@kcat_json_option
@click.option("-G", "--group", metavar="GROUP", help="Read the TOPICs as a member of this group.")
@click.option(
    "--share", metavar="GROUP", help="Read the TOPICs as a member of this share group (KIP-932)."
)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
def consume(
    *,
    brokers: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
    backend: str,
    topic: str | None,
    partitions: tuple[int, ...],
    offsets: tuple[str, ...],
    count: int | None,
    exit_at_end: bool,
    form: str | None,
    delimiter: str | None,
    key_delimiter: str | None,
    null: bool,
    as_json: bool,
    as_kcat: bool,
    group: str | None,
    share: str | None,
    topics: tuple[str, ...],
) -> None:
    """Print records of TOPIC until Ctrl-C, or until -c, -e or e@TIME stops it.

    With -G the group divides the partitions of the TOPICs among its members. Offsets are
    committed after records are printed. A topic that starts with ^ is a regular expression.

    With --share each record goes to one member of the group, and is accepted after it is printed.
    """
    require_stdout()
    formatter = choose_formatter(
        form, delimiter, key_delimiter, null=null, as_json=as_json, as_kcat=as_kcat
    )
    if share is not None:
        excluded = {"-G": group, "-p": partitions, "-o": offsets, "-e": exit_at_end, "-J": as_kcat}
        _check_share_options([name for name, given in excluded.items() if given])
        assert formatter is not None
        shared = SharePlan(_topic_arguments(topic, share, topics, option="--share"), count, quiet)
        shared_options = share_consumer_options(share, brokers, assignments, config)
        _run(lambda _: read_shared(shared, formatter, shared_options), backend)
        return
    start, until_ms = parse_offsets(offsets)
    if start is None and group is None:
        start = _start_of_policy(assignments)
    plan = ConsumePlan(
        topics=_topic_arguments(topic, group, topics),
        group=group,
        partitions=tuple(dict.fromkeys(partitions)),
        start=start or OffsetArgument(OffsetKind.BEGINNING),
        until_ms=until_ms,
        exit_at_end=exit_at_end,
        count=count,
        quiet=quiet,
    )
    if group is not None:
        _check_group_options(plan, start)
    options = _consumer_options(plan, start, brokers, assignments, config)

    _run(lambda _: read_all(plan, formatter, options), backend)


def _run(read: Callable[[Interruption], Awaitable[None]], backend: str) -> None:
    try:
        run_command(read, backend=backend)
    except BrokenPipeError:
        # The reader of stdout has exited, as `head` does.
        return


def _consumer_options(
    plan: ConsumePlan,
    start: OffsetArgument | None,
    brokers: str | None,
    assignments: tuple[str, ...],
    config: Path | None,
) -> dict[str, Any]:
    """Return the options of the consumer. Raises `InvalidOption`."""
    reset = RESETS.get(start.kind) if start is not None else None
    commits = plan.group is not None or plan.start.kind is OffsetKind.STORED
    # The file may belong to an application: reusing its instance id would fence its member.
    command_values: dict[str, Any] = {"group_instance_id": None}
    if not commits:
        command_values["enable_auto_commit"] = False
    if reset is not None:
        command_values["auto_offset_reset"] = reset
    options = client_options(
        ConsumerConfig,
        assignments,
        {"bootstrap_servers": brokers, "group_id": plan.group},
        {
            "allow_auto_create_topics": False,
            "auto_offset_reset": "latest" if plan.group is not None else "earliest",
            "close_timeout_ms": CLOSE_TIMEOUT_MS,
            "default_api_timeout_ms": DEFAULT_TIMEOUT_MS,
            "enable_auto_commit": commits,
            "max_poll_records": MAX_POLL_RECORDS,
        },
        command_values=command_values,
        config=config,
    )
    if plan.start.kind is OffsetKind.STORED and "group_id" not in options:
        raise InvalidOption("-o stored needs a group: -X group_id=GROUP, or -G")
    return options


def _start_of_policy(assignments: tuple[str, ...]) -> OffsetArgument | None:
    """Return where `auto_offset_reset` starts; None for the beginning.

    No offset is committed: the policy decides, as it does in a client without a group.
    """
    policy = parse_assignments(ConsumerConfig, assignments).get("auto_offset_reset")
    if policy == "latest":
        return OffsetArgument(OffsetKind.END)
    duration_ms = reset_duration_ms(policy)
    if duration_ms is None:
        return None
    now_ms = time.time_ns() // 1_000_000
    return OffsetArgument(OffsetKind.FROM_TIME, max(0, now_ms - duration_ms))


async def read_all(
    plan: ConsumePlan, formatter: RecordFormatter | None, options: dict[str, Any]
) -> None:
    """Execute a plan. Without a formatter print records as kcat's JSON."""
    shows_progress = not plan.quiet and sys.stderr.isatty() and not sys.stdout.isatty()
    async with Consumer(**options) as consumer:
        if formatter is None:
            formatter = json_formatter(consumer._fetch_node)
        reader = Reader(consumer, plan, formatter, OutputStream(sys.stdout.fileno()))
        await reader.prepare()
        async with Progress("records", shown=shows_progress) as progress:
            await reader.run(progress)


def choose_formatter(
    form: str | None,
    delimiter: str | None,
    key_delimiter: str | None,
    *,
    null: bool = False,
    as_json: bool = False,
    as_kcat: bool = False,
) -> RecordFormatter | None:
    """Return the record formatter that the options select.

    None stands for kcat's JSON, whose formatter needs a consumer. Raises `InvalidOption` for
    options that exclude each other.
    """
    parts = [
        name for name, given in (("-D", delimiter), ("-K", key_delimiter)) if given is not None
    ]
    if as_kcat and as_json:
        raise InvalidOption("--json and -J exclude each other")
    if (as_json or as_kcat) and (form is not None or parts or null):
        given = [*(["-f"] if form is not None else []), *parts, *(["-Z"] if null else [])]
        name = "--json" if as_json else "-J"
        raise InvalidOption(f"{name} defines the format: omit {' and '.join(given)}")
    if as_kcat:
        return None
    if as_json:
        return to_json
    if form is not None and parts:
        raise InvalidOption(f"-f defines the whole format: omit {' and '.join(parts)}")
    null_text = NULL if null else b""
    if form is not None:
        return compile_format(form, null=null_text)
    return default_formatter(
        parse_delimiter("-D", "\\n" if delimiter is None else delimiter),
        None if key_delimiter is None else parse_delimiter("-K", key_delimiter),
        null_text,
    )


def parse_offsets(offsets: tuple[str, ...]) -> tuple[OffsetArgument | None, int | None]:
    """Parse the values of `-o` into a start offset and a stop time, each optional."""
    start: OffsetArgument | None = None
    until_ms: int | None = None
    for argument in map(parse_offset, offsets):
        if argument.kind is OffsetKind.UNTIL_TIME and until_ms is None:
            until_ms = argument.number
        elif argument.kind is not OffsetKind.UNTIL_TIME and start is None:
            start = argument
        else:
            raise InvalidOption("-o is given twice: give one start offset and one e@TIME")
    return start, until_ms


def _check_share_options(excluded: list[str]) -> None:
    if excluded:
        raise InvalidOption(f"--share excludes {' and '.join(excluded)}")


def _topic_arguments(
    topic: str | None, group: str | None, topics: tuple[str, ...], option: str = "-G"
) -> tuple[str, ...]:
    if group == "":
        raise InvalidOption(f"{option} must not be empty: {option} GROUP TOPIC…")
    if group is not None:
        names = topics if topic is None else (topic, *topics)
        if not names:
            raise InvalidOption(f"{option} is given without topics: {option} GROUP TOPIC…")
        require_utf8((group, *names))
        return names
    rule = "without -G give one topic"
    return (require_one_topic(topic, topics, rule, "consume TOPIC, or -G GROUP TOPIC…"),)


def _check_group_options(plan: ConsumePlan, start: OffsetArgument | None) -> None:
    if plan.partitions:
        raise InvalidOption("-p and -G exclude each other: the group assigns the partitions")
    has_number = start is not None and (
        start.kind not in {*RESETS, OffsetKind.STORED} or start.number
    )
    if has_number or plan.until_ms is not None:
        raise InvalidOption("with -G the only offsets are -o beginning, -o end and -o stored")
    for topic in plan.topics:
        try:
            re.compile(topic if topic.startswith("^") else "")
        except re.error as error:
            raise InvalidOption(f"{topic!r} is not a regular expression: {error}") from None
