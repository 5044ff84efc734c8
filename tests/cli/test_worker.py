"""`aiokafkawire worker`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiokafkawire.cli.worker import find_worker
from aiokafkawire.errors import InvalidOption

from .conftest import Cli

MODULE = """
from aiokafkawire import Worker
import {imported}

worker = Worker(bootstrap_servers="127.0.0.1:1", group_id="billing", default_api_timeout_ms=500)

@worker.on("orders")
async def bill(record):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with a worker, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "billing_app", raising=False)
    Path("billing_app.py").write_text(MODULE.format(imported="json"), "utf-8")
    return "billing_app"


def test_a_worker_is_found(module: str):
    assert find_worker(f"{module}:worker").config.group_id == "billing"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("billing_app", "must be MODULE:WORKER"),
        (":worker", "must be MODULE:WORKER"),
        ("absent_app:worker", "there is no module 'absent_app'"),
        ("billing_app:bill", "'bill' in module 'billing_app' is no Worker"),
        ("billing_app:absent.worker", "is no Worker: None"),
    ],
)
def test_a_wrong_target_is_refused(module: str, target: str, text: str):
    with pytest.raises(InvalidOption, match=text):
        find_worker(target)


def test_a_module_that_the_named_one_imports_is_another_error(module: str):
    Path("billing_app.py").write_text(MODULE.format(imported="absent_library"), "utf-8")
    with pytest.raises(ModuleNotFoundError, match="absent_library"):
        find_worker(f"{module}:worker")


def test_a_wrong_target_is_wrong_usage(cli: Cli, module: str):
    code, _, err = cli("worker", "absent_app:worker")
    assert code == 2
    assert "there is no module 'absent_app'" in err


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_worker_without_kafka_fails_with_the_reason(module: str, backend: str):
    done = subprocess.run(
        [sys.executable, "-m", "aiokafkawire", "worker", "--backend", backend, f"{module}:worker"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr.splitlines()[-1]
