from __future__ import annotations

from typing import TypeVar

from aiokafkawire.broker.replication.controller import Controller
from aiokafkawire.broker.replication.controller_commands import (
    LEADER_DURING_DELETE,
    ControllerCommand,
    LeaderAndIsrCommand,
    LiveNode,
    StopReplicaCommand,
    UpdateMetadataCommand,
)
from aiokafkawire.broker.replication.controller_context import ControllerContext
from aiokafkawire.runtime import Address

from .test_controller_context import ALL, partition, registry

INTERNAL = {node: Address("inside", node) for node in ALL}
SHOWN = {node: Address("outside", node) for node in ALL}

AnOrder = TypeVar("AnOrder", bound=ControllerCommand)


def controller(of: ControllerContext, epoch: int = 1) -> Controller:
    return Controller(1, epoch, of, INTERNAL, SHOWN)


def expect(machine: Controller, node: int, kind: type[AnOrder]) -> AnOrder:
    """Return the next command, and acknowledge it."""
    command = machine.next_command(node)
    assert isinstance(command, kind), command
    machine.on_response(node, command)
    return command


def acknowledge_all_commands(machine: Controller) -> None:
    for node in ALL:
        while (command := machine.next_command(node)) is not None:
            machine.on_response(node, command)


def settled() -> tuple[ControllerContext, Controller]:
    """Return a cluster with t-0 on nodes 1 and 2, whose nodes are up to date."""
    of = registry()
    partition(of, 1, 2)
    machine = controller(of)
    acknowledge_all_commands(machine)
    return of, machine


def test_leader_and_isr_is_sent_before_update_metadata() -> None:
    of = registry()
    partition(of, 1, 2)
    machine = controller(of)
    lead = expect(machine, 2, LeaderAndIsrCommand)
    assert (lead.controller_id, lead.controller_epoch) == (1, 1)
    assert lead.partitions["t", 0].leader == 1
    assert lead.leaders == {1: INTERNAL[1]}
    shown = expect(machine, 2, UpdateMetadataCommand)
    assert shown.partitions == lead.partitions
    assert shown.live == {node: LiveNode(SHOWN[node]) for node in ALL}
    assert machine.next_command(2) is None
    assert machine.is_up_to_date(2)


def test_a_node_without_a_replica_gets_update_metadata_only() -> None:
    of = registry()
    partition(of, 1, 2)
    machine = controller(of)
    expect(machine, 3, UpdateMetadataCommand)
    assert machine.next_command(3) is None


def test_a_dead_node_gets_no_command() -> None:
    of = registry(live=[1, 2])
    partition(of, 1, 2)
    assert controller(of).next_command(3) is None


def test_an_unacknowledged_command_is_sent_again() -> None:
    of = registry()
    partition(of, 1, 2)
    machine = controller(of)
    assert machine.next_command(2) == machine.next_command(2)


def test_a_node_gets_only_the_newest_state() -> None:
    of = registry()
    first = partition(of, 1, 2, 3)
    machine = controller(of)
    acknowledge_all_commands(machine)
    of.move_leader(first, 2)
    of.move_leader(first, 3)
    command = expect(machine, 1, LeaderAndIsrCommand)
    assignment = command.partitions["t", 0]
    assert (assignment.leader, assignment.leader_epoch) == (3, 2)


def test_an_isr_change_by_the_leader_goes_to_update_metadata_only() -> None:
    of, machine = settled()
    of.record_isr(("t", 0), 1, 0, (1,))
    for node in ALL:
        assignment = expect(machine, node, UpdateMetadataCommand).partitions["t", 0]
        assert assignment.isr == (1,)


def test_a_deleted_topic_is_stopped_and_forgotten() -> None:
    of, machine = settled()
    of.delete_topic(of.topics["t"])
    assert expect(machine, 2, StopReplicaCommand).partitions == {("t", 0): True}
    for node in ALL[1:]:
        assignment = expect(machine, node, UpdateMetadataCommand).partitions["t", 0]
        assert assignment.leader == LEADER_DURING_DELETE
        assert machine.next_command(node) is None


def test_a_recreated_topic_is_a_new_one() -> None:
    of, machine = settled()
    of.delete_topic(of.topics["t"])
    partition(of, 1, 2)
    expect(machine, 2, StopReplicaCommand)
    assert expect(machine, 2, LeaderAndIsrCommand).partitions["t", 0].leader_epoch == 0


def test_a_partition_without_a_leader_has_leader_minus_1() -> None:
    of = registry()
    partition(of, 1, 2)
    of.record_isr(("t", 0), 1, 0, (1,))
    machine = controller(of)
    acknowledge_all_commands(machine)
    of.on_node_failure(1)
    assert expect(machine, 2, UpdateMetadataCommand).partitions["t", 0].leader == -1
    assert machine.next_command(2) is None


def test_a_dead_node_is_announced_to_all() -> None:
    of = registry()
    machine = controller(of)
    acknowledge_all_commands(machine)
    of.on_node_failure(3)
    assert set(expect(machine, 2, UpdateMetadataCommand).live) == {1, 2}


def test_a_restarted_node_gets_the_full_state() -> None:
    _, machine = settled()
    machine.forget(2)
    expect(machine, 2, LeaderAndIsrCommand)


def test_responses_from_before_a_crash_are_ignored() -> None:
    of = registry()
    partition(of, 1, 2)
    machine = controller(of)
    command = machine.next_command(2)
    assert command is not None
    machine.forget(2)
    machine.on_response(2, command)
    expect(machine, 2, LeaderAndIsrCommand)


def test_a_new_controller_sends_the_full_state_again() -> None:
    of = registry()
    partition(of, 1, 2)
    acknowledge_all_commands(controller(of))
    assert expect(controller(of, 2), 2, LeaderAndIsrCommand).controller_epoch == 2
