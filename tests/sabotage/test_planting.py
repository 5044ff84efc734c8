"""A planted fault is in the module that is imported, and nowhere else."""

import subprocess
import sys

import pytest

from aiokafkawire.producer import sequences
from tests.sabotage.planting import CannotPlant, Sabotage, plant

MODULE = "aiokafkawire.producer.sequences"


def test_the_text_must_stand_once() -> None:
    assert Sabotage("one", "plain", "m", "a", "b").into("cat") == "cbt"
    for source in ("dog", "banana"):
        with pytest.raises(CannotPlant, match=r"one: its text stands \d times in m"):
            Sabotage("one", "plain", "m", "a", "b").into(source)


def test_a_module_that_is_there_already_is_refused() -> None:
    assert sequences.MAX_EPOCH == 32_767
    with pytest.raises(CannotPlant, match="imported already"):
        plant(Sabotage("one", "plain", MODULE, "a", "b"))


def test_a_process_of_its_own_has_the_fault() -> None:
    program = (
        "from tests.sabotage.planting import Sabotage, plant\n"
        f"plant(Sabotage('one', 'plain', {MODULE!r}, 'MAX_EPOCH = 2**15 - 1', 'MAX_EPOCH = 7'))\n"
        f"from {MODULE} import MAX_EPOCH\n"
        "print(MAX_EPOCH)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "7\n"
