"""Where logs, the cluster's state, offsets and transactions are kept: memory or a directory.

A directory holds `cluster.json` (replaced as a whole), `offsets.jsonl` and `transactions.jsonl`
(appended, rewritten when most of it is stale) and for each partition
`TOPIC-PARTITION/BASE_OFFSET.log`, the batches as they go over the wire. Nothing is synced to the
disk: it survives the process, not the machine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from aiokafkawire.errors import KafkaError

__all__ = ("DirectoryStore", "MemoryStore", "SegmentData", "Store")

logger = logging.getLogger("aiokafkawire.broker")

FORMAT = 1
"""The layout of the directory; another number is refused."""

COMPACT_AFTER_LINES = 10_000
"""Stale lines that such a file may hold beyond as many as are live."""


class SegmentData(Protocol):
    """The bytes of one log segment; positions count from 0."""

    @property
    def size_bytes(self) -> int: ...

    def append(self, data: bytes) -> None: ...

    def read(self, position: int, size_bytes: int) -> bytes: ...

    def truncate(self, size_bytes: int) -> None: ...

    def delete(self) -> None: ...


class Store(Protocol):
    """What outlives a broker, as far as its kind goes."""

    def open(self) -> None:
        """Keep other brokers out. Raises `KafkaError` if one is there."""
        ...

    def load_cluster(self) -> dict[str, Any] | None: ...

    def save_cluster(self, state: Callable[[], Mapping[str, Any]]) -> None:
        """Keep what `state` gives; it is not asked for where nothing is kept."""
        ...

    def load_offsets(self) -> Iterator[dict[str, Any]]: ...

    def append_offsets(self, lines: list[dict[str, Any]], live: int) -> bool:
        """Keep commits; True when the caller should `rewrite_offsets` with the live ones."""
        ...

    def rewrite_offsets(self, lines: list[dict[str, Any]]) -> None: ...

    def load_transactions(self) -> Iterator[dict[str, Any]]: ...

    def append_transactions(self, lines: Callable[[], list[dict[str, Any]]], live: int) -> bool:
        """Keep what `lines` gives; True when the caller should `rewrite_transactions`."""
        ...

    def rewrite_transactions(self, lines: list[dict[str, Any]]) -> None: ...

    def segments(self, partition: str) -> list[tuple[int, SegmentData]]:
        """Base offset and data of each segment, in order."""
        ...

    def new_segment(self, partition: str, base_offset: int) -> SegmentData: ...

    def delete_partition(self, partition: str) -> None: ...

    def close(self) -> None:
        """Let another broker have it."""
        ...


class MemorySegment:
    """Chunks as they were appended; reads are of whole chunks, which costs no search."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._chunks: dict[int, bytes] = {}

    def append(self, data: bytes) -> None:
        self._chunks[self.size_bytes] = data
        self.size_bytes += len(data)

    def read(self, position: int, size_bytes: int) -> bytes:
        chunks = []
        end = position + size_bytes
        while position < end:
            chunk = self._chunks[position]
            chunks.append(chunk)
            position += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def truncate(self, size_bytes: int) -> None:
        for position in [p for p in self._chunks if p >= size_bytes]:
            del self._chunks[position]
        self.size_bytes = size_bytes

    def delete(self) -> None:
        self._chunks.clear()
        self.size_bytes = 0


class MemoryStore:
    """Keeps segments alone; the rest lives and ends with the broker."""

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

    def close(self) -> None:
        return


class FileSegment:
    """One file, opened for each call: thousands of segments would exhaust file descriptors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size_bytes = path.stat().st_size if path.exists() else 0

    def append(self, data: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(data)
        self.size_bytes += len(data)

    def read(self, position: int, size_bytes: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(position)
            return file.read(size_bytes)

    def truncate(self, size_bytes: int) -> None:
        os.truncate(self._path, size_bytes)
        self.size_bytes = size_bytes

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)
        self.size_bytes = 0


class _Lines:
    """A file of JSON lines; later ones replace what earlier ones say."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def load(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        line = "\n"
        with self._path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                self._count = number
                try:
                    entry = json.loads(line)
                except ValueError:
                    # The last line may have been cut off by the end of the process.
                    logger.warning("%s: line %d is not JSON, left out", self._path, number)
                    continue
                yield entry
        if not line.endswith("\n"):
            # What is appended next must not continue the torn line.
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def append(self, lines: list[dict[str, Any]], live: int) -> bool:
        """Whether most of the file is stale now; `live` lines are not."""
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        self._count += len(lines)
        return self._count > 2 * live + COMPACT_AFTER_LINES

    def rewrite(self, lines: list[dict[str, Any]]) -> None:
        _replace(self._path, "".join(json.dumps(line) + "\n" for line in lines))
        self._count = len(lines)


class DirectoryStore:
    """Keeps everything under one directory, which belongs to one broker at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: IO[str] | None = None
        self._cluster = directory / "cluster.json"
        self._offsets = _Lines(directory / "offsets.jsonl")
        self._transactions = _Lines(directory / "transactions.jsonl")

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
                raise ValueError(f"its format is {state['format']}, not {FORMAT}")
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaError(f"{self._cluster} is not a broker's state: {error}") from error
        return dict(state)

    def save_cluster(self, state: Callable[[], Mapping[str, Any]]) -> None:
        _replace(self._cluster, json.dumps({"format": FORMAT, **state()}, indent=1))

    def load_offsets(self) -> Iterator[dict[str, Any]]:
        return self._offsets.load()

    def append_offsets(self, lines: list[dict[str, Any]], live: int) -> bool:
        return self._offsets.append(lines, live)

    def rewrite_offsets(self, lines: list[dict[str, Any]]) -> None:
        self._offsets.rewrite(lines)

    def load_transactions(self) -> Iterator[dict[str, Any]]:
        return self._transactions.load()

    def append_transactions(self, lines: Callable[[], list[dict[str, Any]]], live: int) -> bool:
        return self._transactions.append(lines(), live)

    def rewrite_transactions(self, lines: list[dict[str, Any]]) -> None:
        self._transactions.rewrite(lines)

    def segments(self, partition: str) -> list[tuple[int, SegmentData]]:
        found = sorted((self._directory / partition).glob("*.log"))
        return [(int(path.stem), FileSegment(path)) for path in found if path.stem.isdigit()]

    def new_segment(self, partition: str, base_offset: int) -> SegmentData:
        folder = self._directory / partition
        folder.mkdir(exist_ok=True)
        path = folder / f"{base_offset:020}.log"
        path.touch()
        return FileSegment(path)

    def delete_partition(self, partition: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._directory / partition)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _lock(file: IO[str]) -> None:
    """Keep other brokers out until the file is closed, where the system has such locks."""
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError("another broker uses it") from None


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old one or the new one, whole."""
    fresh = path.with_suffix(".tmp")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)
