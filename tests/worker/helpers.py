"""Handlers and records for tests of the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from aiokafkawire.records import Record
from aiokafkawire.worker.handlers import OrderBy, RecordHandler, WorkerRecord
from aiokafkawire.worker.retry_policy import RetryPolicy


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - nothing says when
        await anyio.sleep(0.01)


async def ignore(record: WorkerRecord[Any, Any]) -> None:
    """Process nothing."""


def handler(order_by: OrderBy = "partition", **arguments: Any) -> RecordHandler:
    return RecordHandler(
        **{
            "function": ignore,
            "topics": ("t",),
            "order_by": order_by,
            "decode_key": None,
            "decode_value": None,
            "timeout_s": None,
            "retries": RetryPolicy(),
        }
        | arguments
    )


def record(offset: int, key: bytes | None = None, **arguments: Any) -> Record:
    return Record("t", arguments.pop("partition", 0), offset, key=key, **arguments)
