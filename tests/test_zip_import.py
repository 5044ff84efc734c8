"""The package as `spark-submit --py-files` hands it to workers: a zip file on the path."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

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


def test_the_reason_for_the_interpreted_kernel_is_the_zip(tmp_path):
    archive = shutil.make_archive(
        str(tmp_path / "aiokafkawire"), "zip", PACKAGE.parent, PACKAGE.name
    )
    command = [sys.executable, "-P", "-c", READ, archive]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )
    warning, file, about = ran.stdout.splitlines()
    assert file.startswith(archive)
    reason = "aiokafkawire is imported from a zip file, and Python cannot load a compiled kernel"
    assert reason in warning
    assert f"kernel interpreted ({reason}" in about
    assert "C compiler" not in ran.stdout
