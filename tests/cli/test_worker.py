"""`aiokafkawire worker`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiokafkawire.cli.worker import find_worker
from aiokafkawire.errors import InvalidOption

from .conftest import Cli
from .shell import LIMIT_S, aiokafkawire, running

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
        ("billing_app", "must be MODULE:WORKER, such as billing_app:worker"),
        (":worker", "must be MODULE:WORKER"),
        ("absent_app:worker", "there is no module 'absent_app'"),
        (
            "billing_app:bill",
            "'bill' in module 'billing_app' is no Worker but has the type function;"
            " its workers: worker$",
        ),
        ("billing_app:wrong", "^module 'billing_app' has no 'wrong'; its workers: worker$"),
        ("billing_app:absent.worker", "^module 'billing_app' has no 'absent.worker'; its workers"),
        ("json:worker", "^module 'json' has no 'worker'; it has no Worker$"),
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


REFUSED = """
from aiokafkawire import Worker

worker = Worker(bootstrap_servers="127.0.0.1:1", group_id="billing"{options})

@worker.on("orders")
async def bill(record):
    pass

def note(**options):
    sets = worker._option_sets
    for client in sets.make_consumer(worker.config), sets.make_producer(worker.config):
        print(client.config.bootstrap_refused_timeout_ms)

worker.run_forever = note
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", b"5000"),
        (", bootstrap_refused_timeout_ms=70", b"70"),
        (", default_api_timeout_ms=90_000", b"None"),
    ],
)
def test_the_time_of_refused_connections_is_short(
    cli: Cli, module: str, options: str, expected: bytes
):
    Path(f"{module}.py").write_text(REFUSED.format(options=options), "utf-8")
    code, out, _ = cli("worker", f"{module}:worker")
    assert (code, out.split()) == (0, [expected] * 2)


FAILING = """
from aiokafkawire import NoOffsetForPartition, Worker

worker = Worker(bootstrap_servers="127.0.0.1:1", group_id="billing")

def fail(**options):
    raise NoOffsetForPartition("no committed offset", topic="orders", partition=3)

worker.run_forever = fail
"""


def test_the_remedy_names_no_flag_that_the_command_lacks(cli: Cli, module: str):
    Path(f"{module}.py").write_text(FAILING, "utf-8")
    code, _, err = cli("worker", f"{module}:worker")
    context = "(topic orders, partition 3)"
    advice = "set auto_offset_reset in consumer_options"
    assert (code, err) == (1, f"aiokafkawire: no committed offset {context}; {advice}\n")


