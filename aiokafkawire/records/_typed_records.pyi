"""Types of records for type checkers: a compiled class cannot be generic."""

from typing import Any, Generic

from aiokafkawire.types import KeyT, ValueT

from . import _kernel

class Record(_kernel.Record, Generic[KeyT, ValueT]):
    key: KeyT | None  # type: ignore[assignment]
    value: ValueT | None  # type: ignore[assignment]

class ShareRecord(_kernel.ShareRecord, Record[bytes, bytes]): ...

def make_records(*args: Any) -> list[Record[Any, Any]]: ...
