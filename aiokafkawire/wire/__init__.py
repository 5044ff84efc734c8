"""Kafka's protocol messages and their encoding. This package does no I/O."""

from aiokafkawire.wire.api import APIS, Api, ApiKey, api_for, message_class, message_names
from aiokafkawire.wire.codec import decode, encode, encode_parts
from aiokafkawire.wire.error_codes import ErrorCode, error_for, raise_for
from aiokafkawire.wire.json_converter import from_json, to_json
from aiokafkawire.wire.primitives import ZERO_UUID, Buffer
from aiokafkawire.wire.schema import Message, Request, Response, Struct

__all__ = (
    "APIS",
    "ZERO_UUID",
    "Api",
    "ApiKey",
    "Buffer",
    "ErrorCode",
    "Message",
    "Request",
    "Response",
    "Struct",
    "api_for",
    "decode",
    "encode",
    "encode_parts",
    "error_for",
    "from_json",
    "message_class",
    "message_names",
    "raise_for",
    "to_json",
)
