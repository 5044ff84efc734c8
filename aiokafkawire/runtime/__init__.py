"""Access to the event loop: network, clock, randomness, threads and tasks.

The rest of the package gets a `Runtime` and awaits only objects from this package, so that a
simulated runtime can replace the real one.
"""

from aiokafkawire.runtime.client import BaseClient, with_runtime
from aiokafkawire.runtime.close_deadline import CloseDeadline
from aiokafkawire.runtime.daemon_threads import DaemonThreads
from aiokafkawire.runtime.interfaces import (
    AT_ONCE,
    NEVER,
    Address,
    Buffer,
    Clock,
    Listener,
    Runtime,
    Threads,
    Transport,
    receive_until_eof,
)
from aiokafkawire.runtime.lifecycle import Lifecycle, Session, client_label
from aiokafkawire.runtime.real_runtime import RealRuntime
from aiokafkawire.runtime.supervisor import (
    Supervisor,
    TaskHandle,
    current_task,
    get_loop_checkpoint,
    get_loop_identity,
    is_being_cancelled,
    is_failure_of_callback,
    is_task_done,
    running_on_trio,
)
from aiokafkawire.runtime.sync import (
    AutoResetEvent,
    Future,
    SingleWaiterFuture,
    Timer,
    Waiters,
    checkpoint,
    copy_error,
    in_slices,
    wait_until,
)
from aiokafkawire.runtime.tls_transport import TlsTransport, connect_tls

__all__ = (
    "AT_ONCE",
    "NEVER",
    "Address",
    "AutoResetEvent",
    "BaseClient",
    "Buffer",
    "Clock",
    "CloseDeadline",
    "DaemonThreads",
    "Future",
    "Lifecycle",
    "Listener",
    "RealRuntime",
    "Runtime",
    "Session",
    "SingleWaiterFuture",
    "Supervisor",
    "TaskHandle",
    "Threads",
    "Timer",
    "TlsTransport",
    "Transport",
    "Waiters",
    "checkpoint",
    "client_label",
    "connect_tls",
    "copy_error",
    "current_task",
    "get_loop_checkpoint",
    "get_loop_identity",
    "in_slices",
    "is_being_cancelled",
    "is_failure_of_callback",
    "is_task_done",
    "receive_until_eof",
    "running_on_trio",
    "wait_until",
    "with_runtime",
)
