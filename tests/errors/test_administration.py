"""What those who look at groups from outside do about each error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiokafkawire.broker import ApiKey
from aiokafkawire.cli import group_requests as requests
from aiokafkawire.cli.client_session import ClientSession, admin_options, open_session
from aiokafkawire.errors import KafkaError

from .seeing import WITHIN_S, Seen
from .table import Does, Row, rows_of


@asynccontextmanager
async def administrator(seen: Seen) -> AsyncIterator[ClientSession]:
    """Somebody with a group to look at, which has committed 1."""
    options = admin_options(seen.broker.bootstrap_servers, ())
    for name in ("client_id", "retry_backoff_ms", "retry_backoff_max_ms"):
        options[name] = seen.options[name]
    async with open_session(options, all_topics=True) as session:
        assert not await requests.reset_offsets(session, seen.group_id, {seen.partition: 1})
        yield session


@pytest.mark.parametrize("row", rows_of(ApiKey.DESCRIBE_GROUPS), ids=lambda row: row.name)
async def test_describe_groups(seen: Seen, row: Row) -> None:
    async with administrator(seen) as session:
        seen.fault(row)
        with anyio.fail_after(WITHIN_S):
            if row.does is Does.FAIL:
                with pytest.raises(KafkaError) as caught:
                    await requests.describe_group(session, seen.group_id)
                seen.says(caught.value, row, "broker")
                assert seen.group_id in str(caught.value)
                assert not seen.after(row.api)
            else:
                group = await requests.describe_group(session, seen.group_id)
                assert (group.group_id, group.offsets[0].committed) == (seen.group_id, 1)
                await seen.acts(row)


@pytest.mark.parametrize("row", rows_of(ApiKey.LIST_GROUPS), ids=lambda row: row.name)
async def test_list_groups(seen: Seen, row: Row) -> None:
    async with administrator(seen) as session:
        seen.fault(row)
        with anyio.fail_after(WITHIN_S):
            groups, errors = await requests.list_groups(session)
        named = [group.group_id for group in groups]
        if row.does is Does.FAIL:
            (error,) = errors
            seen.says(error, row, "broker")
            assert seen.answered is not None
            other = seen.answered.node_id != seen.broker.coordinator(seen.group_id)
            assert (seen.group_id in named) == other
        else:
            assert not errors
            assert seen.group_id in named
            assert seen.answered is not None
            nodes = [each.node_id for each in seen.requests(row.api)]
            assert sorted(nodes) == sorted([1, 2, seen.answered.node_id])
