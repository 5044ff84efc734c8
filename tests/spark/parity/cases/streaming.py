"""Streams that read."""

from __future__ import annotations

from tests.spark.parity.case import (
    NO_ERROR,
    QUICK,
    Fails,
    by_partition,
    change,
    k,
    no_streaming,
    stream,
    streaming,
)
from tests.spark.parity.topics import BASE_MS, timed

EARLIEST = {"startingOffsets": "earliest"}

STREAMS = (
    streaming("from earliest", stream(subscribe="plain", **EARLIEST)),
    streaming("two topics", stream(subscribe="plain,other", **EARLIEST)),
    streaming("a pattern", stream(subscribePattern="plai.*", **EARLIEST)),
    streaming("assigned", stream(assign='{"plain":[1]}', **EARLIEST)),
    streaming("headers", stream(subscribe="headed", includeHeaders="true", **EARLIEST)),
    streaming("an empty topic", stream(subscribe="empty", **EARLIEST)),
    streaming(
        "from offsets",
        stream(subscribe="plain", startingOffsets=by_partition("plain", p0=3, p1=0, p2=0)),
    ),
    streaming(
        "from offsets, earliest and latest",
        stream(subscribe="plain", startingOffsets=by_partition("plain", p0=3, p1=-2, p2=-1)),
    ),
    streaming(
        "from a time", stream(assign='{"plain":[0,1]}', startingTimestamp=f"{BASE_MS + 2_000}")
    ),
    streaming(
        "from a time by partition, one after all",
        stream(
            assign='{"plain":[0,1]}',
            startingOffsetsByTimestamp=by_partition("plain", p0=BASE_MS + 9_500, p1=BASE_MS),
            startingOffsetsByTimestampStrategy="latest",
        ),
    ),
    streaming(
        "at most 500 in a batch", stream(subscribe="large", maxOffsetsPerTrigger="500", **EARLIEST)
    ),
    streaming(
        "at most 7 in a batch of 3 partitions",
        stream(subscribe="plain", maxOffsetsPerTrigger="7", **EARLIEST),
    ),
    streaming(
        "at most 2 in a batch of 3 partitions",
        stream(subscribe="plain", maxOffsetsPerTrigger="2", **EARLIEST),
    ),
    streaming(
        "at most 500 in a batch, of at least 4 tasks",
        stream(subscribe="large", maxOffsetsPerTrigger="500", minPartitions="4", **EARLIEST),
    ),
    streaming(
        "at least 100 in a batch", stream(subscribe="plain", minOffsetsPerTrigger="100", **EARLIEST)
    ),
    streaming(
        "at least 5 and at most 8 in a batch",
        stream(subscribe="plain", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="8", **EARLIEST),
    ),
    streaming("once", stream(subscribe="plain", trigger={"once": True}, **EARLIEST)),
    streaming(
        "once, without regard to limits",
        stream(subscribe="plain", trigger={"once": True}, maxOffsetsPerTrigger="3", **EARLIEST),
    ),
    streaming(
        "all that there is",
        stream(
            subscribe="plain",
            trigger={"processingTime": "0 seconds"},
            maxOffsetsPerTrigger="6",
            **EARLIEST,
        ),
    ),
    streaming(
        "at most 300 records for a task",
        stream(subscribe="large", maxRecordsPerPartition="300", **EARLIEST),
    ),
    streaming(
        "a compacted topic", stream(subscribe="compacted", maxOffsetsPerTrigger="9", **EARLIEST)
    ),
    streaming(
        "transactions, committed",
        stream(subscribe="ended", **EARLIEST, **k(isolation_level="read_committed")),
    ),
    streaming("what is left after records were deleted", stream(subscribe="cut", **EARLIEST)),
    streaming(
        "goes on where it was",
        change("make", "on", 2),
        change("append", "on", {"0": timed(3)}),
        stream(subscribe="on", **EARLIEST),
        change("append", "on", {"0": timed(2), "1": timed(2)}),
        stream(subscribe="on", **EARLIEST),
        stream(subscribe="on", **EARLIEST),
    ),
    streaming(
        "from the latest on",
        change("make", "late", 2),
        change("append", "late", {"0": timed(3)}),
        stream(subscribe="late"),
        change("append", "late", {"0": timed(2), "1": timed(2)}),
        stream(subscribe="late"),
    ),
    streaming(
        "the checkpoint goes before the options",
        change("make", "fixed", 1),
        change("append", "fixed", {"0": timed(3)}),
        stream(subscribe="fixed", **EARLIEST),
        change("append", "fixed", {"0": timed(2)}),
        stream(subscribe="fixed", startingOffsets=by_partition("fixed", p0=1)),
    ),
    streaming(
        "a new partition",
        change("make", "wider", 1),
        change("append", "wider", {"0": timed(3)}),
        stream(subscribe="wider", **EARLIEST),
        change("add_partitions", "wider", 3),
        change("append", "wider", {"0": timed(1), "2": timed(2)}),
        stream(subscribe="wider", startingOffsets="latest"),
    ),
    streaming(
        "a new topic of a pattern",
        change("make", "family-1", 1),
        change("append", "family-1", {"0": timed(3)}),
        stream(subscribePattern="family-.*", **EARLIEST),
        change("make", "family-2", 1),
        change("append", "family-2", {"0": timed(2)}),
        stream(subscribePattern="family-.*", **EARLIEST),
    ),
    streaming(
        "a topic less, with failOnDataLoss off",
        change("make", "fewer", 1),
        change("append", "fewer", {"0": timed(3)}),
        stream(subscribe="fewer,other", **EARLIEST),
        change("append", "fewer", {"0": timed(2)}),
        stream(subscribe="fewer", failOnDataLoss="false", **EARLIEST),
    ),
    streaming(
        "a topic less",
        change("make", "less", 1),
        change("append", "less", {"0": timed(3)}),
        stream(subscribe="less,other", **EARLIEST),
        change("append", "less", {"0": timed(2)}),
        stream(
            subscribe="less",
            fails=Fails(ours="records may be lost", theirs="have been deleted"),
            **EARLIEST,
        ),
    ),
    streaming(
        "deleted records",
        change("make", "lossy", 1),
        change("append", "lossy", {"0": timed(3)}),
        stream(subscribe="lossy", **EARLIEST),
        change("append", "lossy", {"0": timed(5)}),
        change("delete_before", "lossy", 0, 5),
        stream(
            subscribe="lossy",
            fails=Fails(ours="records may be lost", theirs="may have been lost|aged out|missed"),
            **EARLIEST,
        ),
    ),
    streaming(
        "deleted records, with failOnDataLoss off",
        change("make", "lossless", 1),
        change("append", "lossless", {"0": timed(3)}),
        stream(subscribe="lossless", **EARLIEST),
        change("append", "lossless", {"0": timed(5)}),
        change("delete_before", "lossless", 0, 5),
        stream(subscribe="lossless", failOnDataLoss="false", **EARLIEST),
    ),
    streaming(
        "a topic that was made again, with fewer records",
        change("make", "remade", 1),
        change("append", "remade", {"0": timed(8)}),
        stream(subscribe="remade", **EARLIEST),
        change("remake", "remade", 1),
        change("append", "remade", {"0": timed(5)}),
        stream(
            subscribe="remade",
            fails=Fails(ours="records may be lost", theirs="may have been lost|missed"),
            **EARLIEST,
        ),
    ),
    streaming(
        "a topic that was made again, with fewer records, failOnDataLoss off",
        change("make", "remade-on", 1),
        change("append", "remade-on", {"0": timed(8)}),
        stream(subscribe="remade-on", failOnDataLoss="false", **EARLIEST),
        change("remake", "remade-on", 1),
        change("append", "remade-on", {"0": timed(5)}),
        stream(subscribe="remade-on", failOnDataLoss="false", **EARLIEST),
        change("append", "remade-on", {"0": timed(2)}),
        stream(subscribe="remade-on", failOnDataLoss="false", **EARLIEST),
    ),
    streaming(
        "a topic that was made again, with more records",
        change("make", "regrown", 1),
        change("append", "regrown", {"0": timed(3)}),
        stream(subscribe="regrown", **EARLIEST),
        change("remake", "regrown", 1),
        change("append", "regrown", {"0": timed(5)}),
        stream(subscribe="regrown", **EARLIEST),
    ),
    streaming(
        "a transaction that ends later",
        change("make", "ending", 1),
        change("append", "ending", {"0": ["1"]}),
        change("open_transaction", "ending", ["2", "3"]),
        change("append", "ending", {"0": ["4"]}),
        stream(subscribe="ending", **EARLIEST, **k(isolation_level="read_committed")),
        change("end_transaction", "ending"),
        stream(subscribe="ending", **EARLIEST, **k(isolation_level="read_committed")),
    ),
    no_streaming(
        "endings",
        "endingOffsets is not valid",
        "ending offset not valid in streaming",
        subscribe="other",
        endingOffsets="latest",
    ),
    no_streaming(
        "ending times by partition",
        "endingOffsetsByTimestamp is not valid",
        "ending timestamp not valid in streaming",
        subscribe="other",
        endingOffsetsByTimestamp=by_partition("other", p0=5),
    ),
    no_streaming(
        "an ending time",
        "endingTimestamp is not valid",
        NO_ERROR,
        subscribe="other",
        endingTimestamp="5",
        differs="ending time of a stream",
    ),
    no_streaming(
        "at least more than at most",
        "minOffsetsPerTrigger",
        "minOffset",
        subscribe="other",
        minOffsetsPerTrigger="9",
        maxOffsetsPerTrigger="8",
    ),
    no_streaming(
        "offsets of another topic",
        "must name all",
        ".",
        subscribe="other",
        startingOffsets=by_partition("plain", p0=1),
    ),
    no_streaming(
        "an unknown topic", "nowhere", "UnknownTopicOrPartition", subscribe="nowhere", **QUICK
    ),
    no_streaming(
        "from a time after all",
        "matches the timestamp",
        "No offset matched",
        subscribe="other",
        startingTimestamp="99999999999999",
    ),
    no_streaming(
        "a delay that is no time",
        "maxTriggerDelay",
        ".",
        subscribe="other",
        minOffsetsPerTrigger="9",
        maxTriggerDelay="soon",
    ),
    no_streaming(
        "at most what is no number",
        "maxOffsetsPerTrigger",
        ".",
        subscribe="other",
        maxOffsetsPerTrigger="all",
    ),
)
