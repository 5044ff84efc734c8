"""Connection of `metadata` to a cluster: kcat's output needs the metadata as the broker sent it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafkawire.cli.error_text import no_topic
from aiokafkawire.cluster import Cluster
from aiokafkawire.config import AdminConfig, make_config
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import RealRuntime, Runtime, Supervisor

__all__ = ("ClientSession", "open_session", "require_topics")


class ClientSession(NamedTuple):
    """A connected cluster with the metadata of all topics."""

    cluster: Cluster
    runtime: Runtime


@asynccontextmanager
async def open_session(options: dict[str, Any]) -> AsyncIterator[ClientSession]:
    """Connect to the cluster and fetch the metadata of all topics. Raises `NoBrokerAvailable`."""
    config = make_config(AdminConfig, options)
    runtime = RealRuntime()
    supervisor = Supervisor("aiokafkawire", fields=log_fields(client_id=config.client_id))
    await supervisor.start()
    try:
        cluster = Cluster(config, runtime, supervisor)
        cluster.all_topics = True
        await cluster.start(runtime.clock.now() + config.default_api_timeout_ms / 1000)
        yield ClientSession(cluster, runtime)
        await cluster.aclose()
    finally:
        supervisor.abort()
        await supervisor.stop()


def require_topics(session: ClientSession, names: Sequence[str]) -> None:
    """Raise `CommandFailed` for a topic that does not exist."""
    known = session.cluster.metadata.topics
    for name in names:
        if name not in known:
            raise no_topic(name, list(known))
