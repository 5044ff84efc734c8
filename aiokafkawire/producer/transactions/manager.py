"""The task that carries out what the machine of transactions decides, and the calls that wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import (
    ClientClosed,
    InvalidTxnState,
    KafkaError,
    RequestTimedOut,
    TransactionAborted,
    TransactionFailed,
)
from aiokafkawire.logs import log_fields
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.delivery import BatchFailed, BatchOutcome
from aiokafkawire.producer.sequences import TransactionalProducerIdState
from aiokafkawire.producer.transactions.coordinator_client import TransactionCoordinatorClient
from aiokafkawire.producer.transactions.detached import DetachedTransaction
from aiokafkawire.producer.transactions.state_machine import TransactionStateMachine
from aiokafkawire.producer.transactions.states import (
    AbortableError,
    Aborting,
    AbortTransaction,
    AddPartition,
    BeginTransaction,
    Committing,
    CommitTransaction,
    Detached,
    Detaching,
    DetachTransaction,
    EpochBumpRequired,
    FatalError,
    Initialising,
    InitTransactions,
    InTransaction,
    OffsetCommit,
    ProducerFailed,
    Ready,
    RecordsFailed,
    RecordsSent,
    SendOffsetsToTransaction,
    Transaction,
    TransactionRequest,
    TransactionVersion,
)
from aiokafkawire.runtime import NEVER, AutoResetEvent, Runtime, Supervisor, copy_error
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition

__all__ = ("FIRST_PRODUCE_WITH_TV_2", "LAST_PRODUCE_WITH_TV_0", "TransactionManager")

logger = logging.getLogger("aiokafkawire.producer")

TRANSACTION_VERSION_FEATURE = "transaction.version"
NO_PRODUCER_ID = "no producer id was given"
LAST_PRODUCE_WITH_TV_0 = 11
FIRST_PRODUCE_WITH_TV_2 = 12

# Tuples, not unions, which would be made anew at each look.
_SENDING = (InTransaction, Committing, Detaching)
_FLUSHING = (Committing, Detaching)
_TO_ABORT = (AbortableError, Aborting)
_NOT_ENDED = (InTransaction, AbortableError)
_WITH_TRANSACTION = (*_SENDING, *_TO_ABORT)

_RECORDS_SENT = RecordsSent()  # of each request, the same


class _RequestScheduler:
    """When the next step is taken: by `go_on`, or by the task.

    The task waits for `changed` until `waits_until`; `left` is a request that it is to send. While
    this is entered several things happen that are one: `go_on` is called once, after them, if
    `later()` was.
    """

    __slots__ = (
        "_entered",
        "_requested",
        "_send_next",
        "changed",
        "request_for_task",
        "task_wakes_at",
    )

    def __init__(self, send_next: Callable[[], None]) -> None:
        self.changed = AutoResetEvent()
        self.task_wakes_at = -NEVER
        self.request_for_task: TransactionRequest | None = None
        self._send_next = send_next
        self._entered = False
        self._requested = False

    def request_step(self) -> None:
        """Something has changed."""
        if self._entered:
            self._requested = True
        else:
            self.changed.set()

    def __enter__(self) -> None:
        self._entered = True

    def __exit__(self, *_: object) -> None:
        self._entered = False
        if self._requested:
            self._requested = False
            self._send_next()


class TransactionManager:
    """The transactions of a producer. `fail(error, told=…)` is called when it cannot go on; `told`
    says whether some call raises it."""

    def __init__(
        self,
        config: ProducerConfig,
        runtime: Runtime,
        cluster: Cluster,
        accumulator: Accumulator,
        on_fatal_error: Callable[[KafkaError, bool], None],
    ) -> None:
        assert config.transactional_id is not None
        self.machine = TransactionStateMachine(
            config.transactional_id,
            Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms),
        )
        self._coordinator_client = TransactionCoordinatorClient(
            self.machine,
            cluster,
            runtime,
            transaction_timeout_ms=config.transaction_timeout_ms,
        )
        self.producer_id_state = TransactionalProducerIdState(
            self._can_send_to, self._on_epoch_bump_required
        )
        accumulator.producer_id_state = self.producer_id_state
        self._config = config
        self._producer_id: int | None = None
        self._now = runtime.clock.now
        self._cluster = cluster
        self._accumulator = accumulator
        self._on_fatal_error = on_fatal_error
        self.scheduler = _RequestScheduler(self._send_next)
        self._wake_buffer_task = AutoResetEvent()
        self._state_changed = AutoResetEvent()
        # When the waiting of each caller ends; one task watches all, as a timer for each would cost
        # more than most waits last. `_watches_until`: when it looks next, if it is not at it.
        self._deadlines: dict[object, float] = {}
        self._buffer_task_wakes_at = -NEVER
        # The last call to end a transaction left before it knew how that ended.
        self._unfinished_call: type[CommitTransaction | AbortTransaction] | None = None
        self._flushing = False
        self._feature_level = 0

    def start(self, supervisor: Supervisor) -> None:
        """Start the tasks."""
        supervisor.spawn(self._send_requests, name="transactions")
        supervisor.spawn(self._run_buffer_task, name="records of transactions")

    # --- calls ---------------------------------------------------------------------------------

    async def init_transactions(self, *, wait: bool = True) -> None:
        """Get a producer id: earlier producers of this name are fenced, and what they left open is
        aborted. Raises `RequestTimedOut` after `max_block_ms`. Unless it is to wait, `begin` does.
        """
        self._handle(InitTransactions())
        if wait:
            await self._wait_until(
                lambda: not self.machine.in_transition, self._deadline(), NO_PRODUCER_ID
            )
            self.raise_failure()

    async def begin(self) -> Transaction:
        """Begin a transaction, once the one before has ended."""
        machine, deadline = self.machine, self._deadline()
        if machine.in_transition:
            first = isinstance(machine.state, Initialising)
            what = NO_PRODUCER_ID if first else "the transaction before has not ended"
            await self._wait_until(lambda: not machine.in_transition, deadline, what)
        state = machine.state
        if self._unfinished_call is CommitTransaction and isinstance(state, AbortableError):
            # Whoever wanted the commit has left: nobody else aborts.
            self._handle(AbortTransaction())
            self._unfinished_call = AbortTransaction
            raise copy_error(state.error)
        transaction_version = self._choose_version()
        if machine.must_bump_epoch(transaction_version):
            self._handle(InitTransactions())
            await self._wait_until(
                lambda: not machine.in_transition, deadline, "no epoch was given"
            )
        machine.handle(BeginTransaction(transaction_version), self._now())
        self._unfinished_call = None
        self._accumulator.abort_error = None
        assert isinstance(machine.state, InTransaction)
        return machine.state.transaction

    async def commit(self) -> None:
        """Commit. Calling it again after `RequestTimedOut` or a cancellation goes on waiting."""
        if self._unfinished_call is not None and self._has_ended_since(
            CommitTransaction, committed=True
        ):
            return
        self.machine.handle(CommitTransaction(), self._now())
        transaction = await self._end_transaction(
            CommitTransaction, "whether the transaction is committed is not known"
        )
        if transaction.committed:
            return
        self.raise_failure()
        raise self._aborted_meanwhile_error("committed")

    async def abort(self, within_s: float | None = None) -> None:
        """Abort; waits for `max_block_ms`, or for so many seconds. Calling it again after
        `RequestTimedOut` or a cancellation goes on waiting."""
        if self._unfinished_call is not None and self._has_ended_since(
            AbortTransaction, committed=False
        ):
            return
        self._handle(AbortTransaction())
        await self._end_transaction(
            AbortTransaction, "the coordinator has not answered to the abort", within_s
        )
        self.raise_failure()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = None,
    ) -> None:
        """Commit positions of a group with the transaction; returns when its coordinator has
        them. `kept` is called when the transaction is known to be committed."""
        self.check_open()
        if not offsets:
            return
        commit = OffsetCommit(group, dict(offsets), on_committed)
        self.machine.handle(SendOffsetsToTransaction(commit), self._now())
        self._send_next()
        transaction = self.machine.transaction
        await self._wait_until(
            lambda: commit.done or not self._is_sending(transaction),
            self._deadline(),
            "the group's coordinator has not taken the offsets",
        )
        if not commit.done:
            self.raise_failure()
            raise self._aborted_error(None)

    async def detach(self) -> DetachedTransaction:
        """Send what was taken, and give the transaction away; once more gives the same again."""
        self._handle(DetachTransaction())
        if self.machine.transaction is not None:
            self.machine.transaction.end_requested = True
        self._update_flushing()
        await self._wait_until(
            lambda: not isinstance(self.machine.state, Detaching),
            self._deadline(),
            "records of the transaction are still on their way",
        )
        self.raise_failure()
        state = self.machine.state
        if not isinstance(state, Detached):
            raise self._aborted_meanwhile_error("detached")
        transaction = state.transaction
        return DetachedTransaction(
            self.machine.transactional_id,
            transaction.identity.producer_id,
            transaction.identity.epoch,
            int(transaction.transaction_version),
            empty=not transaction.started,
        )

    async def close(self) -> None:
        """Abort what is open, and let an end that is under way come to its end."""
        if isinstance(self.machine.state, InTransaction | AbortableError | Detaching):
            self._handle(AbortTransaction())
            self._abort_records()
        ending = Committing | Aborting
        await self._wait_until(
            lambda: not isinstance(self.machine.state, ending), NEVER, "the transaction goes on"
        )

    # --- what the rest of the producer tells ----------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a transaction takes records."""
        return type(self.machine.state) is InTransaction

    def check_open(self) -> None:
        """Raise unless a transaction is open."""
        if not self.is_open:
            self.machine.check_allowed(AddPartition)

    def check_same(self, transaction: Transaction | None) -> None:
        """Raise unless this transaction is open, in which a call began that had to wait."""
        self.check_open()
        # mutation: waiting-record-joins-next-transaction
        if self.machine.transaction is not transaction:
            raise InvalidTxnState(
                "the transaction in which the record was to be sent has ended meanwhile",
                transactional_id=self.machine.transactional_id,
            )

    def add_partition(self, partition: TopicPartition) -> None:
        """A record goes to a partition, in the transaction that is open."""
        state = self.machine.state
        assert isinstance(state, InTransaction)
        transaction = state.transaction
        if (
            partition not in transaction.partitions
            and partition not in transaction.pending_partitions
        ):
            self.machine.handle(AddPartition(partition), self._now())
            if transaction.pending_partitions:
                self.scheduler.changed.set()

    def on_records_sent(self) -> None:
        """Records go to a broker."""
        self.machine.handle(_RECORDS_SENT, self._now())

    def on_batch_completed(self, outcome: BatchOutcome) -> None:
        """A batch has its outcome."""
        if isinstance(outcome, BatchFailed):
            self._handle(RecordsFailed(outcome.error))
        elif not self._accumulator.incomplete:
            self.scheduler.request_step()

    def on_late_response(self) -> None:
        """A batch that had its outcome before is under way no more."""
        self.scheduler.changed.set()

    def fail(self, error: KafkaError) -> None:
        """The producer cannot go on, for a reason from elsewhere."""
        if error.transactional_id is None:
            error.transactional_id = self.machine.transactional_id
        self.machine.handle(ProducerFailed(error), self._now())
        self.scheduler.changed.set()
        self._state_changed.set()

    def produce_versions(self) -> tuple[int, int | None]:
        """The versions of Produce in which records of this transaction may go."""
        state = self.machine.state
        if (
            not isinstance(state, _WITH_TRANSACTION)
            or state.transaction.transaction_version is TransactionVersion.TV_0
        ):
            return 0, LAST_PRODUCE_WITH_TV_0
        return FIRST_PRODUCE_WITH_TV_2, None

    def needs_end(self, transaction: Transaction) -> bool:
        """Whether a transaction is open, or can only be aborted."""
        state = self.machine.state
        return isinstance(state, _NOT_ENDED) and state.transaction is transaction

    def is_detaching(self, transaction: Transaction) -> bool:
        """Whether a transaction is to be given away, and nobody has it yet."""
        detaching = isinstance(self.machine.state, Detaching)
        return detaching and self.machine.transaction is transaction

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits, which hears of a failure."""
        return bool(self._deadlines)

    def metrics(self) -> dict[str, int]:
        """How many transactions there were."""
        machine = self.machine
        return {
            "transactions_begun_total": machine.begun,
            "transactions_committed_total": machine.committed,
            "transactions_aborted_total": machine.aborted,
        }

    def _can_send_to(self, partition: TopicPartition) -> bool:
        state = self.machine.state
        return isinstance(state, _SENDING) and partition in state.transaction.partitions

    def _on_epoch_bump_required(self) -> None:
        self._handle(EpochBumpRequired())

    # --- the tasks ------------------------------------------------------------------------------

    async def _send_requests(self) -> None:
        """Send what the machine wants sent, one request after the other."""
        while True:
            request, self.scheduler.request_for_task = (
                self.scheduler.request_for_task or self._next_request(),
                None,
            )
            if request is None:
                self.scheduler.task_wakes_at = self.machine.next_deadline()
                await self.scheduler.changed.wait(self.scheduler.task_wakes_at)
                self.scheduler.task_wakes_at = -NEVER
                continue
            try:
                await self._coordinator_client.send(request)
            except ClientClosed:
                return
            self._after_response()

    def _send_next(self) -> None:
        """Send what the machine wants sent, if nothing has to be waited for before; else the task
        does it."""
        request = self._next_request()
        if request is None:
            if self.machine.next_deadline() < self.scheduler.task_wakes_at:
                self.scheduler.changed.set()
        elif not self._coordinator_client.send_now(request, self._on_response):
            self.scheduler.request_for_task = request
            self.scheduler.changed.set()

    def _on_response(self) -> None:
        self._after_response()
        if type(self.machine.state) is not Ready:  # between transactions nothing is asked
            self._send_next()

    def _next_request(self) -> TransactionRequest | None:
        """What the machine wants sent now."""
        machine = self.machine
        self._update_buffer()
        flushed = self._flushed()
        gap = flushed and isinstance(machine.state, Aborting) and self._has_sequence_gap()
        before = machine.state
        request = machine.next_request(self._now(), flushed=flushed, sequence_gap=gap)
        if machine.state is not before:
            self._on_state_changed()
        return request

    def _after_response(self) -> None:
        # Partitions that waited to be added may be sent to now.
        self._accumulator.wake_all()
        self._on_state_changed()

    def _flushed(self) -> bool:
        """Whether nothing waits any more, and nothing can come into a log behind the end's marker.

        Where the end raises the epoch, logs refuse that by themselves.
        """
        if self._accumulator.incomplete:
            return False
        state = self.machine.state
        if (
            not isinstance(state, Aborting)
            or state.transaction.transaction_version is TransactionVersion.TV_2
        ):
            return True
        # mutation: abort-overtakes-expired-record
        return not self._accumulator.has_expired_in_flight

    def _on_state_changed(self) -> None:
        """The machine may have gone to another state."""
        state = self.machine.state
        if isinstance(state, Ready):
            self.producer_id_state.current = state.identity
            if state.identity.producer_id != self._producer_id:
                # The epoch may change with each transaction (KIP-890).
                self._log_producer_id(state.identity)
            kept, self.machine.committed_offsets = self.machine.committed_offsets, []
            for commit in kept:  # the last positions of a partition count
                if commit.on_committed is not None:
                    self._report_committed(commit.on_committed, commit.offsets)
        elif isinstance(state, FatalError):
            self._on_fatal_error(state.error, self.has_waiters)
        self._update_buffer()
        self._state_changed.set()

    def _log_producer_id(self, identity: ProducerIdAndEpoch) -> None:
        self._producer_id = identity.producer_id
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

    def _report_committed(
        self,
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        try:
            on_committed(offsets)
        except KafkaError as error:
            # The consumer was closed meanwhile; the offsets are committed all the same.
            logger.debug(
                "%s: the consumer of committed offsets is closed: %s",
                self._config.client_id,
                error,
                extra=log_fields(
                    client_id=self._config.client_id,
                    error=error,
                    transactional_id=self._config.transactional_id,
                ),
            )

    def _has_sequence_gap(self) -> bool:
        """Whether sequence numbers cannot go on under this epoch, now that nothing has one."""
        if not self.machine.can_bump_epoch:
            self._accumulator.resume_sequences()
        return self._accumulator.has_sequence_gap

    async def _run_buffer_task(self) -> None:
        """Keep the buffer in step with the transaction while the other task waits for answers, and
        tell callers that the time which they wait is over."""
        while True:
            self._update_buffer()
            now = self._now()
            left = [deadline for deadline in self._deadlines.values() if deadline > now]
            if len(left) < len(self._deadlines):
                self._state_changed.set()
            self._buffer_task_wakes_at = min(left, default=NEVER)
            await self._wake_buffer_task.wait(self._buffer_task_wakes_at)
            self._buffer_task_wakes_at = -NEVER

    def _update_buffer(self) -> None:
        state = type(self.machine.state)
        if (state in _FLUSHING) is not self._flushing:
            self._update_flushing()
        if state in _TO_ABORT:
            self._abort_records()

    def _update_flushing(self) -> None:
        """What is to be committed need not wait for more records."""
        pressing = isinstance(self.machine.state, _FLUSHING)
        if pressing is not self._flushing:
            self._flushing = pressing
            if pressing:
                self._accumulator.begin_flush()
            else:
                self._accumulator.end_flush()

    def _abort_records(self) -> None:
        """Send no more of a transaction that will be aborted.

        Answers are awaited, so that nothing of it comes into a log behind the marker of its end;
        where the end raises the epoch, which brokers check, that needs no care.
        """
        state = self.machine.state
        if isinstance(state, _TO_ABORT) and self._accumulator.incomplete:
            cause = state.error if isinstance(state, AbortableError) else None
            raised = state.transaction.transaction_version is TransactionVersion.TV_2
            self._accumulator.abort_transaction(
                self._aborted_error(cause), in_flight=raised and isinstance(state, Aborting)
            )

    # --- inside ---------------------------------------------------------------------------------

    def _handle(
        self,
        event: InitTransactions
        | AbortTransaction
        | DetachTransaction
        | RecordsFailed
        | EpochBumpRequired,
    ) -> None:
        self.machine.handle(event, self._now())
        self.scheduler.changed.set()
        if isinstance(self.machine.state, _TO_ABORT):
            self._wake_buffer_task.set()
            self._state_changed.set()

    async def _wait_until(self, done: Callable[[], bool], deadline: float, problem: str) -> None:
        if done():
            return
        caller = object()
        self._deadlines[caller] = deadline
        if deadline < self._buffer_task_wakes_at:
            self._wake_buffer_task.set()
        try:
            while True:
                if self._now() >= deadline:
                    trouble = self.machine.last_error
                    why = "" if trouble is None else f"; the last failure: {trouble}"
                    raise RequestTimedOut(
                        f"{problem}, and the time to wait is over{why}",
                        transactional_id=self.machine.transactional_id,
                    )
                await self._state_changed.wait()
                if done():
                    return
        finally:
            del self._deadlines[caller]

    async def _end_transaction(
        self,
        call: type[CommitTransaction | AbortTransaction],
        problem: str,
        within_s: float | None = None,
    ) -> Transaction:
        transaction = self.machine.transaction
        assert transaction is not None
        transaction.end_requested = True
        self._unfinished_call = call
        if call is AbortTransaction:
            self._abort_records()
        self._send_next()
        deadline = self._deadline() if within_s is None else self._now() + within_s
        machine, ending = self.machine, Committing if call is CommitTransaction else Aborting

        def ended() -> bool:
            state = machine.state
            return not (isinstance(state, ending) and state.transaction is transaction)

        await self._wait_until(ended, deadline, problem)
        self._unfinished_call = None
        return transaction

    def _has_ended_since(
        self, call: type[CommitTransaction | AbortTransaction], *, committed: bool
    ) -> bool:
        """Whether what is asked for was asked for before, and has been done since."""
        state = self.machine.state
        if self._unfinished_call is not call or getattr(state, "committed", None) is not committed:
            return False
        self._unfinished_call = None
        return True

    def _is_sending(self, transaction: Transaction | None) -> bool:
        taking = isinstance(self.machine.state, _SENDING)
        return taking and self.machine.transaction is transaction

    def raise_failure(self) -> None:
        """Raise why the transaction cannot be committed, if so."""
        state = self.machine.state
        if isinstance(state, AbortableError | FatalError):
            raise copy_error(state.error)

    def _aborted_error(self, cause: KafkaError | None) -> TransactionAborted:
        error = TransactionAborted(
            "the record's transaction is aborted", transactional_id=self.machine.transactional_id
        )
        if cause is not None:
            error.__cause__ = cause.__cause__
        return error

    def _aborted_meanwhile_error(self, intended: str) -> TransactionFailed:
        return TransactionFailed(
            f"the transaction was aborted while it was to be {intended}",
            transactional_id=self.machine.transactional_id,
        )

    def _choose_version(self) -> TransactionVersion:
        level = self._cluster.finalized_feature_level(TRANSACTION_VERSION_FEATURE)
        if level is not None:
            self._feature_level = level
        return (
            TransactionVersion.TV_2
            if self._feature_level >= TransactionVersion.TV_2
            else TransactionVersion.TV_0
        )

    def _deadline(self) -> float:
        return self._now() + self._config.max_block_ms / 1_000
