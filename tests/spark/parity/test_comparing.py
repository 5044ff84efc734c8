from __future__ import annotations

from typing import Any

import pytest

from tests.spark.parity.comparing import disagreement

STREAM: dict[str, Any] = {"batches": [{"rows": [1]}], "begin": None}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"rows": [1]}, {"rows": [1]}),
        ({"error": "a"}, {"error": "b"}),
        (STREAM | {"ends": ['{"t": {"0": 1}}']}, STREAM | {"ends": ['{"t":{"0":1}}']}),
        (
            STREAM | {"ends": ['{"#initial": {"t": {"0": 0}}, "t": {"0": 1}}']},
            STREAM | {"ends": ['{"t":{"0":1}}'], "begin": '{"t":{"0":0}}'},
        ),
        # Began at offsets that the options say.
        (
            STREAM | {"ends": ['{"t": {"0": 1}}']},
            STREAM | {"ends": ['{"t":{"0":1}}'], "begin": '{"t":{"0":0}}'},
        ),
    ],
)
def test_what_counts_as_equal(ours, theirs):
    assert disagreement(ours, theirs) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "what"),
    [
        ({"rows": [1]}, {"rows": [2]}, "rows"),
        ({"rows": [1]}, {"rows": [1], "schema": []}, "schema"),
        ({"error": "a"}, {"rows": []}, "one of them fails"),
        ({}, {"error": "a"}, "one of them fails"),
        ({"error": "a", "written": [1]}, {"error": "a", "written": []}, "written"),
        (STREAM | {"ends": ['{"t":{"0":1}}']}, STREAM | {"ends": ['{"t":{"0":2}}']}, "ends"),
        (STREAM | {"ends": ['{"t":{"0":1}}']}, STREAM | {"ends": []}, "ends"),
        (
            STREAM | {"ends": ['{"#initial": {"t": {"0": 1}}, "t": {"0": 1}}']},
            STREAM | {"ends": ['{"t":{"0":1}}'], "begin": '{"t":{"0":0}}'},
            "begin",
        ),
    ],
)
def test_what_counts_as_different(ours, theirs, what):
    assert disagreement(ours, theirs).startswith(what)
