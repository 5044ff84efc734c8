"""Transactions: the state machine, the requests to the coordinators, and the calls."""

from aiokafkawire.producer.transactions.context_manager import TransactionContextManager
from aiokafkawire.producer.transactions.detached import DetachedTransaction
from aiokafkawire.producer.transactions.end_detached import end_detached_transaction
from aiokafkawire.producer.transactions.group_offsets import OffsetsSource, validate_offsets
from aiokafkawire.producer.transactions.manager import TransactionManager
from aiokafkawire.producer.transactions.state_machine import concurrent_transactions_backoff
from aiokafkawire.producer.transactions.states import InTransaction, Transaction

__all__ = (
    "DetachedTransaction",
    "InTransaction",
    "OffsetsSource",
    "Transaction",
    "TransactionContextManager",
    "TransactionManager",
    "concurrent_transactions_backoff",
    "end_detached_transaction",
    "validate_offsets",
)
