"""The requests needed to start a broker, encoded by hand: the client under test is not used
here."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_METADATA, _CREATE_TOPICS = 3, 19
_CORRELATION_ID = 1

Address = tuple[str, int]


class Refused(RuntimeError):
    """The broker answered with an error code."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """`leaders`: topic -> partition -> node id of its leader, -1 while there is none.

    `replicas`, `in_sync`: topic -> partition -> node ids of its replicas, and of those in its ISR.
    """

    nodes: Mapping[int, Address]
    leaders: Mapping[str, Mapping[int, int]]
    replicas: Mapping[str, Mapping[int, Sequence[int]]] = field(default_factory=dict)
    in_sync: Mapping[str, Mapping[int, Sequence[int]]] = field(default_factory=dict)

    def led_partitions(self, topic: str) -> int:
        """Return the number of partitions of `topic` with a leader."""
        return sum(leader >= 0 for leader in self.leaders.get(topic, {}).values())

    def all_in_sync(self) -> bool:
        """Return whether each replica of each partition is in its ISR."""
        return all(
            set(nodes) == set(self.in_sync[topic][partition])
            for topic, partitions in self.replicas.items()
            for partition, nodes in partitions.items()
        )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: str) -> int:
        value: int
        try:
            (value,) = struct.unpack_from(f">{layout}", self._data, self._position)
        except struct.error as error:
            raise OSError(f"answer cut off: {error}") from error
        self._position += struct.calcsize(layout)
        return value

    def string(self) -> str:
        length = self.take("h")
        if length < 0:
            return ""
        text = self._data[self._position : self._position + length]
        self._position += length
        return text.decode(errors="replace")


def metadata(address: Address, timeout_seconds: float = 5.0) -> Metadata:
    """Metadata v0 of all topics (naming one would create it); 0.8 to 4.3 answer it."""
    all_topics = struct.pack(">i", 0)
    answer = _Reader(_request(address, _METADATA, 0, all_topics, timeout_seconds))
    nodes = {}
    for _ in range(answer.take("i")):
        node_id = answer.take("i")
        nodes[node_id] = (answer.string(), answer.take("i"))
    leaders: dict[str, dict[int, int]] = {}
    replicas: dict[str, dict[int, list[int]]] = {}
    in_sync: dict[str, dict[int, list[int]]] = {}
    for _ in range(answer.take("i")):
        answer.take("h")  # the topic's error code: its partitions have the errors that matter
        topic = answer.string()
        of_topic, copies = leaders.setdefault(topic, {}), replicas.setdefault(topic, {})
        caught_up = in_sync.setdefault(topic, {})
        for _ in range(answer.take("i")):
            answer.take("h")
            partition = answer.take("i")
            of_topic[partition] = answer.take("i")
            copies[partition] = [answer.take("i") for _ in range(answer.take("i"))]
            caught_up[partition] = [answer.take("i") for _ in range(answer.take("i"))]
    return Metadata(nodes, leaders, replicas, in_sync)


def create_topic(
    address: Address,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    replicas: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str],
    timeout_seconds: float = 15.0,
) -> None:
    """CreateTopics v2 (brokers from 1.0): of two counts, or of the nodes of each partition.

    Raises `Refused`.
    """
    assignments = b"".join(
        struct.pack(f">ii{len(nodes)}i", partition, len(nodes), *nodes)
        for partition, nodes in enumerate(replicas)
    )
    options = b"".join(_string(key) + _string(value) for key, value in configs.items())
    body = (
        struct.pack(">i", 1)
        + _string(name)
        + struct.pack(">ihi", partitions, replication_factor, len(replicas))
        + assignments
        + struct.pack(">i", len(configs))
        + options
        + struct.pack(">i?", int(timeout_seconds * 1000), False)
    )
    answer = _Reader(_request(address, _CREATE_TOPICS, 2, body, timeout_seconds + 5))
    answer.take("i")  # throttle time
    for _ in range(answer.take("i")):
        topic, error_code, message = answer.string(), answer.take("h"), answer.string()
        if error_code != 0:
            raise Refused(f"topic {topic!r} was not created: error {error_code} {message}".strip())


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _request(
    address: Address, api_key: int, api_version: int, body: bytes, timeout_seconds: float
) -> bytes:
    """Send one request on a connection of its own; the response without its header."""
    header = struct.pack(">hhi", api_key, api_version, _CORRELATION_ID) + _string("tests")
    frame = header + body
    with socket.create_connection(address, timeout_seconds) as connection:
        connection.settimeout(timeout_seconds)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", _receive(connection, 4))
        if not 4 <= length <= MAX_RESPONSE_BYTES:
            raise OSError(f"{address} sent a frame of {length} bytes: is it Kafka?")
        return _receive(connection, length)[4:]


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError(f"closed after {len(data)} of {count} bytes")
        data += part
    return bytes(data)
