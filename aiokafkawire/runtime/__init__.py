"""The one place that knows the event loop: network, clock, randomness, threads, tasks.

Everything above is given a `Runtime` and awaits only what comes from here, so that a simulated
runtime can stand in for the real one.
"""

from aiokafkawire.runtime.base import (
    NEVER,
    Address,
    Buffer,
    Clock,
    Listener,
    Runtime,
    Transport,
    receive_each,
)
from aiokafkawire.runtime.client import Client, with_runtime
from aiokafkawire.runtime.host import (
    Host,
    TaskHandle,
    being_cancelled,
    current_task,
    loop_checkpoint,
    loop_home,
    on_trio,
)
from aiokafkawire.runtime.lifecycle import Lifecycle, Session, label
from aiokafkawire.runtime.real import RealRuntime
from aiokafkawire.runtime.waiting import (
    Alarm,
    Errand,
    Promise,
    Signal,
    checkpoint,
    copy_of,
    in_slices,
    wait_until,
)

__all__ = (
    "NEVER",
    "Address",
    "Alarm",
    "Buffer",
    "Client",
    "Clock",
    "Errand",
    "Host",
    "Lifecycle",
    "Listener",
    "Promise",
    "RealRuntime",
    "Runtime",
    "Session",
    "Signal",
    "TaskHandle",
    "Transport",
    "being_cancelled",
    "checkpoint",
    "copy_of",
    "current_task",
    "in_slices",
    "label",
    "loop_checkpoint",
    "loop_home",
    "on_trio",
    "receive_each",
    "wait_until",
    "with_runtime",
)
