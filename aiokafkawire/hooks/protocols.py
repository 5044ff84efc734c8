"""The methods of hooks, a protocol for each."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .events import (
    BatchFetched,
    BatchWritten,
    ClientInfo,
    Connected,
    Disconnected,
    GroupEvent,
    Processing,
    RecordsReceived,
    RequestEnded,
    Sending,
    Throttled,
)

__all__ = (
    "BatchFetchedHook",
    "BatchWrittenHook",
    "ConnectHook",
    "DisconnectHook",
    "GroupHook",
    "Hook",
    "ProcessBegunHook",
    "ProcessEndedHook",
    "ReceiveHook",
    "RequestHook",
    "SendBegunHook",
    "SendEndedHook",
    "ThrottleHook",
)


@runtime_checkable
class ConnectHook(Protocol):
    """Called when an attempt to connect has ended."""

    def on_connect(self, client: ClientInfo, event: Connected, /) -> None:
        """Note a connection, or a failed attempt."""
        ...


@runtime_checkable
class DisconnectHook(Protocol):
    """Called when an open connection has ended."""

    def on_disconnect(self, client: ClientInfo, event: Disconnected, /) -> None:
        """Note the end of a connection."""
        ...


@runtime_checkable
class RequestHook(Protocol):
    """Called when a request has ended."""

    def on_request(self, client: ClientInfo, event: RequestEnded, /) -> None:
        """Note a request."""
        ...


@runtime_checkable
class ThrottleHook(Protocol):
    """Called when a broker throttles the client."""

    def on_throttle(self, client: ClientInfo, event: Throttled, /) -> None:
        """Note the throttle time."""
        ...


@runtime_checkable
class BatchWrittenHook(Protocol):
    """Called when a broker has acknowledged a batch."""

    def on_batch_written(self, client: ClientInfo, event: BatchWritten, /) -> None:
        """Note a batch of the producer."""
        ...


@runtime_checkable
class BatchFetchedHook(Protocol):
    """Called when records of a partition were fetched."""

    def on_batch_fetched(self, client: ClientInfo, event: BatchFetched, /) -> None:
        """Note fetched records."""
        ...


@runtime_checkable
class GroupHook(Protocol):
    """Called when the membership in a group has changed."""

    def on_group_event(self, client: ClientInfo, event: GroupEvent, /) -> None:
        """Note a new generation, or changed partitions."""
        ...


@runtime_checkable
class SendBegunHook(Protocol):
    """Called in the task that sends a record, before the record is in the buffer."""

    def on_send_begun(self, client: ClientInfo, sending: Sending, /) -> None:
        """Note a record; may change its headers."""
        ...


@runtime_checkable
class SendEndedHook(Protocol):
    """Called when the outcome of a record is known."""

    def on_send_ended(self, client: ClientInfo, sending: Sending, /) -> None:
        """Note the outcome of a record."""
        ...


@runtime_checkable
class ReceiveHook(Protocol):
    """Called in the task that receives records, before the call returns them."""

    def on_records_received(self, client: ClientInfo, event: RecordsReceived, /) -> None:
        """Note received records."""
        ...


@runtime_checkable
class ProcessBegunHook(Protocol):
    """Called in the task that calls a handler of a worker, before the call."""

    def on_process_begun(self, client: ClientInfo, processing: Processing, /) -> None:
        """Note the start of an attempt."""
        ...


@runtime_checkable
class ProcessEndedHook(Protocol):
    """Called in the same task, after the handler and the write of a retry or dead letter."""

    def on_process_ended(self, client: ClientInfo, processing: Processing, /) -> None:
        """Note the end of an attempt."""
        ...


Hook = (
    ConnectHook
    | DisconnectHook
    | RequestHook
    | ThrottleHook
    | BatchWrittenHook
    | BatchFetchedHook
    | GroupHook
    | SendBegunHook
    | SendEndedHook
    | ReceiveHook
    | ProcessBegunHook
    | ProcessEndedHook
)
"""An object with at least one of the methods."""
