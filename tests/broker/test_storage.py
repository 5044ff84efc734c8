"""Storage of the log's bytes, and the lock of its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore, Store
from aiokafkawire.errors import KafkaError


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path)


def test_a_segment_gives_what_was_appended(store: Store) -> None:
    segment = store.new_segment("t-0", 0)
    for chunk in (b"one", b"three", b"seven"):
        segment.append(chunk)
    assert segment.size_bytes == 13
    assert segment.read(3, 5) == b"three"
    assert segment.read(0, 13) == b"onethreeseven"
    segment.truncate(8)
    assert (segment.size_bytes, segment.read(3, 5)) == (8, b"three")
    segment.delete()
    assert segment.size_bytes == 0


def test_a_directory_finds_its_segments_again(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    for base in (1_000, 0):
        store.new_segment("t-0", base).append(b"x" * (base + 1))
    (tmp_path / "t-0" / "notes.log").write_text("not a segment")
    found = DirectoryStore(tmp_path).segments("t-0")
    assert [(base, data.size_bytes) for base, data in found] == [(0, 1), (1_000, 1_001)]
    store.delete_partition("t-0")
    store.delete_partition("t-0")
    assert store.segments("t-0") == []


def test_the_cluster_state_is_replaced_as_a_whole(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert store.load_cluster() is None
    store.save_cluster(lambda: {"topics": [1]})
    store.save_cluster(lambda: {"topics": []})
    assert DirectoryStore(tmp_path).load_cluster() == {"format": 1, "topics": []}
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


async def test_a_directory_is_of_one_broker_at_a_time(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path / "deep" / "er"):
        with pytest.raises(KafkaError, match="another broker uses it"):
            async with Broker(data_dir=tmp_path / "deep" / "er"):
                pass
    async with Broker(data_dir=tmp_path / "deep" / "er") as broker:
        assert broker.topics == {}


async def test_a_path_that_is_no_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaError, match="cannot be used by a broker"):
        async with Broker(data_dir=tmp_path / "file"):
            pass
