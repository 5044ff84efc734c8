"""Calls of a producer about transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

from aiokafkawire.producer.session import ProducerSession
from aiokafkawire.producer.transactions import (
    DetachedTransaction,
    OffsetsSource,
    TransactionContextManager,
    TransactionManager,
    validate_offsets,
)
from aiokafkawire.runtime import BaseClient
from aiokafkawire.types import GroupMetadata, OffsetsArgument, PartitionT

__all__ = ("TransactionCalls",)


class TransactionCalls(BaseClient[ProducerSession]):
    """Transactions of a producer with a `transactional_id`."""

    def transaction(self) -> TransactionContextManager:
        """Return a transaction for `async with` (KIP-98): it commits on exit.

        If the body raises or is cancelled, the transaction is aborted and the exception is raised
        unchanged; if the abort fails, the exception has a note. A cancelled body waits up to 1 s
        for the abort, which then continues in the background.

        ::

            async with producer.transaction():
                await producer.send("orders", value=b"...")

        Raises:
            InvalidTxnState: The producer has no `transactional_id`. Entering raises it if
                another transaction is open.
        """
        session = self._lifecycle.require_session_in_loop()
        return TransactionContextManager(session.require_transaction_manager(), session.sender)

    async def begin_transaction(self) -> None:
        """Begin a transaction, after waiting up to `max_block_ms` for the previous one to end.

        Raises:
            InvalidTxnState: A transaction is open.
            TransactionFailed: `commit_transaction` of the previous transaction timed out or was
                cancelled, and the commit failed since. That transaction is aborted; call this
                again.
            ProducerFenced: Another producer uses the `transactional_id`.
            RequestTimedOut: The previous transaction has not ended within `max_block_ms`.
        """
        await self._transaction_manager().begin()

    async def commit_transaction(self) -> None:
        """Send the buffered records and commit the transaction (EndTxn).

        After `RequestTimedOut` or a cancellation the commit continues in the background. Call this
        again to learn whether it succeeded; `begin_transaction` waits for it.

        Raises:
            TransactionFailed: A record failed, or a coordinator refused. Abort the transaction.
            RequestTimedOut: The commit has not ended within `max_block_ms`.
            InvalidTxnState: No transaction is open.
            ProducerFenced: Another producer uses the `transactional_id`.
        """
        await self._transaction_manager().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction (EndTxn): consumers with `read_committed` skip its records.

        Records that are not acknowledged yet are dropped; their deliveries raise
        `TransactionAborted`. After `RequestTimedOut` or a cancellation the abort continues in the
        background.

        Raises:
            RequestTimedOut: The abort has not ended within `max_block_ms`.
            InvalidTxnState: No transaction is open.
            ProducerFenced: Another producer uses the `transactional_id`.
        """
        await self._transaction_manager().abort()

    @overload
    async def send_offsets_to_transaction(self, offsets: OffsetsSource, /) -> None: ...

    @overload
    async def send_offsets_to_transaction(
        self,
        offsets: OffsetsArgument[PartitionT],
        group_metadata: GroupMetadata,
        /,
    ) -> None: ...

    async def send_offsets_to_transaction(
        self,
        offsets: OffsetsSource | OffsetsArgument[PartitionT],
        group_metadata: GroupMetadata | None = None,
        /,
    ) -> None:
        """Commit offsets of a consumer group as part of the transaction (KIP-447).

        Returns when the group coordinator has stored the offsets. They take effect when the
        transaction commits.

        Args:
            offsets: The consumer, to commit the positions after all records it has returned; or
                the offset of the next record to read for each partition.
            group_metadata: `consumer.group_metadata()`; required with offsets, and not allowed
                with a consumer.

        Raises:
            ValueError: The consumer has `enable_auto_commit` set.
            TransactionFailed: The coordinator refused. The cause is `CommitFailed` if the consumer
                is no longer a member of the group.
            InvalidTxnState: No transaction is open.
            RequestTimedOut: The offsets were not stored within `max_block_ms`.
        """
        transaction_manager = self._transaction_manager()
        if isinstance(offsets, Mapping):
            if not isinstance(group_metadata, GroupMetadata):
                raise TypeError("pass the GroupMetadata of the group that the offsets belong to")
            checked = validate_offsets(offsets, group_metadata)
            await transaction_manager.send_offsets_to_transaction(checked, group_metadata)
            return
        if group_metadata is not None:
            raise TypeError("pass a consumer without group_metadata: it knows its group")
        if offsets.config.enable_auto_commit:
            raise ValueError(
                "a consumer whose offsets are committed in transactions must not auto-commit:"
                " create it with enable_auto_commit=False"
            )
        await transaction_manager.send_offsets_to_transaction(
            offsets.positions(), offsets.group_metadata(), offsets.mark_committed
        )

    async def detach_transaction(self) -> DetachedTransaction:
        """Send all buffered records and leave the transaction open for another process to end.

        `end_detached_transaction` commits or aborts it, from any process.

        Afterwards the producer begins no more transactions, and stopping it leaves this one open.
        Until this has returned the transaction can still be aborted, and stopping the producer
        does so. May be called again, for example after `RequestTimedOut` or a cancellation.

        Returns:
            What `end_detached_transaction` needs; `to_json` turns it into text.

        Raises:
            TransactionFailed: A record failed. Abort the transaction.
            RequestTimedOut: Records are still in flight after `max_block_ms`.
            InvalidTxnState: No transaction is open.
        """
        return await self._transaction_manager().detach()

    def _transaction_manager(self) -> TransactionManager:
        return self._lifecycle.require_session_in_loop().require_transaction_manager()
