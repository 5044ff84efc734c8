"""`aiokafkawire decode`: print protocol frames as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from aiokafkawire.cli.common_options import IntegerRange
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.frames import (
    DecodedFrame,
    FrameDecoder,
    FrameHint,
    find_api,
    parse_hex,
    split_frames,
)
from aiokafkawire.cli.nested_payloads import to_expanded_json
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.wire import to_json

__all__ = ("decode",)

MAX_INPUT_BYTES = 256 * 2**20
"""Limit of the input, which is held in memory."""


@click.command(short_help="Print frames of Kafka's protocol as JSON.")
@click.option("--api", "api_name", metavar="NAME", help="API of a response, by name or key.")
@click.option("--version", type=IntegerRange(min=0), help="API version of a response.")
@click.option("--response", is_flag=True, help="The frames are responses.")
@click.option("--body", is_flag=True, help="The messages have no header.")
@click.option(
    "-i",
    "--inside",
    is_flag=True,
    help="Also decode nested payloads: records, subscriptions, assignments.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read frames, binary or hexadecimal, from a file.",
)
@click.argument("digits", nargs=-1, metavar="[HEX]...")
def decode(
    *,
    api_name: str | None,
    version: int | None,
    response: bool,
    body: bool,
    inside: bool,
    as_json: bool,
    path: Path | None,
    digits: tuple[str, ...],
) -> None:
    """Print requests and responses as JSON in the format of Kafka's request log.

    Frames come as hexadecimal digits in HEX, or as hexadecimal digits or binary from -f or stdin.
    Each frame follows its length; a single frame may omit the length. A request header names the
    API and version. A response takes them from its request, if that precedes it; otherwise give
    --response --api --version, as far as the bytes are ambiguous.
    """
    hint = FrameHint(None if api_name is None else find_api(api_name), version, response, body)
    if version is not None and hint.api is None:
        raise InvalidOption("--version needs --api: give both, or neither")
    if digits and path is not None:
        raise InvalidOption("HEX and -f exclude each other: give one input")
    indent = None if as_json else 2
    try:
        for form in decode_frames(_read_input(digits, path), hint, inside=inside):
            _write(json.dumps(form, ensure_ascii=False, indent=indent).encode() + b"\n")
    except BrokenPipeError:
        # The reader of stdout has exited, as `head` does.
        return


def decode_frames(
    pieces: list[bytes], hint: FrameHint, *, inside: bool
) -> Iterator[dict[str, Any]]:
    """Yield each frame as a dictionary. Raises `CommandFailed` for an invalid frame."""
    decoder = FrameDecoder(hint)
    number = 0
    for piece in pieces:
        for frame in split_frames(memoryview(piece), hint):
            number += 1
            try:
                yield frame_to_dict(decoder.decode(frame), inside=inside)
            except (KafkaError, CommandFailed) as error:
                if isinstance(error, InvalidOption):
                    raise
                raise CommandFailed(f"frame {number}, {len(frame)} bytes: {error}") from error


def frame_to_dict(decoded: DecodedFrame, *, inside: bool) -> dict[str, Any]:
    """Return a frame as in Kafka's request log: API, header and message."""
    header: dict[str, Any] = {
        "requestApiKey": int(decoded.api.key),
        "requestApiVersion": decoded.version,
        "requestApiKeyName": decoded.api.key.name,
    }
    form: dict[str, Any] = {"requestHeader": header}
    if decoded.guessed:
        form["guessed"] = True
    if decoded.also_fits:
        form["fitsVersionsToo"] = list(decoded.also_fits)
    if decoded.is_response:
        if decoded.correlation_id is not None:
            form["responseHeader"] = {"correlationId": decoded.correlation_id}
    elif decoded.correlation_id is not None:
        header |= {"correlationId": decoded.correlation_id, "clientId": decoded.client_id}
    render = to_expanded_json if inside else to_json
    name = "response" if decoded.is_response else "request"
    form[name] = render(decoded.message, decoded.version)
    return form


def _read_input(digits: tuple[str, ...], path: Path | None) -> list[bytes]:
    """Read the input as a list of pieces; no frame spans two pieces."""
    if digits:
        pieces = parse_hex("\n".join(digits).encode())
        if pieces is None:
            raise InvalidOption(f"{digits[0]!r} is not hexadecimal; use -f to read a file")
        return pieces
    data = _read_all(sys.stdin.fileno()) if path is None else _read_file(path)
    if not data:
        raise CommandFailed("the input is empty: give HEX, -f FILE, or frames on stdin")
    return parse_hex(data) or [data]


def _read_file(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _read_all(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    data = bytearray()
    while chunk := os.read(descriptor, 2**20):
        data += chunk
        if len(data) > MAX_INPUT_BYTES:
            raise CommandFailed(f"the input is larger than {MAX_INPUT_BYTES} bytes: split it")
    return bytes(data)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
