from __future__ import annotations

import anyio
import pytest

from aiokafkawire.cli import progress as module
from aiokafkawire.cli.progress import ERASE_LINE, Progress


async def test_it_counts_on_stderr_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UPDATE_INTERVAL_S", 0.01)
    shown = ""
    async with Progress("records", shown=True) as progress:
        progress.count = 1234
        with anyio.fail_after(30):
            while "1,234" not in shown:
                await anyio.lowlevel.checkpoint()
                shown += capsys.readouterr().err
    assert f"{ERASE_LINE}% 1,234 records, " in shown
    shown += capsys.readouterr().err
    assert shown.endswith(ERASE_LINE)


async def test_without_a_terminal_it_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with Progress("records", shown=False) as progress:
        progress.count = 5
    assert capsys.readouterr().err == ""
