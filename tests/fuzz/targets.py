"""Targets that read bytes from outside; each raises `Broken` on a defect.

Whatever comes is read or refused by an error of the documented kind, and nothing is made that is
out of proportion to it.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Any

from aiokafkawire.errors import (
    CorruptRecord,
    MalformedFrame,
    MalformedMessage,
    UnsupportedVersion,
)
from aiokafkawire.records import DecodeOptions, IsolationLevel, decode_fetch, validate_produced
from aiokafkawire.wire import consumer_protocol, kafka07, proposal
from aiokafkawire.wire.api import APIS, ApiKey
from aiokafkawire.wire.frame import MIN_FRAME_BYTES, FrameReader
from aiokafkawire.wire.header import decode_request, decode_response
from tests.fuzz.security_targets import SECURITY_TARGETS, Refused, security_beginnings
from tests.records.record_data import with_crcs
from tests.records.vectors import load, unbase64
from tests.wire import vectors
from tests.wire.fuzz import Broken, look_at

__all__ = ("TARGETS", "Broken", "beginnings", "bounded", "tried")

MAX_BYTES = 1_024
"""Of one input."""

MAX_UNPACKED_BYTES = 1 << 16
MAX_FRAME_BYTES = 256
MAX_PEAK_BYTES = 4 << 20
"""What reading one input may take at any time."""

REFUSALS = (MalformedFrame, MalformedMessage, UnsupportedVersion, CorruptRecord, Refused)

_LENGTH = Struct(">i")


def requests(raw: bytes) -> None:
    """A request behind its header, as a broker reads it."""
    look_at(decode_request(memoryview(raw))[1])


def responses(raw: bytes) -> None:
    """A response behind its header; before it the API's key and the version, a byte each."""
    api = APIS.get(_api(raw[0])) if len(raw) > 1 else None
    if api is None:
        return
    version = api.min_version + raw[1] % (api.max_version - api.min_version + 1)
    look_at(decode_response(api.response, version, memoryview(raw)[2:])[1])


def _api(number: int) -> ApiKey | None:
    return ApiKey(number) if number in ApiKey._value2member_map_ else None


OTHERS: tuple[Callable[[bytes], Any], ...] = (
    consumer_protocol.decode_subscription,
    consumer_protocol.decode_assignment,
    kafka07.decode_request,
    kafka07.decode_fetch_response,
    kafka07.decode_multi_fetch_response,
    kafka07.decode_offsets_response,
    lambda raw: list(kafka07.iter_messages(raw)),
    proposal.decode_request,
    proposal.decode_produce_response,
    proposal.decode_fetch_response,
)
"""By the first byte of the input; what is added is added at the end."""


def others(raw: bytes) -> None:
    """Data that members of groups exchange, and formats without versions."""
    if raw:
        look_at(OTHERS[raw[0] % len(OTHERS)](raw[1:]))


def streams(raw: bytes) -> None:
    """Bytes that a connection receives, in pieces of the size given by the first byte."""
    piece, rest = max(1, raw[0] if raw else 1), raw[1:]
    reader = FrameReader(MAX_FRAME_BYTES)
    found: list[bytes] = []
    try:
        for start in range(0, len(rest), piece):
            found += _received(reader, rest[start : start + piece])
    finally:
        expected = list(_frames(rest))
        if found != expected[: len(found)]:
            raise Broken(f"the frames are {found}, not {expected}")
    if found != expected or reader.has_partial_frame != (
        sum(map(len, found)) + 4 * len(found) < len(rest)
    ):
        raise Broken(f"the frames are {found}, not {expected}, of {rest!r}")


def _received(reader: FrameReader, piece: bytes) -> Iterator[bytes]:
    while piece:
        buffer = reader.get_buffer()
        size = min(len(buffer), len(piece))
        buffer[:size], piece = piece[:size], piece[size:]
        yield from map(bytes, reader.buffer_updated(size))


