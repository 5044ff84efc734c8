from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.hosted import HostedBroker, hosted_broker


@pytest.fixture(scope="module")
def kafka() -> Iterator[HostedBroker]:
    with hosted_broker() as hosted:
        yield hosted
