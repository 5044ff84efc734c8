"""Options of the share consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aiokafkawire.config.client_config import ClientConfig, ClientOptions
from aiokafkawire.config.option_fields import (
    append_options,
    choice_option,
    number_option,
    switch_option,
    text_option,
)
from aiokafkawire.errors import InvalidOption

__all__ = ("ShareConsumerConfig", "ShareConsumerOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """Options of `ShareConsumer`; the defaults are the Java share consumer's."""

    group_id: str | None = text_option(
        None, meaning="Share group, whose members share the records of a partition. Required."
    )
    share_acknowledgement_mode: Literal["implicit", "explicit"] = choice_option(
        "implicit",
        "explicit",
        meaning="With `implicit`, a record is accepted when the task that received it calls again;"
        " with `explicit`, the application acknowledges each record.",
    )
    share_acquire_mode: Literal["batch_optimized", "record_limit"] = choice_option(
        "batch_optimized",
        "record_limit",
        meaning="With `batch_optimized`, brokers acquire whole batches, also ahead of the calls for"
        " records; with `record_limit`, at most `max_poll_records` at a time (KIP-1206).",
    )
    share_renewal_limit_ms: int = number_option(
        0,
        meaning="Renew the locks of delivered records until this time after their delivery"
        " (KIP-1222); 0 for no renewal.",
    )
    max_poll_interval_ms: int = number_option(
        300_000,
        1,
        meaning="Maximum time between two calls for records; after it, the member leaves the group"
        " until the next call.",
    )
    max_poll_records: int = number_option(
        500, 1, meaning="Maximum number of records that one `getmany` call or batch returns."
    )
    fetch_min_bytes: int = number_option(
        1, meaning="Size of data at which a broker responds to a fetch before `fetch_max_wait_ms`."
    )
    fetch_max_bytes: int = number_option(
        50 * 1024 * 1024, 1, meaning="Maximum size of one fetch response."
    )
    fetch_max_wait_ms: int = number_option(
        500,
        meaning="Maximum time that a broker waits for `fetch_min_bytes`. Acknowledgements to the"
        " same broker wait behind it.",
    )
    check_crcs: bool = switch_option(True, "Verify the CRC-32C of each batch.")

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of a response frame: `fetch_max_bytes` plus one batch of any size."""
        return self.max_response_bytes + self.fetch_max_bytes

    def _check_together(self) -> None:
        super(ShareConsumerConfig, self)._check_together()
        if self.group_id is None:
            raise InvalidOption("group_id is missing: a share consumer is a member of a group")


class ShareConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of `ShareConsumer`; see `ShareConsumerConfig`."""

    group_id: str | None
    share_acknowledgement_mode: Literal["implicit", "explicit"]
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    share_renewal_limit_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool


append_options(ShareConsumerOptions, ShareConsumerConfig)
