"""The APIs that the broker serves, one module each."""

from collections.abc import Mapping
from types import MappingProxyType

from aiokafkawire.broker.apis import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from aiokafkawire.broker.apis.base import Handler
from aiokafkawire.wire import ApiKey

__all__ = ("HANDLERS", "Handler")

HANDLERS: Mapping[ApiKey, Handler] = MappingProxyType(
    {
        ApiKey.PRODUCE: Handler(produce.handle, produce.failed),
        ApiKey.FETCH: Handler(fetch.handle, fetch.failed),
        ApiKey.LIST_OFFSETS: Handler(list_offsets.handle, list_offsets.failed),
        ApiKey.METADATA: Handler(metadata.handle, metadata.failed),
        ApiKey.API_VERSIONS: Handler(api_versions.handle, api_versions.failed),
        ApiKey.CREATE_TOPICS: Handler(create_topics.handle, create_topics.failed),
        ApiKey.DELETE_TOPICS: Handler(delete_topics.handle, delete_topics.failed),
        ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id.handle, init_producer_id.failed),
    }
)
"""How each API is carried out, by its key."""
