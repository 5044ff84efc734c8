"""Send a fixed set of requests to a broker of some release, and record comparable responses.

The same cases run on real brokers, whose responses are in tests/vectors/as_of, and on the embedded
broker. Fields that differ between two clusters of one release are left out: texts, addresses, and
random values.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio

from aiokafkawire.broker.apis import HANDLERS
from aiokafkawire.broker.releases import Release, UnsupportedApi, get_release
from aiokafkawire.cluster import error_codes
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import APIS, ApiKey, ErrorCode, Request, Response, to_json
from aiokafkawire.wire.header import decode_response
from aiokafkawire.wire.messages import (
    api_versions,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_fetch,
)
from tests.broker.raw_client import RawClient, batch, only, produce_request

RECORDINGS = Path(__file__).parents[2] / "vectors" / "as_of"

RELEASES: Mapping[str, str] = {
    "0.8.2.2": "0.8",
    "0.9.0.1": "0.9",
    "0.10.2.2": "0.10",
    "1.1.1": "1.1",
    "2.8.2": "2.8",
    "3.9.1": "3.9",
    "4.3.0": "4.3",
}
"""The recorded releases, and the release as which the embedded broker must respond equally."""

NODES = 2
MIN_SESSION_TIMEOUT_MS = 500
PARTITIONS = 2
"""Number of partitions of auto-created topics."""

LED, WRITTEN, ALONE, COMPACTED, SMALL = "led", "written", "alone", "compacted", "small"
TOPICS: Mapping[str, tuple[list[list[int]], dict[str, str]]] = {
    LED: ([[1, 2], [2, 1]], {}),
    WRITTEN: ([[1, 2]], {}),
    ALONE: ([[2]], {}),
    COMPACTED: ([[1]], {"cleanup.policy": "compact"}),
    SMALL: ([[1]], {"max.message.bytes": "500"}),
}
"""Topics that exist before the cases: the replicas of each partition, the preferred leader
first, and the configs."""

VALUES = (b"zero", b"one", b"two")
"""Values in `WRITTEN`, with timestamps 1,000 to 1,002."""

CAPS = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
"""Highest versions used: later ones have topic ids, which are random."""

LEFT_OUT = {
    *("errorMessage", "batchIndexErrorMessage", "host", "port", "clientHost", "clusterId"),
    *("topicId", "throttleTimeMs", "logAppendTimeMs", "controllerId", "nodeEndpoints"),
}
"""Fields that differ between clusters, or carry no information."""

DRAWN = {"baseOffset", "producerId", "sessionId"}
"""Fields recorded only as present or absent."""

MEMBER_ID = re.compile(r"raw-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

CLOSE, SILENT = "closed", "no answer"
SILENCE_S = 1.0
"""Time to wait for a response that may not come."""

WITHIN_S = 60.0
POLL_INTERVAL_S = 0.02
RETRIABLE = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
NOWHERE = "nowhere"
"""A topic that does not exist."""

NO_SUCH_ID = UUID(int=0x1234)
LATEST = -1
CORRELATION_BYTES = 4


def other(node: int) -> int:
    """Return the other node."""
    return 1 + node % NODES


class ConformanceClient:
    """Sends requests to the nodes of one cluster, each on its own connection."""

    def __init__(
        self, as_of: str, addresses: Mapping[int, Address], silence_s: float = SILENCE_S
    ) -> None:
        self.release: Release = get_release(as_of, HANDLERS)
        self.recorded: list[dict[str, Any]] = []
        self._addresses = addresses
        self._members: dict[str, str] = {}
        silent = self.release.on_unsupported_api is UnsupportedApi.IGNORE
        self._patience_s = silence_s if silent else WITHIN_S

    @property
    def magic(self) -> int:
        return self.release.magic

    def version(self, key: ApiKey) -> int:
        """Return the version used for an API."""
        return min(self.release.served[key].high, CAPS.get(key, 2**15))

    def supports(self, key: ApiKey, version: int) -> bool:
        served = self.release.served.get(key)
        return served is not None and served.low <= version <= served.high

    async def request(
        self,
        message: Request[Any],
        version: int | None = None,
        *,
        node: int = 1,
        hide: Collection[str] = (),
    ) -> Any:
        """Send a request, record the response without the fields to `hide`, and return it."""
        key = ApiKey(message.api_key)
        version = self.version(key) if version is None else version
        async with self._connect(node) as client:
            await client.send(message, version)
            answer, shown = await self._receive(client, key, version, set(hide))
        self.recorded.append({"asked": f"{APIS[key].name} v{version}", "answer": shown})
        return answer

    async def request_unrecorded(
        self, message: Request[Any], version: int | None = None, node: int = 1
    ) -> Any:
        """Send a request without recording the response."""
        version = self.version(ApiKey(message.api_key)) if version is None else version
        async with self._connect(node) as client:
            return await client.call(message, version)

    async def send_raw(self, what: str, key: int, version: int, body: bytes = b"") -> None:
        """Send a handmade frame, and record the result; a response is read as ApiVersions."""
        frame = struct.pack(">hhih", key, version, 1, 3) + b"raw" + body
        async with self._connect(1) as client:
            await client.transport.send([struct.pack(">i", len(frame)), frame])
            shown: Any = SILENT
            try:
                with anyio.move_on_after(self._patience_s):
                    _, shown = await self._receive(client, ApiKey.API_VERSIONS, 0, set())
            except MalformedMessage:
                shown = "some answer"
        self.recorded.append({"asked": what, "answer": shown})

    async def request_without_response(self, message: Request[Any]) -> None:
        """Send a request without a response, then another one; record whether the broker
        disconnected."""
        version = self.version(ApiKey(message.api_key))
        async with self._connect(1) as client:
            await client.send(message, version)
            with anyio.move_on_after(WITHIN_S):
                shown = CLOSE
                try:
                    await client.send(metadata.MetadataRequest(topics=[]), 0)
                    if await client.frame() is not None:
                        shown = "open"
                except OSError:
                    pass
        self.recorded.append({"asked": f"{APIS[message.api_key].name} v{version}", "answer": shown})

    def record(self, what: str, answer: Response, version: int) -> None:
        """Record the comparable part of a response."""
        shown = self._comparable(to_json(answer, version), LEFT_OUT)
        self.recorded.append({"asked": what, "answer": shown})

    async def controller(self) -> int:
        """Return the controller's node id."""
        if self.version(ApiKey.METADATA) < 1:
            return 1
        asked = metadata.MetadataRequest(topics=[])
        controller: int = (await self.request_unrecorded(asked)).controller_id
        return controller

    async def coordinator(self, group: str) -> int:
        """Return the coordinator of a group, once it is available."""
        version = self.version(ApiKey.FIND_COORDINATOR)
        asked = (
            find_coordinator.FindCoordinatorRequest(coordinator_keys=[group])
            if version >= 4
            else find_coordinator.FindCoordinatorRequest(key=group)
        )
        while True:
            found = await self.request_unrecorded(asked)
            found = found.coordinators[0] if version >= 4 else found
            if not found.error_code:
                break
            assert found.error_code in RETRIABLE, found
            await anyio.sleep(POLL_INTERVAL_S)
        node: int = found.node_id
        while True:
            if await self._coordinates(node, group):
                return node
            await anyio.sleep(POLL_INTERVAL_S)

    async def until_led(self, topic: str, partitions: int, *, node: int = 1) -> None:
        """Wait until each partition of a topic has a leader and a complete ISR."""
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)])
        while True:
            [description] = (await self.request_unrecorded(asked, node=node)).topics
            led = [each for each in description.partitions if each.leader_id >= 0]
            whole = all(len(each.isr_nodes) == len(each.replica_nodes) for each in led)
            if len(led) == partitions and whole:
                return
            await anyio.sleep(POLL_INTERVAL_S)

    async def new_producer_id(self) -> int:
        """Return a new producer id, once the cluster can allocate one."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000
        )
        while True:
            given = await self.request_unrecorded(request)
            if not given.error_code:
                producer_id: int = given.producer_id
                return producer_id
            assert given.error_code in RETRIABLE, given
            await anyio.sleep(POLL_INTERVAL_S)

    async def prepare(self) -> None:
        """Wait for the topics, and write the records to read."""
        for topic, (replicas, _) in TOPICS.items():
            for node in self._addresses:
                await self.until_led(topic, len(replicas), node=node)
        records = batch(*VALUES, magic=self.magic)
        while True:
            code = only(
                await self.request_unrecorded(produce_request(WRITTEN, 0, records))
            ).error_code
            if not code:
                break
            await anyio.sleep(POLL_INTERVAL_S)
        # The follower may be behind for a moment.
        end = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        asked = list_offsets.ListOffsetsRequest(
            replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=WRITTEN, partitions=[end])]
        )
        while True:
            description = only(await self.request_unrecorded(asked))
            if len(VALUES) in {description.offset, *description.old_style_offsets}:
                return
            await anyio.sleep(POLL_INTERVAL_S)

    async def _coordinates(self, node: int, group: str) -> bool:
        version = self.version(ApiKey.OFFSET_FETCH)
        partition = [0]
        if version >= 8:
            named = offset_fetch.OffsetFetchRequestTopics(name=LED, partition_indexes=partition)
            groups = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[named])]
            request = offset_fetch.OffsetFetchRequest(groups=groups)
        else:
            topic = offset_fetch.OffsetFetchRequestTopic(name=LED, partition_indexes=partition)
            request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
        description = await self.request_unrecorded(request, node=node)
        return RETRIABLE.isdisjoint(error_codes(description))

    @asynccontextmanager
    async def _connect(self, node: int) -> AsyncIterator[RawClient]:
        transport = await RealRuntime().connect(self._addresses[node])
        try:
            yield RawClient(transport)
        finally:
            await transport.aclose()

    async def _receive(
        self, client: RawClient, key: ApiKey, version: int, hidden: set[str]
    ) -> tuple[Any, Any]:
        """Return the response in the form that is recorded."""
        frame = await client.frame()
        if frame is None:
            return None, CLOSE
        cls: type[Response] = APIS[key].response
        _, answer = decode_response(cls, version, frame)
        laid_out = cls.layout_version(version, frame[CORRELATION_BYTES:])
        return answer, self._comparable(to_json(answer, laid_out), LEFT_OUT | hidden)

    def _comparable(self, value: Any, hidden: set[str]) -> Any:
        if isinstance(value, list):
            shown = [self._comparable(item, hidden) for item in value]
            return sorted(shown, key=json.dumps)
        if isinstance(value, dict):
            return {
                name: self._field(name, item, hidden)
                for name, item in value.items()
                if name not in hidden
            }
        if isinstance(value, str) and MEMBER_ID.fullmatch(value):
            return self._members.setdefault(value, f"member {len(self._members)}")
        return value

    def _field(self, name: str, value: Any, hidden: set[str]) -> Any:
        if name in DRAWN:
            return min(value, 0)
        if name == "records" and value is not None:
            return _records(base64.b64decode(value))
        return self._comparable(value, hidden)


def _records(data: bytes) -> Any:
    views = list(iter_batches(data))
    if data and not views:
        return "a part of a message"
    columns = [(view.magic, view.columns()) for view in views]
    return [
        [magic, each.offsets[index], (each.value(index) or b"").decode()]
        for magic, each in columns
        for index in range(len(each))
    ]


CaseFunction = Callable[[ConformanceClient], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """`key` and `version`: API and version that a release must support for the case."""

    name: str
    request: CaseFunction
    key: ApiKey | None
    version: int
    this_version_only: bool

    def fits(self, release: Release) -> bool:
        if self.key is None:
            return True
        served = release.served.get(self.key)
        if served is None or served.high < self.version:
            return False
        return not self.this_version_only or served.low <= self.version


CASES: list[ConformanceCase] = []


def conformance_case(
    key: ApiKey | None = None, version: int = 0, *, this_version_only: bool = False
) -> Callable[[CaseFunction], CaseFunction]:
    """Register a case for releases that support the API in this version or later.

    `this_version_only`: in exactly this version.
    """

    def register(request: CaseFunction) -> CaseFunction:
        CASES.append(ConformanceCase(request.__name__, request, key, version, this_version_only))
        return request

    return register


@dataclass(frozen=True, slots=True)
class Recording:
    """A broker's answers: `apis` from ApiVersions (none before 0.10), and responses by question."""

    release: str
    apis: Mapping[str, list[int]]
    responses: Mapping[str, list[dict[str, Any]]]

    @classmethod
    def read(cls, release: str) -> Recording:
        lines = (RECORDINGS / f"{release}.jsonl").read_text(encoding="utf-8").splitlines()
        head, *rest = map(json.loads, lines)
        responses = {each["case"]: each["responses"] for each in rest}
        return cls(head["release"], head["apis"], responses)

    def write(self) -> None:
        RECORDINGS.mkdir(exist_ok=True)
        lines = [{"release": self.release, "apis": self.apis}]
        lines += [
            {"case": name, "responses": description} for name, description in self.responses.items()
        ]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (RECORDINGS / f"{self.release}.jsonl").write_text(text, encoding="utf-8")


def as_of(version: str) -> str:
    """Return the release as which the embedded broker responds like a real one of `version`."""
    return RELEASES.get(version, version)


async def supported(release: str, address: Address) -> dict[str, list[int]]:
    """Return the advertised APIs, each with its lowest and highest version; none before 0.10."""
    to = ConformanceClient(release, {1: address})
    if not to.supports(ApiKey.API_VERSIONS, 0):
        return {}
    description = await to.request_unrecorded(api_versions.ApiVersionsRequest(), 0)
    return {
        APIS[ApiKey(each.api_key)].name: [each.min_version, each.max_version]
        for each in description.api_keys
    }


async def run_cases(
    release: str, addresses: Mapping[int, Address], silence_s: float = SILENCE_S
) -> dict[str, list[Any]]:
    """Return the responses of a cluster to the cases that apply to its release."""
    to = ConformanceClient(release, addresses, silence_s)
    with anyio.fail_after(WITHIN_S):
        await to.prepare()
    responses = {}
    for each in CASES:
        if each.fits(to.release):
            to.recorded = []
            with anyio.fail_after(WITHIN_S):
                await each.request(to)
            responses[each.name] = to.recorded
    return responses
