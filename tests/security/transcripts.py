"""SASL exchanges recorded on real Kafka 0.9 to 4.3 (tests/vectors/sasl-transcripts.jsonl.gz)."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafkawire.wire import APIS, ApiKey, decode

VECTORS = Path(__file__).parents[1] / "vectors" / "sasl-transcripts.jsonl.gz"
LENGTH_BYTES = 4
HEADER_BYTES = 8
"""API key, version and correlation id."""


@dataclass
class Exchange:
    """The tokens of one authentication. `error_code` is None if the connection was closed."""

    scenario: str
    broker: str
    mechanism: str
    client: list[bytes] = field(default_factory=list)
    server: list[bytes] = field(default_factory=list)
    error_code: int | None = None
    error_message: str = ""
    hmac: str | None = None
    """Base64 of the delegation token that the conversation created before."""

    def __str__(self) -> str:
        return f"{self.scenario}-{self.broker}"


def conversations() -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines]
    for (scenario, broker), group in itertools.groupby(
        steps, key=lambda step: (step["scenario"], step["broker"])
    ):
        yield scenario, broker, [*group]


def exchanges(*mechanisms: str) -> list[Exchange]:
    """Return the exchanges of some mechanisms that went by SaslAuthenticate."""
    return [
        exchange
        for scenario, broker, steps in conversations()
        for exchange in _exchanges(scenario, broker, steps)
        if exchange.mechanism in mechanisms and exchange.client
    ]


def _exchanges(scenario: str, broker: str, steps: list[dict[str, Any]]) -> Iterator[Exchange]:
    current: Exchange | None = None
    asked: dict[int, tuple[int, int]] = {}
    token: str | None = None
    for step in steps:
        frame = bytes.fromhex(step["hex"])
        if len(frame) < LENGTH_BYTES + LENGTH_BYTES:
            continue
        body = frame[LENGTH_BYTES:]
        if step["dir"] == ">":
            key, version = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big")
            asked[int.from_bytes(body[4:8], "big")] = key, version
            if key == ApiKey.SASL_HANDSHAKE and version == 1:
                if current is not None:
                    yield current
                mechanism = decode_request(ApiKey.SASL_HANDSHAKE, version, body).mechanism
                current = Exchange(scenario, broker, mechanism, hmac=token)
            elif key == ApiKey.SASL_AUTHENTICATE and current is not None:
                current.client.append(decode_request(key, version, body).auth_bytes)
            continue
        key, version = asked.pop(int.from_bytes(body[:4], "big"), (-1, -1))
        if key == ApiKey.SASL_AUTHENTICATE and current is not None:
            response = decode_response(key, version, body)
            current.server.append(response.auth_bytes)
            current.error_code = response.error_code
            current.error_message = response.error_message or ""
        elif key == ApiKey.CREATE_DELEGATION_TOKEN:
            token = base64.b64encode(decode_response(key, version, body).hmac).decode() or None
    if current is not None:
        yield current


def decode_request(key: int, version: int, body: bytes) -> Any:
    kind = APIS[ApiKey(key)].request
    client_id_bytes = int.from_bytes(body[8:10], "big", signed=True)
    start = HEADER_BYTES + 2 + max(client_id_bytes, 0)
    return decode(kind, version, body[start + (kind.header_version(version) > 1) :])


def decode_response(key: int, version: int, body: bytes) -> Any:
    kind = APIS[ApiKey(key)].response
    return decode(kind, version, body[LENGTH_BYTES + (kind.header_version(version) > 0) :])
