"""An accumulator that calls the hooks of a producer."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.hooks import BatchWritten
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.accumulator_config import AccumulatorConfig
from aiokafkawire.producer.attempt_result import AttemptResult
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.producer.partition_queue import Completed
from aiokafkawire.producer.send_observer import SendObserver
from aiokafkawire.producer.sequences import ProducerIdState

__all__ = ("ObservedAccumulator",)


class ObservedAccumulator(Accumulator):
    """An accumulator that calls hooks for written batches and for the outcome of records.

    Args:
        config: Limits and compression.
        producer_id_state: The producer id for idempotence; None without idempotence.
        on_batch_written: The hook; None without one.
        observer: Calls the hooks of records; None without any.
    """

    def __init__(
        self,
        config: AccumulatorConfig,
        producer_id_state: ProducerIdState | None,
        *,
        on_batch_written: Callable[[BatchWritten], None] | None,
        observer: SendObserver | None,
    ) -> None:
        super().__init__(config, producer_id_state)
        self._on_batch_written = on_batch_written
        self._observer = observer

    def handle_result(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> bool:
        """Apply the result of an attempt; see `Accumulator.handle_result`."""
        size_bytes = batch.size_bytes
        is_handled = super().handle_result(batch, result, now, not_before)
        if (
            is_handled
            and result.action is BatchAction.APPENDED
            and self._on_batch_written is not None
        ):
            future = batch.future
            self._on_batch_written(
                BatchWritten(
                    future.topic,
                    future.partition,
                    result.base_offset,
                    future.count,
                    size_bytes,
                    batch.attempts,
                )
            )
        return is_handled

    def _on_completed(self, batches: Completed) -> None:
        super()._on_completed(batches)
        if self._observer is not None:
            for batch in batches:
                self._observer.on_completed(batch.future)
