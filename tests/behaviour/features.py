"""Which release of Kafka brought what a test of behaviour is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.brokers.releases import number_of

__all__ = ["FEATURES", "Feature", "needs", "not_applicable", "without"]


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that brokers have from a release on, and what there is before."""

    since: str
    before: str


FEATURES: Mapping[str, Feature] = {
    "topic settings": Feature("0.8.1", "topics have no settings of their own"),
    "offsets": Feature("0.8.1", "brokers keep no offsets"),
    "offsets in Kafka": Feature("0.8.2", "offsets are kept in ZooKeeper"),
    "LZ4": Feature("0.8.2", "there is no LZ4"),
    "groups": Feature("0.9", "partitions are assigned by hand"),
    "timestamps": Feature("0.10", "records have no timestamps"),
    "long sessions": Feature("0.10", "sessions are 30 s at most unless the broker is told so"),
    "search by time": Feature("0.10.1", "offsets are found by the age of files alone"),
    "headers": Feature("0.11", "records have no headers"),
    "leader epochs": Feature("0.11", "records tell no leader epoch"),
    "idempotence": Feature("0.11", "producers have no ids"),
    "read_committed": Feature("0.11", "there are no transactions"),
    "creation off": Feature("0.11", "a broker that makes topics makes all that are asked for"),
    "stable offset": Feature("2.0", "the last stable offset is told with read_committed alone"),
    "Zstandard": Feature("2.1", "there is no Zstandard"),
    "committed epochs": Feature("2.1", "a commit bears no leader epoch"),
    "static members": Feature("2.3", "members have no names of their own"),
    "KRaft": Feature("3.0", "there is ZooKeeper to keep offsets in"),
}
"""The releases from which on a broker has them."""

needs = pytest.mark.needs
"""`@needs("headers")`: the test does not apply to releases that lack one of these features."""

without = pytest.mark.without
"""`@without("headers", as_of="0.10")`: the test is about releases that lack the feature. The
embedded broker is that release there."""


def not_applicable(version: str, item: pytest.Item) -> str | None:
    """Why a test does not apply to a release; None if it does."""

    def has(name: str) -> bool:
        return number_of(version) >= number_of(FEATURES[name].since)

    missing = [name for mark in item.iter_markers("needs") for name in mark.args if not has(name)]
    if missing:
        # The feature that came last is what a reader wants to know.
        name = max(missing, key=lambda each: number_of(FEATURES[each].since))
        feature = FEATURES[name]
        return f"not on {version}: {name} came with {feature.since}; before, {feature.before}"
    for mark in item.iter_markers("without"):
        [name] = mark.args
        if has(name):
            return f"not on {version}: it has {name}, since {FEATURES[name].since}"
    return None
