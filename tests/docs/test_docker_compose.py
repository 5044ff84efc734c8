"""The commands of the recipe's compose file, run as in a container."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.shell import aiokafkawire, running

from .pages import ROOT, Kind, blocks_of, write_project
from .test_console import parsed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP"),
]

PAGE = ROOT / "docs" / "recipes" / "docker-compose.md"

STOP_GRACE_S = 10.0
"""Seconds from SIGTERM to SIGKILL in Docker."""

Service = dict[str, Any]


@pytest.fixture
def services(tmp_path: Path) -> dict[str, Service]:
    write_project(PAGE, tmp_path)
    compose = yaml.safe_load((tmp_path / "compose.yaml").read_text(encoding="utf-8"))
    assert compose["services"].keys() == {"kafka", "worker"}
    services: dict[str, Service] = compose["services"]
    return services


def on_loopback(command: list[str], replaced: dict[str, str]) -> list[str]:
    """Return the arguments of a command, with values replaced; each must occur."""
    program, *arguments = command
    assert program == "aiokafkawire"
    assert replaced.keys() <= {*arguments}
    return [replaced.get(argument, argument) for argument in arguments]


def healthcheck(service: Service) -> list[str]:
    kind, *command = service["healthcheck"]["test"]
    assert kind == "CMD"
    return [str(word) for word in command]


def test_page_has_one_yaml_file(services: dict[str, Service]):
    assert [block.path for block in blocks_of(PAGE) if block.kind is Kind.FILE] == ["compose.yaml"]
    assert services["worker"]["depends_on"]["kafka"]["condition"] == "service_healthy"


def test_advertised_address_is_the_service_and_its_port(services: dict[str, Service]):
    kafka, worker = services["kafka"], services["worker"]
    # YAML must not read an argument as a number.
    assert all(type(argument) is str for argument in kafka["command"])
    options = parsed(" ".join(kafka["command"]))
    assert options["host"] == "0.0.0.0"
    assert options["advertised_host"] == "kafka"
    address = f"{options['advertised_host']}:{options['port']}"
    assert worker["environment"]["KAFKA_BOOTSTRAP_SERVERS"] == address
    assert kafka["ports"] == [f"127.0.0.1:{options['port']}:{options['port']}"]
    assert kafka["volumes"] == [f"kafka-data:{options['data']}"]
    assert f"localhost:{options['port']}" in healthcheck(kafka)


def test_broker_is_healthy_while_it_runs(services: dict[str, Service], tmp_path: Path):
    kafka = services["kafka"]
    here = {"0.0.0.0": "127.0.0.1", "9092": "0", "/data": str(tmp_path / "data")}
    command = on_loopback(kafka["command"], {**here, "kafka": "localhost"})
    with running(*command) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().decode().strip()
        assert address.startswith("localhost:")
        check = on_loopback(healthcheck(kafka), {"localhost:9092": address})
        limit_s = float(kafka["healthcheck"]["timeout"].removesuffix("s"))
        healthy = aiokafkawire(*check)
        assert (healthy.returncode, healthy.stdout) == (0, b"orders\n")
        broker.send_signal(signal.SIGSTOP)
        # Docker treats a check that exceeds its timeout as failed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert aiokafkawire(*check, limit_s=limit_s).returncode != 0
        broker.send_signal(signal.SIGCONT)
        broker.terminate()
        broker.wait(timeout=STOP_GRACE_S)
    assert aiokafkawire(*check).returncode != 0
    with running(*command) as broker:  # the topic is still in the volume
        assert broker.stdout is not None
        address = broker.stdout.readline().decode().strip()
        check = on_loopback(healthcheck(kafka), {"localhost:9092": address})
        assert aiokafkawire(*check).stdout == b"orders\n"


def test_service_name_is_advertised(services: dict[str, Service], tmp_path: Path):
    here = {"0.0.0.0": "127.0.0.1", "9092": "0", "/data": str(tmp_path / "data")}
    with running(*on_loopback(services["kafka"]["command"], here)) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(b"kafka:")


def test_image_installs_the_command_line(services: dict[str, Service]):
    build = services["kafka"]["build"]
    lines = build["dockerfile_inline"].splitlines()
    assert lines[0] == "FROM python:3.11-slim"
    (install,) = [line for line in lines if line.startswith("RUN pip install")]
    assert "[cli]" in install
    assert entry_points(group="console_scripts", name="aiokafkawire")
