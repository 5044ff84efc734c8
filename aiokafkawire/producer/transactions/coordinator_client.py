"""Send the requests of the state machine to the coordinators and hand it the responses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from aiokafkawire.cluster import Cluster, CoordinatorType, ToCoordinator
from aiokafkawire.errors import (
    ClientClosed,
    KafkaError,
    ProtocolError,
    UnsupportedVersion,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.transactions.actions import TransactionAction
from aiokafkawire.producer.transactions.end_txn_template import EndTxnTemplate
from aiokafkawire.producer.transactions.requests import (
    FIRST_WITH_EPOCH_BUMP,
    FIRST_WITH_TV_2,
    ParsedTxnResponse,
    RoutedRequest,
    build_request,
    error_from_response,
    parse_response,
)
from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine
from aiokafkawire.producer.transactions.states import (
    AddOffsetsToTxn,
    EndTxn,
    TransactionRequest,
    TransactionVersion,
    TxnOffsetCommit,
)
from aiokafkawire.runtime import Runtime
from aiokafkawire.wire import ApiKey, ErrorCode

__all__ = ("WARN_AFTER_FAILURES", "TransactionCoordinatorClient")

logger = logging.getLogger("aiokafkawire.producer")

WARN_AFTER_FAILURES = 7
"""Log a warning after this many consecutive failures of a request.

