"""Workers: handlers of records with retries, dead letters and health."""

from aiokafkawire.worker.batch_policy import BatchPolicy
from aiokafkawire.worker.executor import HandlerTimedOut
from aiokafkawire.worker.handlers import WorkerRecord
from aiokafkawire.worker.health import WorkerHealth
from aiokafkawire.worker.outcomes import DeadLetter, Drop, FailedAt, Retry
from aiokafkawire.worker.results import RecordResult, RecordResults, WorkerResults
from aiokafkawire.worker.retry_policy import RetryPolicy
from aiokafkawire.worker.worker import Worker

__all__ = (
    "BatchPolicy",
    "DeadLetter",
    "Drop",
    "FailedAt",
    "HandlerTimedOut",
    "RecordResult",
    "RecordResults",
    "Retry",
    "RetryPolicy",
    "Worker",
    "WorkerHealth",
    "WorkerRecord",
    "WorkerResults",
)
