"""Replays conversations that scripted members had with Kafka 4.3.0 against the embedded broker.

Topic ids and generated member ids differ from run to run: an id of the recording is bound to the id
that the embedded broker returns at its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.runtime import Runtime, Transport
from aiokafkawire.wire import APIS, ApiKey
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.header import decode_response, encode_request
from aiokafkawire.wire.json_converter import from_json, to_json
from aiokafkawire.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokafkawire.wire.primitives import uuid_to_text

APIS_BY_NAME = {
    type_.__name__.removesuffix("Request"): api for api in APIS.values() for type_ in (api.request,)
}
NOT_SERVED = ("ShareGroup", "StreamsGroup")
ADMIN = frozenset({"admin", "admin2", "classic", "classic2"})
CALL_TIMEOUT_S = 30


class Connection:
    """One connection, which sends one request at a time."""

    def __init__(self, transport: Transport, client_id: str) -> None:
        self._transport = transport
        self._client_id = client_id
        self._reader = FrameReader(2**24)
        self._correlation_id = 0

    async def call(self, request: Any, version: int) -> Any:
        self._correlation_id += 1
        await self._transport.send(
            encode_request(request, version, self._correlation_id, self._client_id)
        )
        frames: list[memoryview] = []
        with anyio.fail_after(CALL_TIMEOUT_S):
            while not frames:
                count = await self._transport.receive_into(self._reader.get_buffer())
                assert count, "the broker closed the connection"
                frames += self._reader.buffer_updated(count)
        response = APIS[ApiKey(request.api_key)].response
        return decode_response(response, version, frames[0])[1]

    async def close(self) -> None:
        await self._transport.aclose()


@dataclass(slots=True)
class Replay:
    """One conversation. `differences` are responses that are not the recorded ones."""

    broker: Broker
    runtime: Runtime
    ids: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    differences: list[str] = field(default_factory=list)
    connections: dict[str, Connection] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    assigned: list[str] = field(default_factory=list)
    producer_id: int = -1
    node: int | None = None

    async def run(self, lines: Iterable[Mapping[str, Any]], hooks: Mapping[str, Any]) -> None:
        """Send each request at its time and compare the response.

        `hooks` are functions by the beginning of a note, or by the time of a line.
        """
        started = anyio.current_time()
        answers: dict[tuple[str, str], Any] = {}
        left = dict(hooks)
        for line in lines:
            due = started + line["t"]
            note = line.get("note", "")
            for key in [
                key for key in left if (note and note.startswith(key)) or key == f"{line['t']}"
            ]:
                await left.pop(key)(self, due)
            await anyio.sleep(max(0, due - anyio.current_time()))
            if not self._is_served(line):
                continue
            if "request" in line:
                answers[line["from"], line["api"]] = await self._call(line)
            elif "response" in line and (line["to"], line["api"]) in answers:
                self._compare(line, answers.pop((line["to"], line["api"])))
        for connection in self.connections.values():
            await connection.close()

    @staticmethod
    def _is_served(line: Mapping[str, Any]) -> bool:
        api = line.get("api", "")
        return not api.startswith(NOT_SERVED) and "gshare" not in str(line.get("request", ""))

    async def connect_to(self, node: int) -> None:
        """Send further requests to a node."""
        for connection in self.connections.values():
            await connection.close()
        self.connections = {}
        self.node = node

    async def connection(self, name: str) -> Connection:
        if name not in self.connections:
            node = self.broker.live_nodes[0] if self.node is None else self.node
            address = self.broker.nodes[node]
            client_id = "lab" if name in ADMIN else f"lab-{name}"
            self.connections[name] = Connection(await self.runtime.connect(address), client_id)
        return self.connections[name]

    async def _call(self, line: Mapping[str, Any]) -> Any:
        api = APIS_BY_NAME[line["api"]]
        form = self._translated(line["request"])
        if line["api"] == "TxnOffsetCommit":
            form["generationIdOrMemberEpoch"] = form.pop("generationId")
            form["producerId"] = self.producer_id
        request = from_json(api.request, line["version"], form)
        connection = await self.connection(line["from"])
        return await connection.call(request, line["version"])

    async def poll(self, member_id: str, group_id: str, until: float, step_s: float = 0.02) -> None:
        """Send heartbeats that were not recorded, with the epoch of the last response."""
        connection = await self.connection(member_id)
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group_id, member_id=member_id, member_epoch=self.epochs[member_id]
            )
            response: ConsumerGroupHeartbeatResponse = await connection.call(request, 1)
            if not response.error_code:
                self.epochs[member_id] = response.member_epoch
            if response.assignment is not None:
                found = response.assignment.topic_partitions
                self.assigned = [uuid_to_text(each.topic_id) for each in found]
            if anyio.current_time() + step_s >= until:
                return
            await anyio.sleep(step_s)

    def _translated(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._translated(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._translated(each) for each in value]
        return self.ids.get(value, value) if isinstance(value, str) else value

    # --- comparison --------------------------------------------------------------------------

    def _compare(self, line: Mapping[str, Any], answer: Any) -> None:
        ours = to_json(answer, line["version"])
        recorded = line["response"]
        if line["api"] == "ConsumerGroupHeartbeat" and not ours["errorCode"]:
            self.epochs[str(ours["memberId"])] = ours["memberEpoch"]
        if line["api"] == "ListGroups":
            recorded, ours = _common_groups(recorded, ours)
        self._bind(recorded, ours)
        self.compared += 1
        expected = _normal(self._translated(recorded))
        if expected != _normal(ours):
            self.differences.append(
                f"{line['scenario']} {line['t']} {line['api']}:\n"
                f"  recorded {expected}\n  ours     {_normal(ours)}"
            )

    def _bind(self, recorded: Any, ours: Any, key: str = "") -> None:
        """Bind ids of the recording to ours where both have one at the same place."""
        if isinstance(recorded, dict) and isinstance(ours, dict):
            for name in recorded.keys() & ours.keys():
                self._bind(recorded[name], ours[name], name)
        elif isinstance(recorded, list) and isinstance(ours, list):
            known = [self._translated(each) for each in recorded]
            left = [each for each in ours if _key(each) not in set(map(_key, known))]
            for one, translated in zip(recorded, known, strict=True):
                same = [each for each in ours if _key(each) == _key(translated)]
                if same:
                    self._bind(one, same[0])
                elif left:
                    self._bind(one, left.pop(0))
        elif (
            key in {"topicId", "memberId", "leader"}
            and isinstance(recorded, str)
            and isinstance(ours, str)
            and recorded
            and ours
            and recorded != ours
        ):
            # An unknown id is returned as it was sent.
            self.ids.setdefault(recorded, ours)


def _key(value: Any) -> Any:
    if not isinstance(value, dict):
        return str(value)
    names = ("memberId", "topicId", "groupId", "name", "partitionIndex", "resourceName")
    return tuple(str(value[name]) for name in names if value.get(name) is not None)


def _common_groups(
    recorded: Mapping[str, Any], ours: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Leave out groups that were not part of the conversations."""
    known = {group["groupId"] for group in ours["groups"]}

    def common(response: Mapping[str, Any]) -> dict[str, Any]:
        groups = [group for group in response["groups"] if group["groupId"] in known]
        return {**response, "groups": groups}

    return common(recorded), dict(ours)


def _normal(value: Any) -> Any:
    """Return a response without order, hosts and throttle time."""
    if isinstance(value, dict):
        return {
            name: _normal(each)
            for name, each in value.items()
            if name not in {"throttleTimeMs", "clientHost", "host", "port", "nodeId"}
        }
    if isinstance(value, list):
        return sorted((_normal(each) for each in value), key=str)
    return value
