"""Ending a transaction that another process has filled."""

from __future__ import annotations

from typing import Unpack

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ClientConfig, ClientOptions, make_config
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.producer.transactions.conversation import Conversation
from aiokafkawire.producer.transactions.machine import TransactionMachine
from aiokafkawire.producer.transactions.prepared import PreparedTransaction
from aiokafkawire.producer.transactions.states import (
    AbortableError,
    Aborting,
    Committing,
    FatalError,
    Protocol,
    Transaction,
)
from aiokafkawire.runtime import NEVER, Client, Runtime, Session, Supervisor, client_label
from aiokafkawire.types import ProducerIdAndEpoch

__all__ = ("end_transaction",)


async def end_transaction(
    prepared: PreparedTransaction,
    *,
    commit: bool,
    **options: Unpack[ClientOptions],
) -> None:
    """End a transaction that `Producer.detach` gave away; may be called again until it returns.

    Options are those of `ClientConfig`. Raises `ProducerFenced` if a newer producer took over or
    the transaction was open too long (then it is aborted, unless an earlier call committed it),
    `TransactionFailed` if it cannot be committed, `BrokerError` if it cannot be aborted, as after
    a commit, and `RequestTimedOut` after `default_api_timeout_ms`: then it may be ended or not.
    (EndTxn.)
    """
    await end_on(None, prepared, commit=commit, **options)


async def end_on(
    runtime: Runtime | None,
    prepared: PreparedTransaction,
    *,
    commit: bool,
    **options: Unpack[ClientOptions],
) -> None:
    """As `end_transaction`, on a simulated network if `runtime` is given."""
    if prepared.empty:
        return
    async with _Ender(make_config(ClientConfig, options), runtime) as ender:
        await ender.end(prepared, commit=commit)


class _Session(Session):
    __slots__ = ("cluster", "runtime")

    def __init__(self, cluster: Cluster, runtime: Runtime) -> None:
        self.cluster = cluster
        self.runtime = runtime


class _Ender(Client[_Session]):
    """A client for as long as it takes."""

    def __init__(self, config: ClientConfig, runtime: Runtime | None) -> None:
        self._config = config
        super().__init__(
            "ending of a transaction", client_label("end_transaction", config), runtime
        )

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> _Session:
        cluster = Cluster(self._config, runtime, supervisor)
        await cluster.start(runtime.clock.now() + self._config.default_api_timeout_ms / 1_000)
        return _Session(cluster, runtime)

    async def _close(self, _: BaseException | None) -> KafkaError | None:
        await self._lifecycle.stop(_goodbye, NEVER)
        return None

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        session, config = self._lifecycle.require_session_in_loop(), self._config
        clock = session.runtime.clock
        machine = _machine_of(prepared, commit=commit, config=config, now=clock.now())
        transaction = machine.transaction
        assert transaction is not None
        conversation = Conversation(
            machine, session.cluster, session.runtime, transaction_timeout_ms=0
        )
        deadline = clock.now() + config.default_api_timeout_ms / 1_000
        while isinstance(machine.state, Committing | Aborting):
            request = machine.next_request(clock.now(), flushed=True, gap=False)
            if request is not None:
                await conversation.ask(request)
            elif machine.next_deadline() < deadline:
                await clock.sleep_until(machine.next_deadline())
            else:
                raise RequestTimedOut(
                    "whether the transaction has ended is not known, and default_api_timeout_ms is"
                    f" over; the last failure: {machine.trouble}",
                    transactional_id=prepared.transactional_id,
                )
        if transaction.refusal is not None:
            transaction.refusal.reason += (
                "; it cannot be aborted: an earlier call has committed it, or nobody knows of it"
            )
            raise transaction.refusal
        if isinstance(machine.state, AbortableError | FatalError):
            raise machine.state.error


def _machine_of(
    prepared: PreparedTransaction, *, commit: bool, config: ClientConfig, now: float
) -> TransactionMachine:
    transaction = Transaction(
        1,
        ProducerIdAndEpoch(prepared.producer_id, prepared.producer_epoch),
        Protocol(prepared.protocol),
        now,
        known=True,
    )
    machine = TransactionMachine(
        prepared.transactional_id,
        Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms),
    )
    machine.state = Committing(transaction) if commit else Aborting(transaction)
    return machine


async def _goodbye(session: _Session) -> None:
    await session.cluster.aclose()
