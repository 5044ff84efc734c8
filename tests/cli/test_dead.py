"""`aiokafkawire dead`: list, show, retry and drop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import aiokafkawire
from aiokafkawire.producer import Producer
from aiokafkawire.worker import RetryPolicy, Worker
from aiokafkawire.worker.letters import HEADER_FORMATS

from .conftest import Cli
from .shell import serving

pytestmark = pytest.mark.slow


class NoSuchCustomer(Exception):
    """An exception of the application."""


async def fill(servers: str, header_format: Any) -> None:
    worker = Worker(
        bootstrap_servers=servers, group_id="billing", dead_letter_headers=header_format
    )

    @worker.on("orders", retries=RetryPolicy(attempts=1))
    async def process(record: Any) -> None:
        if record.value == b"unknown":
            raise NoSuchCustomer("customer 7\x1b" + 80 * "." + "end")
        raise ValueError("too much")

    async with Producer(bootstrap_servers=servers) as producer:
        for value in (b"unknown", b"large"):
            await producer.send_and_wait("orders", value, key=b"k", headers=[("trace", b"1")])
    await worker.run_until_idle()


@pytest.fixture(params=[*HEADER_FORMATS])
def served(request: pytest.FixtureRequest) -> Iterator[str]:
    """Addresses of a broker with two dead letters."""
    with serving("-t", "orders:1", "-t", "checked:1") as (servers, _):
        anyio.run(fill, servers, request.param)
        yield servers


def rows(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = cli("dead", *arguments, "--json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def values(cli: Cli, servers: str, topic: str) -> list[Any]:
    _, out, _ = cli("consume", "-b", servers, topic, "-o", "beginning", "-e", "-q", "--json")
    return [json.loads(line) for line in out.splitlines()]


def test_dead_letters_are_listed_and_shown(served: str, cli: Cli) -> None:
    first, second = rows(cli, "list", "-b", served, "billing.dead")
    assert (first["origin"], second["origin"]) == ("orders-0@0", "orders-0@1")
    assert first["error"].endswith("NoSuchCustomer")
    assert "customer 7" in first["message"]
    assert first["message"].endswith("end")
    _, out, _ = cli("dead", "list", "-b", served, "billing.dead")
    assert b"customer 7" in out
    assert b"end" not in out
    assert out.decode().count("…\n") == 1
    assert " ValueError " in out.decode()
    assert rows(cli, "list", "-b", served, "billing.dead", "--error", "ValueError") == [second]
    code, out, err = cli("dead", "show", "-b", served, "billing.dead:0", "0")
    assert (code, err) == (0, "")
    lines = out.decode().splitlines()
    assert lines[:2] == ["partition: 0", "offset: 0"]
    assert any(line.startswith("message: ") and line.endswith("end") for line in lines)
    assert "header trace: 1" in lines
    assert "key: k" in lines
    assert "value: unknown" in lines
    assert any("raise NoSuchCustomer" in line for line in lines)
    assert not any(f"{Path(aiokafkawire.__file__).parent}" in line for line in lines)
    assert b"\x1b" not in out


def test_dead_letters_are_sent_again_and_dropped(served: str, cli: Cli) -> None:
    retry = ("retry", "-b", served, "billing.dead:0")
    assert len(rows(cli, *retry, "--dry-run")) == 2
    assert len(values(cli, served, "orders")) == 2
    assert rows(cli, *retry, "--error", "NoSuch", "--yes") == [
        {"topic": "billing.dead", "partition": 0, "offset": 0, "to": "orders", "dry_run": False}
    ]
    assert len(rows(cli, *retry, "--offset", "1", "--to", "checked", "-y")) == 1
    again = values(cli, served, "orders")[-1]
    assert (again["value"], again["key"]) == ("unknown", "k")
    assert again["headers"] == [{"name": "trace", "value": "1"}]
    assert [each["value"] for each in values(cli, served, "checked")] == ["large"]
    drop = ("drop", "-b", served, "billing.dead:0")
    (dropped,) = rows(cli, *drop, "--through", "0", "-y")
    assert (dropped["deleted_from"], dropped["deleted_before"]) == (0, 1)
    assert [row["offset"] for row in rows(cli, "list", "-b", served, "billing.dead")] == [1]
    rows(cli, *drop, "-y")
    assert cli("dead", "list", "-b", served, "billing.dead")[2] == "% no dead letters\n"


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """Addresses of a broker with a record that no worker wrote."""

    async def send(servers: str) -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("dead", b"v")

    with serving("-t", "dead:1", "-t", "other:1") as (servers, _):
        anyio.run(send, servers)
        yield servers


def test_records_without_an_origin_need_a_topic(plain: str, cli: Cli) -> None:
    code, _, err = cli("dead", "retry", "-b", plain, "dead", "-y")
    assert code == 1
    assert "dead-0 offset 0: the headers do not say where the record comes from" in err
    assert len(rows(cli, "retry", "-b", plain, "dead", "-y", "--to", "other")) == 1
    code, out, _ = cli("dead", "show", "-b", plain, "dead:0", "0", "--json")
    assert (code, json.loads(out)["value"]) == (0, "v")


def test_a_list_leaves_out_records_that_are_no_dead_letters(plain: str, cli: Cli) -> None:
    left_out = "% left out 1 record of dead without the headers of a dead letter\n"
    command = ("dead", "list", "-b", plain, "dead")
    assert cli(*command) == (0, b"", f"% no dead letters\n{left_out}")
    assert cli(*command, "--json") == (0, b"", left_out)
    assert cli(*command, "--quiet") == (0, b"", "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("show", "dead", "0"), "needs one partition"),
        (("show", "dead:0", "7"), "has no record at offset 7"),
        (("retry", "dead"), "Give --yes"),
        (("retry", "dead", "--offset", "0", "-y"), "needs one partition"),
        (("drop", "dead", "--through", "0", "-y"), "needs one partition"),
        (("drop", "dead", "-y"), "dead-0 offset 0 is no dead letter"),
        (("drop", "dead", "--dry-run"), "dead-0 offset 0 is no dead letter"),
        (("list", "deed"), "deed"),
    ],
)
def test_wrong_arguments_are_refused(
    plain: str, cli: Cli, arguments: tuple[str, ...], text: str
) -> None:
    code, _, err = cli("dead", *arguments, "-b", plain)
    assert code != 0
    assert text in err
