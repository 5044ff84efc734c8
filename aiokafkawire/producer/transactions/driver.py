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
from aiokafkawire.producer.transactions.conversation import Conversation
from aiokafkawire.producer.transactions.machine import TransactionMachine
from aiokafkawire.producer.transactions.prepared import PreparedTransaction
from aiokafkawire.producer.transactions.states import (
    Abort,
    AbortableError,
    Aborting,
    Begin,
    Commit,
    Committing,
    Detach,
    Detached,
    Detaching,
    Failed,
    FatalError,
    Initialise,
    Initialising,
    InTransaction,
    NumbersLost,
    OffsetCommit,
    Protocol,
    Ready,
    RecordsFailed,
    RecordsSent,
    Request,
    SendOffsets,
    Transaction,
    UsePartition,
)
from aiokafkawire.runtime import NEVER, AutoResetEvent, Runtime, Supervisor, copy_error
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition

__all__ = ("FIRST_IMPLICIT_PRODUCE", "LAST_CLASSIC_PRODUCE", "Transactions")

logger = logging.getLogger("aiokafkawire.producer")

FEATURE = "transaction.version"
NO_PRODUCER_ID = "no producer id was given"
LAST_CLASSIC_PRODUCE = 11
FIRST_IMPLICIT_PRODUCE = 12

# Tuples, not unions, which would be made anew at each look.
_SENDING = (InTransaction, Committing, Detaching)
_PRESSING = (Committing, Detaching)
_DROPPING = (AbortableError, Aborting)
_UNENDED = (InTransaction, AbortableError)
_GOING = (*_SENDING, *_DROPPING)

_SENT = RecordsSent()  # of each request, the same


class _Steps:
    """When the next step is taken: by `go_on`, or by the task.

    The task waits for `changed` until `waits_until`; `left` is a request that it is to send. While
    this is entered several things happen that are one: `go_on` is called once, after them, if
    `later()` was.
    """

    __slots__ = ("_entered", "_go_on", "_wanted", "changed", "left", "waits_until")

    def __init__(self, go_on: Callable[[], None]) -> None:
        self.changed = AutoResetEvent()
        self.waits_until = -NEVER
        self.left: Request | None = None
        self._go_on = go_on
        self._entered = False
        self._wanted = False

    def later(self) -> None:
        """Something has changed."""
        if self._entered:
            self._wanted = True
        else:
            self.changed.set()

    def __enter__(self) -> None:
        self._entered = True

    def __exit__(self, *_: object) -> None:
        self._entered = False
        if self._wanted:
            self._wanted = False
            self._go_on()


