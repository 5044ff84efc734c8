"""Transaction coordinator: state of transactional ids, and markers of their transactions."""

from aiokafkawire.broker.transactions.transaction_coordinator import TransactionCoordinator

__all__ = ("TransactionCoordinator",)
