"""Decode captured frames: split the bytes into frames and find API and version of each."""

from __future__ import annotations

import re
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.config import did_you_mean
from aiokafkawire.errors import (
    InvalidOption,
    KafkaError,
    MalformedMessage,
    UnsupportedVersion,
)
from aiokafkawire.wire import APIS, Api, Message, decode
from aiokafkawire.wire.frame import MIN_FRAME_BYTES
from aiokafkawire.wire.header import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_response,
    peek_correlation_id,
)

__all__ = ("DecodedFrame", "FrameDecoder", "FrameHint", "find_api", "parse_hex", "split_frames")

MAX_PENDING = 10_000
"""Limit of requests that wait for their response."""

MAX_LISTED_CANDIDATES = 8

_LENGTH = struct.Struct(">i")
_HEX = re.compile(rb"(?:0[xX])?[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class FrameHint:
    """Options of the caller about frames; None and False mean: detect it from the bytes."""

    api: Api | None = None
    version: int | None = None
    is_response: bool = False
    body: bool = False


class DecodedFrame(NamedTuple):
    """One decoded frame. Without a header (`FrameHint.body`) `correlation_id` is None.

    `guessed`: the API is neither in the bytes nor given, but no other API fits. `also_fits` has
    other versions of the API that fit.
    """

    api: Api
    version: int
    message: Message
    is_response: bool
    correlation_id: int | None = None
    client_id: str | None = None
    also_fits: tuple[int, ...] = ()
    guessed: bool = False


def find_api(text: str) -> Api:
    """Find an API by name (Fetch, FETCH, fetch) or key (1). Raises `InvalidOption`."""
    wanted = _normalize(text)
    for api in APIS.values():
        if wanted in {_normalize(api.name), str(int(api.key))}:
            return api
    names = [api.name for api in APIS.values()]
    hint = did_you_mean(text, names) or f"; there are {', '.join(names)}"
    raise InvalidOption(f"unknown --api {text!r}{hint}")


def parse_hex(data: bytes) -> list[bytes] | None:
    """Parse hexadecimal digits into pieces of bytes; return None if the data is not hexadecimal.

    Spaces, colons and a leading 0x are ignored. Each line is a piece if every line holds whole
    frames with their lengths; otherwise all lines form one piece.
    """
    lines = [b"".join(line.replace(b":", b" ").split()) for line in data.splitlines()]
    lines = [line for line in lines if line]
    if not lines or not all(map(_HEX.fullmatch, lines)):
        return None
    digits = [line[2:] if line[:2].lower() == b"0x" else line for line in lines]
    if len(digits) > 1 and all(len(line) % 2 == 0 for line in digits):
        pieces = [bytes.fromhex(line.decode()) for line in digits]
        if all(_whole_frames(memoryview(piece))[1] == len(piece) for piece in pieces):
            return pieces
    joined = b"".join(digits)
    if len(joined) % 2:
        raise CommandFailed(
            f"{len(joined)} hexadecimal digits are an odd number: a digit is missing"
        )
    return [bytes.fromhex(joined.decode())]


def split_frames(data: memoryview, hint: FrameHint) -> Iterator[memoryview]:
    """Yield the frames: each after its length, or a single frame without a length.

    Raises `CommandFailed` after the last whole frame if bytes remain.
    """
    frames, end = _whole_frames(data)
    if end == len(data):
        yield from frames
    elif len(frames) > 1 or (frames and _is_request(frames[0]) and not hint.is_response):
        yield from frames
        raise CommandFailed(
            f"the input is truncated: {len(data) - end} bytes after frame {len(frames)} are not a"
            " whole frame"
        )
    elif len(data) < MIN_FRAME_BYTES and not hint.body:
        raise CommandFailed(
            f"{len(data)} bytes are too few for a frame: the minimum is {MIN_FRAME_BYTES}"
        )
    else:
        yield data


class FrameDecoder:
    """Decoder of a sequence of frames.

    A frame whose correlation id matches an earlier request is a response. A frame that decodes as
    a request is a request. Any other frame is a response if it fits exactly one API.
    """

    def __init__(self, hint: FrameHint) -> None:
        self._hint = hint
        self._pending: OrderedDict[int, tuple[Api, int]] = OrderedDict()

    def decode(self, frame: memoryview) -> DecodedFrame:
        """Decode one frame without its length.

        Raises `MalformedMessage`, `UnsupportedVersion` or `CommandFailed`.
        """
        hint = self._hint
        if hint.body:
            return _decode_body(frame, hint)
        if hint.is_response or hint.api is not None:
            return self._decode_hinted(frame, hint)
        correlation_id = peek_correlation_id(frame)
        if correlation_id in self._pending:
            with suppress(MalformedMessage, UnsupportedVersion):
                decoded = _decode_response(frame, *self._pending[correlation_id])
                del self._pending[correlation_id]
                return decoded
        try:
            return self._decode_request(frame)
        except (MalformedMessage, UnsupportedVersion) as error:
            return _guess_response(frame, error)

    def _decode_hinted(self, frame: memoryview, hint: FrameHint) -> DecodedFrame:
        if not hint.is_response:
            decoded = self._decode_request(frame)
            if hint.api is not None and decoded.api is not hint.api:
                raise CommandFailed(
                    f"the frame is a {decoded.api.name} request, not {hint.api.name}"
                )
            return decoded
        if hint.api is None:
            return _guess_response(frame, None)
        if hint.version is not None:
            _check_version(hint.api, hint.version)
            return _decode_response(frame, hint.api, hint.version)
        best = _best_fit(frame, hint.api, _versions(hint.api))
        if best is None:
            raise CommandFailed(f"the frame is not a {hint.api.name} response of any version")
        return best

    def _decode_request(self, frame: memoryview) -> DecodedFrame:
        header, message = decode_request(frame)
        api = APIS[header.api_key]
        self._pending[header.correlation_id] = api, header.api_version
        if len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)
        return DecodedFrame(
            api, header.api_version, message, False, header.correlation_id, header.client_id
        )


