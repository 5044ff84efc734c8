"""The page about releases says what the tests know."""

from __future__ import annotations

from pathlib import Path

from tests.behaviour.features import FEATURES, MATRIX, table
from tests.brokers.releases import RELEASES

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_table_of_features_is_that_of_the_tests() -> None:
    assert table(MATRIX) in PAGE.read_text(encoding="utf-8")


def test_the_command_names_every_release_that_is_run() -> None:
    assert f'make test-brokers KAFKA="{" ".join(MATRIX)}"' in PAGE.read_text(encoding="utf-8")
    assert set(MATRIX) <= set(RELEASES)


def test_a_feature_that_ended_is_not_there_any_more() -> None:
    found = [version for version in MATRIX if FEATURES["offsets in ZooKeeper"].on(version)]
    assert (found[0], found[-1]) == ("0.8.1.1", "2.8.2")
