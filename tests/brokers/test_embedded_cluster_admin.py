"""The recorded responses about the cluster are still those of real brokers."""

from __future__ import annotations

from tests.broker.cluster_admin_cases import recorded_responses
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.record_cluster_admin import real_responses


def test_the_recording_is_current() -> None:
    with what_real_kafka_needs():
        assert real_responses() == recorded_responses()
