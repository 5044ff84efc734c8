"""What a message costs before it is first read: CPU time, in a process without anything else."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

MAKE_S = 0.005
IMPORT_S = 0.015
ATTEMPTS = 3

SCRIPT = """
import gc, importlib, json, pkgutil, sys, time
gc.disable()
import aiokafkawire
aiokafkawire.Producer, aiokafkawire.Consumer
used = [m.rpartition(".")[2] for m in sys.modules if m.startswith("aiokafkawire.wire.messages.")]

from aiokafkawire import wire
from aiokafkawire.wire import messages
from aiokafkawire.wire.decoder import make_decoder
from aiokafkawire.wire.encoder import make_encoder

def taken(function, *arguments):
    started = time.process_time()
    function(*arguments)
    return time.process_time() - started

imports = {
    module.name: taken(importlib.import_module, f"{messages.__name__}.{module.name}")
    for module in pkgutil.iter_modules(messages.__path__)
}
makes = {
    f"{name} v{version}": max(
        min(taken(make, cls, version) for _ in range(2)) for make in (make_encoder, make_decoder)
    )
    for name in wire.message_names()
    for cls in (wire.message_class(name),)
    for version in {cls.min_version, cls.max_version}
}
print(json.dumps({"used": used, "imports": imports, "makes": makes}))
"""


def measured() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def costs() -> dict[str, Any]:
    """Each cost is the least of some attempts: others may use the machine."""
    first, *others = (measured() for _ in range(ATTEMPTS))
    for kind in ("imports", "makes"):
        for name in first[kind]:
            first[kind][name] = min(first[kind][name], *(other[kind][name] for other in others))
    return first


def test_the_clients_import_no_message_that_they_do_not_use(costs: dict[str, Any]) -> None:
    assert set(costs["used"]) <= {
        *("api_versions", "common", "consumer_protocol", "fetch", "find_coordinator", "headers"),
        *(
            "heartbeat",
            "init_producer_id",
            "join_group",
            "leave_group",
            "list_groups",
            "list_offsets",
        ),
        *("metadata", "offset_commit", "offset_fetch", "offset_for_leader_epoch", "produce"),
        "sync_group",
    }


def test_a_message_module_is_imported_in_no_time(costs: dict[str, Any]) -> None:
    assert len(costs["imports"]) > 90
    assert {name: cost for name, cost in costs["imports"].items() if cost >= IMPORT_S} == {}


def test_an_encoder_and_a_decoder_are_made_in_no_time(costs: dict[str, Any]) -> None:
    assert len(costs["makes"]) > 200
    assert {name: cost for name, cost in costs["makes"].items() if cost >= MAKE_S} == {}
