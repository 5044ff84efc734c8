"""Batch queries that read."""

from __future__ import annotations

from tests.spark.parity.case import (
    NO_ERROR,
    QUICK,
    by_partition,
    k,
    no_reading,
    reading,
)
from tests.spark.parity.topics import BASE_MS

TOPICS = (
    reading("one topic", subscribe="plain"),
    reading("two topics, with a space", subscribe="plain, other"),
    reading("the same topic twice", subscribe="other,other"),
    reading("a name with dots", subscribe="with.dots-and_1"),
    reading("an empty topic", subscribe="empty"),
    reading("a topic whose records are all deleted", subscribe="gone"),
    reading("a pattern", subscribePattern="plai.|oth.*"),
    reading("a pattern of a part of a name", subscribePattern="plai"),
    reading("a pattern of a whole name", subscribePattern="^plai$"),
    no_reading(
        "a pattern that Python does not know",
        "not a valid regular expression",
        NO_ERROR,
        subscribePattern="\\p{Lower}lain",
        differs="pattern",
    ),
    reading("a pattern that nothing matches", subscribePattern="nothing.*"),
    reading("a pattern in which a dot is any", subscribePattern="with.dots.*"),
    reading("assigned partitions", assign='{"plain":[1,0],"other":[0]}'),
    reading("an assigned partition twice", assign='{"plain":[1,1]}'),
    reading("names of options in other letters", SUBSCRIBE="other", startingoffsets="EARLIEST"),
    reading("options that change no row", subscribe="other", groupIdPrefix="p", topic="t"),
    reading("limits of streams", subscribe="other", maxOffsetsPerTrigger="1"),
    reading("a group", subscribe="other", **k(group_id="parity")),
    no_reading(
        "an unknown option",
        "unknown option 'subscirbe'",
        NO_ERROR,
        subscribe="other",
        subscirbe="plain",
        differs="unknown option",
    ),
    no_reading("no topic", "one of the options", "One of the following options"),
    no_reading(
        "two ways to say topics",
        "subscribe and assign are",
        "Only one of the following options",
        subscribe="plain",
        assign='{"plain":[0]}',
    ),
    no_reading("nothing subscribed to", "names nothing", "No topics to subscribe", subscribe=""),
    no_reading("commas alone", "names nothing", "No topics to subscribe", subscribe=" , "),
    no_reading("no pattern", "names nothing", "Pattern to subscribe", subscribePattern=""),
    no_reading(
        "a wrong pattern", "not a valid regular expression", "Unclosed", subscribePattern="a[b"
    ),
    no_reading("no JSON to assign", "not valid JSON", "No topicpartitions", assign="plain:0"),
    reading("nothing assigned", assign="{}"),
    no_reading("assigned text", "must be JSON", "Expected e.g.", assign='{"plain":"0"}'),
    no_reading(
        "an unknown topic", "nowhere", "UnknownTopicOrPartition", subscribe="nowhere", **QUICK
    ),
    no_reading(
        "an unknown partition",
        "has no partition 7",
        NO_ERROR,
        assign='{"plain":[7]}',
        differs="unknown partition",
        **QUICK,
    ),
    no_reading(
        "an illegal name of a topic", "no such", "InvalidTopic", subscribe="no such", **QUICK
    ),
)

