"""Options that a run or a test adds to those of its clients, also in the processes of `workers`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from aiokafkawire.consumer import consumer
from tests.behaviour.workers import CLIENT_OPTIONS, without_classic_options

__all__ = ("add_worker_options", "both_protocols", "change_options", "use_consumer_protocol")

Options = Mapping[str, Any]


both_protocols = pytest.mark.parametrize(
    "group_protocol",
    [
        "classic",
        pytest.param("consumer", marks=pytest.mark.needs("consumer protocol"), id="KIP-848"),
    ],
    indirect=True,
)
"""Mark of tests that hold for members of both group protocols; `-k KIP-848` selects the newer."""


def change_options(
    patch: pytest.MonkeyPatch, module: ModuleType, change: Callable[[Options], Options]
) -> None:
    """Let the clients of a module have changed options."""
    make = module.make_config
    patch.setattr(module, "make_config", lambda kind, given: make(kind, change(given)))


def add_worker_options(patch: pytest.MonkeyPatch, options: Options) -> None:
    """Let the processes of `workers` have these options too."""
    before = json.loads(os.environ.get(CLIENT_OPTIONS, "{}"))
    patch.setenv(CLIENT_OPTIONS, json.dumps({**before, **options}))


def use_consumer_protocol(patch: pytest.MonkeyPatch) -> None:
    """Let all members of groups use the consumer protocol, without options of the classic one."""

    def change(given: Options) -> Options:
        if given.get("group_id") is None:
            return given
        return without_classic_options(given | {"group_protocol": "consumer"})

    change_options(patch, consumer, change)
    add_worker_options(patch, {"group_protocol": "consumer"})
