"""DemoTopic of the demo, which exists only during the demo."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

import anyio

from aiokafkawire.cluster import Cluster
from aiokafkawire.cluster.routing import ToController
from aiokafkawire.config import ClientConfig, make_config
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import Lifecycle, RealRuntime, Session, Supervisor
from aiokafkawire.wire import ErrorCode, error_for
from aiokafkawire.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aiokafkawire.wire.messages.delete_topics import DeleteTopicsRequest

__all__ = ("DemoTopic",)

MAX_REPLICAS = 3
TIMEOUT_S = 20.0
DELETE_TIMEOUT_S = 5.0
CANCELLED_DELETE_TIMEOUT_S = 0.3
LAST_WITH_NAMES = 5
"""DeleteTopics v6+ names topics in a different field."""

logger = logging.getLogger("aiokafkawire.cli")


class DemoTopic:
    """Creates the topic on entry and deletes it on exit, with timeouts.

    `may_exist` is True from the request to create it until a broker has confirmed the deletion.
    """

    def __init__(self, servers: str, name: str, partitions: int) -> None:
        self._config = make_config(ClientConfig, {"bootstrap_servers": servers})
        self.name = name
        self.may_exist = False
        self._partitions = partitions
        self._lifecycle: Lifecycle[Session] = Lifecycle("demo topic")
        self._cluster: Cluster | None = None

    async def __aenter__(self) -> Self:
        await self._lifecycle.start(self, self._create)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        timeout_s = DELETE_TIMEOUT_S if exc is None else CANCELLED_DELETE_TIMEOUT_S
        await self._lifecycle.stop(self._delete, anyio.current_time() + timeout_s)

    async def _create(self, supervisor: Supervisor) -> Session:
        deadline = anyio.current_time() + TIMEOUT_S
        self._cluster = Cluster(self._config, RealRuntime(), supervisor)
        await self._cluster.start(deadline)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=self.name,
                    num_partitions=self._partitions,
                    replication_factor=min(MAX_REPLICAS, len(self._cluster.metadata.nodes)),
                    assignments=[],
                    configs=[],
                )
            ],
            timeout_ms=int(TIMEOUT_S * 1000),
        )
        self.may_exist = True
        response = await self._cluster.request(request, to=ToController(), deadline=deadline)
        for topic in response.topics:
            if topic.error_code != ErrorCode.NONE:
                raise error_for(topic.error_code, api="CreateTopics", topic=self.name)
        await self._cluster.topic_metadata(self.name, deadline)
        return Session()

    async def _delete(self, _: Session) -> None:
        assert self._cluster is not None
        request = DeleteTopicsRequest(
            topic_names=[self.name], timeout_ms=int(DELETE_TIMEOUT_S * 1000)
        )
        deadline = anyio.current_time() + DELETE_TIMEOUT_S
        try:
            response = await self._cluster.request(
                request, to=ToController(), deadline=deadline, max_version=LAST_WITH_NAMES
            )
            for topic in response.responses:
                if topic.error_code != ErrorCode.NONE:
                    raise error_for(topic.error_code, api="DeleteTopics", topic=self.name)
            self.may_exist = False
        except KafkaError as error:
            # The demo is complete: a failed deletion does not change its result.
            logger.warning("topic %s was not deleted: %s", self.name, error)
        await self._cluster.aclose()
