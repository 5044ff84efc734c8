"""The command that cuts connections of share consumers."""

from __future__ import annotations

import pytest

from aiokafkawire.broker.share.share_partition_manager import SharePartitionManager
from verify.simulation.cut_connections import cut_connections, main


def test_no_lock_leaks_when_connections_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(150, 3) == 0
    assert "0 leaked" in capsys.readouterr().out


def test_locks_that_outlive_their_session_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharePartitionManager, "disconnect", lambda *arguments: None)
    run = cut_connections(60, 3)
    assert run.leaked