@pytest.mark.parametrize("backend", ["uvloop", "trio"])
@pytest.mark.parametrize("reload", [[], ["--reload"]])
def test_a_backend_that_is_not_installed_is_an_error(
    cli: Cli, module: str, monkeypatch: pytest.MonkeyPatch, backend: str, reload: list[str]
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = cli("worker", "--backend", backend, *reload, f"{module}:worker")
    expected = f"aiokafkawire: --backend {backend} needs {backend}: pip install {backend}\n"
    assert (code, err) == (1, expected)


LOGGING = """
import logging
from aiokafkawire import Worker

{configuration}
worker = Worker(bootstrap_servers={servers!r}, group_id="logging")

@worker.on("logging")
async def process(record):
    logging.getLogger("billing").info("processed %s", record.value.decode())
    worker.request_stop()
"""


@pytest.mark.parametrize(
    ("configuration", "line"),
    [
        ("", b" INFO billing: processed 1"),
        ("logging.basicConfig(level=logging.INFO, format='own %(message)s')", b"own processed 1"),
    ],
)
def test_the_log_is_that_of_the_module_or_has_the_level(
    servers: str, module: str, configuration: str, line: bytes
):
    text = LOGGING.format(servers=servers, configuration=configuration)
    Path(f"{module}.py").write_text(text, "utf-8")
    sent = aiokafkawire("produce", "logging", "-b", servers, stdin=b"1\n")
    assert sent.returncode == 0
    done = aiokafkawire("worker", f"{module}:worker")
    assert done.returncode == 0
    assert line in done.stderr


EXITING = """
import sys
from aiokafkawire import Worker

worker = Worker(bootstrap_servers={servers!r}, group_id={group!r})

@worker.on("exiting")
async def process(record):
    sys.exit({code!r})
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize(("code", "returned"), [(3, 3), ("the disk is full", 1)])
def test_sys_exit_in_a_handler_ends_the_worker_with_its_code(
    servers: str, module: str, backend: str, code: object, returned: int
):
    group = f"exiting-{backend}-{returned}"
    text = EXITING.format(servers=servers, group=group, code=code)
    Path(f"{module}.py").write_text(text, "utf-8")
    assert aiokafkawire("produce", "exiting", "-b", servers, stdin=b"1\n").returncode == 0
    level = ("--log-level", "warning")
    done = aiokafkawire("worker", "--backend", backend, *level, f"{module}:worker")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == returned, lines
    assert f"process called sys.exit({code!r}); the worker stops, and the record" in lines[0]
    assert lines[1:] == ([code] if returned == 1 else [])


RELOADED = """
from pathlib import Path
from aiokafkawire import Worker

worker = Worker(bootstrap_servers={servers!r}, group_id="reloaded")

def note(text):
    with Path("notes").open("a") as file:
        file.write("{version} " + text + "\\n")

@worker.on("reloaded")
async def process(record):
    note(record.value.decode())

note("imported")
"""


def test_a_worker_starts_again_with_changed_code(servers: str, module: str):
    def write(version: str) -> None:
        text = RELOADED.format(version=version, servers=servers)
        Path(f"{module}.py").write_text(text, "utf-8")

    def send(value: str) -> None:
        line = f"{value}\n".encode()
        assert aiokafkawire("produce", "reloaded", "-b", servers, stdin=line).returncode == 0

    notes: list[str] = []

    def wait_for(*expected: str) -> None:
        notes.extend(expected)
        deadline = time.monotonic() + LIMIT_S
        while (found := Path("notes").read_text("utf-8").splitlines()) != notes:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    write("old")
    Path("notes").touch()
    with running("worker", "--reload", f"{module}:worker") as process:
        send("first")
        wait_for("old imported", "old first")
        write("new")
        wait_for("new imported")
        send("second")
        wait_for("new second")
        process.terminate()
        assert process.wait(LIMIT_S) == 0
        assert process.stderr is not None
        lines = process.stderr.read().decode().splitlines()
    changed = f" INFO aiokafkawire.cli: {module}.py changed; starting the worker again"
    assert any(line.endswith(changed) for line in lines)


SLOW = """
from pathlib import Path
import anyio
from aiokafkawire import Worker

worker = Worker(bootstrap_servers={servers!r}, group_id="slow")

@worker.on("slow")
async def process(record):
    Path("notes").write_text("begun")
    await anyio.sleep({seconds})
    Path("notes").write_text("done")
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize(("by_terminal", "seconds"), [(True, 1), (False, 6)])
def test_handlers_finish_when_a_reloading_worker_stops(
    servers: str, module: str, by_terminal: bool, seconds: int
):
    """A terminal sends Ctrl-C to both processes; SIGTERM is for the outer one."""
    notes = Path("notes")
    notes.touch()
    Path(f"{module}.py").write_text(SLOW.format(servers=servers, seconds=seconds), "utf-8")
    with running("worker", "--reload", f"{module}:worker", start_new_session=True) as process:
        line = ["produce", "slow", "-b", servers]
        assert aiokafkawire(*line, stdin=b"1\n").returncode == 0
        deadline = time.monotonic() + LIMIT_S
        while notes.read_text() != "begun":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if by_terminal:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.terminate()
        assert process.wait(LIMIT_S) == 0
    assert notes.read_text() == "done"


def test_reload_needs_watchfiles(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    code, _, err = cli("worker", "--reload", "billing_app:worker")
    assert code == 1
    assert "pip install 'aiokafkawire[reload]'" in err