With the default backoff that takes about five seconds. A coordinator rejects requests for a shorter
time while it completes the previous transaction."""


# A tuple: `isinstance` with a union type builds the union on every call.
_VERSIONED = (EndTxn, TxnOffsetCommit)


class TransactionCoordinatorClient:
    """Client of the transaction and group coordinators that sends one request at a time.

    Args:
        transaction_timeout_ms: The producer's option; 0 if unknown.
    """

    def __init__(
        self,
        machine: TransactionStateMachine,
        cluster: Cluster,
        runtime: Runtime,
        *,
        transaction_timeout_ms: int,
    ) -> None:
        self._machine = machine
        self._cluster = cluster
        self._now = runtime.clock.now
        self._rng = runtime.rng
        self._transaction_timeout_ms = transaction_timeout_ms
        self._route = ToCoordinator(machine.transactional_id, CoordinatorType.TRANSACTION)
        self._end_template = EndTxnTemplate(machine.transactional_id)

    async def send(self, request: TransactionRequest) -> None:
        """Send a request once and hand the response or failure to the state machine.

        Raises:
            ClientClosed: The client was closed.
        """
        out, answer, broker = self._build(request), None, ""
        try:
            answer, broker = await self._cluster.request_with_broker(
                out.message,
                to=out.route,
                deadline=self._deadline(),
                retry=False,
                min_version=out.min_version,
                max_version=out.max_version,
            )
        except ClientClosed:
            raise
        except KafkaError as error:
            answer = error
        self._handle_answer(request, answer, out, broker)

    def send_now(self, request: TransactionRequest, on_handled: Callable[[], None]) -> bool:
        """Send a request as `send` does, but only if it can be written without waiting.

        Args:
            request: The request.
            on_handled: Called after the state machine handled the response or failure. Not called
                if the client is closed.

        Returns:
            False if the request was not sent.
        """
        out = self._build(request)

        def on_done(answer: Any, broker: str) -> None:
            if not isinstance(answer, ClientClosed):
                self._handle_answer(request, answer, out, broker)
                on_handled()

        return self._cluster.submit(
            out.message,
            to=out.route,
            deadline=self._deadline(),
            on_done=on_done,
            min_version=out.min_version,
            max_version=out.max_version,
        )

    def _build(self, request: TransactionRequest) -> RoutedRequest:
        if type(request) is EndTxn and request.transaction_version is TransactionVersion.TV_2:
            return RoutedRequest(self._end_template.message(request), self._route, FIRST_WITH_TV_2)
        return build_request(
            request,
            self._machine.transactional_id,
            self._transaction_timeout_ms,
            self._cluster.metadata.topic_id,
        )

    def _deadline(self) -> float:
        return self._now() + self._cluster.config.request_timeout_ms / 1_000

    def _handle_answer(
        self, request: TransactionRequest, answer: Any, out: RoutedRequest, broker: str
    ) -> None:
        """Hand a response, its parsed form or an error to the state machine."""
        if isinstance(answer, KafkaError):
            self._handle_failure(request, answer)
        elif type(answer) is ParsedTxnResponse:
            self._handle_response(request, answer, out.route, broker)
        else:
            parsed = parse_response(request, answer, out.topic_ids)
            self._handle_response(request, parsed, out.route, broker)
        if self._machine.last_error is not None:
            self._warn_after_failures(self._machine.last_error)

    def _handle_response(
        self,
        request: TransactionRequest,
        parsed: ParsedTxnResponse,
        route: ToCoordinator,
        broker: str,
    ) -> None:
        machine, now, rng = self._machine, self._now(), self._rng
        if parsed.action is TransactionAction.DONE:
            self._update_can_bump_epoch(request)
            machine.handle_response(parsed.action, parsed.event, None, now, rng)
            return
        if parsed.action is TransactionAction.FIND_COORDINATOR:
            self._cluster.mark_coordinator_unknown(route.key, route.type)
        elif parsed.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            self._cluster.request_update()  # the next attempt takes the id of a recreated topic
        error = error_from_response(
            request,
            parsed,
            broker=broker,
            transactional_id=machine.transactional_id,
            hint=self._timeout_hint(now),
        )
        machine.handle_response(parsed.action, None, error, now, rng)

    def _handle_failure(self, request: TransactionRequest, error: KafkaError) -> None:
        machine, now, rng = self._machine, self._now(), self._rng
        error.transactional_id = error.transactional_id or machine.transactional_id
        if error.retriable or isinstance(error, ProtocolError):
            sent = bool(getattr(error, "sent", isinstance(error, ProtocolError)))
            machine.handle_failure(error, now, rng, sent=sent)
            return
        of_group = isinstance(request, TxnOffsetCommit | AddOffsetsToTxn)
        if isinstance(error, UnsupportedVersion) and not of_group:
            error.reason += "; transactions need brokers of Kafka 0.11 or later"
        machine.handle_response(
            TransactionAction.ABORT if of_group else TransactionAction.FATAL, None, error, now, rng
        )

    def _update_can_bump_epoch(self, request: TransactionRequest) -> None:
        """Update `can_bump_epoch`: the coordinator may have moved to another broker."""
        if (
            isinstance(request, _VERSIONED)
            and request.transaction_version is TransactionVersion.TV_2
        ):
            self._machine.can_bump_epoch = True  # all brokers with TV_2 support it
            return
        versions = self._cluster.coordinator_versions(self._route)
        if versions is not None:
            latest = versions.latest_usable_version(ApiKey.INIT_PRODUCER_ID)
            self._machine.can_bump_epoch = latest >= FIRST_WITH_EPOCH_BUMP

    def _timeout_hint(self, now: float) -> str:
        """Return a hint for `ProducerFenced` if the transaction timed out, else an empty text."""
        transaction = self._machine.transaction
        if transaction is None or not self._transaction_timeout_ms:
            return ""
        if now - transaction.began_at < self._transaction_timeout_ms / 1_000:
            return ""
        return (
            f", probably because it timed out (open for {now - transaction.began_at:.1f} s,"
            f" transaction_timeout_ms is {self._transaction_timeout_ms})"
        )

    def _warn_after_failures(self, error: KafkaError) -> None:
        machine = self._machine
        if machine.attempts == WARN_AFTER_FAILURES + 1:
            logger.warning(
                "%s: transaction of %r: %d consecutive failures: %s; retrying",
                self._cluster.config.client_id,
                machine.transactional_id,
                machine.attempts,
                error,
                extra=log_fields(
                    client_id=self._cluster.config.client_id,
                    transactional_id=machine.transactional_id,
                    error=error,
                ),
            )
