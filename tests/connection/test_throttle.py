from __future__ import annotations

import pytest

from aiokafkawire.connection.throttle import throttle_time_s
from aiokafkawire.wire import APIS, ApiKey
from aiokafkawire.wire.messages.heartbeat import HeartbeatResponse
from aiokafkawire.wire.messages.metadata import MetadataResponse


@pytest.mark.parametrize(
    ("version", "asked_ms", "seconds"),
    [
        (1, 500, 0.0),
        (2, 500, 0.5),
        (4, 500, 0.5),
        (4, 0, 0.0),
        (4, -1, 0.0),
        (4, 2**31 - 1, 2147483.647),
    ],
)
def test_the_throttle_time_is_returned_in_seconds(version: int, asked_ms: int, seconds: float):
    response = HeartbeatResponse(error_code=0, throttle_time_ms=asked_ms)
    assert throttle_time_s(response, version) == seconds


def test_older_versions_report_a_delay_that_is_over():
    response = MetadataResponse(brokers=[], topics=[], throttle_time_ms=900)
    assert throttle_time_s(response, 5) == 0.0
    assert throttle_time_s(response, 6) == 0.9


def test_responses_without_the_field_do_not_throttle():
    class Bare:
        api_key = ApiKey.HEARTBEAT

    assert throttle_time_s(Bare(), 9) == 0.0  # type: ignore[arg-type]


def test_each_threshold_is_a_version_of_its_api():
    for api in APIS.values():
        response = api.response
        if "throttle_time_ms" not in getattr(response, "__dataclass_fields__", {}):
            continue
        made = response.__new__(response)
        made.throttle_time_ms = 1_000
        assert throttle_time_s(made, api.max_version) == 1.0
        # What came after the rule has it from its first version on.
        always = api.key > ApiKey.DELETE_GROUPS
        assert throttle_time_s(made, 0) == float(always)
