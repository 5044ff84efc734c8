"""What a client does after an answer, as its brokers see it."""

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

from .table import Does, Row

__all__ = ["VALUES", "WITHIN_S", "Answering", "Seen", "answering"]

VALUES = (b"first", b"second")
"""What the topic of a test holds from the beginning."""

WITHIN_S = 30.0
"""Longer than a row takes on a busy machine."""

MAX_BYTES = 2**20
PRODUCE_VERSION, FETCH_VERSION = 9, 12

_numbers = itertools.count()

NEXT = {
    Does.REFRESH: ApiKey.METADATA,
    Does.FIND: ApiKey.FIND_COORDINATOR,
    Does.RESET: ApiKey.LIST_OFFSETS,
}
"""What the client asks before it asks again."""


OF_LEADERS = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
"""Requests that have metadata before them; beside others a client may ask for it for itself."""

Answering = Callable[[SeenRequest], Outcome]


def answering(code: int, only: Callable[[Any], bool] = lambda message: True) -> Answering:
    """Answer those requests with a code that `only` is true of."""
    return lambda seen: Answer(code) if only(seen.message) else None


class Seen:
    """One test's names, its fault, and the requests of its client."""

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
        self.answered: SeenRequest | None = None

    async def prepare(self) -> None:
        """Make the topic, with its records."""
        await self.broker.create_topic(self.topic, partitions=1)
        async with connected(self.broker, self.broker.leader(*self.partition)) as client:
            request = produce_request(self.topic, 0, batch(*VALUES))
            await client.call(request, PRODUCE_VERSION)

    async def stored(self) -> list[bytes | None]:
        """What the topic holds now, without what it held from the beginning."""
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
    ) -> Answering:
        """Answer a Metadata request for the topic with a code of it, or of its partition."""
        broker, partition = self.broker, self.partition
        brokers = [
            MetadataResponseBroker(node_id=node, host=address.host, port=address.port)
            for node, address in broker.nodes.items()
        ]
        leader = broker.leader(*partition) if has_leader else -1
        told = MetadataResponsePartition(
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
            partitions=[] if topic_code else [told],
        )

        def answer(seen: SeenRequest) -> MetadataResponse | None:
            asked: Any = seen.message
            if all(each.name != self.topic for each in asked.topics or ()):
                return None
            return MetadataResponse(
                brokers=brokers,
                cluster_id=broker.cluster_id,
                controller_id=broker.controller_id,
                topics=[topic],
            )

        return answer

    # --- what the client does -----------------------------------------------------------------

    def fault(self, row: Row, action: Answering | None = None, *, times: int | None = 1) -> Fault:
        """Answer the next request of the row's API with its code; look from now on."""
        action = action or answering(row.code)
        self.answered = None

        def answer(seen: SeenRequest) -> Outcome:
            outcome = action(seen) if seen.client_id == self.client_id else None
            if outcome is not None:
                self.answered = seen
            return outcome

        self.broker.requests.clear()
        return self.broker.on(row.api, answer, times=times)

    def after(self, *apis: ApiKey) -> list[SeenRequest]:
        """The client's requests after the one that the fault answered."""
        requests = self.requests()
        places = [place for place, each in enumerate(requests) if each is self.answered]
        later = requests[places[0] + 1 :] if places else []
        return [each for each in later if not apis or each.api_key in apis]

    def requests(self, *apis: ApiKey) -> list[SeenRequest]:
        """The client's requests since the fault was made, of some APIs alone if they are given."""
        return [
            seen
            for seen in self.broker.requests
            if seen.client_id == self.client_id and (not apis or seen.api_key in apis)
        ]

    async def sent(self, api: ApiKey) -> None:
        """Wait until the client has asked an API after the request that the fault answered."""
        await self.broker.wait_for_request(api, matching=lambda seen: seen in self.after(api))

    async def acts(self, row: Row, again: ApiKey | None = None) -> None:
        """Check what comes between the answer and the next request of the API (or of `again`)."""
        again = again or row.api
        needed = NEXT.get(row.does)
        await self.sent(again)
        if needed is not None:
            await self.sent(needed)
        apis = [seen.api_key for seen in self.after()]
        if needed is not None:
            assert needed in apis, f"{needed.name} is not in {apis}"
        else:
            needless = {*NEXT.values()} - (set() if row.api in OF_LEADERS else {ApiKey.METADATA})
            between = apis[: apis.index(again)]
            assert not needless & {*between}, f"before it tries again: {between}"

    def says(self, error: KafkaError, row: Row, *known: str) -> None:
        """Check an error: what it is about, and that a retry does not help."""
        assert not error.retriable
        assert error.api == APIS[row.api].name
        wanted = {"topic": self.topic, "partition": 0, "group": self.group_id}
        for name in known:
            value = getattr(error, name)
            assert value == wanted.get(name, value), name
            assert value is not None, name
        assert row.code.name in _chain(error)


def _chain(error: BaseException | None) -> str:
    told: list[str] = []
    while error is not None:
        told.append(str(error))
        error = error.__cause__
    return " / ".join(told)
