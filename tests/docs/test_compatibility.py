"""docs/compatibility.md agrees with the features and releases of the tests."""

from __future__ import annotations

from pathlib import Path

from tests.behaviour.features import FEATURES, MATRIX, table
from tests.brokers.releases import RELEASES
from tests.brokers.security.cases import table as security_table

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_feature_table_is_up_to_date() -> None:
    assert table(MATRIX) in PAGE.read_text(encoding="utf-8")


def test_security_table_is_up_to_date() -> None:
    assert security_table() in PAGE.read_text(encoding="utf-8")


def test_command_lists_every_tested_release() -> None:
    assert f'make test-brokers KAFKA="{" ".join(MATRIX)}"' in PAGE.read_text(encoding="utf-8")
    assert set(MATRIX) <= set(RELEASES)


def test_a_removed_feature_has_a_first_and_a_last_release() -> None:
    found = [version for version in MATRIX if FEATURES["offsets in ZooKeeper"].on(version)]
    assert (found[0], found[-1]) == ("0.8.1.1", "2.8.2")
