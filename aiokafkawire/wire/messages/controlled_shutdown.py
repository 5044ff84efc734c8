"""ControlledShutdown: a broker asks to move its leaders to other brokers. Key 7."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from aiokafkawire.wire.primitives import int16, int32, int64
from aiokafkawire.wire.schema import Request, Response, Struct, field, request, response, struct

__all__ = ("ControlledShutdownRequest", "ControlledShutdownResponse", "RemainingPartition")


@request(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest(Request["ControlledShutdownResponse"]):
    # Version 0 came before the client id.
    header_version_overrides: ClassVar[Mapping[int, int]] = MappingProxyType({0: 0})

    broker_id: int32
    broker_epoch: int64 = field(versions="2+", default=-1, ignorable=True)


@struct
class RemainingPartition(Struct):
    topic_name: str
    partition_index: int32


@response(key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse(Response):
    error_code: int16
    remaining_partitions: list[RemainingPartition]