OFFSETS = (
    reading(
        "from offsets", subscribe="plain", startingOffsets=by_partition("plain", p0=3, p1=0, p2=0)
    ),
    reading(
        "from offsets and earliest",
        subscribe="cut",
        startingOffsets=by_partition("cut", p0=-2, p1=1),
    ),
    reading(
        "up to offsets", subscribe="plain", endingOffsets=by_partition("plain", p0=3, p1=2, p2=0)
    ),
    reading(
        "up to offsets and latest",
        subscribe="plain",
        endingOffsets=by_partition("plain", p0=3, p1=-1, p2=-1),
    ),
    reading(
        "from and up to offsets",
        subscribe="plain",
        startingOffsets=by_partition("plain", p0=3, p1=2, p2=0),
        endingOffsets=by_partition("plain", p0=7, p1=2, p2=0),
    ),
    reading("up to latest", subscribe="plain", endingOffsets="latest"),
    reading(
        "offsets of the partitions assigned",
        assign='{"plain":[1]}',
        startingOffsets=by_partition("plain", p1=4),
    ),
    reading("what is left after records were deleted", subscribe="cut"),
    reading(
        "deleted records, with failOnDataLoss off",
        subscribe="cut",
        startingOffsets=by_partition("cut", p0=1, p1=0),
        failOnDataLoss="false",
    ),
    reading(
        "deleted records alone, with failOnDataLoss off",
        subscribe="cut",
        startingOffsets=by_partition("cut", p0=1, p1=0),
        endingOffsets=by_partition("cut", p0=3, p1=1),
        failOnDataLoss="false",
    ),
    reading(
        "beyond the end, with failOnDataLoss off",
        subscribe="other",
        endingOffsets=by_partition("other", p0=50),
        failOnDataLoss="false",
        **{"kafkaConsumer.pollTimeoutMs": "3000"},
    ),
    no_reading(
        "deleted records",
        "records may be lost",
        "may have been lost|lost some data|aged out",
        subscribe="cut",
        startingOffsets=by_partition("cut", p0=1, p1=0),
    ),
    no_reading(
        "beyond the end",
        "records may be lost",
        "may have been lost|lost some data|aged out",
        subscribe="other",
        endingOffsets=by_partition("other", p0=50),
        **{"kafkaConsumer.pollTimeoutMs": "3000"},
    ),
    no_reading(
        "all beyond the end",
        "records may be lost",
        ".",
        subscribe="other",
        startingOffsets=by_partition("other", p0=40),
        endingOffsets=by_partition("other", p0=50),
        **{"kafkaConsumer.pollTimeoutMs": "3000"},
    ),
    no_reading(
        "starting latest",
        "can't be latest",
        "starting offset can't be latest",
        subscribe="plain",
        startingOffsets="latest",
    ),
    no_reading(
        "starting latest in one partition",
        "can't be latest",
        "can't be latest",
        subscribe="other",
        startingOffsets=by_partition("other", p0=-1),
    ),
    no_reading(
        "ending earliest",
        "can't be earliest",
        "ending offset can't be earliest",
        subscribe="plain",
        endingOffsets="earliest",
    ),
    no_reading(
        "ending earliest in one partition",
        "can't be earliest",
        "can't be earliest",
        subscribe="other",
        endingOffsets=by_partition("other", p0=-2),
    ),
    no_reading(
        "a partition left out",
        "must name all",
        "startingOffsets|must contain all|TopicPartitions",
        subscribe="plain",
        startingOffsets=by_partition("plain", p0=1),
    ),
    no_reading(
        "a partition too many",
        "must name all",
        ".",
        subscribe="other",
        endingOffsets=by_partition("other", p0=1, p1=1),
    ),
    no_reading(
        "the offsets of another topic",
        "must name all",
        ".",
        subscribe="other",
        startingOffsets=by_partition("plain", p0=1),
    ),
    no_reading(
        "starting after ending",
        "after the ending",
        ".",
        subscribe="other",
        startingOffsets=by_partition("other", p0=4),
        endingOffsets=by_partition("other", p0=2),
    ),
    no_reading(
        "starting after ending, in 4 tasks",
        "after the ending",
        NO_ERROR,
        subscribe="other",
        startingOffsets=by_partition("other", p0=4),
        endingOffsets=by_partition("other", p0=2),
        minPartitions="4",
        differs="starting after ending",
    ),
    no_reading(
        "an offset below earliest",
        "is invalid; use 0 or more",
        ".",
        subscribe="other",
        startingOffsets=by_partition("other", p0=-3),
    ),
    no_reading(
        "offsets that are no JSON", "or JSON", ".", subscribe="other", startingOffsets="first"
    ),
    no_reading(
        "offsets that are text",
        "must be numbers",
        "Expected e.g.",
        subscribe="other",
        startingOffsets='{"other":{"0":"one"}}',
    ),
    no_reading(
        "a list of offsets",
        "must be numbers",
        "Expected e.g.",
        subscribe="other",
        startingOffsets='{"other":[1]}',
    ),
)

TASKS = (
    reading("tasks: as many as partitions", subscribe="large", minPartitions="1"),
    reading("tasks: at least 4", subscribe="large", minPartitions="4"),
    reading("tasks: at least 7", subscribe="large", minPartitions="7"),
    reading("tasks: at least 3, of small topics", subscribe="plain,other", minPartitions="3"),
    reading("tasks: at least 5, of small topics", subscribe="plain,other", minPartitions="5"),
    reading("tasks: at least 40", subscribe="plain,other", minPartitions="40"),
    reading(
        "tasks: at most 300 records",
        subscribe="large",
        maxRecordsPerPartition="300",
        differs="records per task",
    ),
    reading(
        "tasks: at most 150 records and at least 9",
        subscribe="large",
        maxRecordsPerPartition="150",
        minPartitions="9",
    ),
    reading(
        "tasks: at most 500 records and at least 9",
        subscribe="large",
        maxRecordsPerPartition="500",
        minPartitions="9",
    ),
    no_reading("0 tasks", "minPartitions must be", ".", subscribe="large", minPartitions="0"),
    no_reading("many tasks", "minPartitions must be", ".", subscribe="large", minPartitions="many"),
    no_reading(
        "no record for a task",
        "maxRecordsPerPartition must be",
        ".",
        subscribe="large",
        maxRecordsPerPartition="0",
    ),
)

