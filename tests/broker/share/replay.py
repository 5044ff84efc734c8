"""Replays conversations that members of share groups had with Kafka 4.3.0.

Records are appended to the embedded broker, with the same bytes, before the request whose response
has them in the recording.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.records.batch import BatchView, iter_batches
from aiokafkawire.runtime import Runtime
from aiokafkawire.wire import APIS, ApiKey
from aiokafkawire.wire.header import decode_response, encode_request
from aiokafkawire.wire.json_converter import from_json, to_json
from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aiokafkawire.wire.primitives import uuid_to_text
from tests.broker.consumer_group.replay import (
    ADMIN,
    APIS_BY_NAME,
    CALL_TIMEOUT_S,
    Connection,
    Replay,
    _normal,
)
from tests.broker.raw_client import batch

POLL_AFTER_S = 0.15
"""After a join without an assignment, members sent heartbeats that were not recorded."""

MAX_POLLS = 3

RecordedBatches = dict[tuple[str, int], dict[int, tuple[int, BatchView]]]
"""Batches by topic id and partition, then by base offset, with the line that asked for them."""


class PipelinedConnection(Connection):
    """A connection on which requests are sent before earlier ones are answered."""

    def __init__(self, transport: Any, client_id: str) -> None:
        super().__init__(transport, client_id)
        self._sent: deque[tuple[Any, int]] = deque()
        self._frames: deque[memoryview] = deque()

    async def send(self, request: Any, version: int) -> None:
        self._correlation_id += 1
        await self._transport.send(
            encode_request(request, version, self._correlation_id, self._client_id)
        )
        self._sent.append((request, version))

    async def receive(self) -> Any:
        request, version = self._sent.popleft()
        with anyio.fail_after(CALL_TIMEOUT_S):
            while not self._frames:
                count = await self._transport.receive_into(self._reader.get_buffer())
                assert count, "the broker closed the connection"
                self._frames += self._reader.buffer_updated(count)
        response = APIS[ApiKey(request.api_key)].response
        return decode_response(response, version, self._frames.popleft())[1]

    async def call(self, request: Any, version: int) -> Any:
        await self.send(request, version)
        return await self.receive()


def recorded_batches(lines: Iterable[Mapping[str, Any]]) -> RecordedBatches:
    """Return the batches that responses of ShareFetch have."""
    found: RecordedBatches = {}
    asked: dict[Any, deque[int]] = {}
    for number, line in enumerate(lines):
        if line.get("api") != "ShareFetch":
            continue
        who = line.get("from", line.get("to", line.get("conn")))
        if "request" in line:
            asked.setdefault(who, deque()).append(number)
            continue
        request = asked[who].popleft()
        for topic in line["response"]["responses"]:
            for partition in topic["partitions"]:
                batches = found.setdefault((topic["topicId"], partition["partitionIndex"]), {})
                for view in iter_batches(b64decode(partition["records"] or "")):
                    batches.setdefault(view.base_offset, (request, view))
    return found


class ShareReplay(Replay):
    """Conversations of one broker.

    Args:
        broker: The embedded broker.
        runtime: Network and clock.
        topics: Names by recorded topic id.
        places: Connections of single requests, by scenario, time and API.
        deliberate: Responses that differ on purpose, by scenario and time.
        upfront: Topics whose records were there from the beginning.
    """

    def __init__(
        self,
        broker: Broker,
        runtime: Runtime,
        *,
        topics: Mapping[str, str],
        places: Mapping[tuple[str, float, str], str] = MappingProxyType({}),
        deliberate: Iterable[tuple[str, float]] = (),
        upfront: Collection[str] = (),
    ) -> None:
        super().__init__(broker, runtime)
        self.topics = topics
        self.places = places
        self.deliberate = frozenset(deliberate)
        self.upfront = upfront
        self.differing = 0
        self._group = ""
        self._pending: dict[tuple[str, str], deque[PipelinedConnection]] = {}

    async def run_all(
        self, lines: Sequence[Mapping[str, Any]], hooks: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Replay the scenarios of one broker."""
        due: dict[int, list[tuple[str, int, BatchView]]] = {}
        for (topic, partition), batches in recorded_batches(lines).items():
            for base, (request, view) in sorted(batches.items()):
                if base and base == min(batches):
                    self._fill(topic, partition, base)
                if self.topics[topic] in self.upfront:
                    self._append(topic, partition, view)
                else:
                    due.setdefault(request, []).append((topic, partition, view))
        scenario, since = "", 0.0
        for number, line in enumerate(lines):
            if line["scenario"] != scenario:
                scenario, since = line["scenario"], anyio.current_time()
                left = dict(hooks.get(scenario, {}))
            at = since + line["t"]
            note = line.get("note", "")
            for key in [
                key for key in left if (note and note.startswith(key)) or key == str(line["t"])
            ]:
                await left.pop(key)(self, at)
            await anyio.sleep(max(0, at - anyio.current_time()))
            for each in due.get(number, ()):
                self._append(*each)
            if "request" in line:
                await self._send(line)
            elif "response" in line:
                await self._receive(line)
                if "conn" not in line:
                    await self._poll_after_join(line, lines[number + 1 : number + 2])
            elif line.get("closedBy") == "client":
                await self.disconnect(f"connection {line['conn']}")
        for connection in self.connections.values():
            await connection.close()

    # --- records -----------------------------------------------------------------------------

    def bind(self, recorded_id: str) -> None:
        """Bind the recorded id of a topic to ours."""
        topic = self.broker._running.cluster.topics[self.topics[recorded_id]]
        self.ids[recorded_id] = uuid_to_text(topic.topic_id)

    def partition(self, topic: str, index: int) -> Any:
        """Return a partition by its recorded topic id."""
        return self.broker._running.cluster.topics[self.topics[topic]].partitions[index]

    def _fill(self, topic: str, index: int, count: int) -> None:
        """Append records that nobody asked for."""
        data = batch(*[b"filler"] * count)
        self._append(topic, index, next(iter_batches(data)))

    def _append(self, topic: str, index: int, view: BatchView) -> None:
        found = self.partition(topic, index)
        if not found.log.end_offset <= view.base_offset or (
            found.log.end_offset == 0 and view.base_offset
        ):
            return
        data = bytearray(view.buffer)
        struct.pack_into(">q", data, 0, found.log.end_offset)
        moved = next(iter_batches(bytes(data)))
        found.log.append(bytes(data), moved)
        found.on_append()

    # --- requests ----------------------------------------------------------------------------

    async def connection(self, name: str) -> Any:
        if name not in self.connections:
            node = self.broker.live_nodes[0] if self.node is None else self.node
            client_id = "lab" if name in ADMIN else f"lab-{name.partition('#')[0]}"
            transport = await self.runtime.connect(self.broker.nodes[node])
            self.connections[name] = PipelinedConnection(transport, client_id)
        return self.connections[name]

    async def disconnect(self, name: str) -> None:
        """Close a connection."""
        if name in self.connections:
            await self.connections.pop(name).close()

    async def _send(self, line: Mapping[str, Any]) -> None:
        who, api = str(line["from"]), line["api"]
        if api == "ShareGroupHeartbeat":
            if line["request"]["memberEpoch"] > 0:
                await self._catch_up(line["request"])
            self._group = line["request"]["groupId"]
        form = self._translated(line["request"])
        request = from_json(APIS_BY_NAME[api].request, line["version"], form)
        place = self.places.get((line["scenario"], line["t"], api), who)
        connection = await self.connection(place)
        await connection.send(request, line["version"])
        self._pending.setdefault((who, api), deque()).append(connection)

    async def _receive(self, line: Mapping[str, Any]) -> None:
        answer = await self._pending[str(line["to"]), line["api"]].popleft().receive()
        if line["api"] == "ShareGroupHeartbeat" and not answer.error_code:
            self.epochs[str(answer.member_id)] = answer.member_epoch
        if (line["scenario"], line["t"]) not in self.deliberate:
            self._compare(line, answer)
            return
        ours = to_json(answer, line["version"])
        self.differing += 1
        assert _normal(self._translated(line["response"])) != _normal(ours), line

    async def _catch_up(self, request: Mapping[str, Any]) -> None:
        """Send heartbeats that were not recorded, until the epoch is the recorded one."""
        member = request["memberId"]
        for _ in range(MAX_POLLS):
            if self.epochs.get(member, request["memberEpoch"]) >= request["memberEpoch"]:
                return
            await self.poll_share_group(request["groupId"], member)

    async def poll_share_group(self, group: str, member: str) -> None:
        """Send a heartbeat that was not recorded."""
        heartbeat = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=self.epochs[member]
        )
        response = await (await self.connection(f"{member}#poll")).call(heartbeat, 1)
        if not response.error_code:
            self.epochs[member] = response.member_epoch

    async def _poll_after_join(
        self, line: Mapping[str, Any], following: Sequence[Mapping[str, Any]]
    ) -> None:
        response = line["response"]
        assignment = response.get("assignment")
        if assignment is None or assignment["topicPartitions"] or not following:
            return
        is_same = following[0]["scenario"] == line["scenario"]
        if is_same and following[0]["t"] - line["t"] >= POLL_AFTER_S:
            await anyio.sleep(0.1)
            await self.poll_share_group(self._group, response["memberId"])
