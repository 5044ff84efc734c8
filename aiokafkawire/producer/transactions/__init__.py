"""Transactions: the machine that decides, the task that asks the coordinators, and the calls."""

from aiokafkawire.producer.transactions.driver import Transactions
from aiokafkawire.producer.transactions.ending import end_transaction
from aiokafkawire.producer.transactions.machine import concurrent_backoff
from aiokafkawire.producer.transactions.offsets import OffsetsSource, checked_offsets
from aiokafkawire.producer.transactions.prepared import PreparedTransaction
from aiokafkawire.producer.transactions.scope import TransactionScope
from aiokafkawire.producer.transactions.states import InTransaction, Transaction

__all__ = (
    "InTransaction",
    "OffsetsSource",
    "PreparedTransaction",
    "Transaction",
    "TransactionScope",
    "Transactions",
    "checked_offsets",
    "concurrent_backoff",
    "end_transaction",
)
