"""A planted mutation is in the module that is imported, and nowhere else."""

import subprocess
import sys

import pytest

from aiokafkawire.producer import sequences
from verify.mutation.mutations import MUTATIONS
from verify.mutation.operations import delete
from verify.mutation.planting import CannotPlant, Mutation, file_of, plant


def test_a_mutation_without_a_marker_is_refused() -> None:
    with pytest.raises(CannotPlant, match="no statement is marked `# mutation: nowhere`"):
        plant(Mutation("nowhere", "plain", delete))


def test_a_module_that_is_imported_already_is_refused() -> None:
    assert file_of("sequence-kept-after-refusal").samefile(sequences.__file__)
    with pytest.raises(CannotPlant, match="imported already"):
        plant(MUTATIONS["sequence-kept-after-refusal"])


@pytest.mark.parametrize(("planted", "failures"), [(False, 0), (True, 1)])
def test_a_process_of_its_own_has_the_mutation(planted: bool, failures: int) -> None:
    program = (
        "import random\n"
        "from verify.mutation.mutations import MUTATIONS\n"
        "from verify.mutation.planting import plant\n"
        f"if {planted}: plant(MUTATIONS['failures-kept-after-reconnect'])\n"
        "from aiokafkawire.connection.backoff import Backoff, ReconnectBackoff\n"
        "reconnect = ReconnectBackoff(Backoff(1, 1), Backoff(1, 1))\n"
        "reconnect.record_failure(0.0, random.Random(1))\n"
        "reconnect.record_success()\n"
        "print(reconnect.failures)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == f"{failures}\n"


def test_a_compiled_module_runs_from_its_source() -> None:
    program = (
        "from verify.mutation.mutations import MUTATIONS\n"
        "from verify.mutation.planting import plant\n"
        "plant(MUTATIONS['last-timestamp-taken-for-latest'])\n"
        "from aiokafkawire.records import _kernel\n"
        "print(_kernel.__file__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.endswith("_kernel.py\n")
