"""Request and response headers."""

from typing import ClassVar

from aiokafkawire.wire.primitives import int16, int32
from aiokafkawire.wire.schema import Message, data, field

__all__ = ("RequestHeaderData", "ResponseHeaderData")


@data(name="RequestHeader", versions="0-2", flexible="2+")
class RequestHeaderData(Message):
    """Version 0 is only for ControlledShutdown v0; version 2 is for flexible requests."""

    decoded_in_place: ClassVar[bool] = True  # Many bytes may follow.

    request_api_key: int16
    request_api_version: int16
    correlation_id: int32
    # Not compact in version 2 either, so that any broker can read it.
    client_id: str | None = field(versions="1+", default="", compact=False, ignorable=True)


@data(name="ResponseHeader", versions="0-1", flexible="1+")
class ResponseHeaderData(Message):
    decoded_in_place: ClassVar[bool] = True  # Many bytes may follow.

    correlation_id: int32
