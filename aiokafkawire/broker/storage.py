"""Storage of logs, cluster state, offsets and transactions: in memory or in a directory.

A directory holds `cluster.json` (replaced as a whole), `offsets.jsonl`, `groups.jsonl`,
`share_state.jsonl` and `transactions.jsonl` (appended, compacted when most lines are stale) and for
each partition `TOPIC-PARTITION/BASE_OFFSET.log`, the batches as on the wire. Nothing is synced to
disk: data survives the process, not the machine.

Every change is stored as a whole or raises `StorageError`. Callers change their state only after it
succeeded.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.files import REPLACE, AppendOnlyFile, Files, replace_file
from aiokafkawire.broker.json_lines import JsonLinesFile, LineLog, MemoryLines
from aiokafkawire.broker.write_failures import WriteFailures
from aiokafkawire.errors import KafkaError

__all__ = ("DirectoryStore", "MemoryStore", "SegmentData", "Store")

logger = logging.getLogger("aiokafkawire.broker")

FORMAT = 1
"""Version of the directory layout; other versions are rejected."""

RECORDS_REFUSED = "Produce fails with KAFKA_STORAGE_ERROR until a write succeeds"
CHANGES_REFUSED = "topic changes fail with KAFKA_STORAGE_ERROR until a write succeeds"
DELETED_LATER = "the files use disk space until a later deletion succeeds"
"""Consequences, at the end of log lines."""


class SegmentData(Protocol):
    """Bytes of one log segment; positions count from 0."""

    @property
    def size_bytes(self) -> int: ...

    def append(self, data: bytes) -> None:
        """Store all of `data`. Raises `StorageError` if nothing of it was stored."""
        ...

    def recover(self) -> None:
        """Remove the rest of a failed append. Raises `StorageError` on failure."""
        ...

    def recover_to(self, size_bytes: int) -> None:
        """Declare what follows `size_bytes` invalid; remove it now or before the next append."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes: ...

    def truncate(self, size_bytes: int) -> None:
        """Truncate the segment. Raises `StorageError` if it is unchanged."""
        ...

    def delete(self) -> None:
        """Delete the segment. Raises `StorageError` if it still exists."""
        ...


class Store(Protocol):
    """Storage that outlives a broker, as far as its kind does.

    Methods that change something raise `StorageError` if nothing was changed.
    """

    def open(self) -> None:
        """Lock the storage. Raises `KafkaError` if another broker uses it."""
        ...

    def load_cluster(self) -> dict[str, Any] | None: ...

    def save_cluster(self, state: Callable[[], Mapping[str, Any]]) -> None:
        """Store the result of `state`, which is not called where nothing is stored."""
        ...

    def load_offsets(self) -> Iterator[dict[str, Any]]: ...

    def append_offsets(self, lines: list[dict[str, Any]], live: int) -> bool:
        """Store commits; return True if the caller should `rewrite_offsets` with the live ones."""
        ...

    def rewrite_offsets(self, lines: list[dict[str, Any]]) -> None: ...

    def load_group_records(self) -> Iterator[dict[str, Any]]: ...

    def append_group_records(self, lines: list[dict[str, Any]], live: int) -> bool:
        """Store records; return True if the caller should `rewrite_group_records`."""
        ...

    def rewrite_group_records(self, lines: list[dict[str, Any]]) -> None: ...

    @property
    def share_state(self) -> LineLog:
        """Records of `__share_group_state`."""
        ...

    def load_transactions(self) -> Iterator[dict[str, Any]]: ...

    def append_transactions(self, lines: Callable[[], list[dict[str, Any]]], live: int) -> bool:
        """Store the result of `lines`; return True if `rewrite_transactions` should follow."""
        ...

    def rewrite_transactions(self, lines: list[dict[str, Any]]) -> None: ...

    def segments(self, partition: str) -> list[tuple[int, SegmentData]]:
        """Return base offset and data of each segment, in order."""
        ...

    def new_segment(self, partition: str, base_offset: int) -> SegmentData: ...

    def delete_partition(self, partition: str) -> None:
        """Delete all segments. After a `StorageError` some may be left; call it again."""
        ...

    @property
    def log_dir(self) -> str:
        """Directory of the logs; a name in its place if they are in memory."""
        ...

    def disk_usage(self) -> tuple[int, int]:
        """Return the size and the free space of the directory, -1 where there is none."""
        ...

    def close(self) -> None:
        """Release the lock."""
        ...


