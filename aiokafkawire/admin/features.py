"""Operations on the features of the cluster (KIP-584)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aiokafkawire._version import __version__
from aiokafkawire.admin.items import ItemRequest, ItemResult, finish_items
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.response_values import unless_negative
from aiokafkawire.admin.types.features import (
    FeatureMetadata,
    FeatureUpdate,
    FeatureUpgradeType,
    FinalizedVersionRange,
    SupportedVersionRange,
)
from aiokafkawire.cluster import ToNode
from aiokafkawire.connection.connector import CLIENT_SOFTWARE_NAME
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ("FeatureOperations",)

FIRST_WITH_FEATURES = 3
"""ApiVersions version with the features."""

FIRST_WITH_UPGRADE_TYPE = 1


class FeatureOperations(Operations):
    """Operations on features."""

    async def describe_features(
        self, *, node_id: NodeId | None = None, timeout_ms: int | None = None
    ) -> FeatureMetadata:
        """Describe the finalized features of the cluster, and those that a broker supports.

        Args:
            node_id: The broker to ask; defaults to any.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            Finalized levels of the cluster, and versions that the broker supports.

        Raises:
            UnsupportedVersion: Brokers before 2.4 do not report features.
            KafkaError: The broker could not answer.
        """
        response = await self._requester(timeout_ms).request(
            ApiVersionsRequest(
                client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__
            ),
            to=None if node_id is None else ToNode(node_id),
            min_version=FIRST_WITH_FEATURES,
        )
        return FeatureMetadata(
            {
                feature.name: FinalizedVersionRange(
                    feature.min_version_level, feature.max_version_level
                )
                for feature in response.finalized_features
            },
            unless_negative(response.finalized_features_epoch),
            {
                feature.name: SupportedVersionRange(feature.min_version, feature.max_version)
                for feature in response.supported_features
            },
        )

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Change the finalized levels of features.

        From Kafka 4.0 on, all features are changed or none. Then each feature has the same error.

        ::

            await admin.update_features({"metadata.version": 27})

        Args:
            updates: New level, or `FeatureUpdate`, by feature.
            validate_only: Only check the request (Kafka 3.3+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each feature that was changed.

        Raises:
            PartialFailure: Some features were not changed, such as to a level that not all brokers
                support (INVALID_UPDATE_VERSION).
            UnsupportedVersion: Brokers before 2.7 have no features.
            KafkaError: The controller could not be reached.
        """
        wanted = {
            name: FeatureUpdate(update) if isinstance(update, int) else update
            for name, update in updates.items()
        }

        def build(names: Sequence[str], version: int, timeout_ms: int) -> UpdateFeaturesRequest:
            return UpdateFeaturesRequest(
                timeout_ms=timeout_ms,
                feature_updates=[_update_key(name, wanted[name], version) for name in names],
                validate_only=validate_only,
            )

        def read(response: UpdateFeaturesResponse) -> Iterable[ItemResult]:
            if not response.results:
                # From v2 on, the response has one error for all.
                for name in wanted:
                    yield ItemResult(name)
            for result in response.results:
                yield ItemResult(result.feature, None, result.error_code, result.error_message)

        request: ItemRequest[str, None] = ItemRequest(
            api_key=ApiKey.UPDATE_FEATURES,
            build=build,
            read=read,
            min_version=FIRST_WITH_UPGRADE_TYPE if validate_only else 0,
        )
        results = await self._requester(timeout_ms).request_items(request, wanted)
        return finish_items(results, "features", return_errors=return_errors)


def _update_key(name: str, update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    level = update.max_version_level
    if version < FIRST_WITH_UPGRADE_TYPE:
        allow_downgrade = update.upgrade_type is not FeatureUpgradeType.UPGRADE
        return FeatureUpdateKey(
            feature=name, max_version_level=level, allow_downgrade=allow_downgrade
        )
    return FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=update.upgrade_type)
