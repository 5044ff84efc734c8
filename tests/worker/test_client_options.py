"""Wrong options of a worker: each error names where the option belongs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokafkawire.errors import InvalidOption
from aiokafkawire.worker import Worker


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"auto_offset_reset": "latest"},
            "'auto_offset_reset' is a consumer option, not one of a worker: pass"
            " consumer_options={'auto_offset_reset': …}",
        ),
        (
            {"linger_ms": 5},
            "'linger_ms' is a producer option, not one of a worker: pass"
            " producer_options={'linger_ms': …}",
        ),
        (
            {"group_type": "share", "share_renewal_limit_ms": 5},
            "'share_renewal_limit_ms' is a share consumer option, not one of a worker: pass"
            " consumer_options={'share_renewal_limit_ms': …}",
        ),
        ({"enable_auto_commit": False}, "a worker sets 'enable_auto_commit' itself"),
        ({"share_acquire_mode": "record_limit"}, "a worker sets 'share_acquire_mode' itself"),
        ({"value_deserializer": str}, "'value_deserializer' is no option of a worker: pass it to"),
        ({"retries": 3}, "'retries' is an argument of on(), not an option of a worker"),
        ({"topics": "t"}, "'topics' is no option of a worker: pass topics to on(), as @worker.on("),
        ({"offset_reset": "latest"}, "'auto_offset_reset' is a consumer option"),
        ({"consumer_options": {"linger": 5}}, "consumer_options: unknown option 'linger'; 'linger"),
        (
            {"consumer_options": {"acks": 1}},
            "consumer_options: 'acks' is a producer option, not one of a consumer",
        ),
        (
            {"group_type": "share", "consumer_options": {"acks": 1}},
            "consumer_options: 'acks' is a producer option, not one of a share consumer",
        ),
        (
            {"producer_options": {"lingr_ms": 5}},
            "producer_options: unknown option 'lingr_ms'; did you mean 'linger_ms'?",
        ),
        ({"producer_options": {"linger_ms": "5"}}, "producer_options: linger_ms must be a whole"),
        (
            {"group_type": "share", "consumer_options": {"max_poll_records": 5}},
            "consumer_options: a worker sets 'max_poll_records' itself",
        ),
        (
            {"consumer_options": ["a"]},
            "consumer_options must be a dict, not ['a']: write consumer_",
        ),
        (
            {"producer_options": 0},
            "producer_options must be a dict, not 0: write producer_options=",
        ),
    ],
)
def test_errors_name_where_an_option_belongs(options: dict[str, Any], text: str):
    with pytest.raises(InvalidOption, match=re.escape(text)):
        Worker(bootstrap_servers="localhost:1", group_id="billing", **options)


def test_options_of_a_worker_keep_their_names_in_errors():
    with pytest.raises(InvalidOption, match=r"^request_timeout_ms must be a whole number"):
        Worker(
            bootstrap_servers="localhost:1",
            group_id="billing",
            request_timeout_ms="5",  # type: ignore[arg-type]
        )
