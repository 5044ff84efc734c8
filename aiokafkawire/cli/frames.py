"""From bytes that somebody has caught to messages: which frames they are, and of which API."""

from __future__ import annotations

import re
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.config import nearest
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
"""Requests that are remembered until their response comes."""

MAX_LISTED_CANDIDATES = 8

_LENGTH = struct.Struct(">i")
_HEX = re.compile(rb"(?:0[xX])?[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class FrameHint:
    """What the caller says about frames; None and False leave it to the bytes."""

    api: Api | None = None
    version: int | None = None
    response: bool = False
    body: bool = False


class DecodedFrame(NamedTuple):
    """One frame. Without a header (`Hint.body`) there is no correlation id.

    `guessed`: neither the bytes nor the caller say which API it is, but no other fits; `also_fits`
    are other versions of it that fit just as well.
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
    """An API by its name (Fetch, FETCH, fetch) or its key (1). Raises `InvalidOption`."""
    wanted = _normalize(text)
    for api in APIS.values():
        if wanted in {_normalize(api.name), str(int(api.key))}:
            return api
    names = [api.name for api in APIS.values()]
    hint = nearest(text, names) or f"; there are {', '.join(names)}"
    raise InvalidOption(f"--api {text!r} is not known{hint}")


def parse_hex(data: bytes) -> list[bytes] | None:
    """The bytes that a text of hexadecimal digits stands for; None if it is no such text.

    Spaces, colons and a leading 0x are passed over. Lines stand for themselves if each holds whole
    frames, with their lengths; else all lines are one text.
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
        raise CommandFailed(f"{len(joined)} hexadecimal digits are no whole bytes: one is missing")
    return [bytes.fromhex(joined.decode())]


def split_frames(data: memoryview, hint: FrameHint) -> Iterator[memoryview]:
    """The frames in some bytes: each after its length, or one without.

    Raises `CommandFailed` behind the last whole one if something is left over.
    """
    frames, end = _whole_frames(data)
    if end == len(data):
        yield from frames
    elif len(frames) > 1 or (frames and _is_request(frames[0]) and not hint.response):
        yield from frames
        raise CommandFailed(
            f"the input is cut off: {len(data) - end} bytes after frame {len(frames)} are no"
            " whole frame"
        )
    elif len(data) < MIN_FRAME_BYTES and not hint.body:
        raise CommandFailed(f"{len(data)} bytes are no frame: the smallest has {MIN_FRAME_BYTES}")
    else:
        yield data


class FrameDecoder:
    """Decodes frames in their order.

    A frame is taken for a response if its correlation id is that of an earlier request, for a
    request if it reads as one, and else for a response of whatever API it fits alone.
    """

    def __init__(self, hint: FrameHint) -> None:
        self._hint = hint
        self._pending: OrderedDict[int, tuple[Api, int]] = OrderedDict()

    def decode(self, frame: memoryview) -> DecodedFrame:
        """One frame without its length. Raises `MalformedMessage`, `UnsupportedVersion`,
        `CommandFailed`."""
        hint = self._hint
        if hint.body:
            return _decode_body(frame, hint)
        if hint.response or hint.api is not None:
            return self._decode_hinted(frame, hint)
        correlation_id = peek_correlation_id(frame)
        if correlation_id in self._pending:
            with suppress(MalformedMessage, UnsupportedVersion):
                found = _decode_response(frame, *self._pending[correlation_id])
                del self._pending[correlation_id]
                return found
        try:
            return self._decode_request(frame)
        except (MalformedMessage, UnsupportedVersion) as error:
            return _guess_response(frame, error)

    def _decode_hinted(self, frame: memoryview, hint: FrameHint) -> DecodedFrame:
        if not hint.response:
            found = self._decode_request(frame)
            if hint.api is not None and found.api is not hint.api:
                raise CommandFailed(f"the frame is a {found.api.name} request, not {hint.api.name}")
            return found
        if hint.api is None:
            return _guess_response(frame, None)
        if hint.version is not None:
            _check_version(hint.api, hint.version)
            return _decode_response(frame, hint.api, hint.version)
        best = _best_fit(frame, hint.api, _versions(hint.api))
        if best is None:
            raise CommandFailed(f"the frame is no {hint.api.name} response of any version")
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
    """The response of an API and version that are known."""
    correlation_id, message = decode_response(api.response, version, frame)
    return DecodedFrame(api, version, message, True, correlation_id)


def _decode_body(data: memoryview, hint: FrameHint) -> DecodedFrame:
    """A message that comes without its header."""
    if hint.api is None or hint.version is None:
        raise InvalidOption("--body needs --api and --version: the bytes do not tell them")
    _check_version(hint.api, hint.version)
    cls: type[Message] = hint.api.response if hint.response else hint.api.request
    return DecodedFrame(hint.api, hint.version, decode(cls, hint.version, data), hint.response)


def _guess_response(frame: memoryview, error: KafkaError | None) -> DecodedFrame:
    """The response that the bytes fit, if they fit those of one API alone."""
    found = [fit for api in APIS.values() if (fit := _best_fit(frame, api, _versions(api)))]
    if len(found) == 1:
        return found[0]._replace(guessed=True)
    if found:
        names = [f"{fit.api.name} {_version_range((fit.version, *fit.also_fits))}" for fit in found]
        more = "" if len(names) <= MAX_LISTED_CANDIDATES else " and others"
        raise CommandFailed(
            f"as a response the bytes fit {', '.join(names[:MAX_LISTED_CANDIDATES])}{more}; say"
            " which with --response --api NAME --version N"
        )
    if error is not None:
        raise CommandFailed(f"the bytes are no response that is known; as a request: {error}")
    raise CommandFailed("the bytes are no response that is known")


def _best_fit(frame: memoryview, api: Api, versions: Sequence[int]) -> DecodedFrame | None:
    """The response that a frame is in the highest of these versions that gives its bytes back."""
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
    """The whole frames from the beginning on, and where they end."""
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
