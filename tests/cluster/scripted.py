"""Small scripted cluster on real sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiokafkawire.cluster import Cluster
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.connection.scripted import ScriptedBroker, Server, hosted, make_config, serve


def partition_of(
    index: int, leader: int, epoch: int = 0, error_code: int = 0
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[leader],
        isr_nodes=[leader],
    )


def topic_of(name: str, *leaders: int, **fields: Any) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=fields.pop("error_code", 0),
        name=name,
        partitions=[partition_of(index, leader) for index, leader in enumerate(leaders)],
        **fields,
    )


def brokers_at(*addresses: Address) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=number, host=address.host, port=address.port)
        for number, address in enumerate(addresses, 1)
    ]


class ScriptedCluster:
    """Nodes 1…n. `topics` are those of Metadata responses; all others are unknown.

    Each node answers Metadata; more answers go into `nodes[n].answers`.
    """

    def __init__(self, count: int) -> None:
        self.nodes = {number: ScriptedBroker() for number in range(1, count + 1)}
        self.servers: dict[int, Server] = {}
        self.topics: dict[str, MetadataResponseTopic] = {}
        self.controller_id = 1
        self.asked: list[list[str] | None] = []
        for node in self.nodes.values():
            node.answers[ApiKey.METADATA] = self.metadata

    async def metadata(self, _: Any, request: Any) -> Response | None:
        names = None if request.topics is None else [topic.name for topic in request.topics]
        self.asked.append(names)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(
            brokers=brokers_at(*(server.address for server in self.servers.values())),
            cluster_id="scripted",
            controller_id=self.controller_id,
            topics=[
                self.topics.get(name) or topic_of(name, error_code=unknown)
                for name in (self.topics if names is None else names)
            ],
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(str(server.address) for server in self.servers.values())


@contextlib.asynccontextmanager
async def scripted_cluster(count: int = 3) -> AsyncIterator[ScriptedCluster]:
    cluster = ScriptedCluster(count)
    async with contextlib.AsyncExitStack() as stack:
        for number, node in cluster.nodes.items():
            cluster.servers[number] = await stack.enter_async_context(serve(node))
        yield cluster


def client_of(scripted: ScriptedCluster) -> contextlib.AbstractAsyncContextManager[Cluster]:
    """Return a cluster client that is not started."""
    return cluster_client(bootstrap_servers=scripted.bootstrap)


@contextlib.asynccontextmanager
async def cluster_client(**options: Any) -> AsyncIterator[Cluster]:
    """A cluster client that is not started yet."""
    options.setdefault("retry_backoff_ms", 1)
    options.setdefault("retry_backoff_max_ms", 5)
    options.setdefault("reconnect_backoff_ms", 1)
    options.setdefault("reconnect_backoff_max_ms", 5)
    async with hosted() as (runtime, supervisor):
        cluster = Cluster(make_config(**options), runtime, supervisor)
        try:
            yield cluster
        finally:
            await supervisor.stop()
            await cluster.aclose()
