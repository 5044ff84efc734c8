"""Every behaviour test runs on asyncio, asyncio with uvloop, and trio."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, get_args

import pytest
import sniffio
from anyio import pytest_plugin as anyio_plugin
from hypothesis import settings

from aiokafkawire._about import about, compiled_kernel
from aiokafkawire.config import SecurityProtocol
from aiokafkawire.security import SCRAM_HASHES
from tests.brokers.releases import RELEASES
from tests.records.kernels import kernel_hash

RUNTIME_TESTS = "tests/runtime/"
SIMULATOR_TESTS = "tests/testing/"
BEHAVIOUR = "tests/behaviour/"

FAST = "not slow"
"""Value of `-m` for the fast tests."""

ALL_SLOW = re.compile(r"^pytestmark = (?:.|\n(?=[ \]]))*\bmark\.slow\b", re.MULTILINE)
"""Matches files whose tests are all slow."""

BEHAVIOUR_ON = {
    "embedded": "the embedded broker",
    "replicated": "the embedded broker with nodes that replicate",
    "kafka": "real Kafka of one node",
    "kafka3": "real Kafka of three nodes, on asyncio alone",
    **{version: f"real Kafka {version}, on asyncio alone" for version in RELEASES},
}
"""Values of `--on`, with descriptions."""

ANYIO_HAS_MODES = hasattr(anyio_plugin, "pytest_addoption")
"""Whether anyio supports `anyio_mode`, which pyproject.toml sets."""

NOT_APPLICABLE = pytest.StashKey[str]()
"""Reason why a test does not apply to its brokers: the one kind of skip that hides nothing."""

BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {"use_uvloop": False}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
if sys.platform == "win32":  # uvloop does not support it
    del BACKENDS["uvloop"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=tuple(BEHAVIOUR_ON),
        default="embedded",
        help="what the tests of behaviour run on: the embedded broker, real Kafka of one node, "
        "or (on asyncio alone) of three nodes, of an older release, or the embedded broker with "
        "nodes that replicate",
    )
    parser.addoption(
        "--all-backends",
        action="store_true",
        help="run the tests of behaviour on every event loop on older releases and three nodes too",
    )
    parser.addoption(
        "--security-protocol",
        choices=get_args(SecurityProtocol),
        default="PLAINTEXT",
        help="listener that the tests of behaviour connect to",
    )
    parser.addoption(
        "--sasl-mechanism",
        choices=("PLAIN", *SCRAM_HASHES),
        default="SCRAM-SHA-512",
        help="SASL mechanism of the tests of behaviour",
    )
    if not ANYIO_HAS_MODES:
        parser.addini("anyio_mode", "as later releases of anyio have it")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> None:
    """Add the mark of `anyio_mode` where anyio is too old for it (`make test-lowest`)."""
    is_test = name.startswith("test_") and inspect.iscoroutinefunction(obj)
    if is_test and not ANYIO_HAS_MODES:
        pytest.mark.anyio(obj)


def backend_of(item: pytest.Item) -> str | None:
    """Return the event loop of a test, None if it needs none."""
    name = item.callspec.params.get("anyio_backend") if hasattr(item, "callspec") else None
    return None if name is None else str(name)


# Speed limits of examples would fail on a busy machine; tests of speed have their own.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_report_header() -> str:
    return str(about())


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.secret_scan")
    compiled = compiled_kernel()
    if compiled is not None and kernel_hash().encode() not in compiled.read_bytes():
        raise pytest.UsageError("the compiled kernel is not of this source: make .venv/.ready")
    # A shell starts background jobs with Ctrl-C ignored, which children would inherit.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files of slow tests without importing them for the fast ones: that saves seconds."""
    if config.option.markexpr != FAST or not collection_path.name.startswith("test_"):
        return None
    return bool(ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


def is_repetition(item: pytest.Item) -> bool:
    """Return whether the test repeats code that ran on asyncio: only the runtime depends on the
    event loop."""
    other = backend_of(item) not in {None, "asyncio"}
    return other and not item.nodeid.startswith(RUNTIME_TESTS)


def is_simulated_again(item: pytest.Item) -> bool:
    """Return whether the test repeats code on another simulated event loop."""
    other = hasattr(item, "callspec") and item.callspec.params.get("backend") == "trio"
    return other and not item.nodeid.startswith(SIMULATOR_TESTS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the fast tests on one event loop, those of the runtime on all."""
    for item in items:
        if is_repetition(item):
            item.add_marker("slow")
        if backend_of(item) == "uvloop":
            end_process_at_timeout(item)


def end_process_at_timeout(item: pytest.Item) -> None:
    """Let a timeout of the test end its process: uvloop drops the exception of the default way."""
    given = item.get_closest_marker("timeout")
    limits = dict(given.kwargs, method="thread") if given else {"method": "thread"}
    mark = pytest.mark.timeout(*(given.args if given else ()), **limits)
    item.add_marker(mark, append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Stop tracing for coverage where it would add nothing: it can double a test's time."""
    tracing, in_threads = sys.gettrace(), threading.gettrace()
    if tracing is None or not (is_repetition(item) or is_simulated_again(item)):
        return (yield)
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    try:
        return (yield)
    finally:
        threading.settrace(in_threads)  # type: ignore[arg-type]
        sys.settrace(tracing)


def pytest_collection_finish() -> None:
    """Freeze the objects made before the first test: garbage collection skips them, which saves
    seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=BACKENDS, scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return BACKENDS[request.param]


@pytest.fixture
async def running_backend(anyio_backend: tuple[str, dict[str, Any]]) -> str:
    """The running library, and for asyncio the class of its loop."""
    library = sniffio.current_async_library()
    if library == "asyncio" and "uvloop" in type(asyncio.get_running_loop()).__module__:
        return "uvloop"
    return library


@pytest.fixture(autouse=True)
def _backend_is_what_the_name_says(request: pytest.FixtureRequest) -> None:
    # Other plugins can run a test named "trio" on asyncio and stay green.
    if "anyio_backend" in request.fixturenames:
        running = request.getfixturevalue("running_backend")
        assert BACKENDS[running] == request.getfixturevalue("anyio_backend")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail skipped tests in CI, which has everything that tests need."""
    report = yield
    excused = hasattr(report, "wasxfail") or NOT_APPLICABLE in item.stash
    if os.environ.get("CI") == "true" and report.skipped and not excused:
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be missing: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what tests reported with `record_property`.

    ("summary", line) is printed once; ("counted", what) once with the number of times that it was
    reported. These reach us from wherever the tests ran, as printing would not."""
    passed = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    reported = [entry for report in passed for entry in report.user_properties]
    lines = {str(value) for name, value in reported if name == "summary"}
    counted = Counter(str(value) for name, value in reported if name == "counted")
    lines |= {f"{what}: {count}" for what, count in counted.items()}
    functions = {report.nodeid.split("[")[0] for report in passed if BEHAVIOUR in report.nodeid}
    if functions:
        where = BEHAVIOUR_ON[config.getoption("--on")]
        if config.getoption("--all-backends"):
            where = where.removesuffix(", on asyncio alone")
        lines.add(f"behaviour: {len(functions)} test functions on {where}")
    if lines:
        terminalreporter.section("what was counted")
        for line in sorted(lines):
            terminalreporter.line(line)
