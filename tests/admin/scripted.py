"""A cluster whose responses a test scripts, for requests of the admin client without sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.admin import Admin
from aiokafkawire.admin.requester import Requester
from aiokafkawire.cluster import CoordinatorType, Route, ToCoordinator
from aiokafkawire.cluster.coordinators import CoordinatorCache
from aiokafkawire.cluster.metadata import EMPTY_SNAPSHOT, MetadataSnapshot
from aiokafkawire.cluster.retry_backoff import RetryBackoff
from aiokafkawire.config import AdminConfig
from aiokafkawire.connection import Backoff, VersionedRequest
from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.runtime import RealRuntime
from aiokafkawire.wire import APIS, ApiKey, Response
from aiokafkawire.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Answer = Callable[[Any], Response | KafkaError]
"""Gets the request; returns the response, or the error that is raised instead."""

NODES = (1, 2, 3)


@dataclass
class Sent:
    """A request that was sent."""

    api: ApiKey
    to: Route
    version: int
    message: Any


@dataclass
class ScriptedCluster:
    """Nodes 1 to 3. `answers` has the responses of an API, one after the other; the last stays.

    `leaders` are the partitions in Metadata responses, `versions` the highest version by API.
    """

    answers: dict[ApiKey, list[Answer]] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    versions: dict[ApiKey, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = AdminConfig(bootstrap_servers="h:1")
        self.runtime = RealRuntime()
        self.retry_backoff = RetryBackoff(Backoff(0.001, 0.001), self.runtime)
        self.coordinators = CoordinatorCache()
        self.metadata: MetadataSnapshot = EMPTY_SNAPSHOT.with_response(
            self.metadata_response(), None
        ).snapshot
        self.forgotten: list[str] = []

    def requester(self, timeout_s: float = 5.0) -> Requester:
        return Requester(self, self.runtime, self.runtime.clock.now() + timeout_s)  # type: ignore[arg-type]

    def answer(self, api: ApiKey, *answers: Answer) -> None:
        self.answers[api] = list(answers)

    def requests(self, api: ApiKey) -> list[Sent]:
        return [each for each in self.sent if each.api is api]

    def metadata_response(self) -> MetadataResponse:
        topics: dict[str, list[MetadataResponsePartition]] = {}
        for (topic, partition), leader in self.leaders.items():
            topics.setdefault(topic, []).append(
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=partition,
                    leader_id=leader,
                    replica_nodes=[leader],
                    isr_nodes=[leader],
                )
            )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=node, host="h", port=node) for node in NODES],
            controller_id=1,
            topics=[
                MetadataResponseTopic(error_code=0, name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    # --- as `Cluster` ---

    async def request_with_broker(
        self,
        message: Any,
        *,
        to: Route,
        deadline: float,
        retry: bool = True,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> tuple[Response, str]:
        api = ApiKey(message.api_key)
        highest = self.versions.get(api, APIS[api].max_stable_version)
        version = highest if max_version is None else min(highest, max_version)
        if version < min_version:
            raise UnsupportedVersion(f"the broker supports {api.name} {highest}")
        built = message.build(version) if isinstance(message, VersionedRequest) else message
        self.sent.append(Sent(api, to, version, built))
        answers = self.answers.get(api)
        if answers is None and api is ApiKey.METADATA:
            return self.metadata_response(), "broker"
        assert answers, f"no answer for {api.name}"
        result = (answers.pop(0) if len(answers) > 1 else answers[0])(built)
        if isinstance(result, KafkaError):
            raise result
        return result, "broker"

    async def find_coordinator(
        self, key: str, type: CoordinatorType = CoordinatorType.GROUP, *, deadline: float
    ) -> int:
        return self.coordinators.known.get(ToCoordinator(key, type), NODES[0])

    async def wait_nodes(self, deadline: float) -> None:
        pass

    async def wait_update(self, after_version: int, deadline: float) -> bool:
        return True

    def request_update(self) -> None:
        pass

    def add_node(self, node_id: int, host: str, port: int) -> None:
        self.metadata = self.metadata.with_node(node_id, host, port).snapshot

    def mark_coordinator_unknown(
        self, key: str, type: CoordinatorType = CoordinatorType.GROUP
    ) -> None:
        self.forgotten.append(key)
        self.coordinators.forget(ToCoordinator(key, type))


class ScriptedAdmin(Admin):
    """An admin client whose requests go to a `ScriptedCluster`; it is not started."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        super().__init__(bootstrap_servers="h:1")
        self.cluster = cluster

    def _requester(self, timeout_ms: int | None) -> Requester:
        return self.cluster.requester()


def coordinators_at(node_id: int, **others: int) -> Answer:
    """Answer FindCoordinator with one node for all keys but those of `others`."""

    def answer(request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=others.get(key, node_id),
                    host="h",
                    port=others.get(key, node_id),
                    error_code=0,
                    error_message=None,
                )
                for key in request.coordinator_keys
            ]
        )

    return answer
