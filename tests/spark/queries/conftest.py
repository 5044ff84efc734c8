"""Queries on a Spark of this machine. They run when this folder is named; else they are deselected.

One session serves all: it takes many seconds to start.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.brokers.conftest import asked_for

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 240

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": "1",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))
    if not asked_for(config.args, config.invocation_params.dir, "", HERE):
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in set(ours)]


@pytest.fixture(scope="session")
def kafka() -> Iterator[ThreadedBroker]:
    with threaded_broker() as threaded:
        yield threaded


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later: install one, or set JAVA_HOME")
    from pyspark.sql import SparkSession

    # Workers import what tests import.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("tests")
    place = tmp_path_factory.mktemp("spark")
    events = tmp_path_factory.mktemp("events")
    places = {"spark.sql.warehouse.dir": str(place), "spark.eventLog.dir": f"file:{events}"}
    for name, value in (CONFIGURATION | places).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    gateway = session.sparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
