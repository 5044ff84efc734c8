"""Install what `make dist` built into clean environments, and use it there.

python -m tests.distribution --python python3.11 --python python3.13 dist
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

INSTALLED = Path(__file__).with_name("installed.py")
EXTRAS = "[cli]"
NO_COMPILER = {"CC": "false", "CXX": "false"}
BUILD_S = 600


def run(*command: str | Path, **environment: str) -> str:
    """Run a command away from the checkout, whose package it must not see; give its output."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    inherited.pop("AIOKAFKAWIRE_REQUIRE_EXT", None)
    return subprocess.run(
        list(map(str, command)),
        cwd=tempfile.gettempdir(),
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=BUILD_S,
    ).stdout


def tag_of(python: str) -> str:
    code = "import sys; print('cp%d%d' % sys.version_info[:2])"
    return run(python, "-c", code).strip()


def wheel_for(python: str, sdist: Path, place: Path) -> Path:
    """The wheel beside the source distribution, or one that this Python builds from it."""
    tag = tag_of(python)
    for wheel in sdist.parent.glob(f"*-{tag}-{tag}-*.whl"):
        return wheel
    pip_wheel = (python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, sdist)
    run(*pip_wheel, AIOKAFKAWIRE_REQUIRE_EXT="1")
    return next(place.glob("*.whl"))


def install_and_use(python: str, archive: Path, kernel: str, **environment: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        run(python, "-m", "venv", place)
        inside = Path(place) / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        pip = (inside, "-m", "pip", "install", "--quiet", "--no-cache-dir")
        run(*pip, f"{archive}{EXTRAS}", **environment)
        print(f"{archive.name}: {run(inside, INSTALLED, kernel).strip()}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="tests.distribution")
    parser.add_argument("--python", action="append", required=True)
    parser.add_argument("dist", type=Path)
    given = parser.parse_args(arguments)
    (sdist,) = given.dist.resolve().glob("*.tar.gz")
    for python in given.python:
        with tempfile.TemporaryDirectory() as place:
            wheel = wheel_for(python, sdist, Path(place))
            install_and_use(python, wheel, "compiled")
        install_and_use(python, sdist, "compiled")
        install_and_use(python, sdist, "interpreted", **NO_COMPILER)


if __name__ == "__main__":
    main()
