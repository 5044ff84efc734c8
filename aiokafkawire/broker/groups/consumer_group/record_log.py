"""Records of all consumer groups, which outlive a coordinator and, in a directory, the broker."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.groups.consumer_group.records import (
    SHARE_RECORD_TYPES,
    GroupRecord,
    decode_record,
    encode_record,
    record_type,
)
from aiokafkawire.broker.storage import Store
from aiokafkawire.errors import KafkaError
from aiokafkawire.wire import ErrorCode

__all__ = ("GroupRecordLog",)


class GroupRecordLog:
    """The last record of each key, by group: a compacted `__consumer_offsets`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups: dict[str, dict[bytes, bytes]] = {}
        self._live = 0
        for line in store.load_group_records():
            self._load(line)

    def groups(self) -> Iterator[str]:
        """Return the groups that have records."""
        return iter(list(self._groups))

    def records(self, group_id: str) -> Iterator[GroupRecord]:
        """Return the records of a group, in the order in which their keys were first written."""
        for key, value in self._groups.get(group_id, {}).items():
            yield decode_record(key, value)

    def is_share_group(self, group_id: str) -> bool:
        """Return True if the records of a group are those of a share group."""
        key = next(iter(self._groups[group_id]))
        return record_type(key) in SHARE_RECORD_TYPES

    def append(self, group_id: str, records: Iterable[GroupRecord]) -> None:
        """Append records together. Raises `StorageError` if none was stored."""
        self._append(group_id, [encode_record(record) for record in records])

    def delete(self, group_id: str) -> None:
        """Append a tombstone for each record of a group. Raises `StorageError`."""
        self._append(group_id, [(key, None) for key in self._groups.get(group_id, {})])

    def _append(self, group_id: str, entries: list[tuple[bytes, bytes | None]]) -> None:
        if not entries:
            return
        lines = [_to_line(group_id, key, value) for key, value in entries]
        try:
            stale = self._store.append_group_records(lines, self._live)
        except StorageError as error:
            # Kafka answers this if it cannot write to the partition of __consumer_offsets.
            raise StorageError(ErrorCode.NOT_COORDINATOR, error.message) from error
        for key, value in entries:
            self._set(group_id, key, value)
        if stale:
            self._store.rewrite_group_records(
                [
                    _to_line(group, key, value)
                    for group, live in self._groups.items()
                    for key, value in live.items()
                ]
            )

    def _set(self, group_id: str, key: bytes, value: bytes | None) -> None:
        live = self._groups.setdefault(group_id, {})
        before = len(live)
        if value is None:
            live.pop(key, None)
        else:
            live[key] = value
        self._live += len(live) - before
        if not live:
            del self._groups[group_id]

    def _load(self, line: dict[str, Any]) -> None:
        try:
            key, value = b64decode(line["key"]), line["value"]
            data = None if value is None else b64decode(value)
            decode_record(key, data)
            self._set(str(line["group"]), key, data)
        except (KafkaError, KeyError, TypeError, ValueError) as error:
            raise KafkaError(f"the stored groups are damaged: {error!r} in {line!r}") from error


def _to_line(group_id: str, key: bytes, value: bytes | None) -> dict[str, Any]:
    return {
        "group": group_id,
        "key": b64encode(key).decode(),
        "value": None if value is None else b64encode(value).decode(),
    }
