"""The recipes run as processes, with a broker process that stops or hangs."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import anyio
import httpx
import pytest

from aiokafkawire import Consumer, Producer, TopicPartition
from tests.brokers.process import free_ports
from tests.cli.shell import aiokafkawire, serving
from tests.elapsed import Elapsed

from .pages import ROOT, commands_of, write_project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP"),
]

NOT_READY_WITHIN_S = 3.0
"""A readiness probe must fail within this time after SIGSTOP of the broker."""

WITHIN_S = 30.0
"""Timeout for everything else, generous for a busy machine."""


def project(recipe: str, folder: Path) -> Path:
    write_project(ROOT / "docs" / "recipes" / f"{recipe}.md", folder)
    return folder


@contextmanager
def running(
    folder: Path, *arguments: str, output: IO[bytes] | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python process in a project, and kill it at the end if it is still running."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=output,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=WITHIN_S)


def wait_until(condition: Callable[[], bool], within_s: float = WITHIN_S) -> float:
    """Wait until the condition is true; return the elapsed seconds."""
    elapsed = Elapsed()
    elapsed.start()
    try:
        while not condition():
            assert elapsed.seconds < within_s, f"not after {elapsed.seconds:.2f} s"
            time.sleep(0.05)
    finally:
        elapsed.stop()
    return elapsed.seconds


@pytest.mark.parametrize(
    ("recipe", "application"), [("fastapi", "app:app"), ("django", "shop.asgi:application")]
)
def test_web_service_is_ready_only_while_the_broker_answers(
    recipe: str, application: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (port,) = free_ports(1)
    arguments = ("-m", "uvicorn", application, "--port", str(port), "--log-level", "warning")
    with (
        serving("-t", "orders:3") as (servers, broker),
        running(project(recipe, tmp_path), *arguments, KAFKA_BOOTSTRAP_SERVERS=servers) as service,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S) as client,
    ):

        def status_of(path: str) -> int:
            try:
                return client.get(path).status_code
            except httpx.ConnectError:
                return 0

        wait_until(lambda: status_of("/health/ready") == 200)
        order = {"id": "1", "customer": "7", "book": "Emma"}
        assert client.post("/orders", json=order).status_code == 201
        broker.send_signal(signal.SIGSTOP)
        took_s = wait_until(lambda: status_of("/health/ready") == 503, NOT_READY_WITHIN_S)
        record_property("summary", f"{recipe}: not ready {took_s:.2f} s after SIGSTOP")
        assert status_of("/health/live") == 204
        assert client.post("/orders", json=order).status_code == 504  # it may be in the log
        broker.send_signal(signal.SIGCONT)
        wait_until(lambda: status_of("/health/ready") == 200)
        assert client.post("/orders", json=order).status_code == 201
        service.send_signal(signal.SIGTERM)
        service.wait(timeout=WITHIN_S)


@pytest.mark.parametrize(
    ("recipe", "application"), [("fastapi", "app:app"), ("django", "shop.asgi:application")]
)
def test_web_service_is_ready_after_the_topic_is_created(
    recipe: str, application: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    arguments = ("-m", "uvicorn", application, "--port", str(port), "--log-level", "warning")
    page = ROOT / "docs" / "recipes" / f"{recipe}.md"
    (create,) = [text for _, text in commands_of(page) if " topics create " in text]
    with (
        serving() as (servers, _),
        running(project(recipe, tmp_path), *arguments, KAFKA_BOOTSTRAP_SERVERS=servers),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S) as client,
    ):

        def status_of(path: str) -> int:
            try:
                return client.get(path).status_code
            except httpx.ConnectError:
                return 0

        wait_until(lambda: status_of("/health/live") == 204)
        unready = client.get("/health/ready")
        assert unready.status_code == 503
        assert "topic 'orders' does not exist" in unready.text
        _, *words = shlex.split(create.replace("localhost:9092", servers))
        assert aiokafkawire(*words).returncode == 0
        wait_until(lambda: status_of("/health/ready") == 200)


def test_web_service_starts_before_its_broker(tmp_path: Path) -> None:
    port, broker_port = free_ports(2)
    arguments = ("-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning")
    with (
        running(
            project("fastapi", tmp_path),
            *arguments,
            KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{broker_port}",
        ),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S) as client,
    ):

        def status_of(path: str) -> int:
            try:
                return client.get(path).status_code
            except httpx.ConnectError:
                return 0

        wait_until(lambda: status_of("/health/live") == 204)
        assert status_of("/health/ready") == 503
        with serving("--port", str(broker_port), "-t", "orders:3"):
            wait_until(lambda: status_of("/health/ready") == 200)


def test_worker_finishes_commits_and_leaves_on_sigterm(tmp_path: Path) -> None:
    health = tmp_path / "health"
    alive, ready = health / "alive", health / "ready"
    partition = TopicPartition("orders", 0)
    records = 250

    async def produce(servers: str) -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            for number in range(records):
                await producer.send("orders", value=b"%d" % number)

    async def committed(servers: str) -> int:
        async with Consumer(bootstrap_servers=servers, group_id="billing") as consumer:
            found = (await consumer.committed(partition))[partition]
            return 0 if found is None else found.offset

    with (
        serving("-t", "orders:1") as (servers, broker),
        running(
            project("kubernetes", tmp_path),
            "worker.py",
            KAFKA_BOOTSTRAP_SERVERS=servers,
            HEALTH_DIR=str(health),
        ) as worker,
    ):
        wait_until(ready.exists)
        anyio.run(produce, servers)
        wait_until(lambda: anyio.run(committed, servers) == records)
        broker.send_signal(signal.SIGSTOP)
        wait_until(lambda: not ready.exists(), 5.0)
        touched = alive.stat().st_mtime
        wait_until(lambda: alive.stat().st_mtime > touched)
        broker.send_signal(signal.SIGCONT)
        wait_until(ready.exists)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=WITHIN_S) == 0
        assert not ready.exists()
        assert anyio.run(committed, servers) == records


BILL_ON_COMMAND = """
from pathlib import Path
from typing import IO

