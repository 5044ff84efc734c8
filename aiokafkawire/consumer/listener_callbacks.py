"""Runs the methods of a rebalance listener one after the other, each up to a deadline."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

import anyio

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.runtime import Clock, Supervisor, current_task, is_failure_of_callback
from aiokafkawire.types import TopicPartition

from .delivery import RecordDelivery
from .notifier import Notifier

__all__ = ("ListenerCallbacks",)

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLBACKS = 1_000
"""The most callbacks that wait for the one before them."""

Callback = Callable[[Collection[TopicPartition]], object]
"""A method of a listener; its result is awaited if it is awaitable."""


class CallbackSlot(NamedTuple):
    """A callback's place in the order: it starts when `previous` is set, and sets `done`."""

    previous: anyio.Event | None
    done: anyio.Event


class ListenerCallbacks:
    """Runs callbacks in the order in which they are requested. Meanwhile nothing is delivered."""

    def __init__(
        self,
        clock: Clock,
        supervisor: Supervisor,
        config: ConsumerConfig,
        *,
        delivery: RecordDelivery,
        notifier: Notifier,
    ) -> None:
        self._clock = clock
        self._supervisor = supervisor
        self._config = config
        self._delivery = delivery
        self._notifier = notifier
        self._rate_limit = RateLimit()
        self._last_callback: anyio.Event | None = None
        self._callback_task: object = None

    def is_callback_task(self, task: object) -> bool:
        """Return whether this task runs a callback."""
        return task is self._callback_task

    def schedule(self, callback: Callback, partitions: Collection[TopicPartition]) -> None:
        """Run a callback in a task of its own, after those before it."""
        if not self._supervisor.is_running:
            return
        if self._delivery.pending_callbacks >= MAX_CALLBACKS:
            failure = KafkaError(
                f"the rebalance listener is {MAX_CALLBACKS:,} calls behind:"
                f" {getattr(callback, '__name__', callback)} is not called for"
                f" {len(partitions)} partitions"
            )
            logger.log(
                self._rate_limit.level(logging.ERROR, None, self._clock.now()),
                "Group %s: %s",
                self._config.group_id,
                failure,
                extra=log_fields(self._supervisor.fields, error=failure),
            )
            self._notifier.raise_in_next_call(failure)
            return
        # The slot is reserved here, because tasks may not start in the order of `spawn`.
        self._supervisor.spawn(
            self._run, callback, partitions, self._reserve_slot(), name="rebalance-callback"
        )

    async def run(self, callback: Callback, partitions: Collection[TopicPartition]) -> None:
        """Run a callback after those before it, and wait until it has ended."""
        await self._run(callback, partitions, self._reserve_slot())

    def _reserve_slot(self) -> CallbackSlot:
        self._delivery.pending_callbacks += 1
        slot = CallbackSlot(self._last_callback, anyio.Event())
        self._last_callback = slot.done
        return slot

    async def _run(
        self, callback: Callback, partitions: Collection[TopicPartition], slot: CallbackSlot
    ) -> None:
        """Run a callback after the one before it. Its error is raised in the application's call."""
        name = getattr(callback, "__name__", "the rebalance callback")
        try:
            if slot.previous is not None:
                await slot.previous.wait()
            error = await self._invoke(name, callback, partitions)
            if error is not None:
                logger.info(
                    "Group %s: %s raised %r; the next call raises it",
                    self._config.group_id,
                    name,
                    error,
                    extra=log_fields(self._supervisor.fields, error=error),
                )
                self._notifier.raise_in_next_call(error)
        finally:
            # mutation: end-of-callback-forgotten
            slot.done.set()
            self._delivery.pending_callbacks -= 1
            self._notifier.state_changed()

    async def _invoke(
        self, name: str, callback: Callback, partitions: Collection[TopicPartition]
    ) -> Exception | None:
        """Run a callback up to its deadline, and return its error.

        A cancellation of a task that the callback awaits counts as an error of the callback, as
        does any `BaseException` that does not end the program: neither may end the rebalance.
        """
        timeout_s = self._config.rebalance_callback_timeout_ms / 1000
        self._callback_task = current_task()
        try:
            with anyio.CancelScope(deadline=self._clock.now() + timeout_s) as scope:
                result = callback(list(partitions))
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            return error
        except BaseException as error:
            if not is_failure_of_callback(error):
                raise
            failed = KafkaError(f"{name} raised {type(error).__name__}: {error}")
            if isinstance(error, anyio.get_cancelled_exc_class()):
                failed = KafkaError(f"{name} raised a cancellation of a task that it awaited")
            failed.__cause__ = error
            return failed
        finally:
            self._callback_task = None
        if scope.cancelled_caught:
            logger.warning(
                "Group %s: %s was cancelled after %g s (rebalance_callback_timeout_ms)",
                self._config.group_id,
                name,
                timeout_s,
                extra=dict(self._supervisor.fields),
            )
        return None
