from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from aiokafkawire import Broker, Producer, TopicPartition
from aiokafkawire.admin import TransactionDescription, TransactionState
from aiokafkawire.broker import Answer, ApiKey
from aiokafkawire.cli import txns
from aiokafkawire.errors import ProducerFenced
from aiokafkawire.wire import ErrorCode

from .conftest import Cli
from .shell import aiokafkawire

slow = pytest.mark.slow

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@asynccontextmanager
async def shop() -> AsyncIterator[Broker]:
    async with Broker(2) as broker:
        await broker.create_topic("orders", partitions=2)
        yield broker


def transactional_producer(broker: Broker, name: str) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name)


async def in_shell(broker: Broker, *arguments: str) -> tuple[int, list[Any], str]:
    """Run a command of `txns` with --json in a process: exit code, objects, stderr."""
    done = await anyio.to_thread.run_sync(
        partial(
            aiokafkawire,
            "txns",
            arguments[0],
            "-b",
            broker.bootstrap_servers,
            "--json",
            *arguments[1:],
        )
    )
    return done.returncode, [*map(json.loads, done.stdout.splitlines())], done.stderr.decode()


@slow
async def test_transactions_of_all_brokers_are_listed_and_described() -> None:
    async with (
        shop() as broker,
        transactional_producer(broker, "b") as one,
        transactional_producer(broker, "a"),
    ):
        code, idle, _ = await in_shell(broker, "list")
        assert (code, [each["transactional_id"] for each in idle]) == (0, ["a", "b"])
        async with one.transaction():
            await one.send_and_wait("orders", b"1", partition=1)
            await one.send_and_wait("orders", b"0", partition=0)
            code, (described,), _ = await in_shell(broker, "describe", "b")
            _, ongoing, _ = await in_shell(broker, "list", "-s", "Ongoing")
            assert [each["transactional_id"] for each in ongoing] == ["b"]
            _, producers, _ = await in_shell(broker, "producers", "orders:0")
        assert (code, described["state"]) == (0, "Ongoing")
        assert described["partitions"] == [FIRST._asdict(), SECOND._asdict()]
        assert described["duration_ms"] is not None
        assert described["producer_id"] == producers[0]["producer_id"]
        assert producers[0]["start_offset"] == 0


@slow
async def test_a_transaction_is_aborted() -> None:
    async def send_and_abort(broker: Broker, producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("orders", b"1", partition=1)
            code, out, _ = await in_shell(broker, "abort", "stuck", "--dry-run")
            assert (code, out[0]["dry_run"], out[0]["state"]) == (0, True, "Ongoing")
            assert (await in_shell(broker, "abort", "stuck"))[0] == 2
            assert (await in_shell(broker, "abort", "stuck", "--yes"))[0] == 0

    async with shop() as broker, transactional_producer(broker, "stuck") as producer:
        with pytest.raises(ProducerFenced):
            await send_and_abort(broker, producer)
        _, (described,), _ = await in_shell(broker, "describe", "stuck")
        assert described["partitions"] == []
        hanging = ("-p", "orders:1", "--start-offset", "7", "-y")
        code, _, err = await in_shell(broker, "abort", *hanging)
        assert (code, "no transaction is open in orders:1 at offset 7" in err) == (1, True)


@slow
async def test_a_broker_that_fails_takes_a_line() -> None:
    async with shop() as broker, transactional_producer(broker, "a"):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        broker.on(ApiKey.LIST_TRANSACTIONS, Answer(code), node=2)
        got, out, err = await in_shell(broker, "list")
        assert (got, len(out)) == (1, broker.coordinator("a") == 1)
        assert (err.count("\n"), "broker 2" in err) == (1, True)


@slow
def test_the_commands(cli: Cli, servers: str) -> None:
    assert cli("txns", "list", "-b", servers) == (0, b"", "% no transactions\n")
    states = ("-s", "Ongoing", "-s", "PrepareCommit")
    line = "% no transactions in Ongoing or PrepareCommit\n"
    assert cli("txns", "list", "-b", servers, *states) == (0, b"", line)
    assert cli("txns", "list", "-b", servers, *states, "-q") == (0, b"", "")
    assert cli("txns", "list", "-b", servers, "--json", "-s", "ongoing") == (0, b"", "")
    assert cli("txns", "hanging", "-b", servers) == (0, b"", "% no hanging transactions\n")
    code, out, err = cli("txns", "describe", "-b", servers, "nobody")
    assert (code, out, err.count("\n")) == (1, b"", 1)
    assert "`aiokafkawire txns list` lists the transactional ids" in err
    assert cli("txns", "list", "-b", servers, "-s", "open")[0] == 2


@pytest.mark.parametrize(
    "arguments", [(), ("a", "-p", "t:0"), ("-p", "t:0"), ("-p", "t:0,1", "--start-offset", "1")]
)
def test_a_transaction_to_abort_is_named_one_way(cli: Cli, arguments: tuple[str, ...]) -> None:
    code, _, err = cli("txns", "abort", "-b", "h:1", *arguments)
    assert (code, err.count("\n")) == (2, 1)


def test_a_transaction_reads_well() -> None:
    each = TransactionDescription(
        coordinator_id=2,
        state=TransactionState.ONGOING,
        producer_id=4000,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=1_700_000_000_000,
        topic_partitions=frozenset({FIRST, SECOND}),
    )
    shown = txns.transaction_to_dict("billing-1", each, 1_700_000_012_345)
    assert txns.transaction_text(shown) == (
        "billing-1: Ongoing for 12.3 s, producer 4000 epoch 3, timeout 60 s, coordinator 2,"
        " 2 partitions\n"
        "  orders [0, 1]\n"
    )
    assert shown["partitions"] == [FIRST._asdict(), SECOND._asdict()]
    assert (shown["duration_ms"], shown["started_ms"]) == (12_345, 1_700_000_000_000)
