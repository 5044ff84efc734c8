"""Logs and replicas without a node."""

from __future__ import annotations

from typing import Any

from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication.controller_commands import LeaderAndIsr
from aiokafkawire.broker.replication.replica import Replica
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.records.batch import iter_batches

from ..raw_client import batch

NODE = 1
"""Node id of the replicas in these tests; the other replicas are on 2 and 3."""


def assignment(
    leader: int = NODE,
    epoch: int = 0,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, isr, replicas)


def replica(**fields: Any) -> Replica:
    log = PartitionLog("t-0", MemoryStore(), BrokerConfig())
    return Replica("t", 0, [], log, leader_epoch=-1, node_id=NODE, **fields)


def records(first: int, count: int = 1, epoch: int = 0) -> bytes:
    """Return one batch as written by the leader of an epoch."""
    return batch(*[b"v"] * count, base_offset=first, leader_epoch=epoch)


def write(log: PartitionLog, count: int = 1, epoch: int = 0) -> None:
    """Append batches of one record each."""
    for _ in range(count):
        data = records(log.end_offset, epoch=epoch)
        [view] = iter_batches(data)
        log.append(data, view)