import anyio
import worker


async def bill(record):
    Path(f"begun-{record.offset}").touch()
    while not Path(f"finish-{record.offset}").exists():
        await anyio.sleep(0.05)


worker.bill = bill
anyio.run(worker.main)
"""
"""Program that runs the worker; `bill` returns once the test writes a file."""


def test_worker_survives_a_broker_that_hangs_during_a_commit(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    health = tmp_path / "health"
    alive = health / "alive"
    partition = TopicPartition("orders", 0)

    async def produce(servers: str) -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("orders", value=b"Emma")

    async def committed(servers: str) -> int:
        async with Consumer(bootstrap_servers=servers, group_id="billing") as consumer:
            found = (await consumer.committed(partition))[partition]
            return 0 if found is None else found.offset

    with (
        serving("-t", "orders:1") as (servers, broker),
        running(
            project("kubernetes", tmp_path),
            "-c",
            BILL_ON_COMMAND,
            KAFKA_BOOTSTRAP_SERVERS=servers,
            HEALTH_DIR=str(health),
        ) as worker,
    ):
        anyio.run(produce, servers)
        wait_until((tmp_path / "begun-0").exists)
        broker.send_signal(signal.SIGSTOP)
        touched = alive.stat().st_mtime
        (tmp_path / "finish-0").touch()
        took_s = wait_until(lambda: alive.stat().st_mtime > touched)
        record_property("summary", f"kubernetes: goes on {took_s:.1f} s after the batch")
        assert worker.poll() is None
        broker.send_signal(signal.SIGCONT)
        wait_until(lambda: anyio.run(committed, servers) == 1)

        anyio.run(produce, servers)
        wait_until((tmp_path / "begun-1").exists)
        broker.send_signal(signal.SIGSTOP)
        worker.send_signal(signal.SIGTERM)
        (tmp_path / "finish-1").touch()
        assert worker.wait(timeout=WITHIN_S) == 0


def test_taskiq(tmp_path: Path) -> None:
    folder = project("taskiq", tmp_path)
    with serving("--partitions", "2") as (servers, _):
        environment = {"KAFKA_BOOTSTRAP_SERVERS": servers, "HEALTH_PORT": "0"}
        with (
            (folder / "printed").open("wb") as printed,
            running(
                folder,
                *("-m", "taskiq", "worker", "--workers", "1", "mails:broker"),
                output=printed,
                **environment,
            ) as worker,
        ):
            with running(folder, "send.py", **environment) as sender:
                assert sender.wait(WITHIN_S) == 0
            expected = {f"mail to customer-{number}@example.org" for number in range(10)}
            wait_until(lambda: set((folder / "printed").read_text().splitlines()) == expected)
            worker.terminate()
            assert worker.wait(WITHIN_S) == 0
