"""Batch queries between two times."""

from __future__ import annotations

from tests.spark.parity.case import (
    by_partition,
    no_reading,
    reading,
)
from tests.spark.parity.topics import BASE_MS

TIMES = (
    reading("from a time", assign='{"plain":[0,1]}', startingTimestamp=f"{BASE_MS + 2_000}"),
    reading(
        "between two times",
        subscribe="plain",
        startingTimestamp=f"{BASE_MS + 1_500}",
        endingTimestamp=f"{BASE_MS + 4_000}",
        startingOffsetsByTimestampStrategy="latest",
    ),
    reading("up to a time", subscribe="plain", endingTimestamp=f"{BASE_MS + 2_001}"),
    reading("up to a time after all", subscribe="other", endingTimestamp="99999999999999"),
    reading("from time 0", subscribe="other", startingTimestamp="0"),
    reading(
        "from a time by partition",
        assign='{"plain":[0,1]}',
        startingOffsetsByTimestamp=by_partition("plain", p0=BASE_MS + 5_000, p1=BASE_MS + 1),
    ),
    reading(
        "up to a time by partition",
        subscribe="plain",
        endingOffsetsByTimestamp=by_partition("plain", p0=BASE_MS + 5_000, p1=BASE_MS + 1, p2=0),
    ),
    reading(
        "from a time after all, with the strategy latest",
        subscribe="other",
        startingTimestamp="99999999999999",
        startingOffsetsByTimestampStrategy="LATEST",
    ),
    reading(
        "from a time after all of one partition, with the strategy latest",
        assign='{"plain":[0,1]}',
        startingTimestamp=f"{BASE_MS + 7_000}",
        startingOffsetsByTimestampStrategy="latest",
    ),
    reading(
        "times that are not in order",
        subscribe="unordered",
        startingTimestamp=f"{BASE_MS + 6_000}",
        endingTimestamp=f"{BASE_MS + 9_500}",
    ),
    reading(
        "a time for all goes before offsets",
        subscribe="other",
        startingTimestamp=f"{BASE_MS + 102_000}",
        startingOffsets=by_partition("other", p0=4),
    ),
    reading(
        "a time by partition goes before offsets",
        subscribe="other",
        startingOffsetsByTimestamp=by_partition("other", p0=BASE_MS + 103_000),
        startingOffsets="earliest",
    ),
    reading(
        "a time for all goes before one by partition",
        subscribe="other",
        startingTimestamp=f"{BASE_MS + 101_000}",
        startingOffsetsByTimestamp=by_partition("other", p0=BASE_MS + 103_000),
    ),
    no_reading(
        "from a time after all",
        "matches the timestamp",
        "No offset matched",
        subscribe="other",
        startingTimestamp="99999999999999",
    ),
    no_reading(
        "from a time after all, with the strategy error",
        "matches the timestamp",
        "No offset matched",
        subscribe="plain",
        startingTimestamp=f"{BASE_MS}",
        startingOffsetsByTimestampStrategy="error",
    ),
    no_reading(
        "a time by partition with one left out",
        "must name all",
        ".",
        subscribe="plain",
        startingOffsetsByTimestamp=by_partition("plain", p0=BASE_MS),
    ),
    no_reading(
        "a time that is no number", "whole number", ".", subscribe="other", startingTimestamp="now"
    ),
    no_reading("a negative time", "whole number", ".", subscribe="other", startingTimestamp="-5"),
    no_reading(
        "a negative time by partition",
        "negative",
        ".",
        subscribe="other",
        startingOffsetsByTimestamp=by_partition("other", p0=-5),
    ),
    no_reading(
        "another strategy",
        "must be 'error' or 'latest'",
        ".",
        subscribe="other",
        startingTimestamp="0",
        startingOffsetsByTimestampStrategy="earliest",
    ),
)
