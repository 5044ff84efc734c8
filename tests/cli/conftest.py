from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiokafkawire.cli.application import run

from .shell import serving

Cli = Callable[..., tuple[int, bytes, str]]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker in a process of its own, whose topics have three partitions."""
    with serving("--partitions", "3", "--nodes", "2") as (addresses, _):
        yield addresses


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Run a command in this process: its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, bytes, str]:
        code = run(arguments)
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return call


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[bytes], str]:
    """A file of this content, to be produced with -l."""

    def write(data: bytes) -> str:
        path = tmp_path / "input"
        path.write_bytes(data)
        return str(path)

    return write
