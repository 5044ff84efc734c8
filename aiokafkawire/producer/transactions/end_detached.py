"""Commit or abort a transaction that another process wrote."""

from __future__ import annotations

from typing import Unpack

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ClientConfig, ClientOptions, make_config
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.producer.transactions.coordinator_client import TransactionCoordinatorClient
from aiokafkawire.producer.transactions.detached import DetachedTransaction
from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine
from aiokafkawire.producer.transactions.states import (
    AbortableError,
    Aborting,
    Committing,
    FatalError,
    Transaction,
    TransactionVersion,
)
from aiokafkawire.runtime import NEVER, BaseClient, Runtime, Session, Supervisor, client_label
from aiokafkawire.types import ProducerIdAndEpoch

__all__ = ("end_detached_transaction",)


async def end_detached_transaction(
    detached: DetachedTransaction,
    *,
    commit: bool,
    **options: Unpack[ClientOptions],
) -> None:
    """Commit or abort a transaction that `Producer.detach_transaction` left open (EndTxn).

    The same call can be repeated until it returns; ending a transaction twice the same way does
    no harm.

    Args:
        detached: The transaction.
        commit: True to commit, False to abort.
        **options: The options of `ClientConfig`, such as `bootstrap_servers`.

    Raises:
        ProducerFenced: A producer with the same `transactional_id` started, or the transaction
            timed out. It is aborted, unless an earlier call committed it.
        TransactionFailed: It cannot be committed, such as after an abort.
        BrokerError: It cannot be aborted, such as after a commit.
        RequestTimedOut: No answer within `default_api_timeout_ms`: the outcome is unknown, call
            it again.
    """
    await end_on_runtime(None, detached, commit=commit, **options)


async def end_on_runtime(
    runtime: Runtime | None,
    detached: DetachedTransaction,
    *,
    commit: bool,
    **options: Unpack[ClientOptions],
) -> None:
    """Implement `end_detached_transaction`, on a simulated network if `runtime` is given."""
    if detached.empty:
        return
    async with _EndClient(make_config(ClientConfig, options), runtime) as ender:
        await ender.end(detached, commit=commit)


class _EndSession(Session):
    __slots__ = ("cluster", "runtime")

    def __init__(self, cluster: Cluster, runtime: Runtime) -> None:
        self.cluster = cluster
        self.runtime = runtime


class _EndClient(BaseClient[_EndSession]):
    """A client that exists for one call."""

    def __init__(self, config: ClientConfig, runtime: Runtime | None) -> None:
        self._config = config
        super().__init__(
            "end_detached_transaction", client_label("end_detached_transaction", config), runtime
        )

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> _EndSession:
        cluster = Cluster(self._config, runtime, supervisor)
        await cluster.start(runtime.clock.now() + self._config.default_api_timeout_ms / 1_000)
        return _EndSession(cluster, runtime)

    async def _close(self, _: BaseException | None) -> KafkaError | None:
        await self._lifecycle.stop(_close_session, NEVER)
        return None

    async def end(self, detached: DetachedTransaction, *, commit: bool) -> None:
        session, config = self._lifecycle.require_session_in_loop(), self._config
        clock = session.runtime.clock
        machine = _make_machine(detached, commit=commit, config=config, now=clock.now())
        transaction = machine.transaction
        assert transaction is not None
        coordinator_client = TransactionCoordinatorClient(
            machine, session.cluster, session.runtime, transaction_timeout_ms=0
        )
        deadline = clock.now() + config.default_api_timeout_ms / 1_000
        while isinstance(machine.state, Committing | Aborting):
            request = machine.next_request(clock.now(), flushed=True, sequence_gap=False)
            if request is not None:
                await coordinator_client.send(request)
            elif machine.next_deadline() < deadline:
                await clock.sleep_until(machine.next_deadline())
            else:
                raise RequestTimedOut(
                    "timed out after default_api_timeout_ms: whether the transaction has ended is"
                    f" not known; last error: {machine.last_error}",
                    transactional_id=detached.transactional_id,
                )
        if transaction.abort_failure is not None:
            transaction.abort_failure.reason += (
                "; it cannot be aborted: an earlier call has committed it, or the coordinator does"
                " not know it"
            )
            raise transaction.abort_failure
        if isinstance(machine.state, AbortableError | FatalError):
            raise machine.state.error


def _make_machine(
    detached: DetachedTransaction, *, commit: bool, config: ClientConfig, now: float
) -> TransactionStateMachine:
    transaction = Transaction(
        1,
        ProducerIdAndEpoch(detached.producer_id, detached.producer_epoch),
        TransactionVersion(detached.transaction_version),
        now,
        started=True,
    )
    machine = TransactionStateMachine(
        detached.transactional_id,
        Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms),
    )
    machine.state = Committing(transaction) if commit else Aborting(transaction)
    return machine


async def _close_session(session: _EndSession) -> None:
    await session.cluster.aclose()
