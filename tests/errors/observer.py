"""Reaction of a client to an error response, observed at its brokers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from aiokafkawire.broker import Answer, ApiKey, Broker, ErrorCode, Fault, SeenRequest
from aiokafkawire.broker.faults import Outcome
from aiokafkawire.errors import KafkaError
from aiokafkawire.records import decode_fetch
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import APIS
from aiokafkawire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.broker.raw_client import batch, connected, produce_request

from .table import Reaction, Row

__all__ = ["VALUES", "WITHIN_S", "FaultAction", "Observer", "respond_with"]

VALUES = (b"first", b"second")
"""Values of the records that the topic of a test contains at the start."""

WITHIN_S = 30.0
"""Timeout of a row, long enough for a busy machine."""

MAX_BYTES = 2**20
PRODUCE_VERSION, FETCH_VERSION = 9, 12

_numbers = itertools.count()

LOOKUP_API = {
    Reaction.REFRESH_METADATA: ApiKey.METADATA,
    Reaction.FIND_COORDINATOR: ApiKey.FIND_COORDINATOR,
    Reaction.RESET_POSITION: ApiKey.LIST_OFFSETS,
}
"""API that the client requests before it retries."""


LEADER_APIS = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
"""APIs whose requests follow a metadata refresh; beside others, a client may refresh anyway."""

FaultAction = Callable[[SeenRequest], Outcome]


def respond_with(code: int, only: Callable[[Any], bool] = lambda message: True) -> FaultAction:
    """Return a fault action that responds with a code to requests for which `only` is true."""
    return lambda seen: Answer(code) if only(seen.message) else None


class Observer:
    """Names and fault of one test, and the requests of its client."""

    def __init__(self, broker: Broker) -> None:
        number = next(_numbers)
        self.broker = broker
        self.topic = f"topic-{number}"
        self.group_id = f"group-{number}"
        self.client_id = f"client-{number}"
        self.partition = TopicPartition(self.topic, 0)
        self.options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "client_id": self.client_id,
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 2,
            "default_api_timeout_ms": 5_000,
        }
        self.faulted_request: SeenRequest | None = None

    async def prepare(self) -> None:
        """Create the topic and its records."""
        await self.broker.create_topic(self.topic, partitions=1)
        async with connected(self.broker, self.broker.leader(*self.partition)) as client:
            request = produce_request(self.topic, 0, batch(*VALUES))
            await client.call(request, PRODUCE_VERSION)

    async def stored(self) -> list[bytes | None]:
        """Return the values that were appended since the start."""
        wanted = FetchPartition(
            partition=0, fetch_offset=len(VALUES), partition_max_bytes=MAX_BYTES
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=MAX_BYTES,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        async with connected(self.broker, self.broker.leader(*self.partition)) as client:
            response = await client.call(request, FETCH_VERSION)
        records = response.responses[0].partitions[0].records
        found = decode_fetch(*self.partition, records, len(VALUES))
        return [record.value for some in found for record in some]

    def metadata(
        self, topic_code: ErrorCode, code: ErrorCode = ErrorCode.NONE, *, has_leader: bool = True
    ) -> FaultAction:
        """Return a fault action that responds to Metadata with a code of the topic or partition."""
        broker, partition = self.broker, self.partition
        brokers = [
            MetadataResponseBroker(node_id=node, host=address.host, port=address.port)
            for node, address in broker.nodes.items()
        ]
        leader = broker.leader(*partition) if has_leader else -1
        partition_entry = MetadataResponsePartition(
            error_code=code,
            partition_index=partition.partition,
            leader_id=leader,
            leader_epoch=broker.leader_epoch(*partition),
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
        )
        topic = MetadataResponseTopic(
            error_code=topic_code,
            name=self.topic,
            partitions=[] if topic_code else [partition_entry],
        )

        def answer(seen: SeenRequest) -> MetadataResponse | None:
            request: Any = seen.message
            if all(each.name != self.topic for each in request.topics or ()):
                return None
            return MetadataResponse(
                brokers=brokers,
                cluster_id=broker.cluster_id,
                controller_id=broker.controller_id,
                topics=[topic],
            )

        return answer

    # --- reaction of the client ---------------------------------------------------------------

    def fault(self, row: Row, action: FaultAction | None = None, *, times: int | None = 1) -> Fault:
        """Respond to the next request of the row's API with its code; observe from now on."""
        action = action or respond_with(row.code)
        self.faulted_request = None

        def answer(seen: SeenRequest) -> Outcome:
            outcome = action(seen) if seen.client_id == self.client_id else None
            if outcome is not None:
                self.faulted_request = seen
            return outcome

        self.broker.requests.clear()
        return self.broker.on(row.api, answer, times=times)

    def after(self, *apis: ApiKey) -> list[SeenRequest]:
        """Return the client's requests after the one that the fault applied to."""
        requests = self.requests()
        places = [place for place, each in enumerate(requests) if each is self.faulted_request]
        later = requests[places[0] + 1 :] if places else []
        return [each for each in later if not apis or each.api_key in apis]

    def requests(self, *apis: ApiKey) -> list[SeenRequest]:
        """Return the client's requests since the fault was added, optionally of some APIs."""
        return [
            seen
            for seen in self.broker.requests
            if seen.client_id == self.client_id and (not apis or seen.api_key in apis)
        ]

    async def wait_for(self, api: ApiKey) -> None:
        """Wait for a request of an API after the request that the fault applied to."""
        await self.broker.wait_for_request(api, matching=lambda seen: seen in self.after(api))

    async def check_reaction(self, row: Row, again: ApiKey | None = None) -> None:
        """Check the requests between the response and the next request of the API or of `again`."""
        again = again or row.api
        needed = LOOKUP_API.get(row.reaction)
        await self.wait_for(again)
        if needed is not None:
            await self.wait_for(needed)
        apis = [seen.api_key for seen in self.after()]
        if needed is not None:
            assert needed in apis, f"{needed.name} is not in {apis}"
        else:
            needless = {*LOOKUP_API.values()} - (
                set() if row.api in LEADER_APIS else {ApiKey.METADATA}
            )
            between = apis[: apis.index(again)]
            assert not needless & {*between}, f"before the retry: {between}"

    def check_error(self, error: KafkaError, row: Row, *known: str) -> None:
        """Check the context of an error, and that it is not retriable."""
        assert not error.retriable
        assert error.api == APIS[row.api].name
        wanted = {"topic": self.topic, "partition": 0, "group": self.group_id}
        for name in known:
            value = getattr(error, name)
            assert value == wanted.get(name, value), name
            assert value is not None, name
        assert row.code.name in _cause_chain(error)


def _cause_chain(error: BaseException | None) -> str:
    texts: list[str] = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return " / ".join(texts)
