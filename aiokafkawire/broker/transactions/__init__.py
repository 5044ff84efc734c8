"""The transaction coordinator: what transactional ids may do, and how their transactions end."""

from aiokafkawire.broker.transactions.transaction_coordinator import TransactionCoordinator

__all__ = ("TransactionCoordinator",)
