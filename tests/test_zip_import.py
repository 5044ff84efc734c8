"""The package in a zip file on the path, as `spark-submit --py-files` ships it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aiokafkawire

PACKAGE = Path(aiokafkawire.__file__).parent

READ = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
sys.path.insert(0, sys.argv[1])
import aiokafkawire, aiokafkawire.records
print(aiokafkawire.__file__)
print(aiokafkawire.about())
"""


@pytest.fixture
def archive(tmp_path: Path) -> str:
    return shutil.make_archive(str(tmp_path / "aiokafkawire"), "zip", PACKAGE.parent, PACKAGE.name)


def import_from(archive: str, **environment: str) -> list[str]:
    """Import the package from a zip file in another process; return the lines it prints."""
    ran = subprocess.run(
        [sys.executable, "-P", "-c", READ, archive],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(archive).parent,
        env={**os.environ, "AIOKAFKAWIRE_PURE_PYTHON": "0", **environment},
    )
    return ran.stdout.splitlines()


def test_the_reason_for_the_interpreted_kernel_is_the_zip(archive: str):
    warning, file, about = import_from(archive)
    assert file.startswith(archive)
    reason = "aiokafkawire is imported from a zip file, and Python cannot load a compiled kernel"
    assert reason in warning
    assert f"kernel interpreted ({reason}" in about
    assert "C compiler" not in warning + about


def test_the_interpreted_kernel_can_be_requested_in_a_zip(archive: str):
    file, about = import_from(archive, AIOKAFKAWIRE_PURE_PYTHON="1")
    assert file.startswith(archive)
    assert "kernel interpreted (AIOKAFKAWIRE_PURE_PYTHON is set)" in about
