"""The calls of a transactional producer, and the events of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiokafkawire.cluster import Cluster
from aiokafkawire.config import ProducerConfig
from aiokafkawire.connection import Backoff
from aiokafkawire.errors import InvalidTxnState, KafkaError, TransactionFailed
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.batch_future import BatchFailed
from aiokafkawire.producer.sequences import TransactionalProducerIdState
from aiokafkawire.producer.transactions.buffered_records import TO_ABORT, BufferedRecords
from aiokafkawire.producer.transactions.detached import DetachedTransaction
from aiokafkawire.producer.transactions.offset_topics import OffsetTopics
from aiokafkawire.producer.transactions.request_sender import RequestSender
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
    RecordsFailed,
    RecordsSent,
    SendOffsetsToTransaction,
    Transaction,
    TransactionVersion,
)
from aiokafkawire.producer.transactions.waiting_calls import WaitingCalls
from aiokafkawire.runtime import NEVER, Runtime, Supervisor, copy_error
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ("FIRST_PRODUCE_WITH_TV_2", "LAST_PRODUCE_WITH_TV_0", "TransactionManager")

TRANSACTION_VERSION_FEATURE = "transaction.version"
NO_PRODUCER_ID = "the coordinator returned no producer id"
LAST_PRODUCE_WITH_TV_0 = 11
FIRST_PRODUCE_WITH_TV_2 = 12

# Tuples: `isinstance` with a union type builds the union on every call.
_SENDING = (InTransaction, Committing, Detaching)
_NOT_ENDED = (InTransaction, AbortableError)
_WITH_TRANSACTION = (*_SENDING, *TO_ABORT)

_RECORDS_SENT = RecordsSent()  # one instance: the event has no fields


class TransactionManager:
    """The transactions of one producer.

    Args:
        on_fatal_error: Called as `on_fatal_error(error, reported)` when the producer fails
            permanently. `reported` is True if a call raises the error.
        perform: Performs what follows from a call of the accumulator.
    """

    def __init__(
        self,
        config: ProducerConfig,
        runtime: Runtime,
        cluster: Cluster,
        accumulator: Accumulator,
        *,
        on_fatal_error: Callable[[KafkaError, bool], None],
        perform: Callable[[], None],
    ) -> None:
        assert config.transactional_id is not None
        self.machine = TransactionStateMachine(
            config.transactional_id,
            Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms),
        )
        self.calls = WaitingCalls(self.machine, runtime.clock.now)
        self.producer_id_state = TransactionalProducerIdState(
            self._can_send_to, self._on_epoch_bump_required
        )
        accumulator.producer_id_state = self.producer_id_state
        self._records = BufferedRecords(self.machine, accumulator, perform)
        self.requests = RequestSender(
            config,
            runtime,
            cluster,
            self.machine,
            records=self._records,
            calls=self.calls,
            producer_id_state=self.producer_id_state,
            on_fatal_error=on_fatal_error,
        )
        self._config = config
        self._now = runtime.clock.now
        self._cluster = cluster
        self._accumulator = accumulator
        self._offset_topics = OffsetTopics(
            cluster, config.transactional_id, config.metadata_max_idle_ms / 1_000, self._now
        )
        # The last call to commit or abort was interrupted before the end was known.
        self._unfinished_call: type[CommitTransaction | AbortTransaction] | None = None
        self._feature_level = 0

    def start(self, supervisor: Supervisor) -> None:
        """Start the background tasks."""
        supervisor.spawn(self.requests.run, name="transactions")
        supervisor.spawn(self._flush_or_abort_records, name="transaction records")

    # --- calls ---

    async def init_transactions(self, *, wait: bool = True) -> None:
        """Request a producer id: fence earlier producers and abort their open transaction.

        Args:
            wait: Wait for the producer id. If False, `begin` waits for it.

        Raises:
            RequestTimedOut: No producer id within `max_block_ms`.
        """
        self._handle(InitTransactions())
        if wait:
            await self.calls.wait_until(
                lambda: not self.machine.in_transition, self._deadline(), NO_PRODUCER_ID
            )
            self.raise_failure()

    async def begin(self) -> Transaction:
        """Begin a transaction after the previous one has ended."""
        machine, deadline = self.machine, self._deadline()
        if machine.in_transition:
            first = isinstance(machine.state, Initialising)
            problem = NO_PRODUCER_ID if first else "the previous transaction has not ended"
            await self.calls.wait_until(lambda: not machine.in_transition, deadline, problem)
        state = machine.state
        if self._unfinished_call is CommitTransaction and isinstance(state, AbortableError):
            # The call that committed was interrupted, so this call must abort.
            self._handle(AbortTransaction())
            self._unfinished_call = AbortTransaction
            raise copy_error(state.error)
        transaction_version = self._choose_version()
        if machine.must_bump_epoch(transaction_version):
            self._handle(InitTransactions())
            await self.calls.wait_until(
                lambda: not machine.in_transition,
                deadline,
                "the coordinator did not bump the epoch",
            )
        machine.handle(BeginTransaction(transaction_version), self._now())
        self._unfinished_call = None
        self._accumulator.abort_error = None
        assert isinstance(machine.state, InTransaction)
        return machine.state.transaction

    async def commit(self) -> None:
        """Commit. After a timeout or a cancellation, another call waits for the same commit."""
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
        """Abort. After a timeout or a cancellation, another call waits for the same abort.

        Args:
            within_s: Longest wait in seconds. Defaults to `max_block_ms`.
        """
        if self._unfinished_call is not None and self._has_ended_since(
            AbortTransaction, committed=False
        ):
            return
        self._handle(AbortTransaction())
        await self._end_transaction(
            AbortTransaction, "the coordinator has not confirmed the abort", within_s
        )
        self.raise_failure()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = None,
    ) -> None:
        """Send offsets of a group; wait until the group coordinator has them.

        Args:
            offsets: Offset of the next record to read, per partition.
            group: The group and the membership that the coordinator checks (KIP-447).
            on_committed: Called with the offsets once the transaction is committed.
        """
        self.check_open()
        if not offsets:
            return
        topics = {tp.topic for tp in offsets}
        within_s = self._config.request_timeout_ms / 1_000
        deadline = min(self._deadline(), self._now() + within_s)
        await self._offset_topics.fetch_ids(topics, group.group_id, deadline)
        commit = OffsetCommit(group, dict(offsets), on_committed)
        self.machine.handle(SendOffsetsToTransaction(commit), self._now())
        self.requests.send_next()
        transaction = self.machine.transaction
        await self.calls.wait_until(
            lambda: commit.done or not self._is_sending(transaction),
            self._deadline(),
            "the group coordinator has not accepted the offsets",
        )
        if not commit.done:
            self.raise_failure()
            raise self._records.aborted_error(None)

    async def detach(self) -> DetachedTransaction:
        """Send all buffered records and return the open transaction, which another process can end.

        A second call returns the same transaction.
        """
        self._handle(DetachTransaction())
        if self.machine.transaction is not None:
            self.machine.transaction.end_requested = True
        self._records.update_flushing()
        await self.calls.wait_until(
            lambda: not isinstance(self.machine.state, Detaching),
            self._deadline(),
            "records of the transaction are still in flight",
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
        """Abort an open transaction and wait until no commit or abort is in progress."""
        if isinstance(self.machine.state, InTransaction | AbortableError | Detaching):
            self._handle(AbortTransaction())
            self._records.abort()
        ending = Committing | Aborting
        await self.calls.wait_until(
            lambda: not isinstance(self.machine.state, ending),
            NEVER,
            "the transaction has not ended",
        )

    # --- calls and events of the rest of the producer ---

    @property
    def is_open(self) -> bool:
        """Return True if a transaction is open for records."""
        return type(self.machine.state) is InTransaction

    def check_open(self) -> None:
        """Raise unless a transaction is open."""
        if not self.is_open:
            self.machine.check_allowed(AddPartition)

    def check_same(self, transaction: Transaction | None) -> None:
        """Raise unless `transaction`, in which a waiting call began, is still open."""
        self.check_open()
        # mutation: waiting-record-joins-next-transaction
        if self.machine.transaction is not transaction:
            raise InvalidTxnState(
                "the record's transaction ended while the call was waiting",
                transactional_id=self.machine.transactional_id,
            )

    def add_partition(self, partition: TopicPartition) -> None:
        """Add the partition of a record to the open transaction."""
        state = self.machine.state
        assert isinstance(state, InTransaction)
        transaction = state.transaction
        if (
            partition not in transaction.partitions
            and partition not in transaction.pending_partitions
        ):
            self.machine.handle(AddPartition(partition), self._now())
            if transaction.pending_partitions:
                self.requests.changed.set()

    def on_records_sent(self) -> None:
        """Note that records of the transaction were sent."""
        self.machine.handle(_RECORDS_SENT, self._now())

    def on_batches_completed(self, failed: BatchFailed | None) -> None:
        """Fail the transaction if a batch failed; continue if all batches are complete."""
        if failed is not None:
            self._handle(RecordsFailed(failed.error))
        elif not self._accumulator.incomplete:
            self.requests.request_step()

    def on_late_response(self) -> None:
        """Continue after a late response: it was for a batch that had already expired."""
        self.requests.changed.set()

    def fail(self, error: KafkaError) -> None:
        """Fail the producer permanently because of an error outside of transactions."""
        if error.transactional_id is None:
            error.transactional_id = self.machine.transactional_id
        self.machine.handle(ProducerFailed(error), self._now())
        self.requests.changed.set()
        self.calls.state_changed.set()

    def produce_versions(self) -> tuple[int, int | None]:
        """Return the lowest and highest Produce version for the transaction; None has no limit."""
        state = self.machine.state
        if (
            not isinstance(state, _WITH_TRANSACTION)
            or state.transaction.transaction_version is TransactionVersion.TV_0
        ):
            return 0, LAST_PRODUCE_WITH_TV_0
        return FIRST_PRODUCE_WITH_TV_2, None

    def needs_end(self, transaction: Transaction) -> bool:
        """Return True if the transaction is open or can only be aborted."""
        state = self.machine.state
        return isinstance(state, _NOT_ENDED) and state.transaction is transaction

    def is_detaching(self, transaction: Transaction) -> bool:
        """Return True while `detach_transaction` waits for the transaction's records."""
        detaching = isinstance(self.machine.state, Detaching)
        return detaching and self.machine.transaction is transaction

    def metrics(self) -> dict[str, int]:
        """Return the number of transactions begun, committed and aborted."""
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

    # --- helpers ---

    async def _flush_or_abort_records(self) -> None:
        """Flush the records of a commit and drop those of an abort; watch deadlines of calls.

        Runs beside `RequestSender.run`, which waits for responses.
        """
        while True:
            self._records.update()
            await self.calls.watch_deadlines()

    def _handle(
        self,
        event: InitTransactions
        | AbortTransaction
        | DetachTransaction
        | RecordsFailed
        | EpochBumpRequired,
    ) -> None:
        self.machine.handle(event, self._now())
        self.requests.changed.set()
        if isinstance(self.machine.state, TO_ABORT):
            self.calls.wake_task()
            self.calls.state_changed.set()

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
            self._records.abort()
        self.requests.send_next()
        deadline = self._deadline() if within_s is None else self._now() + within_s
        machine, ending = self.machine, Committing if call is CommitTransaction else Aborting

        def ended() -> bool:
            state = machine.state
            return not (isinstance(state, ending) and state.transaction is transaction)

        await self.calls.wait_until(ended, deadline, problem)
        self._unfinished_call = None
        return transaction

    def _has_ended_since(
        self, call: type[CommitTransaction | AbortTransaction], *, committed: bool
    ) -> bool:
        """Return True if the end that an interrupted call has begun is complete now."""
        state = self.machine.state
        if self._unfinished_call is not call or getattr(state, "committed", None) is not committed:
            return False
        self._unfinished_call = None
        return True

    def _is_sending(self, transaction: Transaction | None) -> bool:
        taking = isinstance(self.machine.state, _SENDING)
        return taking and self.machine.transaction is transaction

    def raise_failure(self) -> None:
        """Raise the error of a failed transaction or producer."""
        state = self.machine.state
        if isinstance(state, AbortableError | FatalError):
            raise copy_error(state.error)

    def _aborted_meanwhile_error(self, intended: str) -> TransactionFailed:
        return TransactionFailed(
            f"the transaction was aborted before it was {intended}",
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
