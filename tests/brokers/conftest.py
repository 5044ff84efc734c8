"""This folder's tests run when it, or the marker real_kafka, is named; else they are deselected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.brokers.fixtures import kafka_43, kafka_43_server

__all__ = ["kafka_43", "kafka_43_server"]

HERE = Path(__file__).resolve().parent


def asked_for(
    arguments: Sequence[str], invoked_in: Path, marker_expression: str, folder: Path = HERE
) -> bool:
    """Return whether a command line names a folder, something in it, or this one's marker."""
    named = [(invoked_in / argument.split("::")[0]).resolve() for argument in arguments]
    inside = any(path == folder or folder in path.parents for path in named)
    return inside or "real_kafka" in marker_expression


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker("real_kafka")
    if not asked_for(config.args, config.invocation_params.dir, config.option.markexpr):
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in set(ours)]
