"""Clocks: the one that never jumps, and the one on the wall."""

from __future__ import annotations

from aiokafkawire.testing.simulation import World
from aiokafkawire.testing.simulation.clock import EPOCH_MS
from aiokafkawire.testing.simulation.world import Backend

ONE, OTHER = "10.0.0.1", "10.0.0.2"


def test_both_clocks_go_together(backend: Backend) -> None:
    world = World(1, backend=backend)
    clock = world.runtime(ONE).clock

    async def main() -> None:
        assert (clock.now(), clock.wall_ms()) == (0.0, EPOCH_MS)
        await clock.sleep_until(86_400.0)
        assert clock.now() == 86_400.0
        assert clock.wall_ms() == EPOCH_MS + 86_400_000

    world.run(main)


def test_the_wall_clock_of_all_hosts_jumps() -> None:
    world = World(1)
    clocks = [world.runtime(host).clock for host in (ONE, OTHER)]
    world.clock.jump(3_600)
    clocks.append(world.runtime("10.0.0.3").clock)
    assert [clock.wall_ms() for clock in clocks] == [EPOCH_MS + 3_600_000] * 3
    world.clock.jump(-7_200.5)
    assert {clock.wall_ms() for clock in (world.clock, *clocks)} == {EPOCH_MS - 3_600_500}
    assert {clock.now() for clock in clocks} == {0.0}
    assert "all hosts jumps by -7200.5 s" in world.trace.lines[-1]


def test_a_clock_jump_applies_to_all_clients_of_a_host() -> None:
    world = World(1)
    clock = world.runtime(ONE).clock
    clock.jump(60)
    assert world.runtime(ONE).clock.wall_ms() == EPOCH_MS + 60_000
    assert world.runtime(OTHER).clock.wall_ms() == EPOCH_MS
    world.clock.jump(1)
    assert clock.wall_ms() == EPOCH_MS + 61_000
    assert "10.0.0.1 jumps by 60 s" in world.trace.lines[0]
