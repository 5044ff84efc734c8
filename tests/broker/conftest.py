from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def kafka_python_leftovers() -> Iterator[None]:
    """What kafka-python leaves open goes with its test: no later one hears of it."""
    logger = logging.getLogger("kafka")
    # Captured records would hold what they tell of until a later test.
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
