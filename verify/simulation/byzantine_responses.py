"""Wrong responses of a byzantine broker: a table of changes to correct responses.

The broker handles each request correctly; only the response is changed on its way. Every change can
be detected by a client; a consistent false offset, for example, could not.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import cramjam
import crc32c

from aiokafkawire.broker import Answer, Corrupt, SeenRequest
from aiokafkawire.wire import ApiKey, Buffer, Response
from aiokafkawire.wire.consumer_protocol import encode_assignment
from aiokafkawire.wire.messages.fetch import FetchPartitionData
from aiokafkawire.wire.messages.metadata import MetadataResponseBroker

__all__ = (
    "APIS_WITH_FALSE_RESPONSES",
    "FALSE_RESPONSES",
    "MAX_UNPACKED_BYTES",
    "THROTTLE",
    "draw_false_response",
    "false_response_rule",
    "kinds_for_api",
)

MAX_UNPACKED_BYTES = 256 * 1_024
"""Limit of readers for the size of a decompressed batch; the bombs have eight times as much."""

THROTTLE = "silence for weeks"
NOWHERE = 77
"""A node id that does not exist."""

APIS_WITH_FALSE_RESPONSES = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)

T = TypeVar("T")

# Positions in a frame, and in a record batch v2.
BODY = 8
LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, COUNT, RECORDS = 8, 16, 17, 21, 23, 57, 61
BATCH_LENGTH_STARTS = 12

# --- frames ---


def _framed(body: bytes, length: int | None = None) -> bytes:
    return struct.pack(">i", len(body) if length is None else length) + body


FRAMES: Mapping[str, Callable[[bytes], bytes]] = {
    "length of -1": lambda frame: _framed(frame[4:], -1),
    "length of 3": lambda frame: _framed(frame[4:], 3),
    "length beyond all bounds": lambda frame: _framed(frame[4:], 2**31 - 1),
    "length of more than there is": lambda frame: _framed(frame[4:], len(frame) + 3),
    "length of less than there is": lambda frame: _framed(frame[4:], len(frame) - 5),
    "correlation id of nobody": lambda frame: (
        frame[:4] + bytes(byte ^ 0x5A for byte in frame[4:BODY]) + frame[BODY:]
    ),
    "answered twice": lambda frame: frame + frame,
    "bytes behind": lambda frame: _framed(frame[4:] + b"\x00"),
    "cut short": lambda frame: _framed(frame[4:-1]),
    "noise": lambda frame: frame[:BODY] + bytes(byte ^ 0xA5 for byte in frame[BODY:]),
}

# --- records ---


def _resealed(batch: bytes) -> bytes:
    """Return the bytes as one batch with correct length and checksum."""
    sealed = bytearray(batch)
    struct.pack_into(">i", sealed, LENGTH, len(sealed) - BATCH_LENGTH_STARTS)
    struct.pack_into(">I", sealed, CRC, crc32c.crc32c(bytes(sealed[ATTRIBUTES:])))
    return bytes(sealed)


def _with(batch: bytes, at: int, number: int) -> bytes:
    return _resealed(batch[:at] + struct.pack(">i", number) + batch[at + 4 :])


def _flipped(batch: bytes) -> bytes:
    """Flip a bit of a value: without a checksum it would be read."""
    at = len(batch) - 2
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


@cache
def _bomb() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(8 * MAX_UNPACKED_BYTES), level=1))


BATCHES: Mapping[str, Callable[[bytes], bytes]] = {
    "another value": _flipped,
    "wrong checksum": lambda batch: batch[:CRC] + b"\x00\x00\x00\x01" + batch[CRC + 4 :],
    "too many records": lambda batch: _with(batch, COUNT, 2**31 - 1),
    "a negative count": lambda batch: _with(batch, COUNT, -1),
    "a false last offset": lambda batch: _with(batch, LAST_DELTA, -2),
    "not what it is packed with": lambda batch: _resealed(
        batch[: ATTRIBUTES + 1] + b"\x04" + batch[ATTRIBUTES + 2 : RECORDS] + b"\xff" * 20
    ),
    "a bomb": lambda batch: _resealed(
        batch[: ATTRIBUTES + 1] + b"\x04" + batch[ATTRIBUTES + 2 : RECORDS] + _bomb()
    ),
}


def _with_first_batch(
    change: Callable[[bytes], bytes], data: FetchPartitionData
) -> FetchPartitionData:
    records = bytes(data.records or b"")
    if len(records) <= RECORDS or records[MAGIC] != 2:
        return data
    end = BATCH_LENGTH_STARTS + int.from_bytes(records[LENGTH : LENGTH + 4])
    if end > len(records):
        return data
    return replace(data, records=change(records[:end]) + records[end:])


# --- messages ---


def _each_partition(response: Any, change: Callable[[Any], Any]) -> Any:
    topics = [
        replace(topic, partitions=[change(each) for each in topic.partitions])
        for topic in response.responses
    ]
    return replace(response, responses=topics)


def _elsewhere(response: Any) -> Any:
    return _each_partition(
        response, lambda each: replace(each, partition_index=each.partition_index + 1_000)
    )


def _produced_elsewhere(response: Any) -> Any:
    topics = [
        replace(
            topic,
            partition_responses=[
                replace(each, index=each.index + 1_000) for each in topic.partition_responses
            ],
        )
        for topic in response.responses
    ]
    return replace(response, responses=topics)


def _false_watermarks(response: Any) -> Any:
    return _each_partition(
        response,
        lambda each: replace(
            each, high_watermark=-5, last_stable_offset=2**63 - 1, log_start_offset=-7
        ),
    )


def _impossible_addresses(response: Any) -> Any:
    """Change the address of an existing node, and add nodes with invalid addresses."""
    odd = [("", 9_092), ("10.0.0.1", 0), ("10.0.0.1", 70_000), ("bad host", 1), ("10.0.0.1", -1)]
    more = [
        MetadataResponseBroker(node_id=NOWHERE + number, host=host, port=port)
        for number, (host, port) in enumerate(odd)
    ]
    known = [replace(response.brokers[0], port=70_000), *response.brokers[1:]]
    return replace(response, brokers=[*known, *more])


def _change_partitions(response: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    topics = [replace(topic, partitions=change(topic.partitions)) for topic in response.topics]
    return replace(response, topics=topics)


def _older_epochs(response: Any) -> Any:
    """Name another leader, with an older epoch."""
    return _change_partitions(
        response,
        lambda partitions: [
            replace(each, leader_id=each.leader_id % 3 + 1, leader_epoch=each.leader_epoch - 1)
            for each in partitions
        ],
    )


def _leaders_nowhere(response: Any) -> Any:
    return _change_partitions(
        response, lambda partitions: [replace(each, leader_id=NOWHERE) for each in partitions]
    )


def _other_versions(low: int, high: int) -> Callable[[Any], Any]:
    def change(response: Any) -> Any:
        rows = [replace(row, min_version=low, max_version=high) for row in response.api_keys]
        return replace(response, api_keys=rows)

    return change


def _coordinator_nowhere(response: Any) -> Any:
    place = {"node_id": NOWHERE, "host": "10.0.0.1", "port": 70_000}
    if response.coordinators:
        return replace(
            response, coordinators=[replace(each, **place) for each in response.coordinators]
        )
    return replace(response, **place)


def _coordinator_of_another(response: Any) -> Any:
    return replace(
        response, coordinators=[replace(each, key="strangers") for each in response.coordinators]
    )


def _also_foreign(response: Any) -> Any:
    foreign = [("strangers", 0), ("orders", 10**6), ("orders", -4)]
    return replace(response, assignment=encode_assignment(foreign))


MESSAGES: Mapping[ApiKey, Mapping[str, Callable[[Any], Any]]] = {
    ApiKey.API_VERSIONS: {
        "versions of the future": _other_versions(1_000, 1_001),
        "versions that cross": _other_versions(5, 2),
        "versions below 0": _other_versions(-9, -3),
        "no versions": lambda response: replace(response, api_keys=[]),
        "all versions twice": lambda response: replace(response, api_keys=response.api_keys * 2),
    },
    ApiKey.METADATA: {
        "impossible addresses": _impossible_addresses,
        "no nodes": lambda response: replace(response, brokers=[]),
        "nodes thrice": lambda response: replace(response, brokers=response.brokers * 3),
        "leaders that there are not": _leaders_nowhere,
        "leaders of older epochs": _older_epochs,
        "partitions thrice": lambda response: _change_partitions(response, lambda each: each * 3),
        "no partitions": lambda response: _change_partitions(response, lambda each: []),
        "nothing of topics": lambda response: replace(response, topics=[]),
    },
    ApiKey.PRODUCE: {
        "other partitions": _produced_elsewhere,
        "nothing of topics": lambda response: replace(response, responses=[]),
    },
    ApiKey.FETCH: {
        "other partitions": _elsewhere,
        "partitions twice": lambda response: replace(response, responses=response.responses * 2),
        "watermarks": _false_watermarks,
        "a session of somebody": lambda response: replace(response, session_id=123_456),
        "a replica that there is not": lambda response: _each_partition(
            response, lambda each: replace(each, preferred_read_replica=NOWHERE)
        ),
    },
    ApiKey.LIST_OFFSETS: {"nothing of topics": lambda response: replace(response, topics=[])},
    ApiKey.FIND_COORDINATOR: {
        "a coordinator that there is not": _coordinator_nowhere,
        "a coordinator of another group": _coordinator_of_another,
    },
    ApiKey.JOIN_GROUP: {
        "a leader of nobody": lambda response: replace(
            response, leader=response.member_id, members=[]
        ),
        "an older generation": lambda response: replace(
            response, generation_id=response.generation_id - 1
        ),
        "a protocol that was not offered": lambda response: replace(
            response, protocol_name="of strangers"
        ),
        "nobody's id": lambda response: replace(response, member_id=""),
    },
    ApiKey.SYNC_GROUP: {
        "partitions that there are not": _also_foreign,
        "no assignment that can be read": lambda response: replace(
            response, assignment=b"\x00\x00\x7f\xff\xff\xff"
        ),
    },
}
"""Changes by API."""

CODES: Mapping[str, int] = {"an unknown error": 9_999, "a negative error": -7}
"""Error codes returned instead of handling the request."""

FALSE_RESPONSES: tuple[str, ...] = (
    *FRAMES,
    *BATCHES,
    *dict.fromkeys(kind for kinds in MESSAGES.values() for kind in kinds),
    *CODES,
    THROTTLE,
)
"""Names of all false responses."""


@dataclass(frozen=True, slots=True)
class FalseResponse(Corrupt):
    """Handle a request, and change the response."""

    kind: str = ""

    def response(self, response: Response) -> Response:
        api = ApiKey(response.api_key)
        changed: Any = response
        if getattr(changed, "error_code", 0):
            return response
        if self.kind in BATCHES and api is ApiKey.FETCH:
            change = BATCHES[self.kind]
            changed = _each_partition(changed, lambda each: _with_first_batch(change, each))
        elif self.kind == THROTTLE:
            changed = replace(changed, throttle_time_ms=2**31 - 1)
        else:
            changes = MESSAGES.get(api)
            changed = changed if changes is None else changes.get(self.kind, _unchanged)(changed)
        return changed  # type: ignore[no-any-return]

    def frame(self, buffers: list[Buffer]) -> list[Buffer]:
        whole = b"".join(map(bytes, buffers))
        return [FRAMES.get(self.kind, _unchanged)(whole)]


def _unchanged(changed: T) -> T:
    return changed


def kinds_for_api(api: ApiKey) -> Iterator[str]:
    """Yield the false responses that exist for an API."""
    yield from FRAMES
    if api is ApiKey.FETCH:
        yield from BATCHES
    yield from MESSAGES.get(api, {})
    yield from CODES
    yield THROTTLE


def false_response_rule(kind: str) -> Callable[[SeenRequest], Answer | Corrupt | None]:
    """Return a rule for `Broker.on` that falsifies responses. Requests between nodes are spared."""
    outcome = Answer(CODES[kind]) if kind in CODES else FalseResponse(kind=kind)

    def answer(seen: SeenRequest) -> Answer | Corrupt | None:
        return None if seen.client_id.startswith("broker-") else outcome

    return answer


def draw_false_response(rng: random.Random) -> dict[str, Any]:
    """Draw the arguments of one false response."""
    # Fetched records allow the most changes, but many fetches return none.
    chance = rng.random()
    if chance < 0.35:
        kind = "another value" if rng.random() < 0.5 else rng.choice(list(BATCHES))
        return {"api": ApiKey.FETCH.name, "kind": kind, "times": rng.choice((3, 20, 200))}
    if chance < 0.5:
        api = rng.choice((ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT))
        return {"api": api.name, "kind": rng.choice(list(CODES)), "times": rng.randint(1, 6)}
    api = rng.choice(APIS_WITH_FALSE_RESPONSES)
    return {
        "api": api.name,
        "kind": rng.choice(list(kinds_for_api(api))),
        "times": rng.randint(1, 3),
    }
