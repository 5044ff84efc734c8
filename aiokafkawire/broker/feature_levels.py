"""Finalized feature levels of a cluster, and their updates by admin clients (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.features import METADATA_VERSION, Feature, finalized, supported
from aiokafkawire.broker.releases import Release
from aiokafkawire.wire import ErrorCode

__all__ = ("FeatureChange", "FeatureLevels", "UpgradeType")

INCOMPATIBLE_METADATA_VERSIONS = frozenset({1, 3, 5, 6, 7, 8, 11, 13, 14, 15, 16, 17, 18, 23, 30})
"""Levels of metadata.version that changed the metadata log, so that they cannot be left again."""

FAILED = "The update failed for all features since the following feature had an error: "


class UpgradeType(IntEnum):
    """Permitted direction of an update, numbered as in UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """New level of a feature; the level 0 disables it."""

    feature: str
    level: int
    upgrade_type: int


class FeatureLevels:
    """Levels that differ from those of a new cluster."""

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}
        self.updates = 0

    def finalized(self, release: Release) -> dict[str, int]:
        """Return the finalized levels of a cluster whose oldest node has the release.

        Level 0 is left out.
        """
        known = {feature.name: feature for feature in supported(release)}
        levels = dict(finalized(release))
        for name, level in self._levels.items():
            if name in known and level <= known[name].high:
                levels[name] = level
        return {name: level for name, level in levels.items() if level}

    def update(
        self,
        updates: Sequence[FeatureChange],
        releases: Mapping[int, Release],
        controller_id: int,
        *,
        validate_only: bool = False,
    ) -> None:
        """Apply all updates, or none.

        Args:
            updates: New levels.
            releases: Release of each node.
            controller_id: The controller, which the error messages name.
            validate_only: Only check the updates.

        Raises:
            ApiError: An update is not possible.
        """
        oldest = min(releases.values(), key=lambda each: each.number)
        current = self.finalized(oldest)
        for update in updates:
            reason = _reason_against(update, current, releases, controller_id)
            if reason is not None:
                raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, FAILED + reason)
        if not validate_only:
            self._levels |= {update.feature: update.level for update in updates}
            self.updates += bool(updates)

    def to_json(self) -> dict[str, Any]:
        """Return the levels to store."""
        return {"levels": dict(self._levels), "updates": self.updates}

    def load(self, stored: Mapping[str, Any]) -> None:
        """Replace all levels by stored ones."""
        self._levels = {name: int(level) for name, level in stored.get("levels", {}).items()}
        self.updates = int(stored.get("updates", 0))


def _reason_against(
    update: FeatureChange,
    current: Mapping[str, int],
    releases: Mapping[int, Release],
    controller_id: int,
) -> str | None:
    """Return Kafka's message for an update that is not possible, None if it is."""
    name, level, kind = update.feature, update.level, update.upgrade_type
    reason = None
    if kind not in list(UpgradeType):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    else:
        before = current.get(name, 0)
        reason = _unsupported(name, level, releases, controller_id)
        if reason is None and level < before and kind == UpgradeType.UPGRADE:
            reason = (
                "Can't downgrade the version of this feature without setting the upgrade type to"
                " either safe or unsafe downgrade."
            )
        if reason is None and level > before and kind != UpgradeType.UPGRADE:
            reason = "Can't downgrade to a newer version."
        if reason is None and name == METADATA_VERSION:
            return _metadata_downgrade(before, level, kind)
    return (
        None if reason is None else f"Invalid update version {level} for feature {name}. {reason}"
    )


def _unsupported(
    name: str, level: int, releases: Mapping[int, Release], controller_id: int
) -> str | None:
    nodes = [(f"Local controller {controller_id}", releases[controller_id])]
    nodes += [(f"Broker {node}", release) for node, release in releases.items()]
    for node, release in nodes:
        feature = _find(name, supported(release))
        if feature is None:
            return (
                f"Feature {name} not found."
                if not level
                else f"{node} does not support this feature."
            )
        if not feature.low <= level <= feature.high:
            return f"{node} only supports versions {feature.low}-{feature.high}"
    return None


def _find(name: str, features: Iterable[Feature]) -> Feature | None:
    return next((each for each in features if each.name == name), None)


def _metadata_downgrade(before: int, level: int, kind: int) -> str | None:
    changed = any(low in INCOMPATIBLE_METADATA_VERSIONS for low in range(level + 1, before + 1))
    if not changed:
        return None
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if kind == UpgradeType.UNSAFE_DOWNGRADE
        else "Refusing to perform the requested downgrade because it might delete metadata"
        " information."
    )
    return f"Unsupported metadata.version downgrade from {before} to {level}. {reason}"
