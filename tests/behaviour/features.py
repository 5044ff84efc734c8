"""Which release of Kafka brought what a test of behaviour is about.

`python -m tests.behaviour.features` prints the table of docs/compatibility.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from aiokafkawire.broker.apis import HANDLERS
from aiokafkawire.wire import ApiKey
from tests.brokers.releases import RELEASES, Mode, number_of

__all__ = [
    "FEATURES",
    "MATRIX",
    "Feature",
    "needs",
    "not_applicable",
    "release_wanted",
    "table",
    "without",
]

MATRIX = (
    *("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3"),
    *("1.1.1", "2.1.1", "2.8.2", "3.3.2", "3.9.1", "4.0.0", "4.3.0"),
)
"""Releases that the behaviour tests run on."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that brokers have from one release on, until another; and the behaviour without
    it."""

    since: str
    otherwise: str
    until: str | None = None
    with_kraft: str | None = None
    """First release that has it without ZooKeeper, if that is later."""
    apis: tuple[ApiKey, ...] = ()
    """APIs without which the embedded broker does not have it."""

    def on(self, version: str) -> bool:
        """Return whether a release has it."""
        number = number_of(version)
        ended = self.until is not None and number >= number_of(self.until)
        return number >= number_of(self.first_on(version)) and not ended

    def first_on(self, version: str) -> str:
        """Return the first release that has it in clusters like that of a release."""
        # The embedded broker can be releases that cannot be started.
        release = RELEASES.get(version)
        is_kraft = release is not None and release.mode is Mode.KRAFT
        return self.with_kraft if is_kraft and self.with_kraft is not None else self.since


FEATURES: Mapping[str, Feature] = {
    "topic settings": Feature("0.8.1", "topics have no settings of their own"),
    "offsets": Feature("0.8.1", "brokers keep no offsets"),
    "offsets in ZooKeeper": Feature("0.8.1", "there is no such place for offsets", until="3.0"),
    "offsets in Kafka": Feature("0.8.2", "offsets are kept in ZooKeeper"),
    "LZ4": Feature("0.8.2", "there is no LZ4"),
    "groups": Feature("0.9", "partitions are assigned by hand"),
    "timestamps": Feature("0.10", "records have no timestamps"),
    "long sessions": Feature("0.10", "sessions are 30 s at most unless the broker allows more"),
    "changing topics": Feature("0.10.1", "topics are created by Kafka's own tools alone"),
    "search by time": Feature("0.10.1", "offsets are found by the age of files alone"),
    "all committed offsets": Feature("0.10.2", "offsets are listed by partition alone"),
    "deleting records": Feature(
        "0.11", "records go by age and size alone", apis=(ApiKey.DELETE_RECORDS,)
    ),
    "configs by request": Feature(
        "0.11", "configs are changed by Kafka's own tools alone", apis=(ApiKey.ALTER_CONFIGS,)
    ),
    "headers": Feature("0.11", "records have no headers"),
    "leader epochs": Feature("0.11", "records have no leader epoch"),
    "idempotence": Feature("0.11", "producers have no ids"),
    "transactions": Feature("0.11", "all records are committed ones"),
    "adding partitions": Feature("1.0", "partitions are added by Kafka's own tools alone"),
    "log directories": Feature(
        "1.0", "directories are visible on the broker alone", apis=(ApiKey.DESCRIBE_LOG_DIRS,)
    ),
    "deleting groups": Feature("1.1", "groups disappear when their offsets expire"),
    "stable offset": Feature("2.0", "the last stable offset is returned with read_committed only"),
    "Zstandard": Feature("2.1", "there is no Zstandard"),
    "committed epochs": Feature("2.1", "a commit bears no leader epoch"),
    "errors of configs": Feature("2.0", "a topic that does not exist has the default configs"),
    "authorized operations": Feature("2.3", "brokers do not report what a principal may do"),
    "static members": Feature("2.3", "members have no names of their own"),
    "removing static members": Feature("2.4", "static members leave by session timeout alone"),
    "deleting offsets": Feature("2.4", "committed offsets disappear when they expire"),
    "reassignments": Feature(
        "2.4",
        "partitions are moved by Kafka's own tools alone",
        apis=(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS),
    ),
    "stable committed offsets": Feature("2.5", "offsets of open transactions are not waited for"),
    "fencing by group": Feature("2.5", "offsets in a transaction bear no generation"),
    "group states": Feature("2.6", "groups are listed without their state"),
    "quotas": Feature("2.6", "quotas are changed in ZooKeeper"),
    "SCRAM users": Feature(
        "2.7", "SCRAM credentials are changed in ZooKeeper, or not at all", with_kraft="3.5"
    ),
    "listing transactions": Feature("3.0", "coordinators do not list transactions"),
    "search by highest timestamp": Feature("3.0", "offsets are found by a given time alone"),
    "topic ids": Feature("3.1", "topics have names alone"),
    "metadata quorum": Feature(
        "3.3", "metadata is in ZooKeeper", apis=(ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES)
    ),
    "local offsets": Feature("3.9", "all records are on the brokers' disks"),
    "consumer protocol": Feature(
        "4.0", "members balance the group themselves", apis=(ApiKey.CONSUMER_GROUP_HEARTBEAT,)
    ),
    "transactions of KIP-890": Feature("4.0", "partitions are added to transactions by name"),
    "share groups": Feature(
        "4.2", "records are read by one member of a group", apis=(ApiKey.SHARE_FETCH,)
    ),
    "config resources": Feature(
        "4.1", "resources with configs are not listed", apis=(ApiKey.LIST_CONFIG_RESOURCES,)
    ),
}
"""Features that tests name; features of every release are not listed."""

needs = pytest.mark.needs
"""`@needs("headers")`: the test does not apply to releases that lack one of these features."""

without = pytest.mark.without
"""`@without("headers", as_of="0.10")`: the test is about releases that lack the feature. With
`as_of` the embedded broker is that release in a test; `needs` may say it too."""


def not_applicable(version: str, item: pytest.Item) -> str | None:
    """Return the reason why a test does not apply to a release; None if it does."""
    wanted = [name for mark in item.iter_markers("needs") for name in mark.args]
    missing = [name for name in wanted if not FEATURES[name].on(version)]
    if missing:
        # The newest feature is the most informative reason.
        name = max(missing, key=lambda each: number_of(FEATURES[each].since))
        feature = FEATURES[name]
        span = f"from {feature.first_on(version)}" + (
            f" to before {feature.until}" if feature.until else " on"
        )
        return f"not on {version}: {name} ({span}); {feature.otherwise}"
    for mark in item.iter_markers("without"):
        [name] = mark.args
        if FEATURES[name].on(version):
            return f"not on {version}: it has {name}, since {FEATURES[name].since}"
    return None


def embedded_lacks(item: pytest.Item, as_of: str | None = None) -> bool:
    """Return whether the embedded broker, as of a release, lacks a feature that a test needs."""
    wanted = [FEATURES[name] for mark in item.iter_markers("needs") for name in mark.args]
    if as_of is not None and not all(feature.on(as_of) for feature in wanted):
        return True
    return any(api not in HANDLERS for feature in wanted for api in feature.apis)


def release_wanted(item: pytest.Item) -> str | None:
    """Return the release of the embedded broker in a test."""
    marks = [*item.iter_markers("needs"), *item.iter_markers("without")]
    return next((mark.kwargs["as_of"] for mark in marks if mark.kwargs), None)


def table(versions: Sequence[str]) -> str:
    """Return features and releases as the table in docs/compatibility.md."""
    rows = [["", *versions], ["---", *[":-:" for _ in versions]]]
    for name, feature in FEATURES.items():
        marks = ["yes" if feature.on(version) else "–" for version in versions]
        rows.append([name, *marks])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table(MATRIX))
