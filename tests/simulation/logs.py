"""What the partitions of the embedded broker hold."""

from __future__ import annotations

from aiokafkawire.broker import Broker
from aiokafkawire.records.batch import iter_batches
from tests.history.observed import Log, LogRecord, Observed

__all__ = ("Watch", "log_of")

ALL_BYTES = 2**30


def log_of(broker: Broker, topic: str, partition: int) -> Log:
    """A partition's records, with what became of their transactions."""
    found = broker._partition(topic, partition)
    replication = broker._running.replication
    leading = found if replication is None else replication.leading(found)
    if leading is None:
        return Log(topic, partition, ())
    records: list[LogRecord] = []
    still_open: dict[int, list[int]] = {}
    for view in iter_batches(leading.log.read(0, ALL_BYTES)):
        columns = view.columns()
        if view.is_control:
            fate = "committed" if (columns.key(0) or b"")[-1:] == b"\x01" else "aborted"
            for number in still_open.pop(view.producer_id, ()):
                record = records[number]
                records[number] = LogRecord(
                    record.offset,
                    record.value,
                    fate,  # type: ignore[arg-type]
                    record.producer_id,
                    record.epoch,
                    record.sequence,
                )
            continue
        for number in range(view.count):
            if view.is_transactional:
                still_open.setdefault(view.producer_id, []).append(len(records))
            records.append(
                LogRecord(
                    columns.offsets[number],
                    bytes(columns.value(number) or b""),
                    "open" if view.is_transactional else "none",
                    view.producer_id,
                    view.producer_epoch,
                    view.base_sequence + number,
                )
            )
    return Log(topic, partition, tuple(records), 0, leading.log.end_offset)


class Watch:
    """Reads what a broker holds in the end."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def observed(self) -> Observed:
        topics = self._broker.topics.items()
        return Observed(
            logs=tuple(
                log_of(self._broker, name, n) for name, count in topics for n in range(count)
            )
        )

    def topic_gone(self, topic: str) -> None:
        """Nothing is kept of it."""
