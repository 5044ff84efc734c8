"""The transaction coordinator: what transactional ids may do, and how their transactions end."""

from aiokafkawire.broker.transactions.coordinator import Transactions

__all__ = ("Transactions",)
