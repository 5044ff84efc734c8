"""Chooses the implementation of the hot loops.

There is one, the interpreted `_kernel`, so `AIOKAFKAWIRE_PURE_PYTHON=1` asks for what is there.
"""

from __future__ import annotations

from ._kernel import (
    COMPILED,
    RECORD_MIN_BYTES,
    Buffer,
    Header,
    Headers,
    Record,
    as_bytes,
    decode_headers,
    decode_records,
    decode_varint,
    encode_headers,
    encode_record,
    encode_varint,
    iterate,
    murmur2,
)

__all__ = (
    "COMPILED",
    "RECORD_MIN_BYTES",
    "Buffer",
    "Header",
    "Headers",
    "Record",
    "as_bytes",
    "decode_headers",
    "decode_records",
    "decode_varint",
    "encode_headers",
    "encode_record",
    "encode_varint",
    "iterate",
    "murmur2",
)
