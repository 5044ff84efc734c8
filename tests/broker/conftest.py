from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def kafka_python_leftovers() -> Iterator[None]:
    """Collect what kafka-python leaves open with its test, so that no later test sees the
    warnings."""
    logger = logging.getLogger("kafka")
    # Captured log records would keep their arguments alive until a later test.
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
