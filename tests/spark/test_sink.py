"""Handling of the messages of tasks by the writers."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from aiokafkawire.errors import KafkaError
from aiokafkawire.spark.exactly_once import EmptyTask
from aiokafkawire.spark.options import WriteOptions
from aiokafkawire.spark.sink import KafkaBatchWriter, KafkaStreamWriter, TaskCommitMessage

SCHEMA = StructType([StructField("value", StringType())])
NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


def test_a_batch_with_a_missing_task_result_is_not_committed():
    once = {**NOWHERE, "exactlyOnce": "true"}
    stream = KafkaStreamWriter(WriteOptions.parse(once, streaming=True), SCHEMA)
    batch = KafkaBatchWriter(
        WriteOptions.parse({**once, "txnAppId": "a", "txnVersion": "1"}, streaming=False), SCHEMA
    )
    with pytest.raises(KafkaError, match="passed the results of 1 of 2 tasks"):
        stream.commit([TaskCommitMessage(EmptyTask(0)), None], 3)
    with pytest.raises(KafkaError, match="passed the results of 0 of 1 tasks"):
        batch.commit([None])
    # Failed tasks have no message; the others are aborted.
    stream.abort([None, TaskCommitMessage(EmptyTask(1))], 3)


def test_at_least_once_is_done_when_its_tasks_are():
    writer = KafkaStreamWriter(WriteOptions.parse(NOWHERE, streaming=True), SCHEMA)
    writer.commit([None], 3)
    writer.abort([None], 3)
