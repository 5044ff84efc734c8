"""Structs shared by several APIs: the current leader of a partition (KIP-951)."""

from aiokafkawire.wire.primitives import int32
from aiokafkawire.wire.schema import Struct, struct

__all__ = ("LeaderIdAndEpoch", "NodeEndpoint")


@struct
class LeaderIdAndEpoch(Struct):
    """The leader of a partition (-1 if unknown) and its epoch."""

    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class NodeEndpoint(Struct):
    """The address of a leader that may be new to the client."""

    node_id: int32
    host: str
    port: int32
    rack: str | None = None
