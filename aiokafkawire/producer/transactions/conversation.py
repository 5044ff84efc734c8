"""What passes between a machine of transactions and the coordinators."""

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
from aiokafkawire.producer.transactions.machine import TransactionMachine
from aiokafkawire.producer.transactions.outcomes import Outcome
from aiokafkawire.producer.transactions.requests import (
    FIRST_IMPLICIT,
    FIRST_RAISING,
    Outgoing,
    Reading,
    outgoing,
    read,
    refusal,
)
from aiokafkawire.producer.transactions.states import (
    AddOffsets,
    CommitOffsets,
    End,
    Protocol,
    Request,
)
from aiokafkawire.producer.transactions.usual import UsualEnd
from aiokafkawire.runtime import Runtime
from aiokafkawire.wire import ApiKey

__all__ = ("QUIET_FAILURES", "Conversation")

logger = logging.getLogger("aiokafkawire.producer")

QUIET_FAILURES = 7
"""Failures in a row of one request before there is a warning: with the default backoff about five
seconds. Coordinators refuse for less while they write what ends the transaction before."""


# A tuple, not a union, which would be made anew at each look.
_PROTOCOLLED = (End, CommitOffsets)


class Conversation:
    """Sends the requests of a machine, one at a time, and brings it their answers.

    `transaction_timeout_ms` is 0 where it is not known.
    """

    def __init__(
        self,
        machine: TransactionMachine,
        cluster: Cluster,
        runtime: Runtime,
        *,
        transaction_timeout_ms: int,
    ) -> None:
        self._machine = machine
        self._cluster = cluster
        self._now = runtime.clock.now
        self._rng = runtime.rng
        self._timeout_ms = transaction_timeout_ms
        self._route = ToCoordinator(machine.transactional_id, CoordinatorType.TRANSACTION)
        self._usual_end = UsualEnd(machine.transactional_id)

    async def ask(self, request: Request) -> None:
        """Send a request once; whatever comes of it, the machine hears. Raises `ClientClosed`."""
        out = outgoing(request, self._machine.transactional_id, self._timeout_ms)
        try:
            response, broker = await self._cluster.request_with_broker(
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
            self._unanswered(request, error)
        else:
            self._answered(request, read(request, response), out.route, broker)
        self._tell_trouble()

    def ask_now(self, request: Request, heard: Callable[[], None]) -> bool:
        """As `ask`, if nothing has to be waited for before it is sent; False if so, and nothing is
        done. `heard` is called when the machine has heard, not if the client is closed."""
        if type(request) is End and request.protocol is Protocol.IMPLICIT:
            out = Outgoing(self._usual_end.message(request), self._route, FIRST_IMPLICIT)
        else:
            out = outgoing(request, self._machine.transactional_id, self._timeout_ms)

        def told(answer: Any, broker: str) -> None:
            if type(answer) is Reading:
                self._answered(request, answer, out.route, broker)
            elif not isinstance(answer, KafkaError):
                self._answered(request, read(request, answer), out.route, broker)
            elif isinstance(answer, ClientClosed):
                return
            else:
                self._unanswered(request, answer)
            if self._machine.trouble is not None:
                self._tell_trouble()
            heard()

        return self._cluster.submit(
            out.message,
            to=out.route,
            deadline=self._deadline(),
            on_done=told,
            min_version=out.min_version,
            max_version=out.max_version,
        )

    def _deadline(self) -> float:
        return self._now() + self._cluster.config.request_timeout_ms / 1_000

    def _answered(
        self, request: Request, reading: Reading, route: ToCoordinator, broker: str
    ) -> None:
        machine, now, rng = self._machine, self._now(), self._rng
        if reading.outcome is Outcome.DONE:
            self._look_at_coordinator(request)
            machine.answered(reading.outcome, reading.event, None, now, rng)
            return
        if reading.outcome is Outcome.FIND:
            self._cluster.mark_coordinator_unknown(route.key, route.type)
        error = refusal(
            request,
            reading,
            broker=broker,
            transactional_id=machine.transactional_id,
            hint=self._overdue(now),
        )
        machine.answered(reading.outcome, None, error, now, rng)

    def _unanswered(self, request: Request, error: KafkaError) -> None:
        machine, now, rng = self._machine, self._now(), self._rng
        error.transactional_id = error.transactional_id or machine.transactional_id
        if error.retriable or isinstance(error, ProtocolError):
            sent = bool(getattr(error, "sent", isinstance(error, ProtocolError)))
            machine.unanswered(error, now, rng, sent=sent)
            return
        of_group = isinstance(request, CommitOffsets | AddOffsets)
        if isinstance(error, UnsupportedVersion) and not of_group:
            error.reason += "; transactions need brokers of Kafka 0.11 or later"
        machine.answered(Outcome.ABORT if of_group else Outcome.FATAL, None, error, now, rng)

    def _look_at_coordinator(self, request: Request) -> None:
        """Whether it raises an epoch when asked; it may have become another broker."""
        if isinstance(request, _PROTOCOLLED) and request.protocol is Protocol.IMPLICIT:
            self._machine.can_raise = True  # whatever speaks that is newer by far
            return
        versions = self._cluster.coordinator_versions(self._route)
        if versions is not None:
            latest = versions.highest(ApiKey.INIT_PRODUCER_ID)
            self._machine.can_raise = latest >= FIRST_RAISING

    def _overdue(self, now: float) -> str:
        """What the time says of who ended a transaction."""
        transaction = self._machine.transaction
        if transaction is None or not self._timeout_ms:
            return ""
        if now - transaction.began_at < self._timeout_ms / 1_000:
            return ""
        return (
            f", most likely for its age ({now - transaction.began_at:.1f} s, and"
            f" transaction_timeout_ms is {self._timeout_ms})"
        )

    def _tell_trouble(self) -> None:
        machine = self._machine
        if machine.trouble is not None and machine.attempts == QUIET_FAILURES + 1:
            logger.warning(
                "%s: the transaction of %r is held up: %s; trying again",
                self._cluster.config.client_id,
                machine.transactional_id,
                machine.trouble,
                extra=log_fields(
                    client_id=self._cluster.config.client_id,
                    transactional_id=machine.transactional_id,
                    error=machine.trouble,
                ),
            )
