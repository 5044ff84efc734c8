"""Which release of Kafka brought what a test of behaviour is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.brokers.releases import number_of

__all__ = ["FEATURES", "Feature", "lacking", "needs"]


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that brokers have from a release on, and what there is before."""

    since: str
    before: str


FEATURES: Mapping[str, Feature] = {
    "topic settings": Feature("0.8.1", "topics have no settings of their own"),
    "offsets": Feature("0.8.1", "the broker stores no offsets: commit raises UnsupportedVersion"),
    "offsets in Kafka": Feature("0.8.2", "there is no coordinator to commit to"),
    "groups": Feature("0.9", "there are no groups: partitions are assigned by hand"),
    "LZ4": Feature("0.8.2", "there is no LZ4"),
    "timestamps": Feature("0.10", "records have no timestamps"),
    "search by time": Feature("0.10.1", "offsets are found by the age of files alone"),
    "rebalance timeout": Feature("0.10.1", "a member has its session timeout to join again"),
    "headers": Feature("0.11", "records have no headers"),
    "leader epochs": Feature("0.11", "records tell no leader epoch"),
    "idempotence": Feature("0.11", "producers have no ids"),
    "read_committed": Feature("0.11", "there are no transactions"),
    "creation off": Feature("0.11", "a broker that makes topics makes all that are asked for"),
    "committed epochs": Feature("2.1", "a commit bears no leader epoch"),
    "Zstandard": Feature("2.1", "there is no Zstandard"),
    "static members": Feature("2.3", "a member has no name of its own"),
}
"""The releases from which on a broker has them."""

needs = pytest.mark.needs
"""`@needs("headers")`: the test does not apply to releases that lack one of these features."""


def lacking(version: str, item: pytest.Item) -> str | None:
    """Why a test does not apply to a release; None if it does."""
    wanted = [name for mark in item.iter_markers("needs") for name in mark.args]
    missing = [name for name in wanted if number_of(version) < number_of(FEATURES[name].since)]
    if not missing:
        return None
    # The feature that came last is what a reader wants to know.
    name = max(missing, key=lambda each: number_of(FEATURES[each].since))
    feature = FEATURES[name]
    return f"not on {version}: {name} came with {feature.since}; before, {feature.before}"
