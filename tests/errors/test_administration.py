"""Reaction of the group commands to each error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiokafkawire.broker import ApiKey
from aiokafkawire.cli import group_requests as requests
from aiokafkawire.cli.client_session import ClientSession, admin_options, open_session
from aiokafkawire.errors import KafkaError

from .observer import WITHIN_S, Observer
from .table import Reaction, Row, rows_of


@asynccontextmanager
async def administrator(observer: Observer) -> AsyncIterator[ClientSession]:
    """Admin session with a group that has committed offset 1."""
    options = admin_options(observer.broker.bootstrap_servers, ())
    for name in ("client_id", "retry_backoff_ms", "retry_backoff_max_ms"):
        options[name] = observer.options[name]
    async with open_session(options, all_topics=True) as session:
        assert not await requests.reset_offsets(session, observer.group_id, {observer.partition: 1})
        yield session


@pytest.mark.parametrize("row", rows_of(ApiKey.DESCRIBE_GROUPS), ids=lambda row: row.name)
async def test_describe_groups(observer: Observer, row: Row) -> None:
    async with administrator(observer) as session:
        observer.fault(row)
        with anyio.fail_after(WITHIN_S):
            if row.reaction is Reaction.RAISE:
                with pytest.raises(KafkaError) as caught:
                    await requests.describe_group(session, observer.group_id)
                observer.check_error(caught.value, row, "broker")
                assert observer.group_id in str(caught.value)
                assert not observer.after(row.api)
            else:
                group = await requests.describe_group(session, observer.group_id)
                assert (group.group_id, group.offsets[0].committed) == (observer.group_id, 1)
                await observer.check_reaction(row)


@pytest.mark.parametrize("row", rows_of(ApiKey.LIST_GROUPS), ids=lambda row: row.name)
async def test_list_groups(observer: Observer, row: Row) -> None:
    async with administrator(observer) as session:
        observer.fault(row)
        with anyio.fail_after(WITHIN_S):
            groups, errors = await requests.list_groups(session)
        named = [group.group_id for group in groups]
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
