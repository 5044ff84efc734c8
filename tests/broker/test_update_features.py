"""UpdateFeatures, and the finalized features in ApiVersions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiokafkawire.broker import Acl, Broker
from aiokafkawire.broker.feature_levels import FAILED
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .raw_client import connected

E = ErrorCode
UPGRADE, SAFE, UNSAFE = 1, 2, 3
SHARE = "share.version"


async def update(
    broker: Broker,
    *updates: tuple[str, int, int],
    version: int = 2,
    validate_only: bool = False,
    allow_downgrade: bool = False,
) -> Any:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                upgrade_type=kind,
                allow_downgrade=allow_downgrade,
            )
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    async with connected(broker) as client:
        return await client.call(request, version)


async def levels(broker: Broker) -> tuple[int, dict[str, int]]:
    """Return the epoch and the levels of the finalized features."""
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    async with connected(broker) as client:
        response = await client.call(request, 4)
    return response.finalized_features_epoch, {
        each.name: each.max_version_level for each in response.finalized_features
    }


@pytest.mark.parametrize(
    ("name", "level", "kind", "text"),
    [
        (
            "nope",
            1,
            UPGRADE,
            "Invalid update version 1 for feature nope. Local controller 1 does not support this"
            " feature.",
        ),
        (
            "nope",
            0,
            UPGRADE,
            "Invalid update version 0 for feature nope. Feature nope not found.",
        ),
        (
            SHARE,
            9,
            UPGRADE,
            "Invalid update version 9 for feature share.version. Local controller 1 only supports"
            " versions 0-1",
        ),
        (
            SHARE,
            -1,
            UPGRADE,
            "Invalid update version -1 for feature share.version. A feature version cannot be"
            " less than 0.",
        ),
        (
            SHARE,
            0,
            7,
            "Invalid update version 0 for feature share.version. The controller does not support"
            " the given upgrade type.",
        ),
        (
            "transaction.version",
            1,
            UPGRADE,
            "Invalid update version 1 for feature transaction.version. Can't downgrade the version"
            " of this feature without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            "metadata.version",
            29,
            SAFE,
            "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the"
            " requested downgrade because it might delete metadata information.",
        ),
        (
            "metadata.version",
            7,
            UNSAFE,
            "Unsupported metadata.version downgrade from 30 to 7. Unsafe metadata downgrade is not"
            " supported in this version.",
        ),
        (
            "metadata.version",
            1,
            SAFE,
            "Invalid update version 1 for feature metadata.version. Local controller 1 only"
            " supports versions 7-30",
        ),
    ],
)
async def test_errors_and_texts_of_kafka_4_3(name: str, level: int, kind: int, text: str) -> None:
    async with Broker(as_of="4.3") as broker:
        before = await levels(broker)
        response = await update(broker, (SHARE, 0, SAFE), (name, level, kind))
        assert (response.error_code, response.error_message) == (
            E.INVALID_UPDATE_VERSION,
            FAILED + text,
        )
        assert await levels(broker) == before


async def test_levels_change_and_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(as_of="4.3", data_dir=tmp_path) as broker:
        epoch, before = await levels(broker)
        assert before[SHARE] == 1
        tried = await update(broker, (SHARE, 0, SAFE), validate_only=True)
        assert tried.error_code == E.NONE
        assert await levels(broker) == (epoch, before)
        done = await update(broker, (SHARE, 0, SAFE), version=1)
        assert [(each.feature, each.error_code, each.error_message) for each in done.results] == [
            (SHARE, E.NONE, "NONE")
        ]
        without = {name: level for name, level in before.items() if name != SHARE}
        assert await levels(broker) == (epoch + 1, without)
    async with Broker(as_of="4.3", data_dir=tmp_path) as broker:
        assert await levels(broker) == (epoch + 1, without)
        refused = await update(broker, (SHARE, 1, SAFE))
        assert refused.error_message == (
            f"{FAILED}Invalid update version 1 for feature share.version. Can't downgrade to a"
            " newer version."
        )
        assert (await update(broker, (SHARE, 1, UPGRADE))).error_code == E.NONE
        assert await levels(broker) == (epoch + 2, before)


async def test_version_0_has_a_flag_for_downgrades() -> None:
    async with Broker(as_of="4.3") as broker:
        refused = await update(broker, ("transaction.version", 1, UPGRADE), version=0)
        assert refused.error_code == E.INVALID_UPDATE_VERSION
        done = await update(
            broker, ("transaction.version", 1, UPGRADE), version=0, allow_downgrade=True
        )
        assert done.error_code == E.NONE
        assert broker._running.transaction_version == 1


async def test_a_compatible_metadata_version_can_be_left() -> None:
    async with Broker(as_of="4.2") as broker:
        response = await update(broker, ("metadata.version", 27, SAFE))
        assert response.error_code == E.NONE
        assert (await levels(broker))[1]["metadata.version"] == 27


async def test_every_node_must_support_the_level() -> None:
    async with Broker(nodes=2, as_of="4.3") as broker:
        await broker.restart(2, as_of="4.1")
        response = await update(broker, ("streams.version", 1, UPGRADE))
        assert response.error_message == (
            f"{FAILED}Invalid update version 1 for feature streams.version. Broker 2 does not"
            " support this feature."
        )


async def test_eligible_leader_replicas_can_be_switched_off() -> None:
    async with Broker(nodes=2, replicate=True, as_of="4.3") as broker:
        cluster: Any = broker._running.cluster
        assert cluster._uses_elr
        await update(broker, ("eligible.leader.replicas.version", 0, SAFE))
        assert not cluster._uses_elr


async def test_alter_on_the_cluster_is_needed() -> None:
    async with Broker(acls=[Acl("User:x", "All", cluster=True)]) as broker:
        response = await update(broker, (SHARE, 0, SAFE))
        assert response.error_code == E.CLUSTER_AUTHORIZATION_FAILED
