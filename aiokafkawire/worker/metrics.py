"""Metrics of a worker and its clients."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from aiokafkawire.admin import Admin
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.share import ShareConsumer
from aiokafkawire.worker.circuit_breaker import BreakerState
from aiokafkawire.worker.session import WorkerSession

__all__ = ("MeteredClient", "client_metrics", "collect_metrics", "worker_metrics")

MeteredClient = Producer[Any, Any] | Consumer[Any, Any] | ShareConsumer | Admin


def worker_metrics(session: WorkerSession) -> dict[str, int | float]:
    """Return counters and gauges of a worker by name."""
    counters, scheduler = session.executor.counters, session.scheduler
    return {
        "records_processed_total": counters.processed,
        "attempts_failed_total": counters.failed,
        "attempts_retried_total": counters.retried,
        "records_delayed_total": counters.delayed,
        "records_dead_total": counters.dead,
        "records_dropped_total": counters.dropped,
        "attempts_fenced_total": scheduler.lost,
        "write_failures_total": counters.write_failures,
        "commit_failures_total": session.committer.failures,
        "assigned_partitions": len(scheduler.partitions),
        "paused_partitions": sum(work.is_paused for work in scheduler.partitions),
        "handlers_paused": int(
            scheduler.breaker is not None and scheduler.breaker.state is not BreakerState.CLOSED
        ),
        "running_records": sum(len(work.running) for work in scheduler.partitions),
        "delayed_records": scheduler.delayed,
        "buffered_records": scheduler.unfinished,
        "buffered_bytes": sum(work.size for work in scheduler.partitions),
    }


def collect_metrics(session: WorkerSession) -> dict[str, dict[str, int | float]]:
    """Return the metrics of a worker, its consumer and its producer, by prefix."""
    metrics = {"kafka_worker_": worker_metrics(session)}
    for client in (session.clients.reader, session.clients.producer):
        with suppress(KafkaError):  # the client has failed, or is closed while the worker stops
            metrics |= client_metrics(client)
    return metrics


def client_metrics(client: MeteredClient) -> dict[str, dict[str, int | float]]:
    """Return the metrics of a client by their prefix.

    Raises:
        KafkaError: The client does not run.
    """
    prefix = next(prefix for kind, prefix in _PREFIXES if isinstance(client, kind))
    return {prefix: client.metrics()}


_PREFIXES = (
    (Producer, "kafka_producer_"),
    (ShareConsumer, "kafka_share_consumer_"),
    (Consumer, "kafka_consumer_"),
    (Admin, "kafka_admin_"),
)
