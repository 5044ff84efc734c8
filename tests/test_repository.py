"""Files beside the package: requirements, and the scripts of CI and releases."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NEWEST = ROOT / ".ci" / "newest-python"
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="bash scripts")


OF_THE_API = ("opentelemetry-sdk", "opentelemetry-semantic-conventions")
"""Tools of the tests that need one release of opentelemetry-api each."""


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {one.name: str(one.specifier).removeprefix("==") for one in wanted}


def test_the_lowest_versions_are_those_of_the_package():
    asked = [*PROJECT["dependencies"]]
    for name, extra in PROJECT["optional-dependencies"].items():
        if name == "gssapi":
            continue  # It cannot be installed without the system's Kerberos library.
        asked += [one for one in extra if not one.startswith("aiokafkawire[")]
    bounds = {(one.name, str(one.specifier).removeprefix(">=")) for one in map(Requirement, asked)}
    lowest = pins("requirements-lowest.txt").items()
    assert bounds == {(name, version) for name, version in lowest if name not in OF_THE_API}


def test_what_is_lowest_replaces_a_pin_of_the_tests():
    assert pins("requirements-lowest.txt").keys() <= pins("requirements-dev.txt").keys()


def test_classifiers_name_the_pythons_that_are_built_and_tested():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    assert [f"cp{version.replace('.', '')}-*" for version in named] == tool["cibuildwheel"]["build"]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert f"python: {named}".replace("'", '"') in workflow
    assert PROJECT["requires-python"] == f">={named[0]}"


def fake_python(folder: Path, version: str, exit_code: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / f"python{version}"
    python.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    python.chmod(0o755)
    return python


def newest(path: Path, pyenv: Path) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash is not None
    # Not the whole PATH: the machine may have a newer Python of its own there.
    (path / "bash").symlink_to(bash)
    return subprocess.run(
        [str(NEWEST)],
        env={"PATH": str(path), "PYENV_ROOT": str(pyenv), "HOME": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@posix_only
def test_a_broken_python_is_passed_over_for_one_of_pyenv(tmp_path: Path):
    fake_python(tmp_path / "bin", "3.14", 1)  # pyenv's shim of a version that is not selected
    wanted = fake_python(tmp_path / "pyenv" / "versions" / "3.14.1" / "bin", "3.14", 0)
    fake_python(tmp_path / "bin", "3.13", 0)
    found = newest(tmp_path / "bin", tmp_path / "pyenv")
    assert (found.returncode, found.stdout) == (0, f"{wanted}\n")


@posix_only
def test_an_older_python_is_taken_where_there_is_no_newer(tmp_path: Path):
    for version in ("3.14", "3.13"):
        fake_python(tmp_path / "bin", version, 1)
    wanted = fake_python(tmp_path / "bin", "3.12", 0)
    assert newest(tmp_path / "bin", tmp_path / "none").stdout == f"{wanted}\n"


@posix_only
def test_without_a_usable_python_the_script_fails(tmp_path: Path):
    for version in ("3.14", "3.13", "3.12"):
        fake_python(tmp_path / "bin", version, 1)
    found = newest(tmp_path / "bin", tmp_path / "none")
    assert (found.returncode, found.stdout) == (1, "")


class Repository:
    """A repository that is ready to be released, with a `make dist` of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for folder in (".ci", "aiokafkawire"):
            (place / folder).mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "release", place / ".ci")
        (place / ".gitignore").write_text("dist/\n")
        (place / "aiokafkawire" / "_version.py").write_text('__version__ = "1.2.3"\n')
        (place / "CHANGELOG.md").write_text(
            "## [Unreleased]\n\n## [1.2.3] - 2030-01-02\n\n- New.\n\n## [1.0.0]\n\n- Old.\n"
        )
        (place / "Makefile").write_text(
            "dist:\n\t@mkdir -p dist && touch dist/aiokafkawire-1.2.3.tar.gz\n"
        )
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(
            ["git", *who, *arguments],
            cwd=self.place,
            check=True,
            timeout=30,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def release(self, version: str = "1.2.3") -> subprocess.CompletedProcess[str]:
        names = {
            f"GIT_{who}_{what}": "a@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
        return subprocess.run(
            [str(self.place / ".ci" / "release"), version],
            env={**environment, **names},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


@posix_only
def test_a_release_is_tagged_and_not_pushed(repository: Repository):
    released = repository.release()
    assert released.returncode == 0, released.stderr
    assert "git push origin v1.2.3" in released.stdout
    assert repository.git("tag", "--list") == "v1.2.3\n"
    again = repository.release()
    assert "v1.2.3 exists already" in again.stderr


@posix_only
def test_no_release_without_a_version(repository: Repository):
    assert "name the version" in repository.release("").stderr
    assert "_version.py does not say 1.2.4" in repository.release("1.2.4").stderr
    assert repository.git("tag", "--list") == ""


@posix_only
def test_no_release_of_a_changed_tree(repository: Repository):
    (repository.place / "new").write_text("")
    assert "commit them first" in repository.release().stderr
    assert repository.git("tag", "--list") == ""


@posix_only
@pytest.mark.parametrize(
    "text",
    ["## [1.2.3]\n\n- New.\n", "## [1.2.3] - 2030-01-02\n\n## [1.0.0] - 2029-01-02\n\n- Old.\n"],
)
def test_no_release_without_its_section_of_the_changelog(repository: Repository, text: str):
    (repository.place / "CHANGELOG.md").write_text(text)
    repository.commit()
    assert "CHANGELOG.md has no section" in repository.release().stderr
    assert repository.git("tag", "--list") == ""


@posix_only
def test_no_release_of_other_files_than_the_version(repository: Repository):
    (repository.place / "Makefile").write_text("dist:\n\t@mkdir -p dist\n")
    repository.commit()
    assert "was not built" in repository.release().stderr
    assert repository.git("tag", "--list") == ""


def test_each_folder_and_public_module_of_the_package_is_an_area_of_commits():
    hook = (ROOT / ".githooks" / "commit-msg").read_text("utf-8")
    (areas,) = re.findall(r'^AREAS="(.*)"$', hook, re.MULTILINE)
    package = ROOT / "aiokafkawire"
    found = [path.parent for path in package.glob("*/__init__.py")]
    found += package.glob("[a-z]*.py")
    assert {path.stem for path in found} <= {*areas.split("|")}


LONG_CHANGE = "\n" * 30


@posix_only
@pytest.mark.parametrize(
    ("message", "change", "refusal"),
    [
        ("producer: retry after an epoch bump", "x", None),
        ("producer: retry after an epoch bump\n\nKafka 0.11 answers 47.", LONG_CHANGE, None),
        ("producer: retry\n# a comment of git", "x", None),
        ("fixup! whatever it was", LONG_CHANGE, None),
        ("Retry after an epoch bump", "x", "begin with an area"),
        ("kitchen: retry", "x", "begin with an area"),
        ("producer: Retry", "x", "lower-case verb"),
        ("producer: retry.", "x", "full stop"),
        ("producer: " + "r" * 63, "x", "at most 72"),
        ("producer: retry\nKafka 0.11 answers 47.", "x", "second line"),
        ("producer: retry", LONG_CHANGE, "30 lines change"),
        ("producer: retry\n\n# no body", LONG_CHANGE, "30 lines change"),
    ],
)
def test_the_hook_checks_a_commit_message(
    tmp_path: Path, message: str, change: str, refusal: str | None
):
    repository = Repository(tmp_path)
    (tmp_path / "changed").write_text(change)
    repository.git("add", "changed")
    (tmp_path / "message").write_text(message, "utf-8")
    checked = subprocess.run(
        [ROOT / ".githooks" / "commit-msg", "message"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert checked.returncode == (0 if refusal is None else 1), checked.stderr
    assert (refusal or "") in checked.stderr
