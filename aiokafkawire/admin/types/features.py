"""Arguments and results of the operations on features (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

__all__ = (
    "FeatureMetadata",
    "FeatureUpdate",
    "FeatureUpgradeType",
    "FinalizedVersionRange",
    "SupportedVersionRange",
)


@dataclass(frozen=True, slots=True)
class FinalizedVersionRange:
    """Levels of a feature that are finalized for the cluster, both ends included."""

    min_version_level: int
    max_version_level: int


@dataclass(frozen=True, slots=True)
class SupportedVersionRange:
    """Versions of a feature that a broker supports, both ends included."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """Features of the cluster and of the broker that answered.

    Attributes:
        finalized_features: Finalized levels by feature.
        finalized_features_epoch: Epoch of the finalized levels; None if there are none.
        supported_features: Versions that the broker supports, by feature.
    """

    finalized_features: Mapping[str, FinalizedVersionRange]
    finalized_features_epoch: int | None
    supported_features: Mapping[str, SupportedVersionRange]


class FeatureUpgradeType(IntEnum):
    """Permission to lower the level of a feature, with Kafka's number."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """Lower it if no metadata is lost."""

    UNSAFE_DOWNGRADE = 3
    """Lower it even if metadata is lost."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """New level of a feature for `update_features`; level 0 disables it."""

    max_version_level: int
    upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UPGRADE
