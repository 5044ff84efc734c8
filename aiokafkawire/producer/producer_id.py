"""The producer id of an idempotent producer without transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiokafkawire.cluster import Cluster, ToAnyNode
from aiokafkawire.config import ProducerConfig
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import ClientClosed, KafkaError, UnsupportedVersion
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.sequences import ProducerIdState
from aiokafkawire.runtime import AutoResetEvent, Runtime, Supervisor
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode, error_for
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest

__all__ = ("ProducerIdManager",)

logger = logging.getLogger("aiokafkawire.producer")

WARN_AFTER_FAILURES = 3
"""Consecutive failures to get a producer id that are logged below WARNING."""

MAX_TRANSACTION_TIMEOUT_MS = 2**31 - 1  # for a producer without transactions


class ProducerIdManager:
    """Requests producer ids, and disables idempotence where brokers have none.

    Args:
        fail: Fails the producer permanently.
        perform: Performs what follows from a call of the accumulator.
    """

    def __init__(
        self,
        config: ProducerConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        cluster: Cluster,
        accumulator: Accumulator,
        *,
        fail: Callable[[KafkaError], None],
        perform: Callable[[], None],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._supervisor = supervisor
        self._cluster = cluster
        self._accumulator = accumulator
        self._fail = fail
        self._perform = perform
        self._needed = AutoResetEvent()

    def start(self) -> None:
        """Start the task, if the producer is idempotent and has no transactions."""
        state = self._accumulator.producer_id_state
        if state is not None and self._config.transactional_id is None:
            self._supervisor.spawn(self._maintain, state, name="producer id")

    def check(self) -> None:
        """Request a producer id, if the epochs of the current one are used up."""
        state = self._accumulator.producer_id_state
        if state is not None and state.needs_producer_id:
            self._needed.set()

    def on_idempotence_unsupported(self, error: KafkaError) -> None:
        """Handle a leader or a log without producer ids, for example during an upgrade.

        If the producer is idempotent only by default, this disables idempotence for good.
        Otherwise the batch fails.
        """
        config = self._config
        wanted = config.enable_idempotence or config.transactional_id is not None
        if self._accumulator.producer_id_state is not None and not wanted:
            self._disable_idempotence(error)

    async def _maintain(self, state: ProducerIdState) -> None:
        """Get a producer id at the start, and again after its last epoch."""
        clock, config = self._runtime.clock, self._config
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        failures = 0
        while True:
            if not state.needs_producer_id:
                await self._needed.wait()
                continue
            try:
                await self._request(state)
                failures = 0
            except UnsupportedVersion as error:
                self._disable_idempotence(error)
                return
            except ClientClosed:
                return
            except KafkaError as error:
                if not error.retriable:
                    self._fail(error)
                    return
                failures += 1
                state.failure = error
                # A broker that has just started is still loading: not worth a warning.
                level = logging.WARNING if failures == WARN_AFTER_FAILURES + 1 else logging.DEBUG
                logger.log(
                    level,
                    "%s: no producer id yet: %s; retrying",
                    self._supervisor.name,
                    error,
                    extra=log_fields(self._supervisor.fields, error=error),
                )
                await clock.sleep_until(clock.now() + backoff.delay(failures, self._runtime.rng))

    async def _request(self, state: ProducerIdState) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=MAX_TRANSACTION_TIMEOUT_MS
        )
        deadline = self._runtime.clock.now() + self._config.request_timeout_ms / 1_000
        response, broker = await self._cluster.request_with_broker(
            request, to=ToAnyNode(), deadline=deadline
        )
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="InitProducerId", broker=broker)
        identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        state.set_producer_id(*identity)
        logger.info(
            "%s: producer id %d, epoch %d",
            self._supervisor.name,
            identity.producer_id,
            identity.epoch,
            extra=log_fields(
                self._supervisor.fields,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
            ),
        )
        self._accumulator.wake_all()
        self._perform()

    def _disable_idempotence(self, error: KafkaError) -> None:
        if self._config.enable_idempotence:
            self._fail(error)
            return
        logger.warning(
            "%s: brokers before Kafka 0.11 have no producer ids (%s): idempotence is disabled, so"
            " that a retry may write a record twice",
            self._supervisor.name,
            error,
            extra=log_fields(self._supervisor.fields, error=error),
        )
        self._accumulator.disable_idempotence()
        self._perform()
