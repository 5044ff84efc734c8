"""Sends the requests of the transaction state machine, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import ClientClosed, KafkaError
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.sequences import ProducerIdState
from aiokafkawire.producer.transactions.buffered_records import BufferedRecords
from aiokafkawire.producer.transactions.coordinator_client import TransactionCoordinatorClient
from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine
from aiokafkawire.producer.transactions.states import (
    Aborting,
    FatalError,
    OffsetCommit,
    Ready,
    TransactionRequest,
)
from aiokafkawire.producer.transactions.waiting_calls import WaitingCalls
from aiokafkawire.runtime import AT_ONCE, AutoResetEvent, Runtime
from aiokafkawire.types import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition

__all__ = ("RequestSender",)

logger = logging.getLogger("aiokafkawire.producer")

OffsetsCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None]


class RequestSender:
    """Sends requests at once where that needs no waiting; otherwise its task does.

    Args:
        on_fatal_error: Called as `on_fatal_error(error, reported)` when the producer fails
            permanently. `reported` is True if a call raises the error.

    Attributes:
        changed: Wakes the task.
    """

    def __init__(
        self,
        config: ProducerConfig,
        runtime: Runtime,
        cluster: Cluster,
        machine: TransactionStateMachine,
        *,
        records: BufferedRecords,
        calls: WaitingCalls,
        producer_id_state: ProducerIdState,
        on_fatal_error: Callable[[KafkaError, bool], None],
    ) -> None:
        self.changed = AutoResetEvent()
        self._config = config
        self._now = runtime.clock.now
        self._machine = machine
        self._records = records
        self._calls = calls
        self._producer_id_state = producer_id_state
        self._on_fatal_error = on_fatal_error
        self._coordinator_client = TransactionCoordinatorClient(
            machine, cluster, runtime, transaction_timeout_ms=config.transaction_timeout_ms
        )
        self._request_for_task: TransactionRequest | None = None
        self._task_wakes_at = AT_ONCE
        self._held = False
        self._step_requested = False
        self._logged_producer_id: int | None = None

    def request_step(self) -> None:
        """Send the next request soon, because the state or the buffer changed."""
        if self._held:
            self._step_requested = True
        else:
            self.changed.set()

    def hold(self) -> None:
        """Merge the calls of `request_step` until `release`."""
        self._held = True

    def release(self) -> None:
        """Send the next request if `request_step` was called since `hold`."""
        self._held = False
        if self._step_requested:
            self._step_requested = False
            self.send_next()

    async def run(self) -> None:
        """Send requests that need waiting, and those that are due later."""
        while True:
            request, self._request_for_task = self._request_for_task or self._next_request(), None
            if request is None:
                self._task_wakes_at = self._machine.next_deadline()
                await self.changed.wait(self._task_wakes_at)
                self._task_wakes_at = AT_ONCE
                continue
            try:
                await self._coordinator_client.send(request)
            except ClientClosed:
                return
            self._after_response()

    def send_next(self) -> None:
        """Send the next request if that needs no waiting; otherwise hand it to the task."""
        request = self._next_request()
        if request is None:
            if self._machine.next_deadline() < self._task_wakes_at:
                self.changed.set()
        elif not self._coordinator_client.send_now(request, self._on_response):
            self._request_for_task = request
            self.changed.set()

    def _on_response(self) -> None:
        self._after_response()
        if type(self._machine.state) is not Ready:  # between transactions nothing is asked
            self.send_next()

    def _next_request(self) -> TransactionRequest | None:
        """Return the next request, or None if there is none yet."""
        machine, records = self._machine, self._records
        records.update()
        flushed = records.flushed
        gap = flushed and isinstance(machine.state, Aborting) and records.has_sequence_gap()
        before = machine.state
        request = machine.next_request(self._now(), flushed=flushed, sequence_gap=gap)
        if machine.state is not before:
            self._on_state_changed()
        return request

    def _after_response(self) -> None:
        self._records.wake_all()
        self._on_state_changed()

    def _on_state_changed(self) -> None:
        """Apply a possible state change: the new producer id, committed offsets, or a failure."""
        state = self._machine.state
        if isinstance(state, Ready):
            self._producer_id_state.current = state.identity
            if state.identity.producer_id != self._logged_producer_id:
                # The epoch may change with every transaction (KIP-890): log new producer ids only.
                self._log_producer_id(state.identity)
            commits, self._machine.committed_offsets = self._machine.committed_offsets, []
            for commit in commits:  # in order: the last offset of a partition counts
                if commit.on_committed is not None:
                    self._report_committed(commit, commit.on_committed)
        elif isinstance(state, FatalError):
            self._on_fatal_error(state.error, self._calls.any_waiting)
        self._records.update()
        self._calls.state_changed.set()

    def _log_producer_id(self, identity: ProducerIdAndEpoch) -> None:
        self._logged_producer_id = identity.producer_id
        logger.info(
            "Transactional id %s: producer id %d, epoch %d",
            self._config.transactional_id,
            identity.producer_id,
            identity.epoch,
            extra=log_fields(
                client_id=self._config.client_id,
                transactional_id=self._config.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
            ),
        )

    def _report_committed(self, commit: OffsetCommit, on_committed: OffsetsCallback) -> None:
        try:
            on_committed(commit.offsets)
        except KafkaError as error:
            # The consumer was closed in the meantime; its offsets are committed.
            logger.debug(
                "%s: cannot pass the committed offsets to the consumer: %s",
                self._config.client_id,
                error,
                extra=log_fields(
                    client_id=self._config.client_id,
                    error=error,
                    transactional_id=self._config.transactional_id,
                ),
            )
