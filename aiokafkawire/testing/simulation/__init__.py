"""Clients and the embedded broker in a simulated world: virtual time, a network in memory.

::

    world = World(seed=7)
    broker = Broker(host="10.0.0.1", runtime=world.runtime("10.0.0.1"))

    async def main() -> None:
        async with broker:
            ...

    world.run(main)

One seed reproduces a run to the last byte: the order in which tasks run, what the network does to
each packet, every random decision. Time passes when nobody can do anything before it has passed, so
an hour of waiting takes no time. If nobody will ever do anything again, that is a `Deadlock`, which
says who waits where. `world.trace` has what the network did, `world.left_behind()` what the program
did not close.

Clients of this package join by `with_runtime(Producer(…), world.runtime("10.0.0.2"))`.
"""

from aiokafkawire.runtime import with_runtime
from aiokafkawire.testing.simulation.clock import SimulatedClock
from aiokafkawire.testing.simulation.links import NetworkOptions
from aiokafkawire.testing.simulation.network import Network
from aiokafkawire.testing.simulation.runtime import SimulatedRuntime
from aiokafkawire.testing.simulation.trace import Trace
from aiokafkawire.testing.simulation.virtual_time import Deadlock, Livelock, Overdue, Stop
from aiokafkawire.testing.simulation.world import World

__all__ = (
    "Deadlock",
    "Livelock",
    "Network",
    "NetworkOptions",
    "Overdue",
    "SimulatedClock",
    "SimulatedRuntime",
    "Stop",
    "Trace",
    "World",
    "with_runtime",
)
