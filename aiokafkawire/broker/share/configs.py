"""Configs of share groups: those of the group, else those of the broker."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiokafkawire.broker.configs import ConfigResourceType, DynamicConfigs
from aiokafkawire.broker.share.share_partition import SharePartitionSettings

__all__ = ("ShareGroupConfigs", "duration_ms")

READ_COMMITTED = "read_committed"
_DURATION = re.compile(
    r"P(?:(?P<D>\d+)D)?(?:T(?:(?P<H>\d+)H)?(?:(?P<M>\d+)M)?(?:(?P<S>\d+(?:\.\d+)?)S)?)?"
)
_UNIT_MS = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1_000}


class ShareGroupConfigs:
    """Current configs of share groups."""

    def __init__(self, configs: DynamicConfigs) -> None:
        self._configs = configs

    def _of(self, group_id: str) -> Mapping[str, str]:
        return self._configs.of(ConfigResourceType.GROUP, group_id)

    def number(self, group_id: str, name: str, option: int) -> int:
        """Return a number of the group, that of the option by default."""
        return int(self._of(group_id).get(f"share.{name}", option))

    def lock_duration_ms(self, group_id: str) -> int:
        """Return the time after which an acquired record is released."""
        return self.number(
            group_id,
            "record.lock.duration.ms",
            self._configs.options.group_share_record_lock_duration_ms,
        )

    def of_partitions(self, group_id: str) -> SharePartitionSettings:
        """Return the configs that apply to share partitions of a group."""
        options = self._configs.options
        renews = self._of(group_id).get("share.renew.acknowledge.enable", "true")
        return SharePartitionSettings(
            lock_duration_s=self.lock_duration_ms(group_id) / 1000,
            delivery_count_limit=self.number(
                group_id, "delivery.count.limit", options.group_share_delivery_count_limit
            ),
            max_record_locks=self.number(
                group_id,
                "partition.max.record.locks",
                options.group_share_partition_max_record_locks,
            ),
            allows_renew=renews == "true",
        )

    def reads_committed(self, group_id: str) -> bool:
        """Return True if the group does not read records of aborted or open transactions."""
        return self._of(group_id).get("share.isolation.level") == READ_COMMITTED

    def offset_reset(self, group_id: str) -> str:
        """Return where the group starts: earliest, latest, or by_duration:DURATION."""
        return self._of(group_id).get("share.auto.offset.reset", "latest")

    def dead_letter_topic(self, group_id: str) -> str:
        """Return the dead-letter topic of a group (KIP-1191); empty for none."""
        return self._of(group_id).get("errors.deadletterqueue.topic.name", "")

    def copies_dead_letters(self, group_id: str) -> bool:
        """Return True if dead letters have the key and value of their record."""
        return self._of(group_id).get("errors.deadletterqueue.copy.record.enable") == "true"


def duration_ms(text: str) -> int:
    """Return a duration in the ISO format of Java, such as PT1H30M, in ms."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return 0
    found = match.groupdict()
    return int(sum(float(found[unit] or 0) * size for unit, size in _UNIT_MS.items()))
