"""`consume --share`: print records as a member of a share group."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafkawire.cli.arguments import client_options
from aiokafkawire.cli.common_options import DEFAULT_TIMEOUT_MS
from aiokafkawire.cli.formats import RecordFormatter
from aiokafkawire.cli.progress import Progress
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.config import ShareConsumerConfig
from aiokafkawire.share import ShareConsumer

__all__ = ("SharePlan", "read_shared", "share_consumer_options")

CLOSE_TIMEOUT_MS = 5_000
POLL_MS = 500


def share_consumer_options(
    group: str, brokers: str | None, assignments: tuple[str, ...], config: Path | None
) -> dict[str, Any]:
    """Return the options of the share consumer. Raises `InvalidOption`."""
    return client_options(
        ShareConsumerConfig,
        assignments,
        {"bootstrap_servers": brokers, "group_id": group},
        {
            "allow_auto_create_topics": False,
            "close_timeout_ms": CLOSE_TIMEOUT_MS,
            "default_api_timeout_ms": DEFAULT_TIMEOUT_MS,
        },
        config=config,
    )


@dataclass(frozen=True, slots=True)
class SharePlan:
    """Topics to read, and the maximum number of records."""

    topics: tuple[str, ...]
    count: int | None
    quiet: bool


async def read_shared(plan: SharePlan, formatter: RecordFormatter, options: dict[str, Any]) -> None:
    """Print the records of a plan. They are accepted after they are printed."""
    shows_progress = not plan.quiet and sys.stderr.isatty() and not sys.stdout.isatty()
    output, remaining = OutputStream(sys.stdout.fileno()), plan.count
    async with (
        ShareConsumer(*plan.topics, **options) as consumer,
        Progress("records", shown=shows_progress) as progress,
    ):
        while remaining != 0:
            limit = consumer.config.max_poll_records
            if remaining is not None:
                limit = min(limit, remaining)
            fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=limit)
            for records in fetched.values():
                await output.write(b"".join(map(formatter, records)))
                progress.count += len(records)
                if remaining is not None:
                    remaining -= len(records)
