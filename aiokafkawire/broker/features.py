"""Features that each Kafka release supports and finalizes (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiokafkawire.broker.releases import Release

__all__ = (
    "ELIGIBLE_REPLICAS_VERSION",
    "GROUP_VERSION",
    "METADATA_VERSION",
    "SHARE_VERSION",
    "TRANSACTION_VERSION",
    "Feature",
    "finalized",
    "supported",
)

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
ELIGIBLE_REPLICAS_VERSION = "eligible.leader.replicas.version"


class Feature(NamedTuple):
    """Supported levels of a feature, and the finalized level of a new cluster."""

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
    "4.4": (7, 33),
}
"""Lowest and highest metadata.version. Earlier releases use ZooKeeper."""

_OTHERS: tuple[tuple[str, Feature], ...] = (
    ("3.9", Feature("kraft.version", 0, 1, 1)),
    ("4.0", Feature(TRANSACTION_VERSION, 0, 2, 2)),
    ("4.0", Feature(GROUP_VERSION, 0, 1, 1)),
    ("4.0", Feature(ELIGIBLE_REPLICAS_VERSION, 0, 1, 0)),
    ("4.1", Feature(ELIGIBLE_REPLICAS_VERSION, 0, 1, 1)),
    ("4.1", Feature(SHARE_VERSION, 0, 1, 0)),
    ("4.2", Feature(SHARE_VERSION, 0, 1, 1)),
    ("4.2", Feature("streams.version", 0, 1, 1)),
    ("4.4", Feature(SHARE_VERSION, 0, 2, 2)),
)
"""Release that introduced each level."""


def supported(release: Release) -> list[Feature]:
    """Return the supported features of a release."""
    features: dict[str, Feature] = {}
    for since, (low, high) in _METADATA.items():
        if release.since(since):
            features[METADATA_VERSION] = Feature(METADATA_VERSION, low, high, high)
    for since, feature in _OTHERS:
        if release.since(since):
            features[feature.name] = feature
    return list(features.values())


def finalized(release: Release) -> Mapping[str, int]:
    """Return the finalized levels of a release's cluster; level 0 is left out."""
    return {feature.name: feature.level for feature in supported(release) if feature.level}