def _decode_response(frame: memoryview, api: Api, version: int) -> DecodedFrame:
    """Decode a response whose API and version are known."""
    correlation_id, message = decode_response(api.response, version, frame)
    return DecodedFrame(api, version, message, True, correlation_id)


def _decode_body(data: memoryview, hint: FrameHint) -> DecodedFrame:
    """Decode a message without a header."""
    if hint.api is None or hint.version is None:
        raise InvalidOption("--body needs --api and --version: a body does not contain them")
    _check_version(hint.api, hint.version)
    cls: type[Message] = hint.api.response if hint.is_response else hint.api.request
    return DecodedFrame(hint.api, hint.version, decode(cls, hint.version, data), hint.is_response)


def _guess_response(frame: memoryview, error: KafkaError | None) -> DecodedFrame:
    """Return the response if the bytes fit exactly one API. Raises `CommandFailed` otherwise."""
    fits = [fit for api in APIS.values() if (fit := _best_fit(frame, api, _versions(api)))]
    if len(fits) == 1:
        return fits[0]._replace(guessed=True)
    if fits:
        names = [f"{fit.api.name} {_version_range((fit.version, *fit.also_fits))}" for fit in fits]
        more = "" if len(names) <= MAX_LISTED_CANDIDATES else " and others"
        raise CommandFailed(
            f"as a response the bytes fit {', '.join(names[:MAX_LISTED_CANDIDATES])}{more};"
            " choose with --response --api NAME --version N"
        )
    if error is not None:
        raise CommandFailed(f"the bytes are not a known response; as a request: {error}")
    raise CommandFailed("the bytes are not a known response")


def _best_fit(frame: memoryview, api: Api, versions: Sequence[int]) -> DecodedFrame | None:
    """Decode a response in the highest version that encodes back to the same bytes, if any."""
    fits = [fit for version in versions if (fit := _try_response(frame, api, version)) is not None]
    if not fits:
        return None
    best = fits[-1]
    return best._replace(also_fits=tuple(fit.version for fit in fits[:-1]))


def _try_response(frame: memoryview, api: Api, version: int) -> DecodedFrame | None:
    try:
        correlation_id, message = decode_response(api.response, version, frame)
        encoded = b"".join(encode_response(message, version, correlation_id))
    except (MalformedMessage, UnsupportedVersion, ValueError):
        return None
    if encoded[_LENGTH.size :] != frame:
        return None
    return DecodedFrame(api, version, message, True, correlation_id)


def _versions(api: Api) -> range:
    return range(api.min_version, api.max_version + 1)


def _check_version(api: Api, version: int) -> None:
    if version not in _versions(api):
        raise InvalidOption(
            f"--version {version}: {api.name} has versions {api.min_version} to {api.max_version}"
        )


def _version_range(versions: Sequence[int]) -> str:
    low, high = min(versions), max(versions)
    return f"v{low}" if low == high else f"v{low} to v{high}"


def _whole_frames(data: memoryview) -> tuple[list[memoryview], int]:
    """Return the leading whole frames and the position after them."""
    frames: list[memoryview] = []
    position = 0
    while len(data) - position >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(data, position)
        start = position + _LENGTH.size
        if length < MIN_FRAME_BYTES or start + length > len(data):
            break
        frames.append(data[start : start + length])
        position = start + length
    return frames, position


def _is_request(frame: memoryview) -> bool:
    try:
        header = decode_request_header(frame)
    except (MalformedMessage, UnsupportedVersion):
        return False
    return header.api_version in _versions(APIS[header.api_key])


def _normalize(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("request").removesuffix("response")
