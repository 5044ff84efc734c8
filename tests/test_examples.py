"""The examples run and print the expected output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"

LAST_WORDS = {
    "web_backend.py": "lifespan.shutdown.complete",
    "group_worker.py": "1000 orders billed",
    "transactional_worker.py": "1000 invoices for 1000 orders",
    "on_trio.py": "b'hello from trio'",
}


PROJECTS = sorted(path.parent.name for path in EXAMPLES.glob("web/*/requirements.txt"))


def test_every_example_has_a_test():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(LAST_WORDS)


@pytest.mark.parametrize("name", LAST_WORDS)
def test_an_example_runs(name: str):
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] == LAST_WORDS[name]


@pytest.mark.parametrize("name", PROJECTS)
def test_a_web_project_passes_its_tests(name: str):
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=EXAMPLES / "web" / name,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_web_project_is_listed():
    assert len(PROJECTS) == 5
    page = (EXAMPLES / "web" / "README.md").read_text("utf-8")
    assert all(f"| `{name}/` |" in page for name in PROJECTS)
