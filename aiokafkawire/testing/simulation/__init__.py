"""Clients and the embedded broker in a simulated world: virtual time, a network in memory.

::

    world = World(seed=7)
    broker = Broker(host="10.0.0.1", runtime=world.runtime("10.0.0.1"))

    async def main() -> None:
        async with broker:
            ...

    world.run(main)

The same seed reproduces a run to the last byte: the order of tasks, the delay of each packet and
every random decision. Virtual time advances as soon as all tasks wait, so an hour of waiting takes
no real time. If all tasks wait and no event is scheduled, `run` raises `Deadlock`, which lists
where each task waits. `world.trace` has the events of the network, and `world.left_behind()` the
resources that the program did not close.

Clients of this package take part by `with_runtime(Producer(…), world.runtime("10.0.0.2"))`.
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
