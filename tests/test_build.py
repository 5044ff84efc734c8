"""Output of setup.py, with a C compiler and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import aiokafkawire

# A C compiler on a busy machine.
BUILD_S = 280
pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_S + 20)]

ROOT = Path(aiokafkawire.__file__).parents[1]
SCRIPT = """
import aiokafkawire
from aiokafkawire.records import kernel
print(aiokafkawire.about(), kernel.COMPILED)
"""


PACKAGES = ("aiokafkawire", "pyspark_aiokafkawire")
FOR_TESTS = ("tests", "verify", "docs", "examples", "benchmarks", ".ci", ".github")
"""What the tests read besides the package; a source distribution ships it."""


def copy_folders(place: Path, *folders: str) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    for folder in folders:
        shutil.copytree(ROOT / folder, place / folder, ignore=ignore)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the build needs, nothing built in it."""
    place = tmp_path / "project"
    copy_folders(place, *PACKAGES)
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


def test_a_wheel_contains_the_compiled_kernel(project: Path) -> None:
    built = build(project, "wheel", AIOKAFKAWIRE_REQUIRE_EXT="1")
    assert built.returncode == 0, built.stderr
    place, kernels = unpacked(project)
    assert any(name.endswith((".so", ".pyd")) for name in kernels)
    assert not place.name.endswith("-none-any")
    used = run(SCRIPT, place, {})
    assert used.stdout.endswith("kernel compiled True\n"), used.stderr
    pure = run(SCRIPT, place, {"AIOKAFKAWIRE_PURE_PYTHON": "1"})
    assert pure.stdout.endswith("kernel interpreted (AIOKAFKAWIRE_PURE_PYTHON is set) False\n")
    assert not used.stderr + pure.stderr


def test_without_a_compiler_the_wheel_is_pure_and_says_so_once(project: Path) -> None:
    """A kernel left by an earlier build is not packed."""
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
    used = run(SCRIPT, place, {})
    assert "kernel interpreted (no compiled kernel was built" in used.stdout
    assert used.stderr.count("slower") == 1


def test_the_build_fails_if_a_required_kernel_does_not_compile(project: Path) -> None:
    built = build(project, "wheel", CC="false", AIOKAFKAWIRE_REQUIRE_EXT="1")
    assert built.returncode != 0
    assert "AIOKAFKAWIRE_REQUIRE_EXT is set" in built.stderr
    assert "Install a C compiler and Python's headers" in built.stderr
    assert not list(project.glob("dist/*.whl"))


def test_a_required_kernel_needs_cython(project: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "Cython.py").write_text("raise ImportError('No Cython here')")
    path = str(tmp_path / "hidden")
    built = build(project, "wheel", AIOKAFKAWIRE_REQUIRE_EXT="1", PYTHONPATH=path)
    assert built.returncode != 0
    assert "cannot be built: No Cython here. Install 'Cython>=3.1'" in built.stderr


def test_an_old_setuptools_is_rejected_with_the_minimum(project: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "setuptools.py").write_text("__version__ = '69.5.1'")
    environment = {"PYTHONPATH": str(tmp_path / "old")}
    built = run("exec(open('setup.py').read())", project, environment)
    assert built.returncode == 1
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert {Requirement(one).name for one in asked} == {"setuptools", "Cython"}
    for requirement in asked:
        assert f"'{requirement}'" in built.stderr
    assert "not 69.5.1" in built.stderr


def sources_of(place: Path, *folders: str) -> set[str]:
    """Files of some folders that a checkout would hold."""
    made = {".pyc", ".so", ".pyd"}
    return {
        path.relative_to(place).as_posix()
        for folder in folders
        for path in (place / folder).rglob("*")
        if path.is_file() and path.suffix not in made
    }


def test_a_source_distribution_is_complete(project: Path) -> None:
    copy_folders(project, *FOR_TESTS)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith((".coverage", ".git")):
            shutil.copy(path, project)
    shutil.copy(ROOT / ".gitignore", project)
    before = sources_of(project, *PACKAGES, *FOR_TESTS, ".")
    built = build(project, "sdist", CC="false")
    assert built.returncode == 0, built.stderr
    (archive,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(project.parent / "unpacked", filter="data")
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert before <= names
    assert not any(name.endswith((".c", ".so", ".pyd")) for name in names)
    (place,) = (project.parent / "unpacked").iterdir()
    collect = "import pytest, sys; sys.exit(pytest.main(['--collect-only', '-qq']))"
    collected = run(collect, place, {})
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert "tests/test_build.py: " in collected.stdout
