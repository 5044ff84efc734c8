"""The features that each release of Kafka supports, and those that its clusters have (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiokafkawire.broker.releases import Release

__all__ = ("ELIGIBLE_REPLICAS_VERSION", "TRANSACTION_VERSION", "Feature", "finalized", "supported")

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
ELIGIBLE_REPLICAS_VERSION = "eligible.leader.replicas.version"


class Feature(NamedTuple):
    """The levels of a feature that a release supports, and the one that its new clusters have."""

    name: str
    low: int
    high: int
    level: int


_METADATA: Mapping[str, tuple[int, int]] = {
    "3.3": (1, 7),
    "3.4": (1, 8),
    "3.5": (1, 11),
    "3.6": (1, 14),
    "3.7": (1, 19),
    "3.8": (1, 20),
    "3.9": (1, 21),
    "4.0": (7, 25),
    "4.1": (7, 27),
    "4.2": (7, 29),
    "4.3": (7, 30),
}
"""The lowest and the highest metadata.version. Before them there was ZooKeeper."""

_OTHERS: tuple[tuple[str, Feature], ...] = (
    ("3.9", Feature("kraft.version", 0, 1, 1)),
    ("4.0", Feature(TRANSACTION_VERSION, 0, 2, 2)),
    ("4.0", Feature("group.version", 0, 1, 1)),
    ("4.0", Feature(ELIGIBLE_REPLICAS_VERSION, 0, 1, 0)),
    ("4.1", Feature(ELIGIBLE_REPLICAS_VERSION, 0, 1, 1)),
    ("4.1", Feature("share.version", 0, 1, 0)),
    ("4.2", Feature("share.version", 0, 1, 1)),
    ("4.2", Feature("streams.version", 0, 1, 1)),
)
"""Since which release there is what."""


def supported(release: Release) -> list[Feature]:
    """What a release supports."""
    found: dict[str, Feature] = {}
    for since, (low, high) in _METADATA.items():
        if release.since(since):
            found[METADATA_VERSION] = Feature(METADATA_VERSION, low, high, high)
    for since, feature in _OTHERS:
        if release.since(since):
            found[feature.name] = feature
    return list(found.values())


def finalized(release: Release) -> Mapping[str, int]:
    """The levels that a cluster of a release has; level 0 is not told."""
    return {feature.name: feature.level for feature in supported(release) if feature.level}
