"""Tests on the embedded broker, with a database of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from django.core.management import call_command
from django.test import AsyncClient
from shop.models import Order, OutboxRecord

from aiokafkawire.testing import KafkaBroker

pytestmark = pytest.mark.anyio

WITHIN_S = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def migrated() -> None:
    call_command("migrate", verbosity=0)


@contextmanager
def command(name: str, broker: KafkaBroker) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "manage.py", name],
        cwd=Path(__file__).parent,
        env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_an_order_is_billed(kafka_broker: KafkaBroker) -> None:
    client = AsyncClient()
    for total in (1, 2, 3):
        answer = await client.post(
            "/orders", {"customer": "ada", "total": total}, content_type="application/json"
        )
        assert answer.status_code == 201
    assert await OutboxRecord.objects.acount() == 3  # nothing is sent by the view
    with (
        command("send_outbox", kafka_broker),
        command("worker", kafka_broker) as worker,
        anyio.fail_after(WITHIN_S),
    ):
        while await Order.objects.filter(billed=True).acount() < 3:
            await anyio.sleep(0.05)
        worker.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(worker.wait)
    assert worker.returncode == 0
    assert await OutboxRecord.objects.acount() == 0


async def test_what_is_no_order_is_refused() -> None:
    before = await Order.objects.acount()
    answer = await AsyncClient().post("/orders", b"{", content_type="application/json")
    assert answer.status_code == 400
    assert await Order.objects.acount() == before
