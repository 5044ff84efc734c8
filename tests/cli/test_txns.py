from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafkawire import Broker, Producer, TopicPartition
from aiokafkawire.broker import Answer, ApiKey, SeenRequest
from aiokafkawire.cli import txns
from aiokafkawire.cli.client_session import ClientSession, admin_options, open_session
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.errors import BrokerError, ProtocolError, UnsupportedVersion
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_transactions import DescribeTransactionsResponse

from .conftest import Cli

slow = pytest.mark.slow

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@asynccontextmanager
async def shop(as_of: str = "4.3") -> AsyncIterator[tuple[Broker, ClientSession]]:
    async with Broker(2, as_of=as_of) as broker:
        await broker.create_topic("orders", partitions=2)
        async with open_session(admin_options(broker.bootstrap_servers, ())) as session:
            yield broker, session


def transactional_producer(broker: Broker, name: str) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name)


async def test_transactions_of_all_brokers_are_listed_and_described():
    async with (
        shop() as (broker, session),
        transactional_producer(broker, "b") as one,
        transactional_producer(broker, "a") as two,
    ):
        idle, failed = await txns.list_transactions(session, ())
        assert ([each.state for each in idle], failed) == (["Empty"] * 2, [])
        assert (await txns.describe_transaction(session, "a")).partitions == ()
        async with one.transaction():
            await one.send_and_wait("orders", b"1", partition=1)
            await one.send_and_wait("orders", b"0", partition=0)
            open_one = await txns.describe_transaction(session, "b")
            ongoing, failed = await txns.list_transactions(session, ["Ongoing"])
            assert ([each.transactional_id for each in ongoing], failed) == (["b"], [])
        assert (open_one.state, open_one.partitions) == ("Ongoing", (FIRST, SECOND))
        assert open_one.timeout_ms == one.config.transaction_timeout_ms
        assert open_one.started_ms is not None
        assert open_one.duration_ms is not None
        assert open_one.producer_id == ongoing[0].producer_id
        assert open_one.coordinator == ongoing[0].coordinator
        async with two.transaction():
            await two.send_and_wait("orders", b"2", partition=1)
        found, _ = await txns.list_transactions(session, ())
        assert [each.transactional_id for each in found] == ["a", "b"]
        over = await txns.describe_transaction(session, "b")
        assert over.state == "CompleteCommit"
        assert (over.duration_ms, over.partitions) == (None, ())


async def test_an_error_of_the_coordinator_is_reported():
    async with shop() as (broker, session):
        with pytest.raises(CommandFailed, match=r"'nobody' .*txns list"):
            await txns.describe_transaction(session, "nobody")
        broker.on(ApiKey.LIST_TRANSACTIONS, Answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), node=2)
        found, failed = await txns.list_transactions(session, ())
        assert (found, [error.broker for error in failed]) == ([], ["2"])
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        broker.on(ApiKey.DESCRIBE_TRANSACTIONS, Answer(code), times=1)
        with pytest.raises(BrokerError) as raised:
            await txns.describe_transaction(session, "x")
        assert (raised.value.transactional_id, raised.value.api) == ("x", "DescribeTransactions")

        def silence(seen: SeenRequest) -> DescribeTransactionsResponse:
            return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[])

        broker.on(ApiKey.DESCRIBE_TRANSACTIONS, silence)
        with pytest.raises(ProtocolError, match="transactional id is not in the response"):
            await txns.describe_transaction(session, "x")


async def test_brokers_before_3_0_do_not_support_it():
    async with shop("2.8") as (_, session):
        _, failed = await txns.list_transactions(session, ())
        assert [type(error) for error in failed] == [UnsupportedVersion] * 2
        with pytest.raises(UnsupportedVersion):
            await txns.describe_transaction(session, "x")


@slow
def test_the_commands(cli: Cli, servers: str):
    assert cli("txns", "list", "-b", servers) == (0, b"", "% no transactions\n")
    states = ("-s", "Ongoing", "-s", "PrepareCommit")
    line = "% no transactions in Ongoing or PrepareCommit\n"
    assert cli("txns", "list", "-b", servers, *states) == (0, b"", line)
    assert cli("txns", "list", "-b", servers, *states, "-q") == (0, b"", "")
    assert cli("txns", "list", "-b", servers, "--json", "-s", "Ongoing") == (0, b"", "")
    code, out, err = cli("txns", "describe", "-b", servers, "nobody")
    assert (code, out, err.count("\n")) == (1, b"", 1)
    assert cli("txns", "list", "-b", servers, "-s", "ongoing")[0] == 2


def test_a_transaction_reads_well():
    each = txns.TransactionDescription(
        transactional_id="billing-1",
        state="Ongoing",
        producer_id=4000,
        producer_epoch=3,
        timeout_ms=60_000,
        started_ms=1_700_000_000_000,
        duration_ms=12_345,
        coordinator=2,
        partitions=(FIRST, SECOND),
    )
    assert txns.transaction_text(each) == (
        "billing-1: Ongoing for 12.3 s, producer 4000 epoch 3, timeout 60 s, coordinator 2,"
        " 2 partitions\n"
        "  orders [0, 1]\n"
    )
    form = json.loads(json.dumps(txns.transaction_to_dict(each)))
    assert form["partitions"] == [FIRST._asdict(), SECOND._asdict()]
    assert (form["duration_ms"], form["started_ms"]) == (12_345, 1_700_000_000_000)