class Transactions:
    """The transactions of a producer. `fail(error, told=…)` is called when it cannot go on; `told`
    says whether some call raises it."""

    def __init__(
        self,
        config: ProducerConfig,
        runtime: Runtime,
        cluster: Cluster,
        accumulator: Accumulator,
        fail: Callable[[KafkaError, bool], None],
    ) -> None:
        assert config.transactional_id is not None
        self.machine = TransactionMachine(
            config.transactional_id,
            Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms),
        )
        self._conversation = Conversation(
            self.machine,
            cluster,
            runtime,
            transaction_timeout_ms=config.transaction_timeout_ms,
        )
        self.producer_id_state = TransactionalProducerIdState(self._admits, self._numbers_lost)
        accumulator.producer_id_state = self.producer_id_state
        self._config = config
        self._producer_id: int | None = None
        self._now = runtime.clock.now
        self._cluster = cluster
        self._accumulator = accumulator
        self._fail = fail
        self.steps = _Steps(self._go_on)
        self._stirred = AutoResetEvent()
        self._heard = AutoResetEvent()
        # When the waiting of each caller ends; one task watches all, as a timer for each would cost
        # more than most waits last. `_watches_until`: when it looks next, if it is not at it.
        self._deadlines: dict[object, float] = {}
        self._watches_until = -NEVER
        # The last call to end a transaction left before it knew how that ended.
        self._unheard: type[Commit | Abort] | None = None
        self._pressing = False
        self._level = 0

    def start(self, supervisor: Supervisor) -> None:
        """Start the tasks."""
        supervisor.spawn(self._run, name="transactions")
        supervisor.spawn(self._keep_buffer, name="records of transactions")

    # --- calls ---------------------------------------------------------------------------------

    async def initialise(self, *, wait: bool = True) -> None:
        """Get a producer id: earlier producers of this name are fenced, and what they left open is
        aborted. Raises `RequestTimedOut` after `max_block_ms`. Unless it is to wait, `begin` does.
        """
        self._handle(Initialise())
        if wait:
            await self._until(lambda: not self.machine.ending, self._deadline(), NO_PRODUCER_ID)
            self.raise_failure()

    async def begin(self) -> Transaction:
        """Begin a transaction, once the one before has ended."""
        machine, deadline = self.machine, self._deadline()
        if machine.ending:
            first = isinstance(machine.state, Initialising)
            what = NO_PRODUCER_ID if first else "the transaction before has not ended"
            await self._until(lambda: not machine.ending, deadline, what)
        state = machine.state
        if self._unheard is Commit and isinstance(state, AbortableError):
            # Whoever wanted the commit has left: nobody else aborts.
            self._handle(Abort())
            self._unheard = Abort
            raise copy_error(state.error)
        protocol = self._protocol()
        if machine.must_raise(protocol):
            self._handle(Initialise())
            await self._until(lambda: not machine.ending, deadline, "no epoch was given")
        machine.handle(Begin(protocol), self._now())
        self._unheard = None
        self._accumulator.abort_error = None
        assert isinstance(machine.state, InTransaction)
        return machine.state.transaction

    async def commit(self) -> None:
        """Commit. Calling it again after `RequestTimedOut` or a cancellation goes on waiting."""
        if self._unheard is not None and self._was_unheard(Commit, committed=True):
            return
        self.machine.handle(Commit(), self._now())
        transaction = await self._end(Commit, "whether the transaction is committed is not known")
        if transaction.committed:
            return
        self.raise_failure()
        raise self._aborted_meanwhile("committed")

    async def abort(self, within_s: float | None = None) -> None:
        """Abort; waits for `max_block_ms`, or for so many seconds. Calling it again after
        `RequestTimedOut` or a cancellation goes on waiting."""
        if self._unheard is not None and self._was_unheard(Abort, committed=False):
            return
        self._handle(Abort())
        await self._end(Abort, "the coordinator has not answered to the abort", within_s)
        self.raise_failure()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        kept: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = None,
    ) -> None:
        """Commit positions of a group with the transaction; returns when its coordinator has
        them. `kept` is called when the transaction is known to be committed."""
        self.check_open()
        if not offsets:
            return
        commit = OffsetCommit(group, dict(offsets), kept)
        self.machine.handle(SendOffsets(commit), self._now())
        self._go_on()
        transaction = self.machine.transaction
        await self._until(
            lambda: commit.done or not self._takes(transaction),
            self._deadline(),
            "the group's coordinator has not taken the offsets",
        )
        if not commit.done:
            self.raise_failure()
            raise self._aborted(None)

    async def detach(self) -> PreparedTransaction:
        """Send what was taken, and give the transaction away; once more gives the same again."""
        self._handle(Detach())
        if self.machine.transaction is not None:
            self.machine.transaction.asked = True
        self._keep_pressing()
        await self._until(
            lambda: not isinstance(self.machine.state, Detaching),
            self._deadline(),
            "records of the transaction are still on their way",
        )
        self.raise_failure()
        state = self.machine.state
        if not isinstance(state, Detached):
            raise self._aborted_meanwhile("detached")
        transaction = state.transaction
        return PreparedTransaction(
            self.machine.transactional_id,
            transaction.identity.producer_id,
            transaction.identity.epoch,
            int(transaction.protocol),
            empty=not transaction.known,
        )

    async def close(self) -> None:
        """Abort what is open, and let an end that is under way come to its end."""
        if isinstance(self.machine.state, InTransaction | AbortableError | Detaching):
            self._handle(Abort())
            self._drop_records()
        ending = Committing | Aborting
        await self._until(
            lambda: not isinstance(self.machine.state, ending), NEVER, "the transaction goes on"
        )

    # --- what the rest of the producer tells ----------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether a transaction takes records."""
        return type(self.machine.state) is InTransaction

    def check_open(self) -> None:
        """Raise unless a transaction is open."""
        if not self.open:
            self.machine.check(UsePartition)

    def check_still(self, transaction: Transaction | None) -> None:
        """Raise unless this transaction is open, in which a call began that had to wait."""
        self.check_open()
        # mutation: waiting-record-joins-next-transaction
        if self.machine.transaction is not transaction:
            raise InvalidTxnState(
                "the transaction in which the record was to be sent has ended meanwhile",
                transactional_id=self.machine.transactional_id,
            )

    def use(self, partition: TopicPartition) -> None:
        """A record goes to a partition, in the transaction that is open."""
        state = self.machine.state
        assert isinstance(state, InTransaction)
        transaction = state.transaction
        if partition not in transaction.partitions and partition not in transaction.wanted:
            self.machine.handle(UsePartition(partition), self._now())
            if transaction.wanted:
                self.steps.changed.set()

    def sent(self) -> None:
        """Records go to a broker."""
        self.machine.handle(_SENT, self._now())

    def settled(self, outcome: BatchOutcome) -> None:
        """A batch has its outcome."""
        if isinstance(outcome, BatchFailed):
            self._handle(RecordsFailed(outcome.error))
        elif not self._accumulator.incomplete:
            self.steps.later()

    def landed(self) -> None:
        """A batch that had its outcome before is under way no more."""
        self.steps.changed.set()

    def failed(self, error: KafkaError) -> None:
        """The producer cannot go on, for a reason from elsewhere."""
        if error.transactional_id is None:
            error.transactional_id = self.machine.transactional_id
        self.machine.handle(Failed(error), self._now())
        self.steps.changed.set()
        self._heard.set()

    def produce_versions(self) -> tuple[int, int | None]:
        """The versions of Produce in which records of this transaction may go."""
        state = self.machine.state
        if not isinstance(state, _GOING) or state.transaction.protocol is Protocol.CLASSIC:
            return 0, LAST_CLASSIC_PRODUCE
        return FIRST_IMPLICIT_PRODUCE, None

    def unended(self, transaction: Transaction) -> bool:
        """Whether a transaction is open, or can only be aborted."""
        state = self.machine.state
        return isinstance(state, _UNENDED) and state.transaction is transaction

    def detaching(self, transaction: Transaction) -> bool:
        """Whether a transaction is to be given away, and nobody has it yet."""
        detaching = isinstance(self.machine.state, Detaching)
        return detaching and self.machine.transaction is transaction

    @property
    def awaited(self) -> bool:
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

    def _admits(self, partition: TopicPartition) -> bool:
        state = self.machine.state
        return isinstance(state, _SENDING) and partition in state.transaction.partitions

    def _numbers_lost(self) -> None:
        self._handle(NumbersLost())

    # --- the tasks ------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Send what the machine wants sent, one request after the other."""
        while True:
            request, self.steps.left = self.steps.left or self._next(), None
            if request is None:
                self.steps.waits_until = self.machine.next_deadline()
                await self.steps.changed.wait(self.steps.waits_until)
                self.steps.waits_until = -NEVER
                continue
            try:
                await self._conversation.ask(request)
            except ClientClosed:
                return
            self._answered()

    def _go_on(self) -> None:
        """Send what the machine wants sent, if nothing has to be waited for before; else the task
        does it."""
        request = self._next()
        if request is None:
            if self.machine.next_deadline() < self.steps.waits_until:
                self.steps.changed.set()
        elif not self._conversation.ask_now(request, self._heard_answer):
            self.steps.left = request
            self.steps.changed.set()

    def _heard_answer(self) -> None:
        self._answered()
        if type(self.machine.state) is not Ready:  # between transactions nothing is asked
            self._go_on()

    def _next(self) -> Request | None:
        """What the machine wants sent now."""
        machine = self.machine
        self._keep_buffer_in_step()
        flushed = self._flushed()
        gap = flushed and isinstance(machine.state, Aborting) and self._gap()
        before = machine.state
        request = machine.next_request(self._now(), flushed=flushed, gap=gap)
        if machine.state is not before:
            self._moved()
        return request

    def _answered(self) -> None:
        # Partitions that waited to be added may be sent to now.
        self._accumulator.wake_all()
        self._moved()

    def _flushed(self) -> bool:
        """Whether nothing waits any more, and nothing can come into a log behind the end's marker.

        Where the end raises the epoch, logs refuse that by themselves.
        """
        if self._accumulator.incomplete:
            return False
        state = self.machine.state
        if not isinstance(state, Aborting) or state.transaction.protocol is Protocol.IMPLICIT:
            return True
        # mutation: abort-overtakes-expired-record
        return not self._accumulator.has_expired_in_flight

    def _moved(self) -> None:
        """The machine may have gone to another state."""
        state = self.machine.state
        if isinstance(state, Ready):
            self.producer_id_state.current = state.identity
            if state.identity.producer_id != self._producer_id:
                # The epoch may change with each transaction (KIP-890).
                self._note_producer_id(state.identity)
            kept, self.machine.kept = self.machine.kept, []
            for commit in kept:  # the last positions of a partition count
                if commit.kept is not None:
                    self._tell_kept(commit.kept, commit.offsets)
        elif isinstance(state, FatalError):
            self._fail(state.error, self.awaited)
        self._keep_buffer_in_step()
        self._heard.set()

    def _note_producer_id(self, identity: ProducerIdAndEpoch) -> None:
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

    def _tell_kept(
        self,
        kept: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        try:
            kept(offsets)
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

    def _gap(self) -> bool:
        """Whether sequence numbers cannot go on under this epoch, now that nothing has one."""
        if not self.machine.can_raise:
            self._accumulator.resume_sequences()
        return self._accumulator.has_sequence_gap

    async def _keep_buffer(self) -> None:
        """Keep the buffer in step with the transaction while the other task waits for answers, and
        tell callers that the time which they wait is over."""
        while True:
            self._keep_buffer_in_step()
            now = self._now()
            left = [deadline for deadline in self._deadlines.values() if deadline > now]
            if len(left) < len(self._deadlines):
                self._heard.set()
            self._watches_until = min(left, default=NEVER)
            await self._stirred.wait(self._watches_until)
            self._watches_until = -NEVER

    def _keep_buffer_in_step(self) -> None:
        state = type(self.machine.state)
        if (state in _PRESSING) is not self._pressing:
            self._keep_pressing()
        if state in _DROPPING:
            self._drop_records()

    def _keep_pressing(self) -> None:
        """What is to be committed need not wait for more records."""
        pressing = isinstance(self.machine.state, _PRESSING)
        if pressing is not self._pressing:
            self._pressing = pressing
            if pressing:
                self._accumulator.begin_flush()
            else:
                self._accumulator.end_flush()

    def _drop_records(self) -> None:
        """Send no more of a transaction that will be aborted.

        Answers are awaited, so that nothing of it comes into a log behind the marker of its end;
        where the end raises the epoch, which brokers check, that needs no care.
        """
        state = self.machine.state
        if isinstance(state, _DROPPING) and self._accumulator.incomplete:
            cause = state.error if isinstance(state, AbortableError) else None
            raised = state.transaction.protocol is Protocol.IMPLICIT
            self._accumulator.abort_transaction(
                self._aborted(cause), in_flight=raised and isinstance(state, Aborting)
            )

    # --- inside ---------------------------------------------------------------------------------

    def _handle(self, event: Initialise | Abort | Detach | RecordsFailed | NumbersLost) -> None:
        self.machine.handle(event, self._now())
        self.steps.changed.set()
        if isinstance(self.machine.state, _DROPPING):
            self._stirred.set()
            self._heard.set()

    async def _until(self, done: Callable[[], bool], deadline: float, what: str) -> None:
        if done():
            return
        caller = object()
        self._deadlines[caller] = deadline
        if deadline < self._watches_until:
            self._stirred.set()
        try:
            while True:
                if self._now() >= deadline:
                    trouble = self.machine.trouble
                    why = "" if trouble is None else f"; the last failure: {trouble}"
                    raise RequestTimedOut(
                        f"{what}, and the time to wait is over{why}",
                        transactional_id=self.machine.transactional_id,
                    )
                await self._heard.wait()
                if done():
                    return
        finally:
            del self._deadlines[caller]

    async def _end(
        self, call: type[Commit | Abort], what: str, within_s: float | None = None
    ) -> Transaction:
        transaction = self.machine.transaction
        assert transaction is not None
        transaction.asked = True
        self._unheard = call
        if call is Abort:
            self._drop_records()
        self._go_on()
        deadline = self._deadline() if within_s is None else self._now() + within_s
        machine, ending = self.machine, Committing if call is Commit else Aborting

        def ended() -> bool:
            state = machine.state
            return not (isinstance(state, ending) and state.transaction is transaction)

        await self._until(ended, deadline, what)
        self._unheard = None
        return transaction

    def _was_unheard(self, call: type[Commit | Abort], *, committed: bool) -> bool:
        """Whether what is asked for was asked for before, and has been done since."""
        state = self.machine.state
        if self._unheard is not call or getattr(state, "committed", None) is not committed:
            return False
        self._unheard = None
        return True

    def _takes(self, transaction: Transaction | None) -> bool:
        taking = isinstance(self.machine.state, _SENDING)
        return taking and self.machine.transaction is transaction

    def raise_failure(self) -> None:
        """Raise why the transaction cannot be committed, if so."""
        state = self.machine.state
        if isinstance(state, AbortableError | FatalError):
            raise copy_error(state.error)

    def _aborted(self, cause: KafkaError | None) -> TransactionAborted:
        error = TransactionAborted(
            "the record's transaction is aborted", transactional_id=self.machine.transactional_id
        )
        if cause is not None:
            error.__cause__ = cause.__cause__
        return error

    def _aborted_meanwhile(self, what: str) -> TransactionFailed:
        return TransactionFailed(
            f"the transaction was aborted while it was to be {what}",
            transactional_id=self.machine.transactional_id,
        )

    def _protocol(self) -> Protocol:
        level = self._cluster.finalized_feature_level(FEATURE)
        if level is not None:
            self._level = level
        return Protocol.IMPLICIT if self._level >= Protocol.IMPLICIT else Protocol.CLASSIC

    def _deadline(self) -> float:
        return self._now() + self._config.max_block_ms / 1_000