def _frames(rest: bytes) -> Iterator[bytes]:
    """The frames, cut in another way."""
    while len(rest) >= _LENGTH.size:
        length = _LENGTH.unpack_from(rest)[0]
        if not MIN_FRAME_BYTES <= length <= MAX_FRAME_BYTES or len(rest) < 4 + length:
            return
        yield rest[4 : 4 + length]
        rest = rest[4 + length :]


CHECKED, COMMITTED, WITH_CRCS, ONE_BY_ONE, MARKED = 1, 2, 4, 8, 16


def batches(raw: bytes) -> None:
    """The records of a partition; before them a byte says how they are read, and one from where."""
    if len(raw) < 2:
        return
    how, data = raw[0], raw[2:]
    if how & WITH_CRCS:
        data = with_crcs(data)
    fetched = decode_fetch(
        "t",
        0,
        data,
        raw[1],
        DecodeOptions(
            bool(how & CHECKED),
            IsolationLevel(bool(how & COMMITTED)),
            MAX_UNPACKED_BYTES,
        ),
        aborted=[(1, 0), (2, 3)],
        high_watermark=200 if how & MARKED else None,
    )
    before = -1
    try:
        while not fetched.exhausted:
            records = fetched.take(1 if how & ONE_BY_ONE else 500)
            for record in records:
                if not before < record.offset < records.next_offset:
                    raise Broken(f"offset {record.offset} after {before}: {raw.hex()}")
                before = record.offset
                look_at([record.key, record.value, record.headers, record.timestamp_ms])
    except CorruptRecord as error:
        if (error.topic, error.partition) != ("t", 0):
            raise Broken(f"{error!r} does not say where: {raw.hex()}") from error
    for batch in validate_produced(data, MAX_UNPACKED_BYTES):
        if batch.count != len(batch.columns(MAX_UNPACKED_BYTES)):
            raise Broken(f"a batch that was good has not all its records: {raw.hex()}")


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "requests": requests,
    "responses": responses,
    "others": others,
    "streams": streams,
    "batches": batches,
    **SECURITY_TARGETS,
}


def tried(name: str, raw: bytes) -> bool:
    """Return whether an input is accepted. Raises `Broken`."""
    try:
        TARGETS[name](raw)
    except REFUSALS:
        return False
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{name}: {error!r}\n{raw.hex()}") from error
    return True


def bounded(name: str, raw: bytes) -> bool:
    """As `tried`, while memory is traced."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    read = tried(name, raw)
    peak = tracemalloc.get_traced_memory()[1] - before
    if peak > MAX_PEAK_BYTES:
        raise Broken(f"{name}: {peak} bytes for {len(raw)}\n{raw.hex()}")
    return read


def beginnings(name: str) -> Iterator[bytes]:
    """Golden vectors to begin with."""
    if name in SECURITY_TARGETS:
        yield from security_beginnings(name)
    elif name == "batches":
        for vector in load("records"):
            data = unbase64(vector["bytes"])
            if data is not None:
                yield bytes((CHECKED | COMMITTED | WITH_CRCS, 0)) + data
    elif name == "others":
        for line in vectors.lines("kafka07"):
            for step in line["steps"]:
                yield b"\2" + bytes.fromhex(step["send"])[4:]
    elif name == "streams":
        yield b"\3" + _LENGTH.pack(5) + b"hello" + _LENGTH.pack(MAX_FRAME_BYTES)
    else:
        for message, lines in vectors.by_message().items():
            kind = message.removesuffix("Request" if name == "requests" else "Response")
            for _, vector in lines if kind != message else ():
                yield from _behind_header(name, kind, vector)


def _behind_header(name: str, kind: str, vector: Mapping[str, Any]) -> Iterator[bytes]:
    raw, version = bytes.fromhex(vector["hex"]), vector["version"]
    for key, api in APIS.items():
        cls = api.request if name == "requests" else api.response
        if cls.__name__ in {f"{kind}Request", f"{kind}Response"}:
            flexible = b"\0" if cls.is_flexible(version) else b""
            if name == "requests":
                head = int(key).to_bytes(2) + int(version).to_bytes(2) + b"\0\0\0\1\0\0"
                yield head + flexible + raw
            else:
                yield bytes((key, version - api.min_version)) + b"\0\0\0\1" + flexible + raw
