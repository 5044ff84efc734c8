"""The lookup of the methods of hooks, when a client starts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.logs import NO_FIELDS, log_fields

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
from .protocols import Hook

__all__ = (
    "NO_HOOKS",
    "HookFunctions",
    "add_default_hook",
    "invalid_hooks_text",
    "remove_default_hook",
)

logger = logging.getLogger("aiokafkawire.hooks")


@dataclass(frozen=True, slots=True)
class HookFunctions:
    """The methods of all hooks of a client, one function per event; None without a method.

    A function calls the methods in the order of the hooks, those that end something in the reverse
    order. It does not raise: the first exception of each method is logged.
    """

    on_connect: Callable[[Connected], None] | None = None
    on_disconnect: Callable[[Disconnected], None] | None = None
    on_request: Callable[[RequestEnded], None] | None = None
    on_throttle: Callable[[Throttled], None] | None = None
    on_batch_written: Callable[[BatchWritten], None] | None = None
    on_batch_fetched: Callable[[BatchFetched], None] | None = None
    on_group_event: Callable[[GroupEvent], None] | None = None
    on_send_begun: Callable[[Sending], None] | None = None
    on_send_ended: Callable[[Sending], None] | None = field(default=None, metadata={"ends": True})
    on_records_received: Callable[[RecordsReceived], None] | None = None
    on_process_begun: Callable[[Processing], None] | None = None
    on_process_ended: Callable[[Processing], None] | None = field(
        default=None, metadata={"ends": True}
    )

    @classmethod
    def of(
        cls,
        hooks: Iterable[object],
        kind: str = "client",
        fields: Mapping[str, object] = NO_FIELDS,
    ) -> HookFunctions:
        """Look up the methods of hooks, and of the default hooks before them.

        Args:
            hooks: Hooks of the client.
            kind: Kind of client.
            fields: `extra` fields of its log lines.
        """
        group = fields.get("kafka_group")
        client = ClientInfo(
            kind, str(fields.get("kafka_client_id", "")), None if group is None else str(group)
        )
        every = [*_default_hooks]
        every += [hook for hook in hooks if not any(hook is other for other in _default_hooks)]
        functions: dict[str, Callable[[Any], None]] = {}
        for method in cls.__dataclass_fields__.values():
            found = [getattr(hook, method.name) for hook in every if hasattr(hook, method.name)]
            if found:
                if method.metadata.get("ends"):
                    found.reverse()
                functions[method.name] = _HookCaller(found, client, fields)
        return cls(**functions)


class _HookCaller:
    """Calls methods with an event, and logs the first exception of each."""

    __slots__ = ("_client", "_failed", "_fields", "_methods")

    def __init__(
        self,
        methods: Sequence[Callable[[ClientInfo, Any], None]],
        client: ClientInfo,
        fields: Mapping[str, object],
    ) -> None:
        self._methods = methods
        self._client = client
        self._fields = fields
        self._failed: set[int] = set()

    def __call__(self, event: object) -> None:
        for index, method in enumerate(self._methods):
            try:
                method(self._client, event)
            except Exception as error:
                if index not in self._failed:
                    self._failed.add(index)
                    logger.warning(
                        "Hook %s of the %s failed; later failures are not logged",
                        getattr(method, "__qualname__", type(method).__qualname__),
                        self._client.kind,
                        exc_info=error,
                        extra=log_fields(self._fields, error=error),
                    )


NO_HOOKS = HookFunctions()
"""The functions of a client without hooks."""


def invalid_hooks_text(hooks: object) -> str | None:
    """Return the end of the error about an invalid value of the option `hooks`; None if valid."""
    if isinstance(hooks, str | bytes | Mapping) or not isinstance(hooks, Sequence):
        return f"must be a list of hooks, not {hooks!r:.80}"
    for hook in hooks:
        names = [name for name in HookFunctions.__dataclass_fields__ if hasattr(hook, name)]
        if isinstance(hook, type):
            return f"must be a list of objects: call the class {hook.__qualname__}"
        if not names:
            known = ", ".join(HookFunctions.__dataclass_fields__)
            return f"has {hook!r:.80}, which has none of the methods {known}"
        for name in names:
            method = getattr(hook, name)
            if not callable(method) or inspect.iscoroutinefunction(method):
                return f"has {hook!r:.80}, whose {name} must be a plain method, not async"
    return None


_default_hooks: list[object] = []


def add_default_hook(hook: Hook) -> None:
    """Use a hook in all clients that start from now on."""
    if hook not in _default_hooks:
        _default_hooks.append(hook)


def remove_default_hook(hook: Hook) -> None:
    """Do not use a default hook in clients that start from now on."""
    if hook in _default_hooks:
        _default_hooks.remove(hook)
