"""What setup.py builds, with a C compiler and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import aiokafkawire

# A C compiler on a busy machine.
BUILD_S = 280
pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_S + 20)]

ROOT = Path(aiokafkawire.__file__).parents[1]
TELL = """
import aiokafkawire
from aiokafkawire.records import kernel
print(aiokafkawire.about(), kernel.COMPILED)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the build needs, nothing built in it."""
    place = tmp_path / "project"
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    for package in ("aiokafkawire", "pyspark_aiokafkawire"):
        shutil.copytree(ROOT / package, place / package, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    return place


def build(project: Path, what: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"from setuptools import build_meta as b; print(b.build_{what}('dist'))"
    return run(code, project, environment)


def run(code: str, place: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    names = {"AIOKAFKAWIRE_REQUIRE_EXT": "0", "AIOKAFKAWIRE_PURE_PYTHON": "0", **environment}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )


def unpacked(project: Path) -> tuple[Path, list[str]]:
    (wheel,) = (project / "dist").glob("*.whl")
    place = project.parent / wheel.stem
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
        return place, [name for name in archive.namelist() if "/_kernel." in name]


def test_a_wheel_holds_the_compiled_kernel(project: Path) -> None:
    built = build(project, "wheel", AIOKAFKAWIRE_REQUIRE_EXT="1")
    assert built.returncode == 0, built.stderr
    place, kernels = unpacked(project)
    assert any(name.endswith((".so", ".pyd")) for name in kernels)
    assert not place.name.endswith("-none-any")
    used = run(TELL, place, {})
    assert used.stdout.endswith("kernel compiled True\n"), used.stderr
    pure = run(TELL, place, {"AIOKAFKAWIRE_PURE_PYTHON": "1"})
    assert pure.stdout.endswith("kernel interpreted (AIOKAFKAWIRE_PURE_PYTHON is set) False\n")
    assert not used.stderr + pure.stderr


def test_without_a_compiler_the_wheel_is_pure_and_says_so_once(project: Path) -> None:
    """What an earlier build left is not taken for a kernel."""
    platform = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    left = project / f"build/lib.{platform}/aiokafkawire/records/_kernel{EXTENSION_SUFFIXES[0]}"
    left.parent.mkdir(parents=True)
    left.write_text("")
    built = build(project, "wheel", CC="false")
    assert built.returncode == 0, built.stderr
    assert "no compiled kernel" in built.stderr
    place, kernels = unpacked(project)
    assert place.name.endswith("-py3-none-any")
    assert not any(name.endswith((".so", ".pyd")) for name in kernels)
    used = run(TELL, place, {})
    assert "kernel interpreted (no compiled kernel was built" in used.stdout
    assert used.stderr.count("slower") == 1


def test_a_kernel_that_is_required_must_build(project: Path) -> None:
    built = build(project, "wheel", CC="false", AIOKAFKAWIRE_REQUIRE_EXT="1")
    assert built.returncode != 0
    assert not list(project.glob("dist/*.whl"))


def test_a_source_distribution_holds_the_sources_of_the_kernel(project: Path) -> None:
    built = build(project, "sdist", CC="false")
    assert built.returncode == 0, built.stderr
    (archive,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    kernel = "aiokafkawire/records/_kernel"
    assert {"setup.py", f"{kernel}.py", f"{kernel}.pxd"} <= names
    assert not any(name.endswith((".c", ".so", ".pyd")) for name in names)
