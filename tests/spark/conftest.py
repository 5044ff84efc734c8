from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.threaded_broker import ThreadedBroker, threaded_broker


@pytest.fixture(scope="module")
def kafka() -> Iterator[ThreadedBroker]:
    with threaded_broker() as threaded:
        yield threaded
