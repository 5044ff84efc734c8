from __future__ import annotations

import pytest

from aiokafkawire.errors import RequestTimedOut, UnknownTopic
from aiokafkawire.spark.option_names import reword, reword_errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("after max_block_ms", "after kafka.max.block.ms"),
        ("batch_size_bytes must be", "kafka.batch.size must be"),
        ("acks must be 'all'", "kafka.acks must be 'all'"),
        ("the broker acks must be late", "the broker acks must be late"),
        ("compression_level of gzip", "compression_level of gzip"),
        ("my_max_block_ms_topic", "my_max_block_ms_topic"),
        ("kafka.max.block.ms", "kafka.max.block.ms"),
    ],
)
def test_errors_name_the_options_of_the_data_source(text, expected):
    assert reword(text) == expected
    assert reword(reword(text)) == expected


def test_the_context_of_an_error_stays():
    with pytest.raises(RequestTimedOut) as caught, reword_errors():
        raise RequestTimedOut("late (request_timeout_ms)", topic="max_block_ms", partition=1)
    assert str(caught.value) == (
        "late (kafka.request.timeout.ms) (topic max_block_ms, partition 1)"
    )


def test_other_unknown_topics_and_other_errors_pass():
    with pytest.raises(UnknownTopic, match="'t' has no partition 9"), reword_errors():
        raise UnknownTopic("topic 't' has no partition 9", topic="t", partition=9)
    with pytest.raises(ValueError, match=r"^max_block_ms$"), reword_errors():
        raise ValueError("max_block_ms")
