"""A fetch asks for the records of a tenth of a second."""

from __future__ import annotations

import pytest

from aiokafkawire.share.acquire_limit import MAX_RECORDS, MEASURED_S, AcquireLimit


@pytest.mark.parametrize(
    ("delivered", "seconds", "limit"),
    [
        (400, 1.0, 500),
        (20_000, 1.0, 2_000),
        (20_000, 10.0, 500),
        (10_000_000, 1.0, MAX_RECORDS),
        (20_000, MEASURED_S / 2, 500),
        (0, 5.0, 500),
    ],
)
def test_the_limit_follows_the_rate(delivered: int, seconds: float, limit: int) -> None:
    assert AcquireLimit(500, 7.0).update(delivered, 7.0 + seconds) == limit


def test_an_application_that_becomes_slow_gets_less() -> None:
    limit = AcquireLimit(500, 0.0)
    assert limit.update(50_000, 1.0) == 5_000
    assert limit.update(50_001, 1.01) == 5_000
    assert limit.update(50_100, 2.0) == 500


@pytest.mark.parametrize(("delivered", "prefetch_below"), [(400, 250), (20_000, 1_750)])
def test_records_are_acquired_ahead(delivered: int, prefetch_below: int) -> None:
    limit = AcquireLimit(500, 7.0)
    assert limit.prefetch_below == 250
    limit.update(delivered, 8.0)
    assert limit.prefetch_below == prefetch_below
