"""Reaction of the admin client's operations on groups to each error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiokafkawire import Admin
from aiokafkawire.broker import ApiKey
from aiokafkawire.errors import KafkaError, PartialFailure

from .observer import WITHIN_S, Observer
from .table import Reaction, Row, rows_of


@asynccontextmanager
async def administrator(observer: Observer) -> AsyncIterator[Admin]:
    """Admin client with a group that has committed offset 1."""
    names = ("client_id", "retry_backoff_ms", "retry_backoff_max_ms")
    options = {name: observer.options[name] for name in names}
    async with Admin(bootstrap_servers=observer.broker.bootstrap_servers, **options) as admin:
        await admin.alter_consumer_group_offsets(observer.group_id, {observer.partition: 1})
        yield admin


@pytest.mark.parametrize("row", rows_of(ApiKey.DESCRIBE_GROUPS), ids=lambda row: row.name)
async def test_describe_groups(observer: Observer, row: Row) -> None:
    async with administrator(observer) as admin:
        observer.fault(row)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(PartialFailure) as caught:
                    await admin.describe_classic_groups([observer.group_id])
                error = caught.value.failed[observer.group_id]
                observer.check_error(error, row, "broker")
                assert observer.group_id in str(error)
                assert not observer.after(row.api)
            else:
                described = await admin.describe_classic_groups([observer.group_id])
                assert list(described) == [observer.group_id]
                await observer.check_reaction(row)


async def list_groups(admin: Admin) -> tuple[list[str], list[KafkaError]]:
    """Names of the groups, and the errors of brokers that failed."""
    try:
        return [group.group_id for group in await admin.list_groups()], []
    except PartialFailure as error:
        return [*error.succeeded], [*error.failed.values()]


@pytest.mark.parametrize("row", rows_of(ApiKey.LIST_GROUPS), ids=lambda row: row.name)
async def test_list_groups(observer: Observer, row: Row) -> None:
    async with administrator(observer) as admin:
        observer.fault(row)
        with anyio.fail_after(WITHIN_S):
            named, errors = await list_groups(admin)
        if row.reaction is Reaction.RAISE:
            (error,) = errors
            observer.check_error(error, row, "broker")
            assert observer.faulted_request is not None
            other = observer.faulted_request.node_id != observer.broker.coordinator(
                observer.group_id
            )
            assert (observer.group_id in named) == other
        else:
            assert not errors
            assert observer.group_id in named
            assert observer.faulted_request is not None
            nodes = [each.node_id for each in observer.requests(row.api)]
            assert sorted(nodes) == sorted([1, 2, observer.faulted_request.node_id])
