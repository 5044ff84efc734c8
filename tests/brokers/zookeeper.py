"""ZooKeeper for the releases that need it, and topics made through it.

Brokers before 0.10.1 have no CreateTopics: their own tools write a topic's partitions into
ZooKeeper, where the controller finds them. So does `create_topic`, with the requests by hand.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from tests.brokers.process import HOST, Process

SESSION_TIMEOUT_MS = 10_000
ANSWER_TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 1024 * 1024
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

_CREATE, _CLOSE = 1, -11
_ALL_RIGHTS = 31
_NO_PARENT, _NODE_EXISTS = -101, -110


class ZooKeeper:
    """One ZooKeeper process on loopback; its data outlives a stop."""

    def __init__(self, port: int, directory: Path) -> None:
        self.port = port
        self.directory = directory
        self.process: Process | None = None
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": str(directory / "data"),
            "clientPort": str(port),
            "clientPortAddress": HOST,
            "maxClientCnxns": "0",
            "tickTime": "500",
            # Its web page would take a port of its own.
            "admin.enableServer": "false",
        }
        self.settings = directory / "zookeeper.properties"
        self.settings.write_text(
            "".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8"
        )

    def start(self, command: tuple[str, ...]) -> None:
        """Start it and do not wait: brokers try again until it answers."""
        if self.process is None or self.process.returncode is not None:
            arguments = (*command, MAIN_CLASS, str(self.settings))
            self.process = Process(arguments, self.directory / "zookeeper.log")

    def stop(self) -> None:
        if self.process is not None:
            # It keeps a log of each write on disk, so it can be killed.
            self.process.kill()
            self.process = None


def create_topic(
    port: int,
    name: str,
    replicas: Mapping[int, list[int]],
    configs: Mapping[str, str],
) -> None:
    """Give a topic its partitions: number -> node ids, the preferred leader first.

    Raises `OSError` if ZooKeeper does not answer, or refuses.
    """
    partitions = {str(partition): nodes for partition, nodes in replicas.items()}
    with _Session(port) as session:
        if configs:
            settings = {"version": 1, "config": dict(configs)}
            session.create(f"/config/topics/{name}", settings)
        session.create(f"/brokers/topics/{name}", {"version": 1, "partitions": partitions})


class _Session:
    """A session in ZooKeeper's protocol: frames of a length and big-endian fields."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), ANSWER_TIMEOUT_SECONDS)
        self._number = 0

    def __enter__(self) -> _Session:
        password = struct.pack(">i", 16) + bytes(16)
        try:
            self._send(struct.pack(">iqiq", 0, 0, SESSION_TIMEOUT_MS, 0) + password)
            self._receive()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._socket:
            self._send(struct.pack(">ii", self._number + 1, _CLOSE))

    def create(self, path: str, value: object) -> None:
        """Make a node that stays, open to everyone, and the nodes above it."""
        error = self._create(path, value)
        if error == _NO_PARENT:  # 0.8.0 makes its folders with the first topic
            self.create(path.rpartition("/")[0], None)
            error = self._create(path, value)
        if error == _NODE_EXISTS:
            raise FileExistsError(f"ZooKeeper has {path} already")
        if error != 0:
            raise OSError(f"ZooKeeper made no {path}: error {error}")

    def _create(self, path: str, value: object) -> int:
        self._number += 1
        everyone = struct.pack(">ii", 1, _ALL_RIGHTS) + _text("world") + _text("anyone")
        self._send(
            struct.pack(">ii", self._number, _CREATE)
            + _text(path)
            + _text("" if value is None else json.dumps(value))
            + everyone
            + struct.pack(">i", 0)
        )
        error: int = struct.unpack_from(">iqi", self._receive())[2]
        return error

    def _send(self, body: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def _receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        if not 0 <= length <= MAX_ANSWER_BYTES:
            raise OSError(f"a frame of {length} bytes: is it ZooKeeper?")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError(f"ZooKeeper closed after {len(data)} of {count} bytes")
            data += part
        return bytes(data)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">i", len(encoded)) + encoded
