from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokafkawire.spark.clients import stop_idle_clients
from tests.broker.threaded_broker import ThreadedBroker, threaded_broker


@pytest.fixture(scope="module")
def kafka() -> Iterator[ThreadedBroker]:
    with threaded_broker() as threaded:
        yield threaded


@pytest.fixture(scope="module", autouse=True)
def idle_clients() -> Iterator[None]:
    """Stop the clients that would log, in later tests, that their broker is gone."""
    yield
    stop_idle_clients()