class MemorySegment:
    """Chunks as they were appended. Reads return whole chunks, which needs no search."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._chunks: dict[int, bytes] = {}

    def append(self, data: bytes) -> None:
        self._chunks[self.size_bytes] = data
        self.size_bytes += len(data)

    def recover(self) -> None:
        return

    def recover_to(self, size_bytes: int) -> None:
        self.truncate(size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        chunks = []
        end = position + size_bytes
        while position < end:
            chunk = self._chunks[position]
            chunks.append(chunk)
            position += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def truncate(self, size_bytes: int) -> None:
        for position in [start for start in self._chunks if start >= size_bytes]:
            del self._chunks[position]
        self.size_bytes = size_bytes

    def delete(self) -> None:
        self._chunks.clear()
        self.size_bytes = 0


class MemoryStore:
    """Keeps segments only; everything else lives as long as the broker."""

    def open(self) -> None:
        return

    def load_cluster(self) -> dict[str, Any] | None:
        return None

    def save_cluster(self, state: Callable[[], Mapping[str, Any]]) -> None:
        del state

    def load_offsets(self) -> Iterator[dict[str, Any]]:
        return iter(())

    def append_offsets(self, lines: list[dict[str, Any]], live: int) -> bool:
        del lines, live
        return False

    def rewrite_offsets(self, lines: list[dict[str, Any]]) -> None:
        del lines

    def load_group_records(self) -> Iterator[dict[str, Any]]:
        return iter(())

    def append_group_records(self, lines: list[dict[str, Any]], live: int) -> bool:
        del lines, live
        return False

    def rewrite_group_records(self, lines: list[dict[str, Any]]) -> None:
        del lines

    @property
    def share_state(self) -> LineLog:
        return MemoryLines()

    def load_transactions(self) -> Iterator[dict[str, Any]]:
        return iter(())

    def append_transactions(self, lines: Callable[[], list[dict[str, Any]]], live: int) -> bool:
        del lines, live
        return False

    def rewrite_transactions(self, lines: list[dict[str, Any]]) -> None:
        del lines

    def segments(self, partition: str) -> list[tuple[int, SegmentData]]:
        del partition
        return []

    def new_segment(self, partition: str, base_offset: int) -> SegmentData:
        del partition, base_offset
        return MemorySegment()

    def delete_partition(self, partition: str) -> None:
        del partition

    @property
    def log_dir(self) -> str:
        return "/memory"

    def disk_usage(self) -> tuple[int, int]:
        return -1, -1

    def close(self) -> None:
        return


class FileSegment:
    """A file that is opened per call: thousands of segments would exhaust file descriptors."""

    def __init__(self, partition: str, path: Path, files: Files, failures: WriteFailures) -> None:
        self._partition = partition
        self._file = AppendOnlyFile(path, files)
        self._failures = failures

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def append(self, data: bytes) -> None:
        try:
            self._file.append(data)
        except OSError as error:
            raise self._failed(error) from error
        self._failures.succeeded(_subject(self._partition))

    def recover(self) -> None:
        try:
            self._file.recover()
        except OSError as error:
            raise self._failed(error) from error

    def recover_to(self, size_bytes: int) -> None:
        self._file.recover_to(size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        with self._file.path.open("rb") as file:
            file.seek(position)
            return file.read(size_bytes)

    def truncate(self, size_bytes: int) -> None:
        try:
            self._file.truncate(size_bytes)
        except OSError as error:
            raise self._failed(error) from error

    def delete(self) -> None:
        try:
            self._file.delete()
        except OSError as error:
            subject = f"Deleting segments of partition {self._partition}"
            raise self._failures.failed(
                subject, self._file.path, error, DELETED_LATER, "delete"
            ) from error

    def _failed(self, error: OSError) -> StorageError:
        return self._failures.failed(
            _subject(self._partition), self._file.path, error, RECORDS_REFUSED
        )


class DirectoryStore:
    """Keeps everything in one directory, which one broker at a time can use.

    Without a clock, repeated write failures of a subject are logged once.
    """

    def __init__(
        self,
        directory: Path,
        files: Files | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._directory = directory
        self._files = files or Files()
        self._failures = failures = WriteFailures(clock)
        self._lock: IO[str] | None = None
        self._cluster = directory / "cluster.json"
        self._offsets = JsonLinesFile(
            "Committed offsets", directory / "offsets.jsonl", self._files, failures
        )
        self._group_records = JsonLinesFile(
            "Group metadata", directory / "groups.jsonl", self._files, failures
        )
        self._share_state = JsonLinesFile(
            "Share state", directory / "share_state.jsonl", self._files, failures
        )
        self._transactions = JsonLinesFile(
            "TransactionCoordinator", directory / "transactions.jsonl", self._files, failures
        )

    def open(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = (self._directory / ".lock").open("a")
            _lock(self._lock)
        except OSError as error:
            self.close()
            raise KafkaError(f"{self._directory} cannot be used by a broker: {error}") from error

    def load_cluster(self) -> dict[str, Any] | None:
        if not self._cluster.exists():
            return None
        try:
            state = json.loads(self._cluster.read_text("utf-8"))
            if state["format"] != FORMAT:
                raise ValueError(f"its format is {state['format']}, expected {FORMAT}")
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaError(f"{self._cluster} is not a broker's state: {error}") from error
        return dict(state)

    def save_cluster(self, state: Callable[[], Mapping[str, Any]]) -> None:
        content = json.dumps({"format": FORMAT, **state()}, indent=1).encode()
        with self._changing("Cluster state", self._cluster, CHANGES_REFUSED):
            replace_file(self._files, self._cluster, content)
        self._failures.succeeded("Cluster state")

    def load_offsets(self) -> Iterator[dict[str, Any]]:
        return self._offsets.load()

    def append_offsets(self, lines: list[dict[str, Any]], live: int) -> bool:
        return self._offsets.append(lines, live)

    def rewrite_offsets(self, lines: list[dict[str, Any]]) -> None:
        self._offsets.rewrite(lines)

    def load_group_records(self) -> Iterator[dict[str, Any]]:
        return self._group_records.load()

    def append_group_records(self, lines: list[dict[str, Any]], live: int) -> bool:
        return self._group_records.append(lines, live)

    def rewrite_group_records(self, lines: list[dict[str, Any]]) -> None:
        self._group_records.rewrite(lines)

    @property
    def share_state(self) -> LineLog:
        return self._share_state

    def load_transactions(self) -> Iterator[dict[str, Any]]:
        return self._transactions.load()

    def append_transactions(self, lines: Callable[[], list[dict[str, Any]]], live: int) -> bool:
        return self._transactions.append(lines(), live)

    def rewrite_transactions(self, lines: list[dict[str, Any]]) -> None:
        self._transactions.rewrite(lines)

    def segments(self, partition: str) -> list[tuple[int, SegmentData]]:
        paths = sorted((self._directory / partition).glob("*.log"))
        return [
            (int(path.stem), self._segment(partition, path))
            for path in paths
            if path.stem.isdigit()
        ]

    def new_segment(self, partition: str, base_offset: int) -> SegmentData:
        folder = self._directory / partition
        path = folder / f"{base_offset:020}.log"
        with self._changing(_subject(partition), path, RECORDS_REFUSED):
            self._files.mkdir(folder)
            self._files.close(self._files.open(path, REPLACE))
        return self._segment(partition, path)

    def delete_partition(self, partition: str) -> None:
        folder = self._directory / partition
        try:
            self._files.rmtree(folder)
        except OSError as error:
            subject = f"Deleting partition {partition}"
            raise self._failures.failed(subject, folder, error, DELETED_LATER, "delete") from error
        self._failures.forget(_subject(partition))

    @property
    def log_dir(self) -> str:
        return str(self._directory.absolute())

    def disk_usage(self) -> tuple[int, int]:
        usage = shutil.disk_usage(self._directory)
        return usage.total, usage.free

    def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _segment(self, partition: str, path: Path) -> FileSegment:
        return FileSegment(partition, path, self._files, self._failures)

    @contextmanager
    def _changing(self, subject: str, path: Path, consequence: str) -> Iterator[None]:
        """Log a failed change and raise it as `StorageError`."""
        try:
            yield
        except OSError as error:
            raise self._failures.failed(subject, path, error, consequence) from error


def _subject(partition: str) -> str:
    return f"Partition {partition}"


def _lock(file: IO[str]) -> None:
    """Lock out other brokers until the file is closed, on systems with file locks."""
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError("another broker uses it") from None
