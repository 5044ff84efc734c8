"""Coverage is measured on one event loop: the others run the same code."""

from __future__ import annotations

import sys
import threading

import pytest


async def test_one_event_loop_is_traced_where_coverage_is_wanted(
    request: pytest.FixtureRequest, running_backend: str
):
    measured = request.config.pluginmanager.has_plugin("_cov") and running_backend == "asyncio"
    assert (sys.gettrace() is not None) == measured
    assert (threading.gettrace() is not None) == measured


def test_what_needs_no_event_loop_is_traced_too(request: pytest.FixtureRequest):
    measured = request.config.pluginmanager.has_plugin("_cov")
    assert (sys.gettrace() is not None) == measured


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_of_simulated_event_loops_one_is_traced_too(request: pytest.FixtureRequest, backend: str):
    measured = request.config.pluginmanager.has_plugin("_cov") and backend == "asyncio"
    assert (sys.gettrace() is not None) == measured
