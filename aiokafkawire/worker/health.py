"""Health of a worker, for the probes of Kubernetes and other supervisors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aiokafkawire.worker.circuit_breaker import BreakerState
from aiokafkawire.worker.health_server import Page
from aiokafkawire.worker.session import POLL_TIMEOUT_MS, WorkerSession

__all__ = ("WorkerHealth", "check_health", "health_page")


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """Health of a worker.

    Attributes:
        is_alive: False if the worker makes no progress and should be restarted: an attempt runs, or
            writes of failed records fail, for longer than `stall_timeout_ms`, or the worker failed.
            An idle worker is alive, also while no broker can be reached.
        is_ready: True from the first assignment until the worker stops, except while handlers are
            paused (`pause_after_failures`).
        reasons: Why it is not alive or not ready.
        running: Records whose handler runs, or whose copy is being written.
        delayed: Records that wait for their next attempt.
        oldest_attempt_s: Age of the oldest running attempt, in seconds; 0 without one.
    """

    is_alive: bool
    is_ready: bool
    reasons: tuple[str, ...]
    running: int
    delayed: int
    oldest_attempt_s: float


def check_health(session: WorkerSession) -> WorkerHealth:
    """Return the health of a running worker."""
    now = session.runtime.clock.now()
    limit_s = session.config.stall_timeout_ms / 1_000
    running = [item for work in session.scheduler.partitions for item in work.running]
    processing = [item for item in running if item.failures.unwritten is None]
    oldest = min(processing, key=lambda item: item.started, default=None)
    oldest_s = 0.0 if oldest is None else now - oldest.started
    dead: list[str] = []
    if session.failure is not None:
        dead.append(f"the worker failed: {_shown(session.failure)}")
    if oldest is not None and oldest_s > limit_s:
        dead.append(
            f"{oldest.handler.name} has been processing {oldest.partition.tp} offset"
            f" {oldest.record.offset} for {oldest_s:.0f} s"
        )
    unwritten_s = now - min((copy.since for copy in session.scheduler.unwritten), default=now)
    if unwritten_s > limit_s:
        dead.append(f"failed records could not be written for {unwritten_s:.0f} s")
    failing_since = session.committer.failing_since
    if session.config.is_exactly_once and failing_since is not None:
        failing_s = now - failing_since
        if failing_s > limit_s:
            dead.append(f"transactions have failed for {failing_s:.0f} s")
    drain_s = session.config.drain_timeout_ms / 1_000
    unpolled_s = now - session.polled_at
    if unpolled_s > limit_s + drain_s + POLL_TIMEOUT_MS / 1_000 and not session.ended.is_set():
        dead.append(f"no poll for records for {unpolled_s:.0f} s")
    unready: list[str] = []
    if not session.has_been_assigned:
        unready.append("no partitions have been assigned yet")
    breaker = session.scheduler.breaker
    if breaker is not None and breaker.state is not BreakerState.CLOSED:
        unready.append(
            f"handlers are paused after {breaker.failures} failures in a row:"
            f" {_shown(breaker.error)}"
        )
    if session.ended.is_set():
        unready.append("the worker is stopping")
    return WorkerHealth(
        is_alive=not dead,
        is_ready=not dead and not unready,
        reasons=(*dead, *unready),
        running=len(running),
        delayed=session.scheduler.delayed,
        oldest_attempt_s=oldest_s,
    )


def _shown(error: BaseException | None) -> str:
    try:
        return f"{error!r:.200}"
    except Exception:  # the text of an exception may raise
        return type(error).__qualname__


def health_page(health: WorkerHealth, question: Literal["is_alive", "is_ready"]) -> Page:
    """Return the response of a probe."""
    is_ok: bool = getattr(health, question)
    return Page(200 if is_ok else 503, "ok\n" if is_ok else "\n".join(health.reasons) + "\n")