RECORDS = (
    reading("headers", subscribe="headed", includeHeaders="true"),
    reading("headers of topics without any", subscribe="other", includeHeaders="TRUE"),
    reading("headers not asked for", subscribe="headed", includeHeaders="false"),
    reading("all codecs", subscribe="codecs"),
    reading("time of arrival", subscribe="arrived"),
    reading("a compacted topic", subscribe="compacted"),
    reading("tasks of a compacted topic", subscribe="compacted", minPartitions="4"),
    reading("transactions", subscribe="ended"),
    reading("transactions, committed", subscribe="ended", **k(isolation_level="read_committed")),
    reading(
        "transactions, uncommitted", subscribe="ended", **k(isolation_level="read_uncommitted")
    ),
    reading(
        "an aborted record alone",
        subscribe="ended",
        startingOffsets=by_partition("ended", p0=3),
        endingOffsets=by_partition("ended", p0=4),
        **k(isolation_level="read_committed"),
    ),
    reading(
        "the marker of a transaction alone",
        subscribe="ended",
        startingOffsets=by_partition("ended", p0=2),
        endingOffsets=by_partition("ended", p0=3),
    ),
    reading("an open transaction", subscribe="open"),
    reading(
        "an open transaction, committed", subscribe="open", **k(isolation_level="read_committed")
    ),
    reading("small fetches", subscribe="large", **k(max_partition_fetch_bytes="100")),
    no_reading(
        "another isolation level",
        "isolation",
        ".",
        subscribe="other",
        **k(isolation_level="serializable"),
    ),
)

PREDICATES = (
    reading("where: a partition", subscribe="plain", where="partition = 0 and offset > 4"),
    reading("where: not a partition", subscribe="plain", where="partition <> 0 and key = 'k1'"),
    reading(
        "where: a topic and two offsets",
        subscribe="plain,other",
        where="topic = 'other' and offset in (1, 3)",
    ),
    reading("where: another topic", subscribe="plain,other", where="topic = 'nowhere'"),
    reading(
        "where: offsets of a compacted topic",
        subscribe="compacted",
        where="offset between 5 and 20",
    ),
    reading(
        "where: a least time, of times in no order",
        subscribe="unordered",
        where=f"timestamp >= timestamp_millis({BASE_MS} + 7000)",
    ),
    reading(
        "where: a time up to which, of times in no order",
        subscribe="unordered",
        where=f"timestamp <= timestamp_millis({BASE_MS} + 3000)",
    ),
    reading(
        "where: between two times",
        subscribe="plain,unordered",
        where=f"timestamp > timestamp_millis({BASE_MS} + 2000)"
        f" and timestamp < timestamp_millis({BASE_MS} + 8000)",
    ),
    reading(
        "where: after all",
        subscribe="plain",
        where=f"timestamp > timestamp_millis({BASE_MS} + 100000)",
    ),
    reading(
        "where: one time of transactions, committed",
        subscribe="ended",
        where="timestamp > timestamp_millis(1) and offset < 6",
        **k(isolation_level="read_committed"),
    ),
    reading(
        "where: one of two", subscribe="plain", where="partition = 1 or offset = 2 or value = 'v7'"
    ),
    no_reading(
        "deleted records, and a least time",
        "records may be lost",
        "may have been lost|lost some data|aged out",
        subscribe="cut",
        startingOffsets=by_partition("cut", p0=1, p1=0),
        where=f"timestamp >= timestamp_millis({BASE_MS} + 6000)",
    ),
)

WRONG = (
    no_reading(
        "no address",
        "kafka.bootstrap.servers must be given",
        "kafka.bootstrap.servers",
        subscribe="other",
        **{"kafka.bootstrap.servers": None},
    ),
    no_reading(
        "failOnDataLoss maybe",
        "must be true or false",
        ".",
        subscribe="other",
        failOnDataLoss="maybe",
    ),
    no_reading(
        "includeHeaders maybe",
        "must be true or false",
        ".",
        subscribe="other",
        includeHeaders="maybe",
    ),
    *(
        no_reading(
            name,
            f"kafka.{name} is not supported",
            "not supported",
            subscribe="other",
            **{f"kafka.{name}": value},
        )
        for name, value in {
            "auto.offset.reset": "earliest",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "enable.auto.commit": "true",
            "interceptor.classes": "a.B",
        }.items()
    ),
    no_reading(
        "fetch.max.bytes of text",
        "fetch.max.bytes",
        ".",
        subscribe="other",
        **k(fetch_max_bytes="x"),
    ),
    no_reading(
        "fetchOffset.numRetries of text",
        "fetchOffset.numRetries",
        ".",
        subscribe="other",
        **{"fetchOffset.numRetries": "x"},
    ),
)
