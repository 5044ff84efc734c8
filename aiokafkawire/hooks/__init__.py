"""Hooks: methods that a client calls when something happens, for traces, metrics and logs.

A hook is an object with one or more methods of the protocols below, in the option `hooks` of a
client. A client looks the methods up once, when it starts; an event without a method costs nothing.
"""

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
from .functions import (
    NO_HOOKS,
    HookFunctions,
    add_default_hook,
    remove_default_hook,
)
from .protocols import (
    BatchFetchedHook,
    BatchWrittenHook,
    ConnectHook,
    DisconnectHook,
    GroupHook,
    Hook,
    ProcessBegunHook,
    ProcessEndedHook,
    ReceiveHook,
    RequestHook,
    SendBegunHook,
    SendEndedHook,
    ThrottleHook,
)
from .record_log_fields import RecordLogFields

__all__ = (
    "NO_HOOKS",
    "BatchFetched",
    "BatchFetchedHook",
    "BatchWritten",
    "BatchWrittenHook",
    "ClientInfo",
    "ConnectHook",
    "Connected",
    "DisconnectHook",
    "Disconnected",
    "GroupEvent",
    "GroupHook",
    "Hook",
    "HookFunctions",
    "ProcessBegunHook",
    "ProcessEndedHook",
    "Processing",
    "ReceiveHook",
    "RecordLogFields",
    "RecordsReceived",
    "RequestEnded",
    "RequestHook",
    "SendBegunHook",
    "SendEndedHook",
    "Sending",
    "ThrottleHook",
    "Throttled",
    "add_default_hook",
    "remove_default_hook",
)
