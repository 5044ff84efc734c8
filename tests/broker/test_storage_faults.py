"""Failing writes to the data directory: acknowledged records are always stored."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Admin, Producer
from aiokafkawire.admin import NewTopic
from aiokafkawire.broker import Broker
from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.files import AppendOnlyFile, Files
from aiokafkawire.broker.groups.offsets import CommittedOffset, OffsetStore
from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.storage import DirectoryStore
from aiokafkawire.broker.write_failures import MAX_WARNINGS, REPEAT_AFTER_S, WriteFailures
from aiokafkawire.errors import BrokerError, KafkaError
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.broker_records import assign_offsets
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode

from .raw_client import batch, build_update_metadata_request, connected, only, produce_request
from .storage_faults import FaultyFiles, History

E = ErrorCode
T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_acknowledged_is_stored(tmp_path: Path, seed: int) -> None:
    """`python -m tests.broker.storage_faults` runs any number more."""
    history = History(seed, tmp_path)
    history.run()
    assert history.acknowledged
    assert history.refused


class OneFailure(History):
    """A short history in which one system call fails, and the following truncations as well."""

    failing = -1
    truncates = True
    calls = before_end = 0

    def _fails(self, operation: str) -> int | None:
        self.calls += 1
        if self.calls - 1 == self.failing:
            self.mode = "failed"
            return errno.ENOSPC
        if self.mode == "failed" and operation == "truncate" and not self.truncates:
            return errno.EIO
        return None

    def change_mode(self) -> None:
        return

    def finish(self) -> None:
        self.before_end = self.calls
        self.failing = -1
        super().finish()


@pytest.mark.parametrize("truncates", [True, False])
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_every_system_call_may_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: float, truncates: bool
) -> None:
    caplog.set_level(logging.CRITICAL, "aiokafkawire.broker")
    whole = OneFailure(7, tmp_path / "whole")
    made = whole.calls  # before the history begins
    whole.run(18)
    failures = 0
    for failing in range(made, whole.before_end):
        history = OneFailure(7, tmp_path / str(failing))
        history.files.part = lambda size: int(size * part)
        history.failing, history.truncates = failing, truncates
        history.run(18)
        failures += history.files.failures
    assert failures >= whole.before_end - made


# --- files ---------------------------------------------------------------------------------------


class Failing:
    """Fails the calls named in `operations`, until they are removed."""

    def __init__(self, *operations: str, part: int = 0) -> None:
        self.operations = list(operations)
        self.files = FaultyFiles(self._fails, lambda size: min(part, size - 1))

    def _fails(self, operation: str) -> int | None:
        return errno.ENOSPC if operation in self.operations else None


def test_a_short_write_goes_on_with_the_rest(tmp_path: Path) -> None:
    class Short(Files):
        def write(self, descriptor: int, data: memoryview) -> int:
            return super().write(descriptor, data[:3])

    file = AppendOnlyFile(tmp_path / "f", Short())
    file.append(b"one and a half")
    assert file.path.read_bytes() == b"one and a half"
    assert file.size_bytes == 14


def test_a_write_that_takes_nothing_fails(tmp_path: Path) -> None:
    class Nothing(Files):
        def write(self, descriptor: int, data: memoryview) -> int:
            return 0

    with pytest.raises(OSError, match="write returned 0"):
        AppendOnlyFile(tmp_path / "f", Nothing()).append(b"x")


def test_a_failed_append_is_cut_off_before_the_next(tmp_path: Path) -> None:
    failing = Failing(part=2)
    file = AppendOnlyFile(tmp_path / "f", failing.files)
    file.append(b"one")
    failing.operations = ["close"]
    with pytest.raises(OSError, match="injected: close"):
        file.append(b"two")
    assert (file.size_bytes, file.path.read_bytes()) == (3, b"one")
    failing.operations = ["close", "truncate"]
    with pytest.raises(OSError, match="injected: close"):
        file.append(b"three")
    assert (file.size_bytes, file.path.read_bytes()) == (3, b"onethree")
    failing.operations = ["truncate"]
    with pytest.raises(OSError, match="injected: truncate"):
        file.append(b"four")
    failing.operations = []
    file.append(b"five")
    assert (file.size_bytes, file.path.read_bytes()) == (7, b"onefive")


def test_a_failed_replacement_leaves_the_old_file_alone(tmp_path: Path) -> None:
    for operation in ("open", "write", "close", "replace"):
        failing = Failing()
        file = AppendOnlyFile(tmp_path / "f.json", failing.files)
        file.replace(b"old")
        failing.operations = [operation]
        with pytest.raises(OSError, match=f"injected: {operation}"):
            file.replace(b"fresh")
        assert [path.name for path in tmp_path.iterdir()] == ["f.json"]
        assert (file.size_bytes, file.path.read_bytes()) == (3, b"old")


# --- the log -------------------------------------------------------------------------------------


def append(log: PartitionLog, value: bytes, **fields: int) -> None:
    (view,) = iter_batches(batch(value, **fields))
    data = assign_offsets(view, log.end_offset, 0)
    log.append(data, next(iter_batches(data)))


def contents(log: PartitionLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < log.end_offset:
        found += [view.columns().value(0) for view in iter_batches(log.read(len(found), 10_000))]
    return found


def test_a_refused_batch_changes_nothing(tmp_path: Path) -> None:
    failing = Failing(part=10)
    log = PartitionLog("t-0", DirectoryStore(tmp_path, failing.files), BrokerConfig())
    append(log, b"a")
    failing.operations = ["write", "truncate"]
    producer = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0}
    with pytest.raises(StorageError) as refused:
        append(log, b"b", **producer)
    assert refused.value.code is E.KAFKA_STORAGE_ERROR
    assert (log.end_offset, len(log.producers), contents(log)) == (1, 0, [b"a"])
    failing.operations = ["truncate"]
    with pytest.raises(StorageError):
        append(log, b"b", **producer)
    failing.operations = []
    append(log, b"b", **producer)
    again = PartitionLog("t-0", DirectoryStore(tmp_path), BrokerConfig())
    assert contents(log) == contents(again) == [b"a", b"b"]
    assert len(again.producers) == 1


def test_no_segment_follows_one_that_could_not_be_cut(tmp_path: Path) -> None:
    failing = Failing(part=90)
    options = BrokerConfig(segment_bytes=300)
    log = PartitionLog("t-0", DirectoryStore(tmp_path, failing.files), options)
    append(log, b"a")
    failing.operations = ["write", "truncate"]
    with pytest.raises(StorageError):
        append(log, b"b")
    failing.operations = ["truncate"]
    with pytest.raises(StorageError):
        append(log, b"c" * 300)  # it would start a segment
    failing.operations = []
    append(log, b"c" * 300)
    again = PartitionLog("t-0", DirectoryStore(tmp_path), options)
    assert contents(again) == [b"a", b"c" * 300]


def test_a_torn_end_that_cannot_be_cut_at_the_start_is_cut_before_the_next_write(
    tmp_path: Path,
) -> None:
    append(PartitionLog("t-0", DirectoryStore(tmp_path), BrokerConfig()), b"a")
    (path,) = (tmp_path / "t-0").glob("*.log")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    failing = Failing("truncate")
    log = PartitionLog("t-0", DirectoryStore(tmp_path, failing.files), BrokerConfig())
    assert contents(log) == [b"a"]
    with pytest.raises(StorageError):
        append(log, b"b")
    failing.operations = []
    append(log, b"b")
    assert contents(PartitionLog("t-0", DirectoryStore(tmp_path), BrokerConfig())) == [b"a", b"b"]


def test_what_follows_a_corrupt_segment_does_not_come_back(tmp_path: Path) -> None:
    options = BrokerConfig(segment_bytes=100)
    log = PartitionLog("t-0", DirectoryStore(tmp_path), options)
    for value in (b"a", b"b", b"c"):
        append(log, value * 50)
    second = sorted((tmp_path / "t-0").glob("*.log"))[1]
    second.write_bytes(second.read_bytes()[:-1])
    again = PartitionLog("t-0", DirectoryStore(tmp_path), options)
    assert contents(again) == [b"a" * 50]
    append(again, b"d")
    assert contents(PartitionLog("t-0", DirectoryStore(tmp_path), options)) == [b"a" * 50, b"d"]


def test_old_segments_that_cannot_be_deleted_are_deleted_later(tmp_path: Path) -> None:
    failing = Failing("unlink")
    options = BrokerConfig(segment_bytes=100, retention_bytes=150)
    log = PartitionLog("t-0", DirectoryStore(tmp_path, failing.files), options)
    for _ in range(6):
        append(log, b"v" * 50)
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 6
    failing.operations = []
    append(log, b"v" * 50)
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 2
    assert log.end_offset == 7


@pytest.mark.parametrize("operation", ["truncate", "unlink"])
def test_a_log_that_cannot_be_truncated_ends_where_its_files_end(
    tmp_path: Path, operation: str
) -> None:
    failing = Failing(operation)
    options = BrokerConfig(segment_bytes=200)
    log = PartitionLog("t-0", DirectoryStore(tmp_path, failing.files), options)
    for value in (b"a", b"b", b"c", b"d"):
        append(log, value)
    with pytest.raises(StorageError):
        log.truncate(1)
    again = PartitionLog("t-0", DirectoryStore(tmp_path), options)
    assert contents(log) == contents(again)
    assert log.end_offset == again.end_offset >= 2


# --- offsets -------------------------------------------------------------------------------------


def test_offsets_of_a_deleted_topic_are_forgotten_when_there_is_room(tmp_path: Path) -> None:
    failing = Failing()
    offsets = OffsetStore(DirectoryStore(tmp_path, failing.files))
    offsets.commit("g", {T0: CommittedOffset(5, -1, "")})
    failing.operations = ["write"]
    offsets.delete_topic("t")
    assert not offsets.committed("g")
    with pytest.raises(StorageError) as refused:
        offsets.flush_deletions()
    assert refused.value.code is E.NOT_COORDINATOR
    assert OffsetStore(DirectoryStore(tmp_path)).committed("g"), "it is not stored yet"
    failing.operations = []
    offsets.flush_deletions()
    assert not OffsetStore(DirectoryStore(tmp_path)).committed("g")


def test_a_topic_with_the_name_of_a_deleted_one_has_no_offsets(tmp_path: Path) -> None:
    failing = Failing()
    store = DirectoryStore(tmp_path, failing.files)
    OffsetStore(store).commit("g", {T0: CommittedOffset(5, -1, "")})
    # The topic is deleted, but the deletion of its offsets could not be stored.
    offsets = OffsetStore(store)
    offsets.delete_missing_topics({"other"})
    assert not OffsetStore(DirectoryStore(tmp_path)).committed("g")


# --- the broker ----------------------------------------------------------------------------------


def failing_broker(
    monkeypatch: pytest.MonkeyPatch, directory: Path, failing: Failing, **options: bool
) -> Broker:
    def store(place: Path, clock: Callable[[], float]) -> DirectoryStore:
        return DirectoryStore(place, failing.files, clock)

    monkeypatch.setattr("aiokafkawire.broker.broker.DirectoryStore", store)
    return Broker(data_dir=directory, **options)  # type: ignore[arg-type]


async def test_a_broker_that_cannot_save_gives_its_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing()
    async with failing_broker(monkeypatch, tmp_path, failing) as broker:
        await broker.create_topic("t")
        failing.operations = ["write"]
        with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            await broker.create_topic("u")
        with pytest.raises(BrokerError):
            await broker.delete_topic("t")
        with pytest.raises(BrokerError):
            await broker.add_partitions("t", 3)
        assert broker.topics == {"t": 1}
    failing.operations = []
    async with failing_broker(monkeypatch, tmp_path, failing) as broker:
        assert broker.topics == {"t": 1}


async def test_a_topic_that_cannot_be_deleted_on_a_full_disk_keeps_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing()
    async with failing_broker(monkeypatch, tmp_path, failing) as broker:
        await broker.create_topic("t")
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", value=b"v", partition=0)
            failing.operations = ["write"]
            with pytest.raises(BrokerError):
                await broker.delete_topic("t")
            failing.operations = []
            assert (await producer.send_and_wait("t", value=b"v", partition=0)).offset == 3
        await broker.delete_topic("t")
        assert broker.topics == {}


async def test_the_directory_is_given_back_whatever_fails_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(data_dir=tmp_path)
    await broker.start()

    async def failing(state: object) -> None:
        raise OSError(errno.EIO, "at the end")

    monkeypatch.setattr(broker, "_stop", failing)
    with pytest.raises(OSError, match="at the end"):
        await broker.stop()
    async with Broker(data_dir=tmp_path):
        pass


async def test_a_broker_does_not_start_in_a_directory_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing("write")
    with pytest.raises(KafkaError, match=r"cannot be used by a broker.*injected: write"):
        async with failing_broker(monkeypatch, tmp_path, failing):
            pass
    failing.operations = []
    async with failing_broker(monkeypatch, tmp_path, failing):
        pass


async def test_nodes_die_and_come_back_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing()
    async with failing_broker(monkeypatch, tmp_path, failing) as broker:
        await broker.create_topic("t")
        failing.operations = ["write"]
        await broker.kill(1)
        await broker.restart(1)
        assert (broker.leader("t", 0), broker.leader_epoch("t", 0)) == (1, 2)


@pytest.mark.parametrize(
    ("version", "code"), [(3, E.NOT_LEADER_OR_FOLLOWER), (4, E.KAFKA_STORAGE_ERROR)]
)
async def test_old_clients_get_an_error_that_they_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, code: ErrorCode
) -> None:
    failing = Failing()
    async with (
        failing_broker(monkeypatch, tmp_path, failing) as broker,
        connected(broker) as client,
    ):
        await broker.create_topic("t")
        failing.operations = ["write"]
        answer = only(await client.call(produce_request("t", 0, batch(b"a")), version))
        assert (answer.error_code, answer.base_offset) == (code, -1)
        # Creating a topic is retried until it works.
        (topic,) = (await client.call(build_update_metadata_request("u", create=True), 9)).topics
        assert topic.error_code == E.LEADER_NOT_AVAILABLE
        await client.send(produce_request("t", 0, batch(b"a"), acks=0), version)
        assert await client.closed()


# --- log lines -----------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_a_failure_and_its_end_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    failing = Failing()
    log = PartitionLog("orders-0", DirectoryStore(tmp_path, failing.files), BrokerConfig())
    append(log, b"a")
    failing.operations = ["write"]
    for _ in range(3):
        with pytest.raises(StorageError):
            append(log, b"b")
    failing.operations = []
    for _ in range(3):
        append(log, b"b")
    (path,) = (tmp_path / "orders-0").glob("*.log")
    assert lines(caplog) == [
        (
            logging.WARNING,
            f"Partition orders-0: cannot write {path}: injected: write;"
            " Produce fails with KAFKA_STORAGE_ERROR until a write succeeds",
        ),
        (logging.INFO, "Partition orders-0: writes succeed again"),
    ]


def test_failures_that_come_and_go_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.broker")
    now = 0.0
    failures = WriteFailures(lambda: now)
    full = OSError(errno.ENOSPC, "No space left on device")

    def flap(times: int, subject: Callable[[int], str]) -> None:
        for index in range(times):
            failures.failed(subject(index), Path("/data"), full, "it is refused")
            failures.succeeded(subject(index))

    flap(100, lambda index: "one")
    assert len(lines(caplog)) == 2
    flap(100, str)
    assert len(lines(caplog)) == 2 * MAX_WARNINGS + 1
    now += REPEAT_AFTER_S + 1
    flap(1, lambda index: "one")
    assert len(lines(caplog)) == 2 * MAX_WARNINGS + 3


@pytest.mark.parametrize("count", [1, 50])
async def test_topics_of_a_request_are_stored_by_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    written: list[Path] = []
    save = DirectoryStore.save_cluster
    fails = False

    def count_writes(store: DirectoryStore, state: Any) -> None:
        written.append(tmp_path)
        if fails:
            raise StorageError(E.UNKNOWN_SERVER_ERROR, "the disk fails")
        save(store, state)

    async with (
        Broker(data_dir=tmp_path) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        monkeypatch.setattr(DirectoryStore, "save_cluster", count_writes)
        await admin.create_topics([NewTopic(f"t{number}", 2) for number in range(count)])
        assert len(written) == 1
        fails = True
        refused = [NewTopic(f"u{number}", 2) for number in range(count)]
        results = await admin.create_topics([*refused, NewTopic("t0", 2)], return_errors=True)
        assert len(results) == count + 1
        assert all(isinstance(result, KafkaError) for result in results.values())
        fails = False
        assert len(await admin.list_topics()) == count
        await admin.create_topics(refused)
    async with (
        Broker(data_dir=tmp_path) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        assert len(await admin.list_topics()) == 2 * count
